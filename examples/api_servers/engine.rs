//! An engine: the process that steps one model for all API servers, and a server's client of it.
//!
//! They speak lines of JSON over a Unix socket: `Request`s one way, `Step`s the other. After each
//! step every server gets the outputs of its own requests, and *one* of them the engine's state as
//! well: the owner of the first output, as in vLLM. So each server has seen an old or a new state
//! of each engine, and only the newest over all servers is true.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

use crate::model::{Finish, Model, Output, Owner, Request, Stats};

/// What a step has for one API server.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) outputs: Vec<Output>,
    pub(crate) stats: Option<Stats>,
    /// When the engine stepped, by CLOCK_MONOTONIC, in nanoseconds: what it says of itself is of
    /// this time, however late a server reads it.
    pub(crate) time: u64,
}

/// Listens under an abstract name: no file, so nothing stays behind whoever is killed.
pub(crate) fn listen(name: &str) -> io::Result<StdListener> {
    StdListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

enum Event {
    Connected(Owner, mpsc::UnboundedSender<String>),
    Asked(Owner, Request),
    Gone(Owner),
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: StdListener, tokens_per_second: f64) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let (events, mut inbox) = mpsc::unbounded_channel();
    tokio::spawn(accept(UnixListener::from_std(listener)?, events));

    let mut ticks = interval(Duration::from_secs_f64(1.0 / tokens_per_second));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut engine = Engine::default();
    loop {
        if engine.has_nothing_to_say() {
            let Some(event) = inbox.recv().await else {
                return Ok(());
            };
            engine.apply(event);
        }
        ticks.tick().await;
        while let Ok(event) = inbox.try_recv() {
            engine.apply(event);
        }
        engine.step();
    }
}

#[derive(Default)]
struct Engine {
    model: Model,
    servers: BTreeMap<Owner, mpsc::UnboundedSender<String>>,
    /// Who was told the state last, and what it was.
    told: Option<(Owner, Stats)>,
}

impl Engine {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Connected(owner, sender) => drop(self.servers.insert(owner, sender)),
            Event::Asked(owner, request) => self.model.submit(owner, request),
            Event::Gone(owner) => {
                self.servers.remove(&owner);
                self.model.abort(owner);
                // It may have died before it passed on what it was told.
                self.told = self.told.filter(|(told, _)| *told != owner);
            }
        }
    }

    fn has_nothing_to_say(&self) -> bool {
        let news = self.told.is_none_or(|(_, stats)| stats != self.model.stats());
        self.model.is_idle() && (!news || self.servers.is_empty())
    }

    fn step(&mut self) {
        let mut steps: BTreeMap<Owner, Step> = BTreeMap::new();
        let outputs = self.model.step();
        let first = outputs.first().map(|(owner, _)| *owner);
        for (owner, output) in outputs {
            steps.entry(owner).or_default().outputs.push(output);
        }
        // With no output at all (requests were aborted) any server will do, or the others would
        // show those requests for ever.
        let observer = first.or_else(|| self.servers.keys().next().copied());
        let stats = self.model.stats();
        if let Some(observer) = observer {
            steps.entry(observer).or_default().stats = Some(stats);
            self.told = Some((observer, stats));
        }
        let time = shmstats::monotonic_ns();
        for (owner, mut step) in steps {
            step.time = time;
            if let (Some(server), Ok(line)) = (self.servers.get(&owner), to_line(&step)) {
                // A server that is gone is noticed by its reader.
                let _ = server.send(line);
            }
        }
    }
}

async fn accept(listener: UnixListener, events: mpsc::UnboundedSender<Event>) -> io::Result<()> {
    for owner in 0.. {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(attend(owner, stream, events.clone()));
    }
    Ok(())
}

/// Reads what a server asks. Its answers go through an unbounded queue: a server that is stopped
/// must not make the others wait.
async fn attend(owner: Owner, stream: UnixStream, events: mpsc::UnboundedSender<Event>) {
    let (from_server, mut to_server) = stream.into_split();
    let (sender, mut lines) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            to_server.write_all(line.as_bytes()).await?;
        }
        io::Result::Ok(())
    });
    let _ = events.send(Event::Connected(owner, sender));
    let mut requests = BufReader::new(from_server).lines();
    while let Ok(Some(line)) = requests.next_line().await {
        match serde_json::from_str(&line) {
            Ok(request) => drop(events.send(Event::Asked(owner, request))),
            Err(error) => {
                tracing::error!("expected a request, got {line:?}: {error}");
                break;
            }
        }
    }
    let _ = events.send(Event::Gone(owner));
}

/// A finished completion, put together from its steps.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    pub(crate) text: String,
    pub(crate) finish: Option<Finish>,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) completion_tokens: u64,
}

/// An API server's connection to one engine.
pub(crate) struct Client {
    asks: mpsc::UnboundedSender<(String, usize, oneshot::Sender<Completion>)>,
}

impl Client {
    /// `count` is called with each step before anybody is told what is in it.
    pub(crate) fn connect(
        name: &str,
        count: impl FnMut(&Step) + Send + 'static,
    ) -> io::Result<Client> {
        let stream = StdStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        stream.set_nonblocking(true)?;
        let (asks, inbox) = mpsc::unbounded_channel();
        tokio::spawn(converse(UnixStream::from_std(stream)?, inbox, count));
        Ok(Client { asks })
    }

    /// None if the engine is gone.
    pub(crate) async fn complete(&self, prompt: String, max_tokens: usize) -> Option<Completion> {
        let (done, completion) = oneshot::channel();
        self.asks.send((prompt, max_tokens, done)).ok()?;
        completion.await.ok()
    }

    pub(crate) fn is_connected(&self) -> bool {
        !self.asks.is_closed()
    }
}

/// Ends with the connection; whoever still waits for a completion then learns that none will come.
async fn converse(
    stream: UnixStream,
    mut asks: mpsc::UnboundedReceiver<(String, usize, oneshot::Sender<Completion>)>,
    mut count: impl FnMut(&Step),
) -> io::Result<()> {
    let (from_engine, mut to_engine) = stream.into_split();
    let mut steps = BufReader::new(from_engine).lines();
    let mut open: HashMap<u64, (Completion, oneshot::Sender<Completion>)> = HashMap::new();
    let mut ids = 0..;
    loop {
        tokio::select! {
            Some((prompt, max_tokens, done)) = asks.recv() => {
                let id = ids.next().unwrap_or_default();
                open.insert(id, (Completion::default(), done));
                let line = to_line(&Request { id, prompt, max_tokens })?;
                to_engine.write_all(line.as_bytes()).await?;
            }
            line = steps.next_line() => {
                let Some(line) = line? else { return Ok(()) };
                let step: Step = serde_json::from_str(&line)?;
                count(&step);
                for output in step.outputs {
                    let Some((completion, _)) = open.get_mut(&output.id) else { continue };
                    completion.add(&output);
                    if output.finish.is_some()
                        && let Some((completion, done)) = open.remove(&output.id)
                    {
                        // A client that hung up is no reason to stop.
                        let _ = done.send(completion);
                    }
                }
            }
        }
    }
}

impl Completion {
    fn add(&mut self, output: &Output) {
        self.text.push(' ');
        self.text.push_str(&output.token);
        self.completion_tokens += 1;
        self.finish = output.finish;
        if let Some(prompt) = output.prompt {
            self.prompt_tokens = prompt.tokens;
            self.cached_tokens = prompt.cached;
        }
    }
}

fn to_line(message: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(message).map(|line| line + "\n")
}
