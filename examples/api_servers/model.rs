//! The stand-in model of one engine: words in, words out.
//!
//! It invents the words and nothing else: the queue, the KV blocks and the prefix cache work as a
//! real engine's do, so what it says about itself is true. It has no clock and does no I/O;
//! whoever calls `Model::step` sets its speed.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

/// The most tokens, prompt and completion together, that one request may have.
pub(crate) const MAX_CONTEXT: usize = 2048;
/// Requests that get a token in each step; the others wait.
const MAX_RUNNING: usize = 32;
/// Prompt tokens computed in one step. The step that reaches it admits no more requests.
const PREFILL_BUDGET: usize = 512;
/// Tokens of one KV block, and so the grain of the prefix cache.
const BLOCK: usize = 16;
/// KV blocks in all. Must hold one request of `MAX_CONTEXT`, or it would wait for ever.
const CAPACITY: usize = 256;
const _: () = assert!(CAPACITY * BLOCK >= MAX_CONTEXT);

/// Whose request it is: the number of the connection that brought it.
pub(crate) type Owner = u64;

/// What an API server asks of the engine. The id is the server's own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) prompt: String,
    pub(crate) max_tokens: usize,
}

/// What one step did for one request: one token, and the prompt if it was just read.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Output {
    pub(crate) id: u64,
    pub(crate) token: String,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) finish: Option<Finish>,
}

/// The prompt's tokens, and how many of them the prefix cache saved computing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prompt {
    pub(crate) tokens: u64,
    pub(crate) cached: u64,
}

/// Why a completion ended, in OpenAI's words.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Finish {
    Stop,
    Length,
}

/// The engine's state after a step. Any API server may be the one that is told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stats {
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) kv_cache_usage: f64,
}

#[derive(Default)]
pub(crate) struct Model {
    waiting: VecDeque<(Owner, Request)>,
    running: Vec<Running>,
    kv: KvCache,
}

struct Running {
    owner: Owner,
    request: Request,
    words: Vec<String>,
    /// Until the first output has told it.
    prompt: Option<Prompt>,
    generated: usize,
    held: Held,
}

impl Model {
    pub(crate) fn submit(&mut self, owner: Owner, request: Request) {
        self.waiting.push_back((owner, request));
    }

    /// Drops every request of an owner that is gone.
    pub(crate) fn abort(&mut self, owner: Owner) {
        self.waiting.retain(|(other, _)| *other != owner);
        for gone in self.running.extract_if(.., |running| running.owner == owner) {
            self.kv.release(&gone.held);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            running: self.running.len() as u64,
            waiting: self.waiting.len() as u64,
            kv_cache_usage: self.kv.in_use() as f64 / CAPACITY as f64,
        }
    }

    /// Admits what fits and generates one token for each running request.
    pub(crate) fn step(&mut self) -> Vec<(Owner, Output)> {
        self.admit();
        let outputs = self.running.iter_mut().map(Running::generate).collect();
        let finished = |running: &mut Running| running.finish().is_some();
        for done in self.running.extract_if(.., finished) {
            self.kv.release(&done.held);
        }
        outputs
    }

    /// First come, first served: a request that does not fit makes those behind it wait.
    fn admit(&mut self) {
        let mut budget = PREFILL_BUDGET;
        while self.running.len() < MAX_RUNNING
            && budget > 0
            && let Some((owner, request)) = self.waiting.pop_front()
        {
            let words: Vec<String> = request.prompt.split_whitespace().map(str::to_owned).collect();
            let Some((held, cached)) = self.kv.take(&words, request.max_tokens) else {
                self.waiting.push_front((owner, request));
                break;
            };
            budget = budget.saturating_sub(words.len() - cached);
            let prompt = Some(Prompt { tokens: words.len() as u64, cached: cached as u64 });
            self.running.push(Running { owner, request, words, prompt, generated: 0, held });
        }
    }
}

impl Running {
    fn generate(&mut self) -> (Owner, Output) {
        self.generated += 1;
        let output = Output {
            id: self.request.id,
            token: self.words[self.dice() as usize % self.words.len()].clone(),
            prompt: self.prompt.take(),
            finish: self.finish(),
        };
        (self.owner, output)
    }

    /// Some completions stop before `max_tokens`, so that a client has to read `usage` to know.
    fn finish(&self) -> Option<Finish> {
        if self.dice() >> 58 == 0 {
            Some(Finish::Stop)
        } else {
            (self.generated >= self.request.max_tokens).then_some(Finish::Length)
        }
    }

    /// The same prompt always gets the same completion.
    fn dice(&self) -> u64 {
        hash(&(&self.request.prompt, self.generated))
    }
}

/// Blocks of KV cache. Full blocks of a prompt are found again by the words up to their end, and
/// stay after their last user is gone until the room is needed: least recently used goes first.
#[derive(Default)]
struct KvCache {
    /// By the hash of all words up to the block's end.
    blocks: HashMap<u64, Block>,
    /// Blocks that nobody can share: prompts' last pieces and completions.
    private: usize,
    clock: u64,
}

struct Block {
    users: usize,
    last_used: u64,
}

/// What one running request holds.
struct Held {
    hashes: Vec<u64>,
    private: usize,
}

impl KvCache {
    /// Blocks that running requests hold. The others, cached or empty, can be had at once.
    fn in_use(&self) -> usize {
        self.private + self.blocks.values().filter(|block| block.users > 0).count()
    }

    /// Room for a prompt and its completion, and the prompt tokens found in the cache; none if it
    /// does not fit yet. All of it is taken at once, so no running request is ever preempted.
    fn take(&mut self, words: &[String], max_tokens: usize) -> Option<(Held, usize)> {
        // The last word is always computed, for something has to bring forth the first token.
        let full = words[..words.len() - 1].chunks_exact(BLOCK);
        let hashes: Vec<u64> = full
            .scan(0, |prefix, block| {
                *prefix = hash(&(*prefix, block));
                Some(*prefix)
            })
            .collect();
        let hits = hashes.iter().take_while(|hash| self.blocks.contains_key(hash)).count();
        let fresh = (words.len() + max_tokens).div_ceil(BLOCK) - hits;
        let idle_hits = hashes[..hits].iter().filter(|hash| self.blocks[hash].users == 0).count();
        if self.in_use() + idle_hits + fresh > CAPACITY {
            return None;
        }
        let (hit, missed) = hashes.split_at(hits);
        for hash in hit {
            self.blocks.entry(*hash).and_modify(|block| block.users += 1);
        }
        while self.blocks.len() + self.private + fresh > CAPACITY {
            self.evict();
        }
        for hash in missed {
            self.blocks.entry(*hash).or_insert(Block { users: 0, last_used: 0 }).users += 1;
        }
        let private = fresh - missed.len();
        self.private += private;
        Some((Held { hashes, private }, hits * BLOCK))
    }

    fn release(&mut self, held: &Held) {
        self.private -= held.private;
        // Backwards: a prefix is worth more than what follows it, and useless is the reverse.
        for hash in held.hashes.iter().rev() {
            self.clock += 1;
            if let Some(block) = self.blocks.get_mut(hash) {
                block.users -= 1;
                block.last_used = self.clock;
            }
        }
    }

    fn evict(&mut self) {
        let idle = self.blocks.iter().filter(|(_, block)| block.users == 0);
        if let Some(oldest) = idle.min_by_key(|(_, block)| block.last_used).map(|(hash, _)| *hash) {
            self.blocks.remove(&oldest);
        }
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
