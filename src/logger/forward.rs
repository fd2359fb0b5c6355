//! What a server with private stats counted goes to the region once it can have a slot there.

use crate::interval::Interval;
use crate::layout::Place;
use crate::primary::Primary;
use crate::protocol::{counter, gauge, no_hook, snapshot};
use crate::region::Region;
use crate::schema::{MAX_FIELDS, RecordId};
use crate::server::Server;
use crate::sync::Ordering;

/// Carries counts and gauges from a private server into a slot of the region it wanted. The
/// server's handles go on writing to their private cells, so nobody has to swap them.
#[derive(Debug)]
pub(super) struct Forwarder {
    from: Primary,
    drained: Interval,
    to: Server,
    /// The sequence of each snapshot that was carried last.
    sequences: Vec<u64>,
    /// The region's reset number at that time.
    reset: u64,
}

impl Forwarder {
    /// Tries to have a slot in the region that the server could not have when it started.
    pub(super) fn join(server: &Server) -> Option<Self> {
        if !server.is_mine() {
            return None; // A forked child's copy: the parent's logger carries its counts.
        }
        // First: another logger of this server may be forwarding already, and takes no slot for it.
        let from = server.region().primary().ok()?;
        let to = server.wanted()?.claim_again(server.region().schema()).ok()?;
        tracing::info!(path = %to.region().path().display(), slot = to.slot(), "shared stats at last");
        let drained = from.interval();
        let sequences = vec![0; server.region().schema().snapshots().len()];
        // Relaxed, here and below: what is carried next is of this reset or a later one.
        let reset = to.region().view().reset_number().load(Ordering::Relaxed);
        Some(Forwarder { from, drained, to, sequences, reset })
    }

    pub(super) fn region(&self) -> &Region {
        self.to.region()
    }

    /// Carries what is new.
    pub(super) fn forward(&mut self) {
        self.from.drain_into(&mut self.drained);
        self.to.heartbeat();
        let (from, to) = (self.from.region().view(), self.to.region().view());
        let slot = self.to.slot() as usize;
        let (from_reset, to_reset) = (from.reset_number(), to.reset_number());
        // A reset hides what was set before it: here, too.
        let reset = to_reset.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.reset, reset) != reset {
            from_reset.fetch_add(1, Ordering::Relaxed);
        }
        for (i, place) in from.layout.places.iter().enumerate() {
            let id = RecordId(i);
            let delta = self.drained.delta_of(id);
            match *place {
                Place::Drained(n) if delta > 0 => {
                    counter::add(&to.slot(slot).books().pending[n], delta);
                }
                // The slot was claimed for this alone: nobody else writes its cells.
                Place::Single(n) if delta > 0 => {
                    counter::add_single_writer(&to.slot(slot).books().single[n], delta);
                }
                Place::Gauge(n) => {
                    let (value, mark) = from.slot(0).gauge(n);
                    // Relaxed: of this process's own region.
                    let reset = from_reset.load(Ordering::Relaxed);
                    if let Some(bits) = gauge::read(value, mark, reset) {
                        let (value, mark) = to.slot(slot).gauge(n);
                        gauge::set(value, mark, to_reset, bits);
                    }
                }
                Place::Drained(_) | Place::Single(_) | Place::Field { .. } => {}
            }
        }
        for (n, shape) in from.layout.schema.snapshots().iter().enumerate() {
            let mut values = [0; MAX_FIELDS];
            let values = &mut values[..shape.records.len()];
            let Some(mut stamp) = snapshot::read(from.slot(0).snapshot(n), values) else {
                continue;
            };
            let hidden = stamp.reset != from_reset.load(Ordering::Relaxed);
            if hidden || stamp.sequence == self.sequences[n] {
                continue;
            }
            self.sequences[n] = stamp.sequence;
            stamp.reset = to_reset.load(Ordering::Relaxed);
            snapshot::publish(to.slot(slot).snapshot(n), stamp, values, no_hook);
        }
    }
}
