//! Hit rates over the most recent requests, as vLLM's line has them. Pure.

use std::collections::VecDeque;

use super::CacheStats;
use crate::interval::ratio;

/// Cache lookups of about the last `limit` requests, in steps of whole intervals.
#[derive(Clone, Debug)]
pub(super) struct Window {
    limit: u64,
    recent: VecDeque<CacheStats>,
    sum: CacheStats,
}

impl Window {
    pub(super) fn new(limit: u64) -> Self {
        Window { limit, recent: VecDeque::new(), sum: CacheStats::default() }
    }

    pub(super) fn add(&mut self, stats: CacheStats) {
        if stats == CacheStats::default() {
            return;
        }
        self.recent.push_back(stats);
        // A file that others scribble in may hold any number.
        self.sum.requests = self.sum.requests.saturating_add(stats.requests);
        self.sum.queries = self.sum.queries.saturating_add(stats.queries);
        self.sum.hits = self.sum.hits.saturating_add(stats.hits);
        // The newest interval always counts, even if it alone is more than the limit.
        let crowded = |window: &Self| {
            window.sum.requests > window.limit || window.recent.len() as u64 > window.limit
        };
        while self.recent.len() > 1 && crowded(self) {
            if let Some(old) = self.recent.pop_front() {
                self.sum.requests = self.sum.requests.saturating_sub(old.requests);
                self.sum.queries = self.sum.queries.saturating_sub(old.queries);
                self.sum.hits = self.sum.hits.saturating_sub(old.hits);
            }
        }
    }

    /// Between 0 and 1; nothing before the first lookup.
    pub(super) fn hit_rate(&self) -> Option<f64> {
        ratio(self.sum.hits, self.sum.queries)
    }

    /// Whether any request has asked.
    pub(super) fn is_used(&self) -> bool {
        !self.recent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(requests: u64, queries: u64, hits: u64) -> CacheStats {
        CacheStats { requests, queries, hits }
    }

    #[test]
    fn old_intervals_leave_once_there_are_enough_requests() {
        let mut window = Window::new(1000);
        assert_eq!((window.hit_rate(), window.is_used()), (None, false));
        window.add(stats(600, 100, 100));
        window.add(stats(400, 100, 0));
        assert_eq!(window.hit_rate(), Some(0.5), "1000 requests are within the limit");
        window.add(stats(1, 100, 50));
        assert_eq!(window.hit_rate(), Some(0.25), "the first 600 have left");
        window.add(stats(5000, 10, 10));
        assert_eq!(window.hit_rate(), Some(1.0), "a large interval counts alone");
    }

    #[test]
    fn an_interval_without_lookups_changes_nothing() {
        let mut window = Window::new(10);
        window.add(stats(10, 10, 5));
        for _ in 0..100 {
            window.add(CacheStats::default());
        }
        assert_eq!(window.hit_rate(), Some(0.5));
    }

    #[test]
    fn hits_that_overtake_their_queries_do_not_push_the_rate_over_one() {
        let mut window = Window::new(10);
        window.add(stats(1, 1, 2));
        assert_eq!(window.hit_rate(), Some(1.0));
    }
}
