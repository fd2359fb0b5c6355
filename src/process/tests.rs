//! Real processes, mostly shells. Nothing is slept for: tests wait for lines that servers print
//! and for events of the manager, with a limit.

use std::io::{BufRead, BufReader, PipeWriter};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;

use super::builder::{MIN_BACKOFF, absolute};
use super::*;

const LIMIT: Duration = Duration::from_secs(20);
const SLEEPER: &str = "echo ready; exec sleep 1000";
/// An ignored signal stays ignored across `exec`, so that no grandchild is left.
const STUBBORN: &str = "trap '' TERM; echo ready; exec sleep 1000";

/// What servers print, line by line.
struct Output {
    writer: PipeWriter,
    lines: Receiver<String>,
}

impl Output {
    fn new() -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines() {
                if sender.send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        Self { writer, lines }
    }

    /// A builder whose servers run the script that `script` makes of their index.
    fn servers<S: AsRef<str>>(
        &self,
        count: u32,
        mut script: impl FnMut(u32) -> S + Send + 'static,
    ) -> ProcessManagerBuilder {
        let writer = self.writer.try_clone().unwrap();
        ProcessManager::builder(count, move |index| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(script(index).as_ref());
            command.stdout(writer.try_clone().unwrap());
            command
        })
    }

    fn lines(&self, count: usize) -> Vec<String> {
        let line = |_| self.lines.recv_timeout(LIMIT).expect("a server's line");
        let mut lines: Vec<String> = (0..count).map(line).collect();
        lines.sort();
        lines
    }
}

