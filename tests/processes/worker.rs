//! A server process for tests: opens the region it is given, then does what each line of its
//! standard input says and answers with one line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use shmstats::{Interval, Primary, Region, Server};

use crate::support::{publish_engine, publish_load};

/// The environment variable that makes this binary a worker; its value is the region's path.
pub(crate) const ROLE: &str = "SHMSTATS_TEST_WORKER";

/// A worker as its parent sees it. Killed when dropped.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(region: &Path) -> Self {
        let program = std::env::current_exe().expect("this program's path");
        let mut child = Command::new(program)
            .env(ROLE, region)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Worker { child, input, output }
    }

    /// A worker that has claimed a slot.
    pub(crate) fn with_slot(region: &Path, index: u32) -> Self {
        let mut worker = Worker::start(region);
        worker.ok(&format!("claim {index}"));
        worker
    }

    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("a worker that listens");
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer");
        assert!(line.ends_with('\n'), "the worker ended instead of answering: {line:?}");
        line.trim_end().into()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }

    pub(crate) fn ok(&mut self, line: &str) {
        assert_eq!(self.ask(line), "ok", "for {line:?}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and reap.
    pub(crate) fn kill(mut self) -> ExitStatus {
        self.child.kill().expect("to kill a child not reaped yet");
        self.child.wait().expect("its status")
    }

    /// Lets it end in order, and reaps it.
    pub(crate) fn exit(mut self) -> ExitStatus {
        self.send("exit");
        self.child.wait().expect("its status")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Already reaped by `kill` or `exit`: then both calls do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct State {
    region: Region,
    server: Option<Server>,
    primary: Option<(Primary, Interval)>,
    spinning: Option<(Arc<AtomicBool>, Vec<JoinHandle<u64>>)>,
}

pub(crate) fn run(path: &Path) {
    let region = Region::open(path).expect("the region of the test");
    let mut state = State { region, server: None, primary: None, spinning: None };
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["exit"] {
            return;
        }
        let answer = state.obey(&words).unwrap_or_else(|error| format!("error: {error}"));
        println!("{answer}");
    }
}

impl State {
    fn server(&self) -> &Server {
        self.server.as_ref().expect("a claimed slot")
    }

    fn obey(&mut self, words: &[&str]) -> shmstats::Result<String> {
        let number = |i: usize| words[i].parse::<u64>().expect("a number");
        match words[0] {
            "claim" => self.server = Some(self.region.claim(number(1) as u32)?),
            "claim_any" => self.server = Some(self.region.claim_any()?),
            "release" => self.server = None,
            "record" => self.record(number(1), number(2), number(3), number(4)),
            "load" => publish_load(self.server(), words[1], number(2), 0, None),
            "engine" => publish_engine(self.server(), words[1], number(2), 0.5),
            "single" => self.server().single_writer("single")?.add(number(1)),
            "in_flight" => self.server().gauge::<i64>("in_flight")?.add(number(1) as i64),
            "spin" => self.spin()?,
            "stop" => return Ok(self.stop().to_string()),
            "primary" => {
                let primary = self.region.primary()?;
                let interval = primary.interval();
                self.primary = Some((primary, interval));
            }
            "drain" => return Ok(self.drain().to_string()),
            "drain_until_killed" => {
                println!("ok");
                loop {
                    self.drain();
                }
            }
            other => panic!("unknown command {other}"),
        }
        Ok("ok".into())
    }

    fn record(&self, times: u64, prompt: u64, generation: u64, running: u64) {
        for _ in 0..times {
            crate::support::record(self.server(), prompt, generation, running);
        }
    }

    /// Starts a thread per counter that adds 1 at full speed: `prompt` and `single`.
    fn spin(&mut self) -> shmstats::Result<()> {
        let go = Arc::new(AtomicBool::new(true));
        let drained = self.server().counter("prompt")?;
        let mut single = self.server().single_writer("single")?;
        let count = |go: Arc<AtomicBool>, mut add: Box<dyn FnMut() + Send>| {
            std::thread::spawn(move || {
                let mut added = 0;
                while go.load(Ordering::Relaxed) {
                    for _ in 0..64 {
                        add();
                    }
                    added += 64;
                }
                added
            })
        };
        let threads = vec![
            count(Arc::clone(&go), Box::new(move || drained.inc())),
            count(Arc::clone(&go), Box::new(move || single.inc())),
        ];
        self.spinning = Some((go, threads));
        Ok(())
    }

    /// Ends the threads; how often each added, `prompt` first.
    fn stop(&mut self) -> String {
        let (go, threads) = self.spinning.take().expect("spinning threads");
        go.store(false, Ordering::Relaxed);
        let counts = threads.into_iter().map(|t| t.join().expect("a count").to_string());
        counts.collect::<Vec<_>>().join(" ")
    }

    fn drain(&mut self) -> String {
        let (primary, interval) = self.primary.as_mut().expect("the primary lease");
        primary.drain_into(interval);
        format!("{} {}", interval.delta("prompt"), interval.delta("single"))
    }
}
