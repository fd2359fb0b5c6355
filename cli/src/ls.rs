//! `shmstats ls`

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::unistd::{Uid, User};
use shmstats::SlotState;

use crate::fail::Failure;
use crate::find::{self, Found};
use crate::text::{age, one_line, printable, size, table};

/// Lists the regions of a folder: servers alive, age, size, owner.
///
/// A region is live while any process is attached to it, and dead after that: `shmstats gc`
/// removes dead ones. Files are known by what they begin with; a file whose name ends with
/// .shmstats and that is no region is listed as bad, and one that you may not read as unreadable.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder; SHMSTATS_DIR, else /dev/shm, if left out
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let folder = find::folder(args.dir.as_deref());
    let found = find::all(&folder)?;
    let mut out = std::io::stdout().lock();
    if found.is_empty() {
        writeln!(out, "no region in {}", printable(&folder.display().to_string()))?;
        return Ok(());
    }
    let head = ["REGION", "STATE", "SERVERS", "AGE", "SIZE", "OWNER", "NOTE"];
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    out.write_all(table(&head, &[0, 1, 2, 5, 6], &rows).as_bytes())?;
    Ok(())
}

fn row(found: &Found) -> Vec<String> {
    let owner = owner(&found.path);
    let name = printable(&found.name());
    match &found.opened {
        Err(error) => {
            // The path is in the first column.
            let text = error.to_string();
            let path = format!("{}: ", found.path.display());
            let note = one_line(text.strip_prefix(&path).unwrap_or(&text));
            let dash = || "-".to_string();
            let state = if found.unreadable().is_some() { "unreadable" } else { "bad" };
            vec![name, state.into(), dash(), dash(), dash(), owner, note]
        }
        Ok(opened) => {
            let (region, observation) = (opened.inspector.region(), &opened.observation);
            let alive = observation.states.iter().filter(|s| **s == SlotState::Alive).count();
            let state = if observation.attached { "live" } else { "dead" };
            let mut notes = Vec::new();
            if observation.attached && !observation.primary.alive {
                notes.push("no primary".to_string());
            }
            if observation.interrupted_drains > 0 {
                notes.push(format!("{} interrupted drains", observation.interrupted_drains));
            }
            if observation.refused_servers > 0 {
                notes.push(format!("{} refused servers", observation.refused_servers));
            }
            vec![
                name,
                state.into(),
                format!("{alive}/{}", region.server_count),
                age(since(region.created_at)),
                size(region.file_size),
                owner,
                notes.join(", "),
            ]
        }
    }
}

/// Time since a time after the Unix epoch; never negative.
pub(crate) fn since(then: Duration) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(then)
}

/// The name of the file's owner, or its number.
fn owner(path: &Path) -> String {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return "-".into() };
    let user = User::from_uid(Uid::from_raw(meta.uid())).ok().flatten();
    user.map_or(meta.uid().to_string(), |user| printable(&user.name))
}
