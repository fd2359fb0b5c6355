//! Orderings that no model needs, kept for the reasons that `docs/protocol.md` gives. Each model
//! that could need one holds without it. Run with `--ignored`: they take a minute or two.

use crate::check::holds;
use crate::claim::{claim_gauge, claim_two_threads};
use crate::drain::drain_and_totals;
use crate::order::{interval_in_order, totals_in_order};
use crate::takeover::{
    killed_after_intent, killed_after_ledger, killed_after_swap, killed_between_hits_and_queries,
    next_after_intent, next_after_ledger, next_after_swap, next_drains,
};

macro_rules! spare {
    ($($twin:ident: $($model:ident),+;)+) => {
        $(#[test]
        #[ignore = "slow, and only of interest when an ordering is in question"]
        fn $twin() {
            $(holds(Some(2), $model::<$crate::twins::$twin::It>);)+
        })+
    };
}

spare!(
    spare_intent_release: drain_and_totals, totals_in_order, killed_after_intent,
        killed_between_hits_and_queries, next_after_intent, next_drains;
    spare_swap_release: drain_and_totals, totals_in_order, interval_in_order, killed_after_swap,
        killed_between_hits_and_queries, next_after_swap, next_drains;
    spare_ledger_release: drain_and_totals, totals_in_order, killed_after_ledger,
        next_after_ledger, next_drains;
    spare_take_over_ledger_release: next_after_swap, next_drains;
    spare_take_over_pending_acquire: next_after_intent, next_after_swap, next_drains;
    spare_drain_plus_one: drain_and_totals, next_drains;
    spare_collect_intent_fence: drain_and_totals, totals_in_order, killed_after_intent,
        killed_after_swap, killed_between_hits_and_queries, next_after_swap;
    spare_collect_pending_fence: drain_and_totals, totals_in_order, killed_after_swap,
        next_after_swap;
    spare_collect_ledger_fence: drain_and_totals, totals_in_order, killed_after_ledger,
        killed_between_hits_and_queries, next_after_swap;
    spare_clear_mark_release: claim_gauge, claim_two_threads;
);
