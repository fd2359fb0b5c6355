//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum, value_parser};

/// Keeps sums of times far from overflowing.
const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Starts API server processes on one port of 127.0.0.1, sends them requests, and logs one line
/// per interval for all of them together.
///
/// At the end it prints what its clients were told they used beside what the shared region counted.
/// Exit status: 0 if the two agree, 1 if not, 2 if anything else failed.
///
/// Try it: `kill -9` a server while it runs, with and without --restart. Or, with --no-load:
/// curl 127.0.0.1:8000/v1/completions -d '{"model": "stand-in", "prompt": "Once upon a time"}'
#[derive(Debug, Clone, Parser)]
#[command(name = "api_servers", verbatim_doc_comment)]
pub(crate) struct Options {
    /// API server processes behind the port
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=256))]
    pub(crate) api_server_count: u32,
    /// Port on 127.0.0.1; 0 lets the system choose
    #[arg(long, default_value_t = 8000)]
    pub(crate) port: u16,
    /// Time between two log lines, such as 500ms, 5s or 1m
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// Time to send requests for; 0: until Ctrl-C
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Requests to send per second [default: 65 for each engine, which keeps it just busy]
    #[arg(long, value_name = "REQUESTS_PER_SECOND", value_parser = per_second::<100_000>)]
    pub(crate) rate: Option<f64>,
    /// Send no requests, only serve, until Ctrl-C
    #[arg(long)]
    pub(crate) no_load: bool,
    /// File of the region [default: a new one in /dev/shm]
    #[arg(long, value_name = "PATH")]
    pub(crate) region: Option<PathBuf>,
    /// Engines behind the API servers, each a process with a model of its own
    #[arg(long, value_name = "E", default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) engines: u32,
    /// Tokens per second that a model generates for each running request, up to 1000
    #[arg(long, value_name = "TOKENS_PER_SECOND", default_value_t = 50.0, value_parser = per_second::<1000>)]
    pub(crate) speed: f64,
    /// Start a server that died again, instead of stopping all
    #[arg(long)]
    pub(crate) restart: bool,

    /// What the launcher starts itself as. `--role server` by hand is a server without a region.
    #[arg(long, hide = true, default_value = "launcher")]
    pub(crate) role: Role,
    #[arg(long, hide = true)]
    pub(crate) launcher: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    Launcher,
    Server,
    Engine,
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("expected a unit of ms, s, m or h, got {other:?}")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("expected a number, got {digits:?}"))?;
    match Duration::try_from_secs_f64(number * unit) {
        Ok(time) if time <= MAX_TIME => Ok(time),
        _ => Err(format!("expected 0 to {MAX_TIME:?}, got {text:?}")),
    }
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| match time.is_zero() {
        true => Err("expected more than 0".to_owned()),
        false => Ok(time),
    })
}

fn per_second<const MAX: u32>(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.01..=f64::from(MAX)).contains(&number) => Ok(number),
        _ => Err(format!("expected 0.01 to {MAX}, got {text:?}")),
    }
}
