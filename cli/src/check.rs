//! `shmstats check`

use std::io::Write;
use std::path::PathBuf;

use shmstats::SlotState;

use crate::fail::Failure;
use crate::find;
use crate::text::{age, printable, size};

/// Says whether a file is a valid region, and if not, what is wrong.
///
/// All that a program relies on is checked: kind of file, magic, version, checksum, every offset
/// and length, the schema's rules. What is unusual but allowed is noted. Exit status: 0 good, 1
/// bad, with what was expected and what was found on stderr.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file; the only live region of the default folder if left out
    path: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = find::one(args.path.as_deref())?;
    let mut opened = find::open(&path)?;
    opened.inspector.totals();
    let (inspector, observation) = (&opened.inspector, &opened.observation);
    let (region, schema) = (inspector.region(), inspector.schema());
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}: good: version {}, {}, {} records, {} snapshots, {} slots",
        printable(&path.display().to_string()),
        region.format_version,
        size(region.file_size),
        schema.records().len(),
        schema.snapshots().len(),
        region.slot_count,
    )?;
    let mut notes = Vec::new();
    let mut note = |when: bool, text: String| {
        if when {
            notes.push(text);
        }
    };
    note(!observation.this_boot, "nobody has written to it since this machine started".into());
    note(observation.attached && !observation.primary.alive, "no process is primary".into());
    let count = |state| observation.states.iter().filter(|s| **s == state).count();
    let dead = count(SlotState::Dead);
    note(dead > 0, format!("{dead} servers ended without giving their slot back"));
    let unsettled: Vec<String> = (0..observation.states.len())
        .filter(|slot| !inspector.last_totals().is_settled(*slot))
        .map(|slot| slot.to_string())
        .collect();
    note(
        !unsettled.is_empty(),
        format!("totals of slots {} are not settled: a drain is under way", unsettled.join(", ")),
    );
    for (n, what) in [
        (observation.interrupted_drains, "drains that a primary died in"),
        (observation.refused_servers, "servers found no free slot"),
        (observation.skipped_writes, "writes by forked children or of NaN were skipped"),
        (observation.primary.behind, "times a single-writer counter was below its watermark"),
    ] {
        note(n > 0, format!("{n} {what}"));
    }
    if let Some(then) = observation.primary.drained.filter(|_| observation.attached) {
        note(then.as_secs() >= 60, format!("the last drain was {} ago", age(then)));
    }
    for text in notes {
        writeln!(out, "note: {text}")?;
    }
    Ok(())
}
