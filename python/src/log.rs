//! The crate's `tracing` events as records of the Python logger `shmstats`.
//!
//! Events are kept until the call that caused them is over: a logging handler is Python code, and
//! none may run in the middle of one.

use std::fmt::{self, Write};
use std::sync::Mutex;

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static WAITING: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
/// More than these are dropped: nobody flushes in a loop of failures.
const MOST: usize = 64;

struct Forwarder;

impl Subscriber for Forwarder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("shmstats")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        say(*event.metadata().level(), text.message + &text.fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " [{name}: {value:?}]"),
        };
    }
}

pub(crate) fn install() {
    // Another subscriber can only be one of this very library, imported twice.
    let _ = tracing::subscriber::set_global_default(Forwarder);
}

/// Keeps a message until the next [`flush`].
pub(crate) fn say(level: Level, message: String) {
    let mut waiting = WAITING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if waiting.len() < MOST {
        waiting.push((level, message));
    }
}

/// Hands what is waiting to Python. What logging raises is not the caller's concern.
pub(crate) fn flush(py: Python<'_>) {
    let waiting = {
        let mut waiting = WAITING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if waiting.is_empty() {
            return;
        }
        std::mem::take(&mut *waiting)
    };
    let hand_over = || -> PyResult<()> {
        let logger = py.import("logging")?.call_method1("getLogger", ("shmstats",))?;
        for (level, message) in waiting {
            let method = match level {
                Level::ERROR => "error",
                Level::WARN => "warning",
                Level::INFO => "info",
                _ => "debug",
            };
            logger.call_method1(method, ("%s", message))?;
        }
        Ok(())
    };
    let _ = hand_over();
}
