//! What to start and how to go on: the settings of a manager.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use super::{ProcessManager, Watched};
use crate::error::{Error, Result};

const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// A shorter back-off than this would be a busy loop.
pub(super) const MIN_BACKOFF: Duration = Duration::from_millis(10);

/// What to do when a server ends by itself, be it with status 0 or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Stop all others.
    #[default]
    StopAll,
    /// Start it again under the same index, after a back-off.
    Restart(Backoff),
    /// Go on without it.
    Ignore,
}

/// How long to wait before a server is started again.
///
/// The wait starts at `initial`, doubles with each restart of that server up to `max`, and is back
/// at `initial` once the server has lived for `max`. It is never less than 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Default for Backoff {
    /// From half a second to 30 seconds.
    fn default() -> Self {
        Self { initial: Duration::from_millis(500), max: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The wait after one of `last`, before a server that lived for `lifetime`.
    pub(super) fn next(self, last: Option<Duration>, lifetime: Duration) -> Duration {
        let doubled = last
            .filter(|_| lifetime < self.max)
            .map_or(self.initial, |last| last.saturating_mul(2));
        doubled.min(self.max).max(MIN_BACKOFF)
    }
}

/// Makes the command of the server with the given index, also for each restart.
pub(super) struct CommandFn(pub(super) Box<dyn FnMut(u32) -> Command + Send>);

impl fmt::Debug for CommandFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommandFn")
    }
}

/// Settings of a [`ProcessManager`] that has not started its servers yet.
#[derive(Debug)]
#[must_use = "no server is started before `spawn`"]
pub struct ProcessManagerBuilder {
    count: u32,
    command: CommandFn,
    region: Option<PathBuf>,
    on_exit: OnExit,
    grace: Duration,
}

impl ProcessManagerBuilder {
    pub(super) fn new(count: u32, command: CommandFn) -> Self {
        Self { count, command, region: None, on_exit: OnExit::default(), grace: DEFAULT_GRACE }
    }

    /// Names the region that the servers share. Without it the servers find none, even if the
    /// launcher inherited one.
    pub fn region(mut self, path: impl Into<PathBuf>) -> Self {
        self.region = Some(path.into());
        self
    }

    /// Sets what to do when a server ends by itself. The default is [`OnExit::StopAll`].
    pub fn on_exit(mut self, on_exit: OnExit) -> Self {
        self.on_exit = on_exit;
        self
    }

    /// Sets how long servers may take to end after SIGTERM before they get SIGKILL. The default is
    /// 10 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Starts all servers, in the order of their indices.
    ///
    /// # Errors
    ///
    /// [`Error::Spawn`] if a command cannot be started, after the servers started before it were
    /// stopped; [`Error::Io`] if the region's path cannot be made absolute.
    pub fn spawn(self) -> Result<ProcessManager> {
        // A command may change the working directory.
        let region = self.region.as_deref().map(absolute).transpose()?;
        if let Some(missing) = region.as_ref().filter(|path| !path.exists()) {
            tracing::warn!(
                path = %missing.display(),
                "there is no such region: the servers will count privately; create it first"
            );
        }
        let (sender, events) = mpsc::channel();
        let mut manager = ProcessManager {
            command: self.command,
            count: self.count,
            region,
            on_exit: self.on_exit,
            grace: self.grace,
            servers: Vec::new(),
            stopping: None,
            events,
            sender,
            exits: Vec::new(),
            launcher: std::process::id(),
        };
        for index in 0..self.count {
            match manager.start(index) {
                Ok(child) => manager.servers.push(Watched::new(child)),
                Err(error) => {
                    manager.stop();
                    return Err(error);
                }
            }
        }
        Ok(manager)
    }
}

pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::io("find the absolute path of", path, source))
}
