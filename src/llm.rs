//! A preset for the API servers of a language model: what they count, and their line.
//!
//! Several API servers answer for one or more *engines*, which run the model. Counts belong to the
//! server that answers; running and waiting requests and cache usage belong to the engine, which
//! reports them to one arbitrary server at each step, so the newest observation per engine is
//! right, and never a sum over servers.

mod line;
mod window;

use std::sync::{Arc, Mutex, PoisonError};

pub use self::line::LlmLine;
use crate::clock::monotonic_ns;
use crate::error::Result;
use crate::schema::{CounterDef, GaugeDef, Schema, SnapshotDef};
use crate::server::{Counter, Field, Server, Snapshot};

/// Names of the preset's records.
pub mod names {
    /// Counter, tokens: all tokens of answered prompts, cached ones included.
    pub const PROMPT_TOKENS: &str = "prompt_tokens";
    /// Counter, tokens: those of them that were not found in a cache.
    pub const PROMPT_TOKENS_COMPUTED: &str = "prompt_tokens_computed";
    /// Counter, tokens: generated.
    pub const GENERATION_TOKENS: &str = "generation_tokens";
    /// Counter: requests put back to waiting for lack of room.
    pub const PREEMPTIONS: &str = "preemptions";
    /// Counter: requests whose output was not a number.
    pub const CORRUPTED_REQUESTS: &str = "corrupted_requests";
    /// Gauge of an engine: requests being worked on.
    pub const RUNNING: &str = "requests_running";
    /// Gauge of an engine: requests waiting for room.
    pub const WAITING: &str = "requests_waiting";
    /// Gauge of an engine, 0 to 1: used part of the key-value cache.
    pub const KV_CACHE_USAGE: &str = "kv_cache_usage";
    /// Gauge of an engine, 0 to 1: used part of the cache in main memory.
    pub const CPU_CACHE_USAGE: &str = "cpu_cache_usage";
    /// The caches, as label values.
    pub const CACHES: [&str; 3] = ["prefix", "external_prefix", "mm"];
    /// Counter per cache: requests that asked it.
    pub const CACHE_REQUESTS: &str = "cache_requests";
    /// Counter per cache: things looked up (tokens, or multi-modal items).
    pub const CACHE_QUERIES: &str = "cache_queries";
    /// Counter per cache: things found.
    pub const CACHE_HITS: &str = "cache_hits";
}

/// The preset's schema for so many engines.
///
/// # Errors
/// [`Error::InvalidSchema`](crate::Error::InvalidSchema) for more engines than a schema can hold.
pub fn schema(engines: u32) -> Result<Schema> {
    use names::*;
    let cache = |name, help| CounterDef::new(name).help(help).family("cache", CACHES);
    let tokens = |name, help| CounterDef::new(name).unit("tokens").help(help);
    // Causes before effects: a hit is never seen without its query.
    let mut builder = Schema::builder("llm")
        .counter(tokens(PROMPT_TOKENS, "Prompt tokens, cached ones included"))
        .counter(CounterDef::new(PROMPT_TOKENS_COMPUTED).help("Prompt tokens not found in a cache"))
        .counter(tokens(GENERATION_TOKENS, "Generated tokens"))
        .counter(CounterDef::new(PREEMPTIONS).help("Requests put back to waiting"))
        .counter(CounterDef::new(CORRUPTED_REQUESTS).help("Requests with corrupted output"))
        .counter(cache(CACHE_REQUESTS, "Requests that asked a cache"))
        .counter(cache(CACHE_QUERIES, "Things looked up in a cache"))
        .counter(cache(CACHE_HITS, "Things found in a cache"));
    for engine in 0..engines {
        let usage = |name, help| GaugeDef::f64(name).unit("ratio").mean().help(help);
        builder = builder.snapshot(
            SnapshotDef::new("engine")
                .shared()
                .label("engine", engine.to_string())
                .gauge(GaugeDef::u64(RUNNING).help("Requests being worked on"))
                .gauge(GaugeDef::u64(WAITING).help("Requests waiting for room"))
                .gauge(usage(KV_CACHE_USAGE, "Used part of the key-value cache"))
                .gauge(usage(CPU_CACHE_USAGE, "Used part of the cache in main memory")),
        );
    }
    builder.build()
}

/// What an engine says of itself after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SchedulerStats {
    /// Requests being worked on.
    pub running: u64,
    /// Requests waiting for room.
    pub waiting: u64,
    /// Used part of the key-value cache, 0 to 1.
    pub kv_cache_usage: f64,
    /// Used part of the cache in main memory, 0 to 1, where there is one.
    pub cpu_cache_usage: Option<f64>,
}

/// Lookups in a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Requests that asked.
    pub requests: u64,
    /// Things looked up.
    pub queries: u64,
    /// Things found.
    pub hits: u64,
}

/// What one step added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterationStats {
    /// Prompt tokens, cached ones included.
    pub prompt_tokens: u64,
    /// Those of them that had to be computed.
    pub prompt_tokens_computed: u64,
    /// Generated tokens.
    pub generation_tokens: u64,
    /// Requests put back to waiting.
    pub preemptions: u64,
    /// Requests with corrupted output.
    pub corrupted_reqs: u64,
    /// The prefix cache.
    pub prefix_cache: CacheStats,
    /// A prefix cache outside of the engine.
    pub external_prefix_cache: CacheStats,
    /// The cache of multi-modal inputs.
    pub mm_cache: CacheStats,
}

