//! Starting, watching and stopping the server processes that share a region.
//!
//! A launcher names a command for each server; [`ProcessManager`] starts them, hands each the
//! region and its index by [environment](mod@env), and then does one of three things when a server
//! ends: stops the others, starts it again, or goes on without it. It does not make the region. A
//! launcher, of which `examples/launcher.rs` is a complete one:
//!
//! ```no_run
//! use std::process::Command;
//! use std::time::Duration;
//! use shmstats::process::{OnExit, ProcessManager};
//! use shmstats::{Region, Schema, region};
//!
//! # fn when_told_to_stop(_: impl FnOnce() + Send + 'static) {}
//! # fn main() -> shmstats::Result<()> {
//! # let schema = Schema::builder("my").counter("orders").build()?;
//! let path = region::default_path("my-server"); // /dev/shm/my-server.shmstats
//! let region = Region::open_or_create(&path, &schema, 4)?;
//! let mut servers = ProcessManager::builder(4, |_index| Command::new("my-server"))
//!     .region(&path)
//!     .on_exit(OnExit::StopAll)
//!     .spawn()?;
//!
//! let handle = servers.stop_handle();
//! when_told_to_stop(move || handle.stop()); // from the program's handling of SIGINT and SIGTERM
//!
//! let mut failed = false;
//! while servers.is_running() {
//!     for exit in servers.wait(Duration::MAX) {
//!         eprintln!("{exit}");
//!         failed |= !exit.success();
//!     }
//! }
//! region.remove()?; // or leave it, to go on with its totals next time
//! std::process::exit(failed.into());
//! # }
//! ```
//!
//! # What the launcher has to know
//!
//! - A launcher that dies without unwinding (SIGKILL, or SIGTERM and SIGINT left at their default)
//!   stops nobody. Servers that must not outlive it can ask for that themselves with
//!   `prctl(PR_SET_PDEATHSIG)`.
//! - Servers inherit the signal mask of the thread that calls `spawn`, `poll` or `wait`. Where
//!   SIGTERM is blocked there, they never see it, and are killed when the grace time is over.
//! - Ctrl-C in a terminal reaches the servers directly, as members of the launcher's process group,
//!   unless their commands set a `process_group` of their own.
//! - Signals go to the server processes alone, not to processes that they started.

use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

pub use crate::env;
use crate::error::{Error, Result};

mod builder;
mod child;
mod exit;
#[cfg(test)]
mod tests;

use builder::CommandFn;
pub use builder::{Backoff, OnExit, ProcessManagerBuilder};
use child::{Event, ServerChild};
pub use exit::{ExitCause, ServerExit};

/// The longest grace time when a manager is dropped, which is no place to wait in.
const DROP_GRACE: Duration = Duration::from_secs(2);

/// How long a server may take to be gone after SIGKILL. The kernel tears a big one down in tens of
/// milliseconds, one that hangs in a driver perhaps never.
const KILL_PATIENCE: Duration = Duration::from_secs(30);

/// How many past exits are remembered.
const EXITS_KEPT: usize = 1000;

/// Asks a [`ProcessManager`] from another thread to stop its servers.
#[derive(Clone, Debug)]
pub struct StopHandle(Sender<Event>);

impl StopHandle {
    /// Makes the manager's current or next [`wait`](ProcessManager::wait) or
    /// [`poll`](ProcessManager::poll) begin to stop all servers.
    ///
    /// It allocates: call it from a thread or a task, not inside a signal handler.
    pub fn stop(&self) {
        let _ = self.0.send(Event::Stop); // Fails when the manager is gone, and its servers with it.
    }
}

#[derive(Debug)]
enum State {
    Running(ServerChild),
    /// To be started again at that time.
    Due(Instant),
    /// Ended for good.
    Ended,
}

#[derive(Debug)]
struct Watched {
    state: State,
    /// The last wait before a restart.
    backoff: Option<Duration>,
}

impl Watched {
    fn new(child: ServerChild) -> Self {
        Self { state: State::Running(child), backoff: None }
    }

    fn child(&mut self) -> Option<&mut ServerChild> {
        match &mut self.state {
            State::Running(child) => Some(child),
            _ => None,
        }
    }

    fn schedule(&mut self, backoff: Backoff, lifetime: Duration) {
        let delay = backoff.next(self.backoff, lifetime);
        self.backoff = Some(delay);
        self.state = Instant::now().checked_add(delay).map_or(State::Ended, State::Due);
    }
}

