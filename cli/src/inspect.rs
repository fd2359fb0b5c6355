//! `shmstats inspect`

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use shmstats::Value;
use shmstats::schema::labels_text;

use crate::fail::Failure;
use crate::find;
use crate::report::{Labels, Number, Report, Slot};
use crate::text::{age, printable, size, table, utc};

/// How long a server may be silent before it is worth a word: three of the logger's usual ticks.
pub(crate) const SILENT: Duration = Duration::from_secs(30);
/// Slots side by side in one table.
const SLOTS_ABREAST: usize = 8;

/// Shows all of a region: head, schema, primary, slots, totals, gauges.
///
/// It does so whatever the servers do. One row for each slot that was ever claimed; of each series
/// the total, what of it no drain has taken yet, and the share of each slot; of shared things the newest
/// observation, its age and who saw it. The shape of the JSON is in docs/json.md.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The region's file; the only live region of the default folder if left out
    path: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = find::one(args.path.as_deref())?;
    let report = Report::new(&mut find::open(&path)?);
    let mut out = std::io::stdout().lock();
    if args.json {
        let json = serde_json::to_string_pretty(&report).map_err(std::io::Error::from)?;
        writeln!(out, "{json}")?;
    } else {
        out.write_all(text(&report).as_bytes())?;
    }
    Ok(())
}

fn seconds(s: Option<f64>) -> Option<Duration> {
    s.and_then(|s| Duration::try_from_secs_f64(s).ok())
}

fn ago(s: Option<f64>) -> String {
    crate::text::ago(seconds(s))
}

/// A name with its labels.
fn series(name: &str, labels: &Labels) -> String {
    let pairs: Vec<_> = labels.iter().collect();
    printable(&format!("{name}{}", labels_text(&pairs)))
}

fn number(value: Option<Number>) -> String {
    match value {
        None => "-".into(),
        Some(Number(Value::F64(x))) if x.fract() != 0.0 && x.abs() < 1e6 => {
            let text = format!("{x:.6}");
            text.trim_end_matches('0').into()
        }
        Some(Number(value)) => value.to_string(),
    }
}

fn text(report: &Report) -> String {
    let mut text = head(report);
    text += "\n";
    text += &slots(report);
    for (head, rows) in [
        (["COUNTER", "TOTAL", "PENDING"], counters(report)),
        (["GAUGE", "ALL", "ROLLUP"], gauges(report)),
    ] {
        if !rows.is_empty() {
            text += "\n";
            text += &by_slot(report, &head, &rows);
        }
    }
    if !report.shared.is_empty() {
        text += "\n";
        text += &shared(report);
    }
    text += "\n";
    text += &rollups(report);
    text
}

fn head(report: &Report) -> String {
    let (region, servers, primary) = (&report.region, &report.servers, &report.primary);
    let (schema, health) = (&report.schema, &report.health);
    let created = seconds(Some(region.created_at)).unwrap_or_default();
    let mut lines = vec![
        format!("Region   {}", printable(&report.path)),
        format!(
            "         version {}, {}, {} slots of {}, created {} ({} ago)",
            region.format_version,
            size(region.file_size),
            region.slot_count,
            size(region.slot_size),
            utc(created),
            age(crate::ls::since(created)),
        ),
        format!(
            "Schema   {}: {} records, {} snapshots, hash {}",
            schema.namespace,
            schema.records.len(),
            schema.snapshots.len(),
            schema.hash,
        ),
        format!(
            "Servers  {}: {} configured, {} alive, {} dead, {} released, {} stopped; {} free slots",
            if region.live { "live" } else { "dead, nobody is attached" },
            servers.configured,
            servers.alive,
            servers.dead,
            servers.released,
            servers.stopped,
            servers.free_slots,
        ),
        format!(
            "Primary  {}; {} drains, the last {}; taken {} times",
            match (primary.alive, primary.pid) {
                (true, Some(pid)) => format!("pid {pid}"),
                (true, None) => "alive".into(),
                (false, Some(pid)) => format!("none, pid {pid} was the last"),
                (false, None) => "none so far".into(),
            },
            primary.drains,
            ago(primary.last_drain_age_seconds),
            primary.takeovers,
        ),
        format!(
            "Health   {} interrupted drains, {} refused servers, {} skipped writes, {} counters \
             behind; {} resets, the last {}",
            health.interrupted_drains,
            health.refused_servers,
            health.skipped_writes,
            health.counters_behind,
            health.resets,
            ago(health.last_reset_age_seconds),
        ),
    ];
    if !region.at_its_path {
        lines.push("         the file has lost its name: nobody new finds it".into());
    }
    if !region.this_boot {
        lines.push(
            "         nobody has written to it since this machine started: gauges and ages are gone"
                .into(),
        );
    }
    if !health.settled {
        lines.push(
            "         not settled: totals marked * are the last sure ones, or a guess if there \
             were none"
                .into(),
        );
    }
    lines.join("\n") + "\n"
}

