//! One running server process: started, signalled, reaped.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::exit::{ExitCause, ServerExit};

/// What wakes a manager that waits.
#[derive(Debug)]
pub(super) enum Event {
    /// Some server may have ended. Only a hint: the manager looks for itself.
    Ended,
    /// Somebody asked for all servers to be stopped.
    Stop,
}

/// A child process that has not been reaped, so that its pid is its own.
#[derive(Debug)]
pub(super) struct ServerChild {
    child: Child,
    started: Instant,
    cause: ExitCause,
}

impl ServerChild {
    /// Starts `command` and a thread that sends [`Event::Ended`] when the process has ended.
    pub(super) fn start(command: &mut Command, events: Sender<Event>) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let pid = raw_pid(&child);
        let watcher = thread::Builder::new().name(format!("shmstats-{pid}"));
        if let Err(error) = watcher.spawn(move || watch(pid, &events)) {
            // Unwatched, its end would go unnoticed. It has only just begun: no grace time.
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(Self { child, started: Instant::now(), cause: ExitCause::ByItself })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the process to end. A process that was stopped (SIGSTOP) is continued, or it could not
    /// act on it.
    pub(super) fn terminate(&mut self) {
        self.end_with(Signal::SIGTERM, ExitCause::Asked);
        self.signal(Signal::SIGCONT);
    }

    /// Ends the process by force.
    pub(super) fn kill(&mut self) {
        self.end_with(Signal::SIGKILL, ExitCause::Killed);
    }

    fn end_with(&mut self, signal: Signal, cause: ExitCause) {
        if self.signal(signal) {
            self.cause = cause;
        }
    }

    /// Whether the signal was sent.
    fn signal(&self, signal: Signal) -> bool {
        let pid = raw_pid(&self.child);
        // An ended process keeps its pid until it is reaped, which only `reap` does. This asks
        // nonetheless: not to claim a death that came by itself, and for the program that ignores
        // SIGCHLD or waits for any child, where the pid may be somebody else's by now.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive)) {
            return false;
        }
        match kill(pid, signal) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%pid, %signal, %error, "cannot signal a server");
                false
            }
        }
    }

    /// Reaps the process if it has ended. After `Some` this must be dropped: the pid is no longer
    /// its own.
    pub(super) fn reap(&mut self, index: u32) -> Option<ServerExit> {
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => Some(status),
            Err(error) => {
                let pid = self.pid();
                tracing::warn!(index, pid, %error, "the exit status of a server was taken elsewhere");
                None
            }
        };
        Some(ServerExit {
            index,
            pid: self.pid(),
            status,
            cause: self.cause,
            lifetime: self.started.elapsed(),
        })
    }
}

fn raw_pid(child: &Child) -> Pid {
    // The kernel's pids are positive `i32`s; the standard library shows them as `u32`.
    Pid::from_raw(child.id().cast_signed())
}

/// Waits until the process has ended, without reaping it, and says so.
///
/// Should this thread begin so late that the pid is another child's, its hint is late or needless,
/// and nothing worse.
fn watch(pid: Pid, events: &Sender<Event>) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(pid), flags) == Err(Errno::EINTR) {}
    // Any other error also means that it is over: reaped already, or ended by a real-time signal,
    // which nix has no name for.
    let _ = events.send(Event::Ended); // Fails when the manager is gone, which reaped it.
}
