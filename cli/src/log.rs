//! `shmstats log`

use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::ValueEnum;
use serde_json::{Map, Value as Json, json};
use shmstats::llm::{self, LlmLine};
use shmstats::logger::{GenericLine, Line};
use shmstats::schema::Kind;
use shmstats::{Inspector, Interval, SlotState, Value, Watch};

use crate::fail::{Failure, end_on_signals, say};
use crate::find;
use crate::report::Number;
use crate::text::parse_duration;

/// How often a region that is gone is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Prints the servers' log line, from outside, without draining.
///
/// The servers' own logger goes on as if nobody looked: the line is made of the region's totals.
/// When the region is removed, the command waits for the next one of that name.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The region's file; the only live region of the default folder if left out
    path: Option<PathBuf>,
    /// Time between lines: 10s, 500ms, 1m
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    interval: Duration,
    /// What a line looks like; llm for regions of the llm preset, else generic, if left out
    #[arg(long)]
    format: Option<Format>,
    /// End after so many lines
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// The line of an LLM's API servers
    Llm,
    /// Rates and gauges of any schema
    Generic,
    /// One JSON object per line
    Json,
}

impl Format {
    /// The form of line that suits a schema.
    pub(crate) fn of(schema: &shmstats::Schema) -> Self {
        let known = [llm::names::PROMPT_TOKENS, llm::names::GENERATION_TOKENS, llm::names::RUNNING];
        let is_llm = known.iter().all(|name| schema.named(name).next().is_some());
        if is_llm { Format::Llm } else { Format::Generic }
    }

    pub(crate) fn line(self) -> Box<dyn Line> {
        match self {
            Format::Llm => Box::new(LlmLine::default()),
            Format::Generic => Box::new(GenericLine::default()),
            Format::Json => Box::new(|interval: &Interval| json_line(interval).to_string()),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = find::one(args.path.as_deref())?;
    end_on_signals()?;
    let mut watch = Inspector::open(&path)?.watch();
    let mut line = None;
    let mut printed = 0;
    let mut next = Instant::now() + args.interval;
    while args.count.is_none_or(|count| printed < count) {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next = (next + args.interval).max(Instant::now());
        let interval = watch.interval()?;
        let format = args.format.unwrap_or_else(|| Format::of(interval.schema()));
        let line = line.get_or_insert_with(|| format.line());
        // One write: a reader never sees half a line, and a broken pipe shows at once.
        std::io::stdout().write_all(format!("{}\n", line.line(&interval)).as_bytes())?;
        printed += 1;
        if !watch.inspector().is_at_its_path() {
            say(&format!("{}: gone, waiting for the next one", path.display()));
            watch = wait_for(&path)?;
            next = Instant::now() + args.interval;
        }
    }
    Ok(())
}

/// The next region of that name.
fn wait_for(path: &std::path::Path) -> Result<Watch, Failure> {
    loop {
        match Inspector::open(path) {
            Ok(inspector) => return Ok(inspector.watch()),
            Err(e) if e.io_kind() == Some(std::io::ErrorKind::NotFound) => {
                thread::sleep(LOOK_AGAIN);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// `{"time":…,"elapsed_seconds":…,"servers":{…},"counters":[…],"gauges":[…]}`; see `docs/json.md`.
fn json_line(interval: &Interval) -> Json {
    let schema = interval.schema();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut counters, mut gauges) = (Vec::new(), Vec::new());
    for id in schema.ids() {
        let record = &schema[id];
        let pairs = record.labels.iter().map(|(key, value)| (key.clone(), value.clone().into()));
        let labels: Map<String, Json> = pairs.collect();
        match record.kind {
            Kind::Counter(_) => counters.push(json!({
                "name": record.name,
                "labels": labels,
                "delta": interval.delta_of(id),
                "per_second": interval.rate_of(id),
            })),
            _ => gauges.push(json!({
                "name": record.name,
                "labels": labels,
                "value": interval.gauge_of(id).map(Value::F64).map(Number),
                "age_seconds": interval.age_of(id).map(|age| age.as_secs_f64()),
            })),
        }
    }
    json!({
        "shape": crate::report::SHAPE,
        "time": now.as_secs_f64(),
        "elapsed_seconds": interval.elapsed().as_secs_f64(),
        "servers": {
            "configured": interval.server_count(),
            "alive": interval.servers(SlotState::Alive),
            "dead": interval.servers(SlotState::Dead),
            "released": interval.servers(SlotState::Released),
        },
        "counters": counters,
        "gauges": gauges,
    })
}