/// SIGTERM has been sent to all, and nothing is started any more.
#[derive(Clone, Copy, Debug)]
struct Stopping {
    /// When the grace time is over; `None`: never.
    kill_at: Option<Instant>,
    /// Whether SIGKILL has been sent.
    killed: bool,
}

/// The server processes of one launcher.
///
/// Nothing happens behind the launcher's back: ends are noticed, restarts made and grace times
/// enforced inside [`wait`](Self::wait), [`poll`](Self::poll) and [`stop`](Self::stop), one of which
/// it therefore calls all the time, as in this example.
///
/// ```
/// use std::process::Command;
/// use std::time::Duration;
/// use shmstats::process::ProcessManager;
///
/// # fn main() -> shmstats::Result<()> {
/// let mut servers = ProcessManager::builder(2, |_index| Command::new("true")).spawn()?;
/// while servers.is_running() {
///     for exit in servers.wait(Duration::MAX) {
///         println!("{exit}"); // server 0 (pid 4711): exited with status 0
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// Dropping it stops all servers: SIGTERM, and SIGKILL after the grace time or 2 seconds, whichever
/// is less. In a forked child it does nothing.
#[derive(Debug)]
pub struct ProcessManager {
    command: CommandFn,
    count: u32,
    region: Option<PathBuf>,
    on_exit: OnExit,
    grace: Duration,
    /// By index.
    servers: Vec<Watched>,
    stopping: Option<Stopping>,
    events: Receiver<Event>,
    /// Cloned for each watcher; kept, so that the channel stays open.
    sender: Sender<Event>,
    exits: Vec<ServerExit>,
    /// The process that spawned the servers. A forked child's copy of the manager does nothing:
    /// they are no children of its own.
    launcher: u32,
}

impl ProcessManager {
    /// Settings for `count` servers. `command` makes the command of each from its index, and again
    /// for each restart.
    pub fn builder(
        count: u32,
        command: impl FnMut(u32) -> Command + Send + 'static,
    ) -> ProcessManagerBuilder {
        ProcessManagerBuilder::new(count, CommandFn(Box::new(command)))
    }

    /// The process id of each server by index; `None` where it has ended.
    #[must_use]
    pub fn pids(&self) -> Vec<Option<u32>> {
        let pid = |server: &Watched| match &server.state {
            State::Running(child) => Some(child.pid()),
            _ => None,
        };
        self.servers.iter().map(pid).collect()
    }

    fn is_launcher(&self) -> bool {
        std::process::id() == self.launcher
    }

