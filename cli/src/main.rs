//! `shmstats`: look into the shared stats of running, hung or dead servers, export them, and launch
//! servers that share them.

mod check;
mod export;
mod fail;
mod find;
mod gc;
mod inspect;
mod log;
mod ls;
mod report;
mod run;
mod schema_file;
mod text;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Looks into the shared stats of server processes, running, hung or dead.
///
/// Reading takes nothing from the servers' own log line and writes nothing. Where a PATH can be
/// left out, the only live region in the default folder is meant: SHMSTATS_DIR, else /dev/shm.
///
/// Exit status: 0 good, 1 something is wrong, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "shmstats", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What each says of itself is at its arguments.
#[derive(Debug, Subcommand)]
enum Command {
    Ls(ls::Args),
    Inspect(inspect::Args),
    Top(top::Args),
    Log(log::Args),
    Export(export::Args),
    Check(check::Args),
    Gc(gc::Args),
    Run(run::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return fail::usage(&error),
    };
    let done = match cli.command {
        Command::Ls(args) => ls::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Log(args) => log::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Gc(args) => gc::run(&args),
        Command::Run(args) => return run::run(args).unwrap_or_else(|failure| failure.report()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
