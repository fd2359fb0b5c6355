//! `shmstats gc`

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::geteuid;
use shmstats::{Error, Region};

use crate::fail::Failure;
use crate::find::{self, Found, SUFFIX};
use crate::text::printable;

/// Removes regions that nobody is attached to.
///
/// Only files that belong to the user who asks, that are regions of a version this command knows,
/// and whose attach lease nobody holds: what the kernel says, and no pid in the file. The newest
/// dead region of each name is kept for a look at what happened. The name is that of the file
/// without .shmstats and without a number of its process: of llm-4711.shmstats and
/// llm-4712.shmstats, both dead, the newer one is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder; SHMSTATS_DIR, else /dev/shm, if left out
    dir: Option<PathBuf>,
    /// Remove the newest dead region of each name, too
    #[arg(long)]
    all: bool,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// How long a file may be in the making: its creator takes the attach lease in the end.
const MAKING: Duration = Duration::from_secs(60);

/// What becomes of a file.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Remove,
    Keep(&'static str),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let folder = find::folder(args.dir.as_deref());
    let found = find::with_temporaries(&folder)?;
    let newest = newest_of_each_name(&found);
    let mut out = std::io::stdout().lock();
    let mut failed = 0;
    for (i, file) in found.iter().enumerate() {
        let keep = !args.all && newest.contains(&i);
        let path = printable(&file.path.display().to_string());
        match verdict(file, keep) {
            Verdict::Keep(why) => writeln!(out, "kept    {path}: {why}")?,
            Verdict::Remove if args.dry_run => writeln!(out, "would remove {path}")?,
            // The lease is asked for again, and held, while the file is removed.
            Verdict::Remove => match Region::open(&file.path).and_then(Region::remove) {
                Ok(()) => writeln!(out, "removed {path}")?,
                Err(Error::Held { .. }) => writeln!(out, "kept    {path}: somebody is attached")?,
                Err(Error::Removed { .. }) => writeln!(out, "gone    {path}")?,
                Err(error) => {
                    failed += 1;
                    writeln!(out, "kept    {path}: {}", printable(&error.to_string()))?;
                }
            },
        }
    }
    if found.is_empty() {
        writeln!(out, "no region in {}", printable(&folder.display().to_string()))?;
    }
    match failed {
        0 => Ok(()),
        n => Err(Failure::Bad(format!("{n} of {} files could not be removed", found.len()))),
    }
}

fn verdict(file: &Found, keep: bool) -> Verdict {
    let Ok(opened) = &file.opened else {
        return Verdict::Keep("not a region that this command can read");
    };
    let mine =
        std::fs::symlink_metadata(&file.path).is_ok_and(|meta| meta.uid() == geteuid().as_raw());
    let age = crate::ls::since(opened.inspector.region().created_at);
    match () {
        () if file.is_temporary() && age < MAKING => Verdict::Keep("it is being made"),
        () if opened.observation.attached => Verdict::Keep("somebody is attached"),
        () if !mine => Verdict::Keep("it belongs to another user"),
        () if keep => Verdict::Keep("the newest dead one of its name"),
        () => Verdict::Remove,
    }
}

/// Of each name, the dead region that was created last.
fn newest_of_each_name(found: &[Found]) -> Vec<usize> {
    let mut newest: HashMap<String, (Duration, usize)> = HashMap::new();
    for (i, file) in found.iter().enumerate() {
        let Ok(opened) = &file.opened else { continue };
        if opened.observation.attached || file.is_temporary() {
            continue;
        }
        let this = (opened.inspector.region().created_at, i);
        let best = newest.entry(stem(&file.path)).or_insert(this);
        *best = (*best).max(this);
    }
    newest.into_values().map(|(_, i)| i).collect()
}

/// The file's name without the ending and without a process's number behind it.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(SUFFIX).unwrap_or(&name);
    match name.rsplit_once('-') {
        Some((stem, number)) if is_number(number) && !stem.is_empty() => stem.into(),
        _ => name.into(),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_what_stands_before_the_process() {
        let of = |name: &str| stem(Path::new(name));
        assert_eq!(of("/dev/shm/llm-4711.shmstats"), "llm");
        assert_eq!(of("my-app-12.shmstats"), "my-app");
        assert_eq!(of("my-app.shmstats"), "my-app");
        assert_eq!(of("x-"), "x-");
        assert_eq!(of("-12.shmstats"), "-12");
        assert_eq!(of("plain"), "plain");
    }
}
