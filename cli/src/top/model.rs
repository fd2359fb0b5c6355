//! What the view shows: the last report, and rates from the ones before it. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::inspect::state_text;
use crate::report::{Report, Slot};

/// How far back rates reach.
pub(super) const WINDOWS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(100)];
/// Bars of the sparkline that are kept.
const BARS: usize = 500;
/// A server that counts less than this part of the others' mean is starved.
const STARVED: f64 = 0.1;
/// How long a reset is worth a word.
pub(super) const RESET_SHOWN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Model {
    pub(super) path: String,
    pub(super) columns: Vec<Column>,
    pub(super) report: Option<Report>,
    /// Why there is nothing to read now.
    pub(super) lost: Option<String>,
    history: VecDeque<Sample>,
    /// The main counter's rate from reading to reading, newest last.
    bars: VecDeque<u64>,
}

/// A family: all records of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) is_counter: bool,
}

/// Totals at one time: of each counter column, by slot.
#[derive(Debug)]
struct Sample {
    at: Duration,
    totals: Vec<Vec<u64>>,
}

impl Model {
    pub(super) fn new(path: String) -> Self {
        Model {
            path,
            columns: Vec::new(),
            report: None,
            lost: None,
            history: VecDeque::new(),
            bars: VecDeque::new(),
        }
    }

    /// Another region begins: nothing of the one before is compared with it.
    pub(super) fn begin(&mut self) {
        self.history.clear();
        self.report = None;
    }

    /// There is nothing to read; what was read last stays to be seen.
    pub(super) fn lose(&mut self, why: String) {
        self.lost = Some(why);
    }

    /// Takes a reading, made so long after the view began.
    pub(super) fn feed(&mut self, at: Duration, report: Report) {
        self.lost = None;
        let columns = columns(&report);
        if columns != self.columns {
            self.columns = columns;
            self.history.clear();
            self.bars.clear();
        }
        let totals = self.columns.iter().map(|column| totals(&report, column)).collect();
        self.report = Some(report);
        self.history.push_back(Sample { at, totals });
        // One more than the longest window, to have both its ends.
        let old = |sample: &Sample| at.saturating_sub(sample.at) > WINDOWS[2];
        while self.history.get(1).is_some_and(old) {
            self.history.pop_front();
        }
        if let (Some(main), Some(rate)) = (self.main(), self.last_rate()) {
            debug_assert!(self.columns[main].is_counter);
            // What a hostile file can make of it must not overflow where bars are drawn.
            self.bars.push_back(rate.round().min(1e15) as u64);
            if self.bars.len() > BARS {
                self.bars.pop_front();
            }
        }
    }

    /// The column that stands for throughput: the counter with the most counted lately, by the
    /// longest window; the first one of several.
    pub(super) fn main(&self) -> Option<usize> {
        let counters = (0..self.columns.len()).filter(|c| self.columns[*c].is_counter);
        let busy = |column: &usize| self.rate(*column, None, WINDOWS[2]).is_some_and(|r| r > 0.0);
        let mut counters = counters.peekable();
        let first = counters.peek().copied();
        counters.find(busy).or(first)
    }

    fn last_rate(&self) -> Option<f64> {
        let main = self.main()?;
        let before = self.history.len().checked_sub(2)?;
        let (a, b) = (self.history.get(before)?, self.history.back()?);
        per_second(sum(&a.totals[main]), sum(&b.totals[main]), b.at.saturating_sub(a.at))
    }

    /// Counted per second over a window, in one slot or all; nothing before the second reading.
    pub(super) fn rate(&self, column: usize, slot: Option<usize>, window: Duration) -> Option<f64> {
        let now = self.history.back()?;
        // The reading at the window's beginning; a little early is near enough.
        let age = |sample: &Sample| now.at.saturating_sub(sample.at);
        let slack = (window / 10).min(Duration::from_millis(100));
        let newest = self.history.iter().rev().skip(1).find(|s| age(s) + slack >= window);
        let then = newest.or(self.history.front()).filter(|then| then.at < now.at)?;
        let of = |sample: &Sample| match slot {
            Some(slot) => sample.totals[column].get(slot).copied().unwrap_or(0),
            None => sum(&sample.totals[column]),
        };
        per_second(of(then), of(now), age(then))
    }

