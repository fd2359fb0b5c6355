//! Random instants, and how often a test does what it does.

use std::time::{Duration, Instant};

/// xorshift64*: enough to spread instants, with no dependency.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        Dice(shmstats::monotonic_ns() | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    /// Lets a random time below `limit` pass. It is the instant of an attack that is random here,
    /// and no event that is waited for.
    pub(crate) fn pause(&mut self, limit: Duration) {
        let pause = Duration::from_nanos(self.below(limit.as_nanos() as u64));
        if pause > Duration::from_micros(200) {
            return std::thread::sleep(pause);
        }
        let start = Instant::now();
        while start.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
}

/// Multiplies the number of attacks; 1 unless the environment says more.
pub(crate) fn times(n: u32) -> u32 {
    n * factor()
}

pub(crate) fn is_long() -> bool {
    factor() > 1
}

fn factor() -> u32 {
    std::env::var("SHMSTATS_STORM").map_or(1, |text| text.parse().expect("a number of times"))
}