fn pids(manager: &ProcessManager) -> Vec<u32> {
    manager.pids().into_iter().flatten().collect()
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

/// Neither running nor a zombie.
#[track_caller]
fn assert_gone(pids: &[u32]) {
    for pid in pids {
        let path = format!("/proc/{pid}");
        assert!(!Path::new(&path).exists(), "{path} is still there");
    }
}

/// Waits for `count` exits.
#[track_caller]
fn wait_for(manager: &mut ProcessManager, count: usize) -> Vec<ServerExit> {
    let begin = Instant::now();
    let mut exits = Vec::new();
    while exits.len() < count {
        assert!(begin.elapsed() < LIMIT, "only {exits:?}");
        exits.extend(manager.wait(LIMIT));
    }
    exits
}

const SHOW: &str =
    r#"echo "${SHMSTATS_REGION-none} $SHMSTATS_SERVER_INDEX/$SHMSTATS_SERVER_COUNT""#;

/// Sets the variables as a careless command would, and changes the directory.
fn show_environment(output: &Output) -> ProcessManagerBuilder {
    let writer = output.writer.try_clone().unwrap();
    ProcessManager::builder(2, move |_| {
        let mut command = Command::new("sh");
        command.args(["-c", SHOW]).current_dir("/");
        for name in [env::REGION, env::SERVER_INDEX, env::SERVER_COUNT] {
            command.env(name, "overwritten");
        }
        command.stdout(writer.try_clone().unwrap());
        command
    })
    .on_exit(OnExit::Ignore)
}

#[test]
fn environment_is_handed_over() {
    let output = Output::new();
    let mut manager = show_environment(&output).region("a region").spawn().unwrap();
    let path = absolute(Path::new("a region")).unwrap();
    let line = |index| format!("{} {index}/2", path.display());
    assert_eq!(output.lines(2), [line(0), line(1)]);
    let exits = wait_for(&mut manager, 2);
    assert!(exits.iter().all(ServerExit::success), "{exits:?}");
    assert!(!manager.is_running());
    assert!(!manager.is_stopping());
}

#[test]
fn without_a_region_a_server_finds_none() {
    let output = Output::new();
    let mut manager = show_environment(&output).spawn().unwrap();
    assert_eq!(output.lines(2), ["none 0/2", "none 1/2"]);
    wait_for(&mut manager, 2);
}

#[test]
fn one_ends_and_the_others_are_stopped() {
    let output = Output::new();
    let mut manager = output.servers(3, |_| SLEEPER).spawn().unwrap();
    let all = pids(&manager);
    output.lines(3);
    assert!(manager.poll().is_empty());
    assert!(manager.wait(Duration::ZERO).is_empty());

    signal(all[1], Signal::SIGKILL);
    let exits = wait_for(&mut manager, 3);
    assert_eq!(exits[0].to_string(), format!("server 1 (pid {}): killed by signal 9", all[1]));
    assert_eq!(exits[0].cause, ExitCause::ByItself);
    for exit in &exits[1..] {
        assert_eq!(exit.cause, ExitCause::Asked);
        assert_eq!(exit.pid, all[exit.index as usize]);
        assert!(exit.success(), "{exit}");
    }
    assert!(!manager.is_running());
    assert!(manager.is_stopping());
    assert_eq!(manager.pids(), [None; 3]);
    assert_eq!(manager.exits().len(), 3);
    assert_gone(&all);
    // There is nothing to wait for any more.
    assert!(manager.wait(Duration::MAX).is_empty());
    assert!(manager.stop().is_empty());
}

#[test]
fn ignored_ends_leave_the_others_alone() {
    let output = Output::new();
    let script = |index| if index == 0 { "exit 3" } else { SLEEPER };
    let builder = output.servers(2, script).on_exit(OnExit::Ignore);
    let mut manager = builder.spawn().unwrap();
    output.lines(1);
    let exits = wait_for(&mut manager, 1);
    assert_eq!(exits[0].status.unwrap().code(), Some(3));
    assert!(manager.is_running());
    assert!(manager.pids()[0].is_none());
    assert!(manager.pids()[1].is_some());
    assert!(manager.stop()[0].success());
}

#[test]
fn restarts_wait_longer_each_time() {
    let output = Output::new();
    let initial = Duration::from_millis(20);
    let max = Duration::from_secs(3600);
    let builder = output.servers(1, |_| "echo started; exit 1");
    let begin = Instant::now();
    let mut manager = builder.on_exit(OnExit::Restart(Backoff { initial, max })).spawn().unwrap();
    let exits = wait_for(&mut manager, 4);
    let elapsed = begin.elapsed();
    let lived: Duration = exits.iter().map(|exit| exit.lifetime).sum();
    assert!(elapsed >= lived + initial * (1 + 2 + 4), "{elapsed:?} {exits:?}");

    assert_eq!(output.lines(4), ["started"; 4]);
    let mut all: Vec<u32> = exits.iter().map(|exit| exit.pid).collect();
    assert_gone(&all);
    all.dedup();
    assert_eq!(all.len(), 4);
    assert!(exits.iter().all(|exit| exit.index == 0));
    assert!(manager.is_running(), "a restart is due");
    assert!(manager.stop().is_empty(), "and is not made");
    assert!(!manager.is_running());
}

#[test]
fn back_off_doubles_and_starts_anew() {
    let seconds = Duration::from_secs;
    let backoff = Backoff { initial: seconds(1), max: seconds(5) };
    assert_eq!(backoff.next(None, seconds(0)), seconds(1));
    assert_eq!(backoff.next(Some(seconds(2)), seconds(1)), seconds(4));
    assert_eq!(backoff.next(Some(seconds(4)), seconds(1)), seconds(5));
    assert_eq!(backoff.next(Some(seconds(5)), seconds(5)), seconds(1));
    let none = Backoff { initial: Duration::ZERO, max: Duration::ZERO };
    assert_eq!(none.next(None, seconds(0)), MIN_BACKOFF);
}

#[test]
fn a_restart_that_fails_is_tried_again() {
    let mut starts = 0;
    let command = move |_| {
        starts += 1;
        Command::new(if starts == 2 { "/nonexistent" } else { "true" })
    };
    let backoff = Backoff { initial: Duration::from_millis(10), max: Duration::from_secs(3600) };
    let builder = ProcessManager::builder(1, command).on_exit(OnExit::Restart(backoff));
    let begin = Instant::now();
    let mut manager = builder.spawn().unwrap();
    assert!(wait_for(&mut manager, 2).iter().all(ServerExit::success));
    assert!(begin.elapsed() >= backoff.initial * (1 + 2));
}

#[test]
fn who_ignores_sigterm_is_killed_after_the_grace_time() {
    let output = Output::new();
    let grace = Duration::from_millis(50);
    let script = |index| if index == 0 { STUBBORN } else { SLEEPER };
    let mut manager = output.servers(2, script).grace(grace).spawn().unwrap();
    let all = pids(&manager);
    output.lines(2);
    let begin = Instant::now();
    let mut exits = manager.stop();
    assert!(begin.elapsed() >= grace);
    exits.sort_by_key(|exit| exit.index);
    assert_eq!(exits[0].cause, ExitCause::Killed);
    assert_eq!(exits[0].status.unwrap().signal(), Some(9));
    assert!(!exits[0].success());
    assert_eq!(exits[1].cause, ExitCause::Asked);
    assert_gone(&all);
}

#[test]
fn a_stopped_server_gets_to_end_in_order() {
    let output = Output::new();
    let script = |_| "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut manager = output.servers(1, script).grace(LIMIT).spawn().unwrap();
    output.lines(1);
    signal(pids(&manager)[0], Signal::SIGSTOP);
    let exits = manager.stop();
    assert_eq!(exits[0].cause, ExitCause::Asked);
    assert_eq!(exits[0].status.unwrap().code(), Some(0));
}

#[test]
fn who_ended_before_the_stop_ended_by_itself() {
    let output = Output::new();
    let mut manager = output.servers(1, |_| "exit 1").spawn().unwrap();
    let pid = Pid::from_raw(pids(&manager)[0].cast_signed());
    let ended_unreaped = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(pid), ended_unreaped).unwrap();
    let exits = manager.stop();
    assert_eq!(exits[0].cause, ExitCause::ByItself);
    assert_eq!(exits[0].status.unwrap().code(), Some(1));
}

