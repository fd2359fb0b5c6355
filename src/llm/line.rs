//! The line of the API servers of a language model.

use super::CacheStats;
use super::names::*;
use super::window::Window;
use crate::interval::Interval;
use crate::logger::{Line, dead_note};

/// Requests that hit rates look back on.
const RECENT_REQUESTS: u64 = 1000;

/// `All 4 API Servers: Avg prompt throughput: …`, the line that vLLM logs for one server, over all
/// of them. With one server configured it begins with `Engine 000:`, as there.
///
/// In this order: prompt throughput (computed tokens), generation throughput, running, waiting,
/// preemptions if there were any, cache usage, prefix cache hit rate, corrupted requests if there
/// were any, external prefix and multi-modal cache hit rates once such a cache was asked. Hit rates
/// look back on the last 1000 requests of all servers, in steps of whole intervals; a primary that
/// took over leaves the prefix cache's out until it has seen a lookup.
#[derive(Clone, Debug)]
pub struct LlmLine {
    device: String,
    /// In the order of [`CACHES`].
    caches: [Window; 3],
    /// Whether this line has seen the region's intervals from the first one on; nothing before the
    /// first.
    complete: Option<bool>,
}

impl Default for LlmLine {
    fn default() -> Self {
        LlmLine {
            device: "GPU".into(),
            caches: [(); 3].map(|()| Window::new(RECENT_REQUESTS)),
            complete: None,
        }
    }
}

/// The numbers of a line.
struct Numbers {
    prompt_throughput: f64,
    generation_throughput: f64,
    running: f64,
    waiting: f64,
    preemptions: u64,
    kv_cache_usage: f64,
    cpu_cache_usage: Option<f64>,
    corrupted: u64,
    /// Percent, by cache; nothing for one that was never asked.
    hit_rates: [Option<f64>; 3],
    complete: bool,
}

impl LlmLine {
    /// With another name for where the key-value cache lies than `GPU`.
    #[must_use]
    pub fn with_device(device: impl Into<String>) -> Self {
        LlmLine { device: device.into(), ..LlmLine::default() }
    }

    fn numbers(&mut self, interval: &Interval) -> Numbers {
        let complete = *self.complete.get_or_insert(interval.number() <= 1);
        let schema = interval.schema();
        for (window, cache) in self.caches.iter_mut().zip(CACHES) {
            let delta =
                |name| schema.find(name, &[("cache", cache)]).map_or(0, |id| interval.delta_of(id));
            window.add(CacheStats {
                requests: delta(CACHE_REQUESTS),
                queries: delta(CACHE_QUERIES),
                hits: delta(CACHE_HITS),
            });
        }
        let percent =
            |window: &Window| window.is_used().then(|| 100.0 * window.hit_rate().unwrap_or(0.0));
        Numbers {
            prompt_throughput: interval.rate(PROMPT_TOKENS_COMPUTED),
            generation_throughput: interval.rate(GENERATION_TOKENS),
            running: interval.gauge(RUNNING).unwrap_or(0.0),
            waiting: interval.gauge(WAITING).unwrap_or(0.0),
            preemptions: interval.delta(PREEMPTIONS),
            kv_cache_usage: 100.0 * interval.gauge(KV_CACHE_USAGE).unwrap_or(0.0),
            cpu_cache_usage: interval.gauge(CPU_CACHE_USAGE).map(|usage| 100.0 * usage),
            corrupted: interval.delta(CORRUPTED_REQUESTS),
            hit_rates: [0, 1, 2].map(|i| percent(&self.caches[i])),
            complete,
        }
    }

    fn text(&self, interval: &Interval, n: &Numbers) -> String {
        let head = match interval.server_count() {
            1 => "Engine 000".into(),
            count => format!("All {count} API Servers{}", dead_note(interval)),
        };
        let [prefix, external, mm] = n.hit_rates;
        let parts = [
            Some(format!("Avg prompt throughput: {:.1} tokens/s", n.prompt_throughput)),
            Some(format!("Avg generation throughput: {:.1} tokens/s", n.generation_throughput)),
            Some(format!("Running: {:.0} reqs", n.running)),
            Some(format!("Waiting: {:.0} reqs", n.waiting)),
            (n.preemptions > 0).then(|| format!("Preemptions: {}", n.preemptions)),
            Some(format!("{} KV cache usage: {:.1}%", self.device, n.kv_cache_usage)),
            n.cpu_cache_usage.map(|usage| format!("CPU cache usage: {usage:.1}%")),
            // A primary that took over does not know the lookups before its time: no rate is
            // better than a wrong one.
            prefix.or(n.complete.then_some(0.0)).map(|r| format!("Prefix cache hit rate: {r:.1}%")),
            (n.corrupted > 0).then(|| format!("Corrupted: {} reqs", n.corrupted)),
            external.map(|rate| format!("External prefix cache hit rate: {rate:.1}%")),
            mm.map(|rate| format!("MM cache hit rate: {rate:.1}%")),
        ];
        format!("{head}: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

impl Line for LlmLine {
    fn line(&mut self, interval: &Interval) -> String {
        let numbers = self.numbers(interval);
        self.text(interval, &numbers)
    }

    /// As in vLLM: no tokens at all, whatever else was counted.
    fn is_idle(&self, interval: &Interval) -> bool {
        interval.delta(PROMPT_TOKENS_COMPUTED) == 0 && interval.delta(GENERATION_TOKENS) == 0
    }

    fn emit(&mut self, interval: &Interval, quiet: bool) {
        let n = self.numbers(interval);
        let line = self.text(interval, &n);
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    interval = interval.number(),
                    elapsed_s = interval.elapsed().as_secs_f64(),
                    prompt_tokens = interval.delta(PROMPT_TOKENS),
                    prompt_tokens_computed = interval.delta(PROMPT_TOKENS_COMPUTED),
                    generation_tokens = interval.delta(GENERATION_TOKENS),
                    prompt_tokens_per_s = n.prompt_throughput,
                    generation_tokens_per_s = n.generation_throughput,
                    running = n.running,
                    waiting = n.waiting,
                    kv_cache_usage_percent = n.kv_cache_usage,
                    prefix_cache_hit_percent = n.hit_rates[0],
                    servers_alive = interval.servers(crate::SlotState::Alive),
                    "{line}"
                )
            };
        }
        // A level is part of a call site in `tracing`, so there are two.
        if quiet { log!(debug) } else { log!(info) }
    }
}
