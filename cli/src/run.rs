//! `shmstats run`

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use shmstats::llm::LlmLine;
use shmstats::logger::{GenericLine, LoggerThread};
use shmstats::process::{Backoff, OnExit, ProcessManager};
use shmstats::{Region, Schema, StatLogger, llm, region};

use crate::fail::{Failure, say};
use crate::log::Format;
use crate::schema_file;
use crate::text::parse_duration;

/// Starts several processes of a program, in any language, that share a region.
///
/// Each finds the region's path in SHMSTATS_REGION, its index in SHMSTATS_SERVER_INDEX and the
/// number of processes in SHMSTATS_SERVER_COUNT. This launcher is the primary: it drains, and logs
/// one line for all of them to stderr. When told to end (SIGINT, SIGTERM), or when one of the
/// processes ends (see --on-exit), it stops the others, logs what is left and ends with status 0
/// if all ended well, else 1.
///
/// A launcher that is killed by SIGKILL stops nobody: its processes go on, and log no line.
///
/// The region's file is removed at the end unless --keep is given or --region names it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many processes
    #[arg(short = 'n', long = "servers", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=2048))]
    servers: u32,
    /// Time between log lines: 10s, 500ms, 1m
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    interval: Duration,
    /// What is measured, as a TOML file (docs/schema-file.md)
    #[arg(long, value_name = "FILE", conflicts_with = "llm", required_unless_present = "llm")]
    schema: Option<PathBuf>,
    /// The preset for the API servers of a language model
    #[arg(long)]
    llm: bool,
    /// Engines of the llm preset
    #[arg(long, default_value_t = 1, value_name = "N", requires = "llm")]
    engines: u32,
    /// The region's file; NAME-PID.shmstats in SHMSTATS_DIR, else /dev/shm, if left out
    #[arg(long, value_name = "PATH")]
    region: Option<PathBuf>,
    /// Leave the region's file for a look at what happened
    #[arg(long)]
    keep: bool,
    /// What to do when a process ends by itself
    #[arg(long, default_value = "stop")]
    on_exit: OnExitArg,
    /// How long processes may take to end before they are killed
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    grace: Duration,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnExitArg {
    /// Stop the others
    Stop,
    /// Start it again, with a growing pause
    Restart,
    /// Go on without it
    Ignore,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(crate::text::colours())
        .with_target(false)
        .init();
    let schema = schema(&args)?;
    let path = args.region.clone().unwrap_or_else(|| default_path(&args.command[0]));
    let region = Region::options(args.servers).open_or_create(&path, &schema)?;
    let served = serve(&args, &path, &region, &schema);
    if args.region.is_none() && !args.keep {
        match region.remove() {
            Ok(()) | Err(shmstats::Error::Removed { .. }) => {}
            Err(error) => say(&format!("left there: {error}")),
        }
    }
    served
}

/// From the first process's start to the last one's end.
fn serve(args: &Args, path: &Path, region: &Region, schema: &Schema) -> Result<ExitCode, Failure> {
    let command = args.command.clone();
    let make = move |_index| {
        let mut made = Command::new(&command[0]);
        made.args(&command[1..]);
        made
    };
    let on_exit = match args.on_exit {
        OnExitArg::Stop => OnExit::StopAll,
        OnExitArg::Restart => OnExit::Restart(Backoff::default()),
        OnExitArg::Ignore => OnExit::Ignore,
    };
    let logger = logger(region, args.interval, schema)?;
    // Before the first process is there, so that a signal never leaves one behind.
    let (told, signals) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = told.send(()); // Fails once all have ended.
    })
    .map_err(|e| Failure::Bad(format!("cannot handle signals: {e}")))?;
    let mut manager = ProcessManager::builder(args.servers, make)
        .region(path)
        .on_exit(on_exit)
        .grace(args.grace)
        .spawn()?;
    let stop = manager.stop_handle();
    thread::spawn(move || signals.into_iter().for_each(|()| stop.stop()));
    let mut failed = false;
    while manager.is_running() {
        for exit in manager.wait(Duration::MAX) {
            if !exit.success() {
                failed = true;
                say(&exit.to_string());
            }
        }
    }
    logger.stop();
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn logger(region: &Region, interval: Duration, schema: &Schema) -> Result<LoggerThread, Failure> {
    let builder = StatLogger::for_region(region).interval(interval);
    let builder = match Format::of(schema) {
        Format::Llm => builder.line(LlmLine::default()),
        Format::Generic | Format::Json => builder.line(GenericLine::default()),
    };
    Ok(builder.spawn()?)
}

fn schema(args: &Args) -> Result<Schema, Failure> {
    match &args.schema {
        Some(path) => schema_file::read(path),
        None => Ok(llm::schema(args.engines)?),
    }
}

/// `PROGRAM-PID.shmstats` in the default folder.
fn default_path(program: &std::ffi::OsStr) -> PathBuf {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    region::default_path(&format!("{name}-{}", std::process::id()))
}
