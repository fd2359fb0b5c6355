//! Running a model: it holds, or it fails with its own message.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn explore(preemptions: Option<usize>, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(model);
}

/// The model holds in every execution with at most so many preemptions (`None`: in all).
pub(crate) fn holds(preemptions: Option<usize>, model: fn()) {
    explore(preemptions, model);
}

/// Some execution breaks the model, and it is the model that says so: a limit of loom's, or a
/// panic from anywhere else, is not the failure that is wanted.
pub(crate) fn fails(preemptions: Option<usize>, message: &str, model: fn()) {
    let Err(payload) = catch_unwind(|| explore(preemptions, model)) else {
        panic!("the twin passed: no execution shows `{message}`");
    };
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message");
    assert!(said.contains(message), "the twin failed otherwise: {said}");
}

/// One test per twin: `model` must fail on it with `message`.
macro_rules! twins_fail {
    ($bound:expr, $message:expr, $model:ident: $($twin:ident),+ $(,)?) => {
        $(#[test]
        fn $twin() {
            $crate::check::fails($bound, $message, $model::<$crate::twins::$twin::It>);
        })+
    };
}
pub(crate) use twins_fail;

struct Killed;

/// Runs `steps`, which call the hook they are given, and ends them as a SIGKILL would just at
/// `step`: what they stored stays, and nothing of theirs runs any more. Returns whether they came
/// that far.
pub(crate) fn killed_at(step: &'static str, steps: impl FnOnce(&dyn Fn(&'static str))) -> bool {
    let hook = |at: &'static str| {
        if at == step {
            // Not `panic!`: this is no failure and says nothing.
            resume_unwind(Box::new(Killed));
        }
    };
    match catch_unwind(AssertUnwindSafe(|| steps(&hook))) {
        Ok(()) => false,
        Err(payload) if payload.is::<Killed>() => true,
        Err(payload) => resume_unwind(payload),
    }
}

/// The hook that does nothing.
pub(crate) fn on(_step: &'static str) {}
