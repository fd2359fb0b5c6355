//! The clients: real HTTP requests at a rate, and what they were told they used.

use std::error::Error;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Requests under way at once. At a rate that the model cannot keep up with, this is what holds.
const MAX_OPEN: usize = 512;
/// Requests that are late by more than this are left out.
const MAX_LAG: Duration = Duration::from_secs(1);
/// Many prompts begin alike, which is what a prefix cache is for.
const OPENINGS: u64 = 6;
const OPENING_WORDS: u64 = 32;
const OWN_WORDS: u64 = 64;
const COMPLETION_TOKENS: u64 = 56;

/// Tokens, as counted by clients or as the most that a request can have cost.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) prompt: u64,
    /// Prompt tokens that were not found in the prefix cache.
    pub(crate) computed: u64,
    pub(crate) generation: u64,
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Tokens) {
        self.prompt += other.prompt;
        self.computed += other.computed;
        self.generation += other.generation;
    }
}

/// What became of all requests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: u64,
    pub(crate) counted: Tokens,
    pub(crate) failed: u64,
    /// The most that the failed ones can have cost: a server counts before it replies.
    pub(crate) unknown: Tokens,
    pub(crate) first_failure: Option<String>,
    pub(crate) seconds: f64,
}

/// Sends requests until told to stop, then waits for the replies of those under way.
pub(crate) async fn run(to: SocketAddr, rate: f64, mut may_send: watch::Receiver<bool>) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random(u64::from(std::process::id()));
    let mut requests = JoinSet::new();
    let open = Arc::new(Semaphore::new(MAX_OPEN));
    let start = Instant::now();
    let mut next = start;
    loop {
        // Independent clients: exponential gaps, so there are bursts and a queue now and then.
        next += Duration::from_secs_f64(-random.unit().ln() / rate);
        if next + MAX_LAG < Instant::now() {
            next = Instant::now();
        }
        let turn = async {
            sleep_until(next).await;
            Arc::clone(&open).acquire_owned().await
        };
        let permit = tokio::select! {
            // Also when the sender is gone.
            _ = may_send.wait_for(|may_send| !may_send) => break,
            permit = turn => permit,
        };
        let (prompt, max_tokens) = random.request();
        requests.spawn(async move {
            let _permit = permit;
            let words = prompt.split(' ').count() as u64;
            let most = Tokens { prompt: words, computed: words, generation: max_tokens };
            ask(to, &prompt, max_tokens).await.map_err(|error| (most, error.to_string()))
        });
        while let Some(done) = requests.try_join_next() {
            tally.add(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())));
        }
    }
    tally.seconds = start.elapsed().as_secs_f64();
    while let Some(done) = requests.join_next().await {
        tally.add(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())));
    }
    tally
}

impl Tally {
    fn add(&mut self, outcome: Result<Tokens, (Tokens, String)>) {
        match outcome {
            Ok(tokens) => {
                self.answered += 1;
                self.counted += tokens;
            }
            Err((most, error)) => {
                self.failed += 1;
                self.unknown += most;
                self.first_failure.get_or_insert(error);
            }
        }
    }
}

#[derive(Deserialize)]
struct Reply {
    usage: Usage,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    prompt_tokens_details: Details,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: u64,
}

/// One request on a connection of its own, so that any server may get it.
async fn ask(
    to: SocketAddr,
    prompt: &str,
    max_tokens: u64,
) -> Result<Tokens, Box<dyn Error + Send + Sync>> {
    let stream = TcpStream::connect(to).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let body = json!({ "model": "stand-in", "prompt": prompt, "max_tokens": max_tokens });
    let request = hyper::Request::post("/v1/completions")
        .header("host", to.to_string())
        .header("content-type", "application/json")
        .body(Full::<Bytes>::from(body.to_string()))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
    }
    let Usage { prompt_tokens, completion_tokens, prompt_tokens_details } =
        serde_json::from_slice::<Reply>(&body)?.usage;
    Ok(Tokens {
        prompt: prompt_tokens,
        computed: prompt_tokens - prompt_tokens_details.cached_tokens,
        generation: completion_tokens,
    })
}

/// SplitMix64: enough to make requests differ.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A prompt and how many tokens to complete it with.
    fn request(&mut self) -> (String, u64) {
        let opening = self.next() % OPENINGS;
        let opening = (0..OPENING_WORDS).map(|word| format!("opening{opening}.{word}"));
        let own_words = 1 + self.next() % OWN_WORDS;
        let own = (0..own_words).map(|_| format!("word{}", self.next() % 1000));
        let prompt = opening.chain(own).collect::<Vec<_>>().join(" ");
        (prompt, 1 + self.next() % COMPLETION_TOKENS)
    }
}
