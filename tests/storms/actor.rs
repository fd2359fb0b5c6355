//! Processes of a test: this binary again, in a role that a test module defines.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

const ROLE: &str = "SHMSTATS_STORM_ROLE";

/// A role's name and what it does with its arguments.
pub(crate) type Role = (&'static str, fn(&[String]));

/// Does what the environment says this process is for. `false`: it is the one that runs the tests.
pub(crate) fn run(roles: &[&[Role]]) -> bool {
    let Ok(wanted) = std::env::var(ROLE) else { return false };
    let role = roles.iter().copied().flatten().find(|(name, _)| *name == wanted);
    let (_, role) = role.unwrap_or_else(|| panic!("no role {wanted}"));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    role(&arguments);
    true
}

/// Whoever is started by a test that fails does not stay behind.
pub(crate) fn die_with_parent() {
    if std::env::var_os(ROLE).is_some() || std::env::var_os(crate::worker::ROLE).is_some() {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).expect("a signal for the parent's end");
    }
}

/// The command that starts this binary in a role.
pub(crate) fn command(role: &str, arguments: &[&dyn AsRef<OsStr>]) -> Command {
    wrapped(&[], role, arguments)
}

/// As [`command`], through a program that starts it, such as `unshare` with its options.
pub(crate) fn wrapped(wrapper: &[&str], role: &str, arguments: &[&dyn AsRef<OsStr>]) -> Command {
    let program = std::env::current_exe().expect("this program's path");
    let mut command = match wrapper {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command.env(ROLE, role);
    for argument in arguments {
        command.arg(argument);
    }
    command
}

/// A process of a test. Killed when dropped.
pub(crate) struct Actor {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Actor {
    pub(crate) fn start(role: &str, arguments: &[&dyn AsRef<OsStr>]) -> Self {
        Actor::spawn(command(role, arguments))
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process for the test");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Actor { child, input, output }
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("an open input");
        writeln!(input, "{line}").expect("a process that listens");
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer");
        assert!(line.ends_with('\n'), "the process ended instead of answering: {line:?}");
        line.trim_end().into()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Whether it has not ended by itself.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// SIGKILL, and reap. It must not have ended before.
    pub(crate) fn kill(mut self) {
        if let Some(status) = self.child.try_wait().expect("its state") {
            panic!("a process of the test ended by itself: {status}");
        }
        self.child.kill().expect("to kill a child that is not reaped yet");
        self.child.wait().expect("its status");
    }

    /// Closes its input and waits for its end.
    pub(crate) fn end(mut self) -> ExitStatus {
        drop(self.input.take());
        self.child.wait().expect("its status")
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // Already reaped by `kill` or `end`: then both calls do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line of this process's input; nothing at its end.
pub(crate) fn heard() -> Option<String> {
    let mut line = String::new();
    let length = std::io::stdin().lock().read_line(&mut line).expect("a line");
    (length > 0).then(|| line.trim_end().into())
}

pub(crate) fn say(line: impl std::fmt::Display) {
    println!("{line}");
}

/// How many descriptors and mappings this process has of a file.
pub(crate) fn traces_of(path: &Path) -> (usize, usize) {
    // By inode: a file made without a name keeps its first one, which is none, in /proc.
    let file = std::fs::metadata(path).expect("the file");
    let same = |other: std::fs::Metadata| (other.dev(), other.ino()) == (file.dev(), file.ino());
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("the descriptors");
    let open = descriptors.filter_map(|entry| std::fs::metadata(entry.ok()?.path()).ok());
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
    let inode = file.ino().to_string();
    (
        open.filter(|metadata| same(metadata.clone())).count(),
        maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode)).count(),
    )
}
