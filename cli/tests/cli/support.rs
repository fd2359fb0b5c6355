//! Servers and primaries as real processes: this test binary, started again with a role.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use shmstats::schema::{CounterDef, GaugeDef, SnapshotDef};
use shmstats::{Region, Schema};

/// No test waits longer than this for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
const ROLE: &str = "SHMSTATS_TEST_ROLE";

/// A schema with one of everything.
pub(crate) fn schema() -> Schema {
    let engine = |n: u32| {
        SnapshotDef::new("engine")
            .shared()
            .label("engine", n.to_string())
            .gauge(GaugeDef::u64("running").help("Requests being worked on"))
            .gauge(GaugeDef::f64("kv_usage").unit("ratio").mean().help("Used part of the cache"))
    };
    Schema::builder("shop")
        .counter(CounterDef::new("orders").help("Orders taken"))
        .counter(CounterDef::new("sent").unit("bytes").single_writer().help("Bytes \"sent\"\nout"))
        .counter(CounterDef::new("answers").family("status", ["2xx", "5xx"]).help("Answers"))
        .gauge(GaugeDef::i64("in_flight").help("Orders being worked on"))
        .gauge(GaugeDef::f64("load").rollup(shmstats::schema::Rollup::Max).help("How busy"))
        .snapshot(engine(0))
        .snapshot(engine(1))
        .build()
        .expect("a valid schema")
}

/// The llm preset's region, a folder that goes away, and what runs on it.
pub(crate) struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        // In memory where there is such a place, as regions should be.
        let shm = Path::new("/dev/shm");
        let mut dir = tempfile::Builder::new();
        let dir = dir.prefix("shmstats-test-");
        let dir = if shm.is_dir() { dir.tempdir_in(shm) } else { dir.tempdir() };
        Folder { dir: dir.expect("a folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn region(&self, name: &str, servers: u32) -> (Region, PathBuf) {
        let path = self.file(name);
        (Region::create(&path, &schema(), servers).expect("a region"), path)
    }

    /// The command, with this folder as the default one.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shmstats"));
        command.args(args).env("SHMSTATS_DIR", self.path()).env_remove("NO_COLOR");
        command
    }

    /// The command as a user who may look into the folder and read nothing that is not for all.
    /// Nothing for one who cannot be another user.
    pub(crate) fn run_as_nobody(&self, args: &[&str]) -> Option<Ran> {
        use std::os::unix::fs::PermissionsExt;
        if !nix::unistd::Uid::effective().is_root() {
            return None;
        }
        // The build's folders may be closed to others.
        let binary = self.file("the-command");
        if !binary.exists() {
            // By a process of its own: this one may be forked by another test at any moment, and a
            // child that has the copy open for writing would keep it from being started.
            let copied =
                Command::new("cp").arg(env!("CARGO_BIN_EXE_shmstats")).arg(&binary).status();
            assert!(copied.is_ok_and(|status| status.success()), "a copy");
        }
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&binary, open.clone()).expect("its mode");
        fs::set_permissions(self.path(), open).expect("the folder's mode");
        let mut command = Command::new(binary);
        command.args(args).env("SHMSTATS_DIR", self.path()).current_dir("/");
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        std::os::unix::process::CommandExt::gid(&mut command, 65_534);
        Some(Ran::from(command.stdin(Stdio::null()).output().expect("the command")))
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).stdin(Stdio::null()).output().expect("the command"))
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

impl Ran {
    /// The output of a command that did well and had nothing to say about it.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// The one line of a command that failed so.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        let line = self.err.strip_suffix('\n').expect("a line");
        assert!(!line.contains('\n'), "one line: {line}");
        line.strip_prefix("shmstats: ").expect("the command's name").into()
    }
}