/// `alive`, `alive, stopped`, `alive, silent for 40 s`, `dead`, `released`.
pub(crate) fn state_text(slot: &Slot) -> String {
    let silent = seconds(slot.silent_seconds).filter(|silent| *silent >= SILENT);
    match silent {
        _ if slot.stopped => "stopped".into(),
        Some(silent) if slot.state == "alive" => format!("silent for {}", age(silent)),
        _ => slot.state.into(),
    }
}

fn slots(report: &Report) -> String {
    let dash = || "-".to_string();
    let row = |slot: &Slot| {
        vec![
            format!("{}{}", slot.slot, if slot.settled { "" } else { "*" }),
            slot.server_index.map_or_else(dash, |index| index.to_string()),
            state_text(slot),
            slot.pid.map_or_else(dash, |pid| pid.to_string()),
            slot.generation.to_string(),
            ago(slot.claimed_age_seconds),
            ago(slot.silent_seconds),
        ]
    };
    let rows: Vec<_> = report.slots.iter().filter(|slot| slot.state != "free").map(row).collect();
    if rows.is_empty() {
        return "No slot was ever claimed.\n".into();
    }
    table(&["SLOT", "SERVER", "STATE", "PID", "GENERATION", "CLAIMED", "LAST HEARD"], &[2], &rows)
}

/// A series: its name, two cells for all servers, and one for each slot that has a value.
struct Row {
    series: String,
    all: [String; 2],
    by_slot: Vec<(usize, String)>,
}

fn counters(report: &Report) -> Vec<Row> {
    let row = |counter: &crate::report::Counter| Row {
        series: series(&counter.name, &counter.labels),
        all: [counter.total.to_string(), counter.pending.to_string()],
        by_slot: counter.by_slot.iter().map(|c| (c.slot, c.total.to_string())).collect(),
    };
    report.counters.iter().map(row).collect()
}

fn gauges(report: &Report) -> Vec<Row> {
    let row = |gauge: &crate::report::Gauge| Row {
        series: series(&gauge.name, &gauge.labels),
        all: [number(gauge.value), gauge.rollup.into()],
        by_slot: gauge.by_slot.iter().map(|v| (v.slot, number(Some(v.value)))).collect(),
    };
    report.gauges.iter().map(row).collect()
}

fn by_slot(report: &Report, head: &[&str; 3], rows: &[Row]) -> String {
    let used: Vec<usize> =
        report.slots.iter().filter(|s| s.state != "free").map(|s| s.slot).collect();
    let blocks: Vec<&[usize]> = match used.as_slice() {
        [] => vec![&[]],
        used => used.chunks(SLOTS_ABREAST).collect(),
    };
    let mut text = String::new();
    for (n, slots) in blocks.iter().enumerate() {
        let names: Vec<String> = slots.iter().map(|slot| format!("SLOT {slot}")).collect();
        let all = if n == 0 { &head[..] } else { &head[..1] };
        let head: Vec<&str> = all.iter().copied().chain(names.iter().map(String::as_str)).collect();
        let row = |row: &Row| {
            let cell = |slot: &usize| {
                let found = row.by_slot.iter().find(|(s, _)| s == slot);
                found.map_or("-".into(), |(_, cell)| cell.clone())
            };
            let mut cells = vec![row.series.clone()];
            if n == 0 {
                cells.extend(row.all.clone());
            }
            cells.extend(slots.iter().map(cell));
            cells
        };
        if n > 0 {
            text += "\n";
        }
        text += &table(&head, &[0], &rows.iter().map(row).collect::<Vec<_>>());
    }
    text
}

fn shared(report: &Report) -> String {
    let row = |shared: &crate::report::Shared| {
        let values = shared.values.iter().filter(|v| v.value.is_some());
        let value = |v: &crate::report::Named| {
            format!("{} {}", series(&v.name, &v.labels), number(v.value))
        };
        let seen = match (shared.slot, shared.age_seconds) {
            (Some(slot), age) => (ago(age), format!("slot {slot}")),
            (None, _) => ("never".into(), "-".into()),
        };
        vec![
            series(&shared.snapshot, &shared.labels),
            seen.0,
            seen.1,
            values.map(value).collect::<Vec<_>>().join(", "),
        ]
    };
    let rows: Vec<_> = report.shared.iter().map(row).collect();
    table(&["SHARED", "SEEN", "BY", "VALUES"], &[0, 2, 3], &rows)
}

fn rollups(report: &Report) -> String {
    let row = |family: &crate::report::Family| {
        vec![
            family.name.clone(),
            number(family.value),
            family.unit.clone(),
            if family.kind == "counter" { "total" } else { family.rollup }.into(),
        ]
    };
    let rows: Vec<_> = report.rollups.iter().map(row).collect();
    table(&["ALL SERVERS AND LABELS", "VALUE", "UNIT", "ROLLUP"], &[0, 2, 3], &rows)
}