/// A server's handles of all the preset's records. Cheap to clone. In a forked child it goes on
/// counting for the parent's slot and publishes nothing.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Handles>);

#[derive(Debug)]
struct Handles {
    prompt_tokens: Counter,
    prompt_tokens_computed: Counter,
    generation_tokens: Counter,
    preemptions: Counter,
    corrupted: Counter,
    caches: [CacheCounters; 3],
    /// A snapshot has one writer. The locks are this process's own and die with it.
    engines: Vec<Mutex<Engine>>,
    server: Server,
}

#[derive(Debug)]
struct CacheCounters {
    requests: Counter,
    queries: Counter,
    hits: Counter,
}

#[derive(Debug)]
struct Engine {
    snapshot: Snapshot,
    running: Field<u64>,
    waiting: Field<u64>,
    kv_cache_usage: Field<f64>,
    cpu_cache_usage: Field<f64>,
}

impl Recorder {
    /// Finds the handles in a server of the preset's schema.
    ///
    /// # Errors
    /// [`Error::NoSuchRecord`](crate::Error::NoSuchRecord) for another schema;
    /// [`Error::Held`](crate::Error::Held) while another recorder of the server is out.
    pub fn new(server: &Server) -> Result<Self> {
        use names::*;
        let cache = |name: &str| {
            let labels = [("cache", name)];
            Ok::<_, crate::Error>(CacheCounters {
                requests: server.counter_with(CACHE_REQUESTS, &labels)?,
                queries: server.counter_with(CACHE_QUERIES, &labels)?,
                hits: server.counter_with(CACHE_HITS, &labels)?,
            })
        };
        let shapes = server.region().schema().snapshots();
        let engines = (0..shapes.len()).map(|engine| Engine::new(server, engine).map(Mutex::new));
        Ok(Recorder(Arc::new(Handles {
            prompt_tokens: server.counter(PROMPT_TOKENS)?,
            prompt_tokens_computed: server.counter(PROMPT_TOKENS_COMPUTED)?,
            generation_tokens: server.counter(GENERATION_TOKENS)?,
            preemptions: server.counter(PREEMPTIONS)?,
            corrupted: server.counter(CORRUPTED_REQUESTS)?,
            caches: [cache(CACHES[0])?, cache(CACHES[1])?, cache(CACHES[2])?],
            engines: engines.collect::<Result<_>>()?,
            server: server.clone(),
        })))
    }

    /// Counts what a step of an engine added, and publishes what the engine says of itself; either
    /// may be missing. What an engine beyond the schema says of itself is left out.
    pub fn record(
        &self,
        engine: usize,
        scheduler: Option<&SchedulerStats>,
        iteration: Option<&IterationStats>,
    ) {
        self.record_at(engine, monotonic_ns(), scheduler, iteration);
    }

    /// As [`record`](Self::record), of a time given in nanoseconds of CLOCK_MONOTONIC
    /// ([`monotonic_ns`]). An engine that sends the time of its step with what it says of itself
    /// makes sure that the newest state wins, also when a server reads an older one later.
    pub fn record_at(
        &self,
        engine: usize,
        time: u64,
        scheduler: Option<&SchedulerStats>,
        iteration: Option<&IterationStats>,
    ) {
        if let Some(stats) = iteration {
            self.count(stats);
        }
        if let (Some(stats), Some(engine)) = (scheduler, self.0.engines.get(engine)) {
            // Asked before the lock, which another thread may have held at the fork for ever.
            if !self.0.server.is_mine() {
                return self.0.server.skip_write();
            }
            engine.lock().unwrap_or_else(PoisonError::into_inner).publish(time, stats);
        }
    }

    fn count(&self, stats: &IterationStats) {
        let handles = &*self.0;
        let add = |counter: &Counter, n: u64| {
            if n > 0 {
                counter.add(n);
            }
        };
        add(&handles.prompt_tokens, stats.prompt_tokens);
        add(&handles.prompt_tokens_computed, stats.prompt_tokens_computed);
        add(&handles.generation_tokens, stats.generation_tokens);
        add(&handles.preemptions, stats.preemptions);
        add(&handles.corrupted, stats.corrupted_reqs);
        let caches = [stats.prefix_cache, stats.external_prefix_cache, stats.mm_cache];
        for (counters, stats) in handles.caches.iter().zip(caches) {
            add(&counters.requests, stats.requests);
            add(&counters.queries, stats.queries);
            add(&counters.hits, stats.hits);
        }
    }
}

impl Engine {
    fn new(server: &Server, engine: usize) -> Result<Self> {
        let snapshot = server.snapshot("engine", &[("engine", &engine.to_string())])?;
        Ok(Engine {
            running: snapshot.field(names::RUNNING)?,
            waiting: snapshot.field(names::WAITING)?,
            kv_cache_usage: snapshot.field(names::KV_CACHE_USAGE)?,
            cpu_cache_usage: snapshot.field(names::CPU_CACHE_USAGE)?,
            snapshot,
        })
    }

    fn publish(&mut self, time: u64, stats: &SchedulerStats) {
        self.snapshot.set(self.running, stats.running);
        self.snapshot.set(self.waiting, stats.waiting);
        self.snapshot.set(self.kv_cache_usage, stats.kv_cache_usage);
        match stats.cpu_cache_usage {
            Some(usage) => self.snapshot.set(self.cpu_cache_usage, usage),
            None => self.snapshot.unset(self.cpu_cache_usage),
        }
        self.snapshot.publish_at(time);
    }
}