/// A process that is killed when it is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a process");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Process { child, lines }
    }

    /// This binary in a role, once it has begun.
    pub(crate) fn role(role: &str, path: &Path, argument: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .args(["--exact", "support::in_a_role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env("SHMSTATS_TEST_PATH", path)
            .env("SHMSTATS_TEST_ARGUMENT", argument);
        let process = Process::start(&mut command);
        process.wait_for("ready");
        process
    }

    pub(crate) fn server(path: &Path, index: u32) -> Self {
        Process::role("server", path, &index.to_string())
    }

    pub(crate) fn primary(path: &Path) -> Self {
        Process::role("primary", path, "")
    }

    /// The first line with this in it.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no line with {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }

    #[track_caller]
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("a signal");
    }

    /// The exit status, within the limit.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let status =
            wait_until("the end of the process", || self.child.try_wait().expect("a status"));
        status.code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Head and body of an HTTP answer, after which the server hangs up.
pub(crate) fn ask(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.into())
}

/// A running exporter.
pub(crate) struct Exporter {
    pub(crate) process: Process,
    pub(crate) address: String,
}

impl Exporter {
    pub(crate) fn start(folder: &Folder, args: &[&str]) -> Self {
        let mut command = folder.command(&["export", "--listen", "127.0.0.1:0"]);
        command.args(args).stderr(Stdio::null());
        let process = Process::start(&mut command);
        let line = process.wait_for("serving http://");
        let address = line.strip_prefix("serving http://").unwrap();
        Exporter { address: address.strip_suffix("/metrics").unwrap().into(), process }
    }

    pub(crate) fn ask(&self, request: &str) -> (String, String) {
        ask(&self.address, request)
    }

    pub(crate) fn get(&self, path: &str, accept: &str) -> (String, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"))
    }

    pub(crate) fn metrics(&self) -> String {
        let (head, body) = self.get("/metrics", "text/plain");
        assert!(head.starts_with("http/1.1 200"), "{head}");
        body
    }
}

/// The value of a sample.
pub(crate) fn sample(text: &str, series: &str) -> Option<f64> {
    let of = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(of)
}

/// Looks until there is something, within the limit.
#[track_caller]
pub(crate) fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn in_a_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    // Gone with the test that started it, however that ends.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).expect("a wish");
    let path = PathBuf::from(std::env::var_os("SHMSTATS_TEST_PATH").expect("a path"));
    let argument = std::env::var("SHMSTATS_TEST_ARGUMENT").expect("an argument");
    match role.as_str() {
        "server" => be_a_server(&path, argument.parse().expect("an index")),
        "primary" => be_the_primary(&path),
        other => panic!("no role {other}"),
    }
}

/// Counts and publishes until it is killed.
fn be_a_server(path: &Path, index: u32) {
    let region = Region::open(path).expect("the region");
    let server = region.claim_preferring(index).expect("a slot");
    let orders = server.counter("orders").expect("orders");
    let good = server.counter_with("answers", &[("status", "2xx")]).expect("answers");
    let mut sent = server.single_writer("sent").expect("sent");
    let in_flight = server.gauge::<i64>("in_flight").expect("in_flight");
    let load = server.gauge::<f64>("load").expect("load");
    let engine = (index % 2).to_string();
    let mut engine = server.snapshot("engine", &[("engine", &engine)]).expect("engine");
    let running = engine.field::<u64>("running").expect("running");
    let usage = engine.field::<f64>("kv_usage").expect("kv_usage");
    in_flight.set(i64::from(index) + 1);
    load.set(0.25 * f64::from(index));
    for n in 0_u64.. {
        orders.add(3);
        good.inc();
        sent.add(100);
        if n % 1000 == 0 {
            engine.set(running, 10 + u64::from(index));
            engine.set(usage, 0.5);
            engine.publish();
        }
        if n == 1000 {
            println!("\nready");
        }
    }
}

/// Drains as fast as it can until it is killed.
fn be_the_primary(path: &Path) {
    let region = Region::open(path).expect("the region");
    let mut primary = wait_until("the primary lease", || region.primary().ok());
    let mut interval = primary.interval();
    for n in 0_u64.. {
        primary.drain_into(&mut interval);
        if n == 10 {
            println!("\nready");
        }
    }
}

/// Makes the head's checksum right again after a change (`docs/format.md`, Header).
pub(crate) fn seal(file: &mut [u8]) {
    let sum = crc32fast::hash(&file[..252]);
    file[252..256].copy_from_slice(&sum.to_ne_bytes());
}

/// A file of the folder with these bytes.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    let mut file = fs::File::create(path).expect("a file");
    file.write_all(bytes).expect("written");
}
