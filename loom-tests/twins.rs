//! The table of twins: one weakening each. `build.rs` applies them, `src/` names them.

/// One weakening of one function of the shipped source.
pub(crate) struct Twin {
    /// The twin's module, and the test that must fail on it.
    pub(crate) name: &'static str,
    /// A file of `src/protocol`.
    pub(crate) file: &'static str,
    /// A function of that file.
    pub(crate) function: &'static str,
    /// Stands once in the function.
    pub(crate) from: &'static str,
    /// What the twin has instead.
    pub(crate) to: &'static str,
}

const fn twin(
    name: &'static str,
    [file, function]: [&'static str; 2],
    from: &'static str,
    to: &'static str,
) -> Twin {
    Twin { name, file, function, from, to }
}

const ADD: [&str; 2] = ["counter.rs", "add"];
const ADD_SINGLE_WRITER: [&str; 2] = ["counter.rs", "add_single_writer"];
const DRAIN: [&str; 2] = ["ledger.rs", "drain"];
const WATERMARKS: [&str; 2] = ["ledger.rs", "advance_watermarks"];
const TAKE_OVER: [&str; 2] = ["ledger.rs", "take_over"];
const OPEN: [&str; 2] = ["ledger.rs", "open"];
const COLLECT: [&str; 2] = ["ledger.rs", "collect"];
const CLOSE: [&str; 2] = ["ledger.rs", "close"];
const PUBLISH: [&str; 2] = ["snapshot.rs", "publish"];
const READ_ONCE: [&str; 2] = ["snapshot.rs", "read_once"];
const SET: [&str; 2] = ["gauge.rs", "set"];
const CLEAR: [&str; 2] = ["gauge.rs", "clear"];
const SHOW: [&str; 2] = ["gauge.rs", "show"];
const READ_GAUGE: [&str; 2] = ["gauge.rs", "read"];
const BEGIN: [&str; 2] = ["claim.rs", "begin"];
const FINISH: [&str; 2] = ["claim.rs", "finish"];
const LOOK: [&str; 2] = ["claim.rs", "look"];
const STILL: [&str; 2] = ["claim.rs", "still"];

/// Every twin that is built.
pub(crate) const TWINS: &[Twin] = &[
    // P1: causes before effects.
    twin("add_relaxed", ADD, "n, Ordering::Release", "n, Ordering::Relaxed"),
    twin("add_single_writer_relaxed", ADD_SINGLE_WRITER, "Ordering::Release", "Ordering::Relaxed"),
    twin("drain_forward", DRAIN, "(0..books.pending.len()).rev()", "0..books.pending.len()"),
    twin("swap_not_acquire", DRAIN, "swap(0, Ordering::AcqRel)", "swap(0, Ordering::Release)"),
    twin(
        "watermarks_forward",
        WATERMARKS,
        "(0..books.single.len()).rev()",
        "0..books.single.len()",
    ),
    twin(
        "watermarks_not_acquire",
        WATERMARKS,
        "load(Ordering::Acquire)",
        "load(Ordering::Relaxed)",
    ),
    twin("collect_forward", COLLECT, "(0..books.pending.len()).rev()", "0..books.pending.len()"),
    twin(
        "collect_single_forward",
        COLLECT,
        "(0..books.single.len()).rev()",
        "0..books.single.len()",
    ),
    twin("collect_single_not_acquire", COLLECT, "fence(Ordering::Acquire);\n    }", "}"),
    twin(
        "collect_not_acquire",
        COLLECT,
        "fence(Ordering::Acquire); // (P5)
        let pending = books.pending[i].load(Ordering::Relaxed);
        fence(Ordering::Acquire); // (P4)",
        "let pending = books.pending[i].load(Ordering::Relaxed);",
    ),
    // P2: one of the two fences comes first.
    twin("drain_without_fence", DRAIN, "fence(Ordering::SeqCst);", ""),
    twin("drain_fence_release", DRAIN, "fence(Ordering::SeqCst);", "fence(Ordering::Release);"),
    twin("close_acquire", CLOSE, "fence(Ordering::SeqCst)", "fence(Ordering::Acquire)"),
    twin("collect_sure_while_odd", COLLECT, "sure &= primary_is_gone;", ""),
    // P3 to P6: the steps of a drain.
    twin(
        "intent_never",
        DRAIN,
        "books.intent(i).store(ledger.wrapping_add(value), Ordering::Release);",
        "",
    ),
    twin(
        "sequence_end_relaxed",
        DRAIN,
        "wrapping_add(1), Ordering::Release",
        "wrapping_add(1), Ordering::Relaxed",
    ),
    twin("open_not_acquire", OPEN, "fence(Ordering::Acquire);", ""),
    // P12: the sequence of a takeover.
    twin("take_over_same_sequence", TAKE_OVER, "sequence.wrapping_add(2)", "sequence"),
    twin(
        "take_over_intent_relaxed",
        TAKE_OVER,
        "books.intent(i).store(settled, Ordering::Release)",
        "books.intent(i).store(settled, Ordering::Relaxed)",
    ),
    twin("take_over_never_settles", TAKE_OVER, "ledger.wrapping_add(pending) < intent", "false"),
    twin("take_over_always_settles", TAKE_OVER, "ledger.wrapping_add(pending) < intent", "true"),
    twin(
        "take_over_intent_left",
        TAKE_OVER,
        "books.intent(i).store(settled, Ordering::Release);",
        "",
    ),
    // P7, P8: snapshots.
    twin("publish_without_fence", PUBLISH, "fence(Ordering::Release);", ""),
    twin(
        "publish_end_relaxed",
        PUBLISH,
        "odd.wrapping_add(1), Ordering::Release",
        "odd.wrapping_add(1), Ordering::Relaxed",
    ),
    twin("publish_plus_one", PUBLISH, "load(Ordering::Relaxed) | 1", "load(Ordering::Relaxed) + 1"),
    twin("read_first_not_acquire", READ_ONCE, "fence(Ordering::Acquire); // (P8)", ""),
    twin("read_second_not_acquire", READ_ONCE, "fence(Ordering::Acquire); // (P7)", ""),
    // P9: lone gauges.
    twin("show_relaxed", SHOW, "now, Ordering::Release", "now, Ordering::Relaxed"),
    twin("show_stored", SHOW, "mark.fetch_max(now,", "mark.store(now,"),
    twin(
        "show_before_value",
        SET,
        "value.store(bits, Ordering::Release);\n    show(mark, reset);",
        "show(mark, reset);\n    value.store(bits, Ordering::Release);",
    ),
    twin("read_gauge_not_acquire", READ_GAUGE, "fence(Ordering::Acquire);", ""),
    // P10, P11: claims.
    twin("begin_without_fence", BEGIN, "fence(Ordering::Release);", ""),
    twin("begin_plus_one", BEGIN, "load(Ordering::Relaxed) | 1", "load(Ordering::Relaxed) + 1"),
    twin("set_relaxed", SET, "bits, Ordering::Release", "bits, Ordering::Relaxed"),
    twin("finish_relaxed", FINISH, "Ordering::Release", "Ordering::Relaxed"),
    twin("look_not_acquire", LOOK, "fence(Ordering::Acquire);", ""),
    twin("still_not_acquire", STILL, "fence(Ordering::Acquire);", ""),
    // Spare: the models hold without these (`src/spare.rs`).
    twin(
        "spare_intent_release",
        DRAIN,
        "wrapping_add(value), Ordering::Release",
        "wrapping_add(value), Ordering::Relaxed",
    ),
    twin("spare_swap_release", DRAIN, "swap(0, Ordering::AcqRel)", "swap(0, Ordering::Acquire)"),
    twin(
        "spare_ledger_release",
        DRAIN,
        "wrapping_add(delta), Ordering::Release",
        "wrapping_add(delta), Ordering::Relaxed",
    ),
    twin(
        "spare_take_over_ledger_release",
        TAKE_OVER,
        "books.ledger(i).store(settled, Ordering::Release)",
        "books.ledger(i).store(settled, Ordering::Relaxed)",
    ),
    twin("spare_clear_mark_release", CLEAR, "Ordering::Release", "Ordering::Relaxed"),
    twin("spare_collect_intent_fence", COLLECT, "fence(Ordering::Acquire); // (P3)", ""),
    twin("spare_collect_pending_fence", COLLECT, "fence(Ordering::Acquire); // (P4)", ""),
    twin("spare_collect_ledger_fence", COLLECT, "fence(Ordering::Acquire); // (P5)", ""),
    twin(
        "spare_drain_plus_one",
        DRAIN,
        "load(Ordering::Relaxed) | 1",
        "load(Ordering::Relaxed) + 1",
    ),
    twin(
        "spare_take_over_pending_acquire",
        TAKE_OVER,
        "load(Ordering::Acquire)",
        "load(Ordering::Relaxed)",
    ),
];
