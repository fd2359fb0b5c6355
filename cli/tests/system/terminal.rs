//! `top` in a real terminal.

use std::process::Command;

use nix::sys::signal::Signal;
use shmstats::Region;

use crate::needs;
use crate::support::{Folder, Process, schema, wait_until};

/// A terminal of its own server, which ends with it.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn start(folder: &Folder, command: &str) -> Self {
        let socket = folder.file("tmux").to_str().unwrap().to_string();
        let terminal = Terminal { socket };
        let status = terminal
            .tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command])
            .env("SHMSTATS_DIR", folder.path())
            .env_remove("TMUX")
            .env("TERM", "xterm-256color")
            .status()
            .unwrap();
        assert!(status.success());
        terminal
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut command = needs("tmux", "tmux");
        command.args(["-S", &self.socket]).args(args);
        command
    }

    fn screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The screen once it has this on it.
    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let mut last = String::new();
        let end = std::time::Instant::now() + crate::support::LIMIT;
        while std::time::Instant::now() < end {
            last = self.screen();
            if last.contains(text) {
                return last;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("waited in vain for {text:?}:\n{last}");
    }

    fn keys(&self, keys: &str) {
        assert!(self.tmux(&["send-keys", keys]).status().unwrap().success());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Not by `needs`: a panic here would be one too many.
        let _ = Command::new("tmux").args(["-S", &self.socket, "kill-server"]).status();
    }
}

#[test]
fn top_lives_through_what_happens_to_its_region() {
    let folder = Folder::new();
    let (region, path) = folder.region("shop.shmstats", 2);
    let servers: Vec<_> = (0..2).map(|i| Process::server(&path, i)).collect();
    let top = format!(
        "{} top --refresh 100ms; echo \"ended with $?\"; exec cat",
        env!("CARGO_BIN_EXE_shmstats")
    );
    let terminal = Terminal::start(&folder, &top);
    let screen = terminal.wait_for("2/2 servers");
    assert!(screen.contains("engine{engine=\"0\"}") && screen.contains("q quit"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");

    // Another size, keys, and a server that hangs.
    assert!(terminal.tmux(&["resize-window", "-x", "120", "-y", "40"]).status().unwrap().success());
    wait_until("the last line at the bottom", || {
        let screen = terminal.screen();
        (screen.lines().count() == 40 && screen.lines().last()?.contains("q quit")).then_some(())
    });
    terminal.keys("c");
    terminal.wait_for("[x] orders");
    terminal.keys("Escape");
    terminal.keys("w");
    terminal.wait_for("rates over 100 s");
    servers[1].signal(Signal::SIGSTOP);
    let screen = terminal.wait_for("stopped");
    assert!(screen.lines().any(|line| line.starts_with("!") && line.contains("stopped")));
    terminal.keys("p");
    terminal.wait_for("paused");
    terminal.keys("p");

    // All are killed; the region is removed, and comes again.
    servers.into_iter().for_each(Process::kill);
    terminal.wait_for("no primary");
    let screen = terminal.wait_for("0/2 servers");
    assert!(screen.contains("dead"), "{screen}");
    region.remove().unwrap();
    terminal.wait_for("gone");
    let region = Region::create(&path, &schema(), 3).unwrap();
    let screen = terminal.wait_for("0/3 servers");
    assert!(!screen.contains("gone"), "{screen}");
    let server = Process::server(&path, 2);
    let screen = terminal.wait_for("1/3 servers");
    assert!(!screen.contains(" -1"), "no rate below zero: {screen}");

    terminal.keys("q");
    terminal.wait_for("ended with 0");
    drop((server, region));
}
