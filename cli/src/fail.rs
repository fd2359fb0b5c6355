//! How commands fail: one line on stderr and an exit status.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::text::one_line;

/// Why a command ends without having done what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something is wrong with what was looked at: exit status 1.
    Bad(String),
    /// The command was not used as it is meant to be: exit status 2.
    Usage(String),
    /// Whoever read the output has had enough: no word, exit status 0.
    BrokenPipe,
}

impl Failure {
    /// Says it, and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Failure::Bad(message) => {
                say(message);
                ExitCode::from(1)
            }
            Failure::Usage(message) => {
                say(message);
                ExitCode::from(2)
            }
            Failure::BrokenPipe => ExitCode::SUCCESS,
        }
    }
}

/// One line on stderr. Nothing can be done about a stderr that is closed.
pub(crate) fn say(message: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr(), "shmstats: {}", one_line(message));
}

impl From<shmstats::Error> for Failure {
    fn from(error: shmstats::Error) -> Self {
        Failure::Bad(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Bad(error.to_string()),
        }
    }
}

/// Lets SIGINT, SIGTERM and SIGHUP end a command that runs for ever, also where it is the first
/// process of a container, for which signals do nothing by themselves.
pub(crate) fn end_on_signals() -> Result<(), Failure> {
    ctrlc::set_handler(|| std::process::exit(0))
        .map_err(|e| Failure::Bad(format!("cannot handle signals: {e}")))
}

/// The end of a command line that was not understood, or that asked for help.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // A reader that has gone away is no reason for a word.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
        _ => {
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            let words: Vec<&str> = first.split_whitespace().collect();
            say(&format!("{} (see shmstats --help)", words.join(" ")));
            ExitCode::from(2)
        }
    }
}
