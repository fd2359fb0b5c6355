//! How a server ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::libc::SIGTERM;

/// Why a server ended, as far as its manager had a part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitCause {
    /// The manager had sent it no signal.
    ByItself,
    /// The manager had sent it SIGTERM.
    Asked,
    /// The manager had sent it SIGKILL, since it outlived the grace time.
    Killed,
}

/// The end of one server process, reported once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerExit {
    /// The server's index, counted from 0.
    pub index: u32,
    /// Its process id, which may belong to another process by now.
    pub pid: u32,
    /// How it ended; `None` if another part of this program took the status first, by waiting for
    /// any child or by ignoring SIGCHLD.
    pub status: Option<ExitStatus>,
    /// Whether the manager made it end.
    pub cause: ExitCause,
    /// How long it lived, from its start until its manager noticed its end.
    pub lifetime: Duration,
}

impl ServerExit {
    /// Whether it ended as a server should: with status 0, or by the SIGTERM its manager sent.
    #[must_use]
    pub fn success(&self) -> bool {
        let asked = self.cause == ExitCause::Asked;
        self.status
            .is_some_and(|status| status.success() || (asked && status.signal() == Some(SIGTERM)))
    }
}

/// For example `server 2 (pid 123): killed by signal 9`.
impl fmt::Display for ServerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {} (pid {}): ", self.index, self.pid)?;
        match self.status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => write!(f, "exited with status {code}")?,
            Some((None, Some(signal))) => write!(f, "killed by signal {signal}")?,
            _ => f.write_str("ended, status unknown")?,
        }
        match self.cause {
            ExitCause::ByItself => Ok(()),
            ExitCause::Asked => f.write_str(" (asked to stop)"),
            ExitCause::Killed => f.write_str(" (still there after the grace time)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(wait_status: Option<i32>, cause: ExitCause) -> ServerExit {
        ServerExit {
            index: 2,
            pid: 123,
            status: wait_status.map(ExitStatus::from_raw),
            cause,
            lifetime: Duration::from_secs(1),
        }
    }

    #[test]
    fn display_names_the_server_and_how_it_ended() {
        let shown = |status, cause| exit(status, cause).to_string();
        let by_itself = ExitCause::ByItself;
        assert_eq!(shown(Some(9), by_itself), "server 2 (pid 123): killed by signal 9");
        assert_eq!(shown(Some(3 << 8), by_itself), "server 2 (pid 123): exited with status 3");
        assert_eq!(shown(None, by_itself), "server 2 (pid 123): ended, status unknown");
        assert_eq!(
            shown(Some(15), ExitCause::Asked),
            "server 2 (pid 123): killed by signal 15 (asked to stop)"
        );
        assert_eq!(
            shown(Some(9), ExitCause::Killed),
            "server 2 (pid 123): killed by signal 9 (still there after the grace time)"
        );
    }

    #[test]
    fn success_is_status_0_or_the_signal_that_was_sent() {
        assert!(exit(Some(0), ExitCause::ByItself).success());
        assert!(exit(Some(0), ExitCause::Asked).success());
        assert!(exit(Some(15), ExitCause::Asked).success());
        assert!(!exit(Some(15), ExitCause::ByItself).success());
        assert!(!exit(Some(1 << 8), ExitCause::Asked).success());
        assert!(!exit(Some(9), ExitCause::Killed).success());
        assert!(!exit(None, ExitCause::Asked).success());
    }
}