    /// A gauge as a slot has it.
    pub(super) fn gauge(&self, column: usize, slot: usize) -> Option<f64> {
        let report = self.report.as_ref()?;
        let of_name = report.gauges.iter().filter(|g| g.name == self.columns[column].name);
        let values = of_name.flat_map(|gauge| &gauge.by_slot).filter(|value| value.slot == slot);
        values.map(|value| value.value.0.as_f64()).reduce(|a, b| a + b)
    }

    /// A gauge over all servers, rolled up.
    pub(super) fn gauge_of_all(&self, column: usize) -> Option<f64> {
        let report = self.report.as_ref()?;
        let family = report.rollups.iter().find(|f| f.name == self.columns[column].name)?;
        family.value.map(|value| value.0.as_f64())
    }

    /// Whether nothing was ever counted in a column, or no server has a value.
    pub(super) fn is_empty(&self, column: usize) -> bool {
        if !self.columns[column].is_counter {
            return self.gauge_of_all(column).is_none();
        }
        self.history.back().is_none_or(|now| sum(&now.totals[column]) == 0)
    }

    /// The cell of a column: a rate or a gauge.
    pub(super) fn cell(&self, column: usize, slot: usize, window: Duration) -> Option<f64> {
        if self.columns[column].is_counter {
            self.rate(column, Some(slot), window)
        } else {
            self.gauge(column, slot)
        }
    }

    /// Slots that anyone ever claimed.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.report.iter().flat_map(|r| &r.slots).filter(|slot| slot.state != "free")
    }

    /// What stands in a slot's row under STATE, and how much it deserves attention.
    pub(super) fn state(&self, slot: &Slot) -> (String, Alarm) {
        let text = state_text(slot);
        let alarm = match slot.state {
            "dead" => Alarm::Loud,
            "alive" if text != "alive" => Alarm::Loud,
            "alive" if self.is_starved(slot.slot) => return ("starved".into(), Alarm::Loud),
            "alive" => Alarm::None,
            _ => Alarm::Faint,
        };
        (text, alarm)
    }

    /// Whether a living server counts far less than the other living ones do.
    fn is_starved(&self, slot: usize) -> bool {
        let Some(main) = self.main() else { return false };
        let rate = |slot: &Slot| self.rate(main, Some(slot.slot), WINDOWS[1]);
        let others = self.slots().filter(|s| s.state == "alive" && s.slot != slot);
        let rates: Vec<f64> = others.filter_map(rate).collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let own = self.rate(main, Some(slot), WINDOWS[1]);
        // A mean of less than one per second says nothing of anyone.
        mean >= 1.0 && own.is_some_and(|own| own < STARVED * mean)
    }

    /// The newest bars, oldest first.
    pub(super) fn bars(&self, count: usize) -> Vec<u64> {
        let skip = self.bars.len().saturating_sub(count);
        self.bars.iter().skip(skip).copied().collect()
    }

    /// Lines that a view without scrolling takes.
    pub(super) fn height(&self) -> usize {
        let shared = self.report.as_ref().map_or(0, |report| report.shared.len());
        12 + self.slots().count() + if shared > 0 { shared + 2 } else { 0 }
    }
}

/// How much a row deserves attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    None,
    Faint,
    Loud,
}

fn columns(report: &Report) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    let own = report.schema.records.iter().filter(|record| record.scope == "server");
    for record in own {
        let column = Column { name: record.name.clone(), is_counter: record.kind == "counter" };
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

fn totals(report: &Report, column: &Column) -> Vec<u64> {
    if !column.is_counter {
        return Vec::new();
    }
    let mut totals = vec![0_u64; report.slots.len()];
    for counter in report.counters.iter().filter(|counter| counter.name == column.name) {
        for count in &counter.by_slot {
            totals[count.slot] = totals[count.slot].wrapping_add(count.total);
        }
    }
    totals
}

fn sum(totals: &[u64]) -> u64 {
    totals.iter().fold(0, |sum, n| sum.wrapping_add(*n))
}

/// Never negative, whatever is compared.
fn per_second(then: u64, now: u64, elapsed: Duration) -> Option<f64> {
    (!elapsed.is_zero()).then(|| now.saturating_sub(then) as f64 / elapsed.as_secs_f64())
}
