//! The line of any schema.

use std::fmt::Write;

use super::Line;
use crate::interval::Interval;
use crate::schema::Kind;
use crate::table::SlotState;

/// `All 4 servers: requests 1000.0/s, in_flight 12`: every family of the schema, rates of counters
/// and rollups of gauges, in declared order.
#[derive(Clone, Debug)]
pub struct GenericLine {
    noun: String,
}

impl Default for GenericLine {
    fn default() -> Self {
        GenericLine { noun: "servers".into() }
    }
}

impl GenericLine {
    /// With another word for what is many, such as `workers`.
    #[must_use]
    pub fn with_noun(noun: impl Into<String>) -> Self {
        GenericLine { noun: noun.into() }
    }
}

/// ` (1 dead)` when configured servers are gone and nobody took their place, else nothing.
pub(crate) fn dead_note(interval: &Interval) -> String {
    let alive = interval.servers(SlotState::Alive);
    let missing = (interval.server_count() as usize).saturating_sub(alive);
    // A slot that was never claimed belongs to a server that is still to come.
    match missing.min(interval.servers(SlotState::Dead)) {
        0 => String::new(),
        dead => format!(" ({dead} dead)"),
    }
}

impl Line for GenericLine {
    fn line(&mut self, interval: &Interval) -> String {
        let mut line =
            format!("All {} {}{}:", interval.server_count(), self.noun, dead_note(interval));
        let mut names: Vec<&str> = Vec::new();
        for record in interval.schema().records() {
            if names.contains(&record.name.as_str()) {
                continue;
            }
            let separator = if names.is_empty() { "" } else { "," };
            names.push(&record.name);
            // Writing to a String cannot fail.
            let _ = match record.kind {
                Kind::Counter(_) => {
                    write!(line, "{separator} {} {:.1}/s", record.name, interval.rate(&record.name))
                }
                Kind::Gauge(_) => match interval.gauge(&record.name) {
                    Some(value) => write!(line, "{separator} {} {}", record.name, short(value)),
                    None => write!(line, "{separator} {} -", record.name),
                },
            };
        }
        line
    }
}

/// A whole number as it is, others with three decimals.
fn short(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}