#[test]
fn a_failing_spawn_leaves_nobody() {
    let output = Output::new();
    let writer = output.writer.try_clone().unwrap();
    let (sender, started) = channel();
    let command = move |index| {
        if index == 2 {
            // The others have printed their pids, so that they are known below.
            let before: Vec<u32> = output.lines(2).iter().map(|l| l.parse().unwrap()).collect();
            sender.send(before).unwrap();
            return Command::new("/nonexistent/server");
        }
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$; exec sleep 1000"]);
        command.stdout(writer.try_clone().unwrap());
        command
    };
    match ProcessManager::builder(4, command).spawn() {
        Err(Error::Spawn { program, source, .. }) => {
            assert_eq!(program, "/nonexistent/server");
            assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
        }
        other => panic!("{other:?}"),
    }
    let before = started.recv().unwrap();
    assert_eq!(before.len(), 2);
    assert_gone(&before);
}

#[test]
fn drop_stops_and_reaps() {
    let output = Output::new();
    let script = |index| if index == 0 { STUBBORN } else { SLEEPER };
    let builder = output.servers(3, script).grace(Duration::from_millis(50));
    let manager = builder.spawn().unwrap();
    let all = pids(&manager);
    assert_eq!(all.len(), 3);
    output.lines(3);
    drop(manager);
    assert_gone(&all);
}

#[test]
fn another_thread_can_stop_them() {
    let output = Output::new();
    let backoff = OnExit::Restart(Backoff::default());
    let mut manager = output.servers(2, |_| SLEEPER).on_exit(backoff).spawn().unwrap();
    let all = pids(&manager);
    let handle = manager.stop_handle();
    let stopper = std::thread::spawn(move || {
        output.lines(2);
        handle.stop();
        handle
    });
    let mut exits = Vec::new();
    while manager.is_running() {
        exits.extend(manager.wait(Duration::MAX));
    }
    assert_eq!(exits.len(), 2);
    assert!(exits.iter().all(|exit| exit.cause == ExitCause::Asked));
    assert_gone(&all);
    let handle = stopper.join().unwrap();
    drop(manager);
    handle.stop(); // Too late, and harmless.
}

#[test]
fn a_time_limit_without_an_end_is_kept() {
    let output = Output::new();
    let mut manager = output.servers(1, |_| SLEEPER).spawn().unwrap();
    let timeout = Duration::from_millis(30);
    let begin = Instant::now();
    assert!(manager.wait(timeout).is_empty());
    assert!(begin.elapsed() >= timeout);
    assert!(manager.is_running());
}

#[test]
fn a_status_taken_elsewhere_is_unknown() {
    let output = Output::new();
    let mut manager = output.servers(1, |_| SLEEPER).spawn().unwrap();
    let pid = pids(&manager)[0];
    signal(pid, Signal::SIGKILL);
    waitpid(Pid::from_raw(pid.cast_signed()), None).unwrap();
    let exits = wait_for(&mut manager, 1);
    assert!(exits[0].status.is_none());
    assert!(!exits[0].success());
    assert!(!manager.is_running());
}

#[test]
fn a_real_time_signal_is_an_end_like_any_other() {
    let output = Output::new();
    let mut manager = output.servers(1, |_| "kill -40 $$").spawn().unwrap();
    let exits = wait_for(&mut manager, 1);
    assert_eq!(exits[0].status.unwrap().signal(), Some(40));
}

#[test]
fn no_servers_is_over_at_once() {
    let mut manager = ProcessManager::builder(0, |_| Command::new("true")).spawn().unwrap();
    assert!(!manager.is_running());
    assert!(manager.wait(Duration::MAX).is_empty());
}
