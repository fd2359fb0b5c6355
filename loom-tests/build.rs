//! Writes the broken twins: copies of the shipped `src/protocol`, each with one textual weakening
//! from the table in `twins.rs`. A twin is the shipped code but for that one edit, so it cannot
//! drift away from it; an edit whose pattern is no longer there stops the build.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "twins.rs"]
mod twins;

use twins::{TWINS, Twin};

const FILES: [&str; 6] =
    ["mod.rs", "claim.rs", "counter.rs", "gauge.rs", "ledger.rs", "snapshot.rs"];

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let shipped = here.join("../src/protocol");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=twins.rs");
    for file in FILES {
        println!("cargo::rerun-if-changed={}", shipped.join(file).display());
    }

    let mut modules = String::new();
    for twin in TWINS {
        let folder = out.join("twins").join(twin.name);
        fs::create_dir_all(&folder).expect("OUT_DIR is writable");
        for file in FILES {
            let mut source = read(&shipped.join(file));
            if file == twin.file {
                source = weaken(&source, twin);
            }
            fs::write(folder.join(file), source).expect("OUT_DIR is writable");
        }
        // The path is absolute: a `#[path]` inside an included file is relative to that file's
        // modules, which is harder to get right.
        writeln!(
            modules,
            "pub(crate) mod {name} {{\n    #[path = {path:?}]\n    mod protocol;\n    \
             crate::protocol_impl!();\n}}",
            name = twin.name,
            path = folder.join("mod.rs"),
        )
        .expect("a String takes all that is written to it");
    }
    fs::write(out.join("twins.rs"), modules).expect("OUT_DIR is writable");
}

/// Applies the twin's edit. Its pattern must stand exactly once in the function it names.
fn weaken(source: &str, twin: &Twin) -> String {
    let head = format!("fn {}(", twin.function);
    let starts: Vec<usize> = source.match_indices(&head).map(|(at, _)| at).collect();
    let [start] = starts[..] else {
        panic!("twin {}: `{head}` stands {} times in {}", twin.name, starts.len(), twin.file);
    };
    // Free functions only: the body ends at the first brace that is not indented.
    let length = source[start..]
        .find("\n}\n")
        .unwrap_or_else(|| panic!("twin {}: `{head}` has no end in {}", twin.name, twin.file));
    let (before, rest) = source.split_at(start);
    let (function, after) = rest.split_at(length);
    let found = function.matches(twin.from).count();
    assert!(
        found == 1,
        "twin {}: its pattern must stand once in fn {} of {}, but stands {found} times:\n{}",
        twin.name,
        twin.function,
        twin.file,
        twin.from,
    );
    format!("{before}{}{after}", function.replacen(twin.from, twin.to, 1))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