    /// Whether a server is there or will be started again.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let over = |server: &Watched| matches!(server.state, State::Ended);
        self.is_launcher() && !self.servers.iter().all(over)
    }

    /// Whether the servers are being stopped, or were: asked for, or since one ended by itself
    /// under [`OnExit::StopAll`].
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// The exits reported so far, oldest first, at most the last 1000.
    #[must_use]
    pub fn exits(&self) -> &[ServerExit] {
        &self.exits
    }

    /// A handle by which another thread can have all servers stopped.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.sender.clone())
    }

    /// Reports the servers that have ended since the last call, and does what is due: stops the
    /// others, restarts, kills after the grace time. Never blocks.
    ///
    /// A server that cannot be started again is logged and tried again after its next back-off.
    pub fn poll(&mut self) -> Vec<ServerExit> {
        if !self.is_launcher() {
            return Vec::new();
        }
        while let Ok(event) = self.events.try_recv() {
            self.heed(&event);
        }
        let exits = self.reap();
        let by_itself = |exit: &ServerExit| exit.cause == ExitCause::ByItself;
        if self.on_exit == OnExit::StopAll && exits.iter().any(by_itself) {
            self.begin_stop(self.grace);
        }
        self.kill_if_due();
        self.restart_if_due();
        exits
    }

    /// Like [`poll`](Self::poll), but sleeps until a server has ended, `timeout` has passed or no
    /// server [is running](Self::is_running). `Duration::MAX` waits for ever.
    pub fn wait(&mut self, timeout: Duration) -> Vec<ServerExit> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let exits = self.poll();
            let timed_out = remaining(deadline).is_zero();
            if !exits.is_empty() || timed_out || !self.is_running() {
                return exits;
            }
            let sleep = remaining(deadline).min(remaining(self.next_due()));
            if let Ok(event) = self.events.recv_timeout(sleep) {
                self.heed(&event);
            }
        }
    }

    /// Stops all servers: SIGTERM, and SIGKILL once the grace time is over. Returns when all have
    /// been reaped, with the exits that were not reported before.
    ///
    /// A server that SIGKILL does not end within 30 seconds hangs in the kernel: it is logged and
    /// left, and [`is_running`](Self::is_running) stays true.
    pub fn stop(&mut self) -> Vec<ServerExit> {
        self.stop_within(self.grace)
    }

    fn stop_within(&mut self, grace: Duration) -> Vec<ServerExit> {
        if !self.is_launcher() {
            return Vec::new();
        }
        let kill_at = self.begin_stop(grace);
        let give_up = kill_at.and_then(|at| at.checked_add(KILL_PATIENCE));
        let mut exits = Vec::new();
        while self.is_running() {
            exits.extend(self.wait(remaining(give_up)));
            if self.is_running() && remaining(give_up).is_zero() {
                tracing::warn!(pids = ?self.pids(), "servers are still there after SIGKILL");
                break;
            }
        }
        exits
    }

    fn heed(&mut self, event: &Event) {
        match event {
            Event::Ended => {} // The next `reap` finds it.
            Event::Stop => {
                self.begin_stop(self.grace);
            }
        }
    }

    /// Sends SIGTERM to all, unless that was done. Returns when SIGKILL will follow: a second call
    /// can only bring that forward.
    fn begin_stop(&mut self, grace: Duration) -> Option<Instant> {
        let kill_at = Instant::now().checked_add(grace);
        if let Some(stopping) = &mut self.stopping {
            stopping.kill_at = earlier(stopping.kill_at, kill_at);
            return stopping.kill_at;
        }
        self.stopping = Some(Stopping { kill_at, killed: false });
        for server in &mut self.servers {
            match &mut server.state {
                State::Running(child) => child.terminate(),
                State::Due(_) | State::Ended => server.state = State::Ended,
            }
        }
        kill_at
    }

    fn kill_if_due(&mut self) {
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        if stopping.killed || !remaining(stopping.kill_at).is_zero() {
            return;
        }
        stopping.killed = true;
        for child in self.servers.iter_mut().filter_map(Watched::child) {
            child.kill();
        }
    }

    fn restart_if_due(&mut self) {
        let OnExit::Restart(backoff) = self.on_exit else {
            return;
        };
        for index in 0..self.count {
            match self.servers[index as usize].state {
                State::Due(at) if remaining(Some(at)).is_zero() => {}
                _ => continue,
            }
            let started = self.start(index);
            let server = &mut self.servers[index as usize];
            match started {
                Ok(child) => {
                    tracing::info!(index, pid = child.pid(), "server started again");
                    server.state = State::Running(child);
                }
                Err(error) => {
                    tracing::warn!(index, %error, "a server cannot be started again, will retry");
                    server.schedule(backoff, Duration::ZERO);
                }
            }
        }
    }

    /// Reaps all that have ended and decides what becomes of each.
    fn reap(&mut self) -> Vec<ServerExit> {
        let mut exits = Vec::new();
        for (index, server) in (0..).zip(&mut self.servers) {
            let Some(exit) = server.child().and_then(|child| child.reap(index)) else {
                continue;
            };
            match self.on_exit {
                OnExit::Restart(backoff) if self.stopping.is_none() => {
                    server.schedule(backoff, exit.lifetime);
                }
                _ => server.state = State::Ended,
            }
            exits.push(exit);
        }
        self.exits.extend_from_slice(&exits);
        let surplus = self.exits.len().saturating_sub(EXITS_KEPT);
        self.exits.drain(..surplus);
        exits
    }

    /// When there is something to do even if no server ends.
    fn next_due(&self) -> Option<Instant> {
        let kill_at = match self.stopping {
            Some(stopping) if !stopping.killed => stopping.kill_at,
            _ => None,
        };
        let due = |server: &Watched| match server.state {
            State::Due(at) => Some(at),
            _ => None,
        };
        self.servers.iter().map(due).fold(kill_at, earlier)
    }

    fn start(&mut self, index: u32) -> Result<ServerChild> {
        let mut command = (self.command.0)(index);
        // Last, so that neither the inherited environment nor the command's own has a say.
        match &self.region {
            Some(path) => command.env(env::REGION, path),
            None => command.env_remove(env::REGION),
        };
        command.env(env::SERVER_INDEX, index.to_string());
        command.env(env::SERVER_COUNT, self.count.to_string());
        ServerChild::start(&mut command, self.sender.clone()).map_err(|source| Error::Spawn {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })
    }
}

impl Drop for ProcessManager {
    fn drop(&mut self) {
        self.stop_within(self.grace.min(DROP_GRACE));
    }
}

/// The earlier of two times, where `None` is never.
fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

/// How long until `at`; zero if it has passed, for ever if it never comes.
fn remaining(at: Option<Instant>) -> Duration {
    at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
}
