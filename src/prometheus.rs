//! Totals and gauges in the text formats that Prometheus reads. Needs the feature `prometheus`.
//!
//! A Rust server that has a [`prometheus_client`] registry adds a [`RegionCollector`] to it; one
//! that has none calls [`Inspector::encode`]; an exporter of several regions fills an
//! [`Exposition`]. All three say the same. Nothing is taken from the primary.
//!
//! What a record is called, and with which labels:
//! - `<namespace>_<name>[_<unit>]`, for counters with `_total`. A name that ends with its unit
//!   already gets it once.
//! - `server`: the number of the slot. Two servers never share one, and what is counted in one
//!   never steps back, whoever owns it; a server's *index* may be held twice for a while in a
//!   rolling restart. Slots that nobody ever claimed are left out.
//! - Gauges of scope `Shared` have no `server`: there is one observation that counts, the newest.
//! - [`Options::sum`] adds counters up over the slots and rolls gauges up as their records say;
//!   then nothing has a `server`.
//! - A region that nobody is attached to has counters and no gauges: its history stays true, but
//!   its gauges describe nothing that is there.
//! - Counters of a slot that has never been read while it was settled are left out until it has.
//!
//! Beside its own series each region has these, which begin with `shmstats_`: servers by state,
//! configured servers, how long each living server has been silent, whether there is a primary,
//! drains and their age, takeovers, interrupted drains, refused servers, skipped writes, resets,
//! unsettled slots and the age of each shared snapshot.

mod collector;
mod family;
mod gather;
#[cfg(test)]
mod tests;
mod text;

use std::io;

pub use self::collector::RegionCollector;
use self::family::Families;
use crate::error::{Error, Result};
use crate::inspector::Inspector;
use crate::table::SlotState;

/// Most samples of one exposition. A file that anyone may have put into a folder can claim thousands
/// of slots with thousands of records, and each sample takes far more memory than its cell does.
const MAX_SAMPLES: usize = 250_000;

/// A text format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text, version 0.0.4.
    #[default]
    Text,
    /// OpenMetrics text, version 1.0.0: with units and the time of creation of counters.
    OpenMetrics,
}

impl Format {
    /// The format's `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that an `Accept` header asks for: OpenMetrics where it is named and not liked
    /// less than plain text, else text.
    #[must_use]
    pub fn negotiate(accept: &str) -> Self {
        let (mut open_metrics, mut text) = (0.0, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = |part: &str| part.strip_prefix("q=")?.trim().parse::<f64>().ok();
            let quality = parts.find_map(quality).unwrap_or(1.0);
            match kind.as_str() {
                "application/openmetrics-text" => open_metrics = quality.max(open_metrics),
                "text/plain" | "text/*" => text = quality.max(text),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= text { Format::OpenMetrics } else { Format::Text }
    }
}

/// How regions are shown.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// One sample over all servers instead of one for each.
    pub sum: bool,
}

impl Options {
    /// One sample over all servers instead of one for each.
    #[must_use]
    pub fn sum(mut self, sum: bool) -> Self {
        self.sum = sum;
        self
    }
}

/// What one scrape of any number of regions says. Families of the same name are merged; one whose
/// type differs from that of the region before it, or that would say the same sample twice, is
/// skipped and counted in `shmstats_families_skipped`.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    options: Options,
    families: Families,
    exported: u64,
    skipped: u64,
}

impl Exposition {
    /// An empty one.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Exposition { options, ..Exposition::default() }
    }

    /// Reads a region and adds it, with the label `shm_region` if it is given a name for it.
    ///
    /// The same inspector should be asked at each scrape: it remembers the last sure total of a
    /// slot that a stopped primary leaves unsettled.
    ///
    /// # Errors
    /// As [`Inspector::observe`]; [`Error::TooMany`] where all would be more than 250,000 samples.
    /// Then nothing was added, and [`skip_region`](Self::skip_region) says so to whoever scrapes.
    pub fn add(&mut self, inspector: &mut Inspector, shm_region: Option<&str>) -> Result<()> {
        let observation = inspector.observe()?;
        let claimed = observation.states.iter().filter(|state| **state != SlotState::Free).count();
        let rows = if self.options.sum { 1 } else { claimed.max(1) };
        let found = self.families.samples() + rows * inspector.schema().records().len();
        if found > MAX_SAMPLES {
            let (path, what, most) = (inspector.path().into(), "samples", MAX_SAMPLES);
            return Err(Error::TooMany { path, what, most, found });
        }
        inspector.totals();
        gather::region(&mut self.families, self.options, inspector, &observation, shm_region);
        self.exported += 1;
        Ok(())
    }

    /// Counts a region that could not be read.
    pub fn skip_region(&mut self) {
        self.skipped += 1;
    }

    /// Writes it all.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, format: Format, out: &mut impl io::Write) -> io::Result<()> {
        let mut all = self.clone();
        all.complete();
        text::write(&all.families, format, out)
    }

    /// Adds the families of the exposition itself.
    fn complete(&mut self) {
        let skipped = self.families.skipped();
        for (name, help, value) in [
            ("shmstats_regions_exported", "Regions in this scrape", self.exported),
            ("shmstats_regions_skipped", "Regions that could not be read", self.skipped),
            (
                "shmstats_families_skipped",
                "Families left out because their type or a sample conflicts with another region's",
                skipped,
            ),
        ] {
            self.families.gauge(name, help, value);
        }
    }
}

impl Inspector {
    /// Writes the region in a text format, for programs without a registry. See
    /// [`prometheus`](crate::prometheus) for what it is called there.
    ///
    /// # Errors
    /// As [`observe`](Self::observe); [`Error::Io`] of `out`.
    pub fn encode(&mut self, format: Format, out: &mut impl io::Write) -> Result<()> {
        let mut exposition = Exposition::default();
        exposition.add(self, None)?;
        exposition.complete();
        text::write(&exposition.families, format, out)
            .map_err(|e| Error::io("write the metrics of", self.path(), e))
    }
}
