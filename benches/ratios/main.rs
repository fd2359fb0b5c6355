//! What shmstats costs, as ratios to bare atomics and to what people use today, all taken in one
//! run: `cargo bench --bench ratios [-- --quick] [-- --json PATH] [-- --only GROUP]`.
//!
//! See `docs/performance.md` for how it is measured and for results.

mod counting;
mod harness;
mod hot_paths;
mod machine;
mod report;
mod servers;
mod setting;
mod sweeps;
mod text;
mod two_cores;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::machine::{Machine, clock_read};
use crate::setting::Setting;

/// What was asked for on the command line.
#[derive(Debug, Default)]
struct Arguments {
    quick: bool,
    json: Option<PathBuf>,
    only: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut asked = Arguments::default();
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--quick" => asked.quick = true,
            "--json" => asked.json = Some(value()?.into()),
            "--only" => asked.only = Some(value()?),
            "--bench" => {} // cargo passes it to every bench
            _ => {
                return Err(format!(
                    "expected --quick, --json PATH or --only GROUP, found {argument}"
                ));
            }
        }
    }
    Ok(asked)
}

fn main() -> ExitCode {
    let all: Vec<String> = std::env::args().skip(1).collect();
    match all.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [servers::ARGUMENT, path, slot, number] => {
            let number_of = |text: &str| text.parse().expect("a number");
            servers::live(path.as_ref(), number_of(slot), number_of(number));
            return ExitCode::SUCCESS;
        }
        [.., hot_paths::ARGUMENT] | [hot_paths::ARGUMENT, ..] => {
            hot_paths::run();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    match arguments() {
        Ok(asked) => run(&asked),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn run(asked: &Arguments) -> ExitCode {
    let setting = Setting::new(asked.quick);
    let machine = Machine::here();
    machine.print();
    println!(
        "clock read, contained in each sample once: {:.1} ns\n",
        clock_read(setting.time / 20)
    );
    let wanted = |group: &str| asked.only.as_deref().is_none_or(|only| group.contains(only));
    let mut rows = Vec::new();
    type Group = fn(&Setting) -> Vec<report::Row>;
    let groups: [(&str, Group); 7] = [
        ("counters", counting::counters),
        ("values", counting::values),
        ("drain", sweeps::drain),
        ("read", sweeps::read),
        ("text", text::scrape),
        ("start", sweeps::start),
        ("servers", servers::come_and_go),
    ];
    for (_, group) in groups.iter().filter(|(name, _)| wanted(name)) {
        rows.extend(group(&setting));
    }
    if wanted("cores") {
        rows.extend(two_cores::cases(&setting, machine.two()));
    }
    let growth = if wanted("growth") { sweeps::growth(&setting) } else { Vec::new() };
    report::print(&rows);
    report::print_growth(&growth);
    if let Some(path) = &asked.json
        && let Err(error) = report::write_json(path, &machine, asked.quick, &rows, &growth)
    {
        eprintln!("write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
