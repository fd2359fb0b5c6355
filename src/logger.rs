//! One line per interval for all servers, logged by whichever of them is primary.

mod forward;
mod generic;

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::forward::Forwarder;
pub use self::generic::GenericLine;
pub(crate) use self::generic::dead_note;
use crate::clock;
use crate::error::{Error, Result};
use crate::interval::Interval;
use crate::layout::RegionBlock;
use crate::lease::fork_number;
use crate::primary::Primary;
use crate::region::Region;
use crate::server::Server;
use crate::sync::Ordering;

/// Longer ones would overflow the clock.
const LONGEST_INTERVAL: Duration = Duration::from_secs(366 * 24 * 3600);

/// Turns intervals into log lines. A closure from `&Interval` to `String` is one, too.
pub trait Line: Send {
    /// The line of one interval. Called once for each interval, in order.
    fn line(&mut self, interval: &Interval) -> String;

    /// Whether the interval is not worth a line: after two such, lines go to debug level.
    fn is_idle(&self, interval: &Interval) -> bool {
        interval.is_idle()
    }

    /// Logs the line through `tracing`, with numbers as fields beside it; `quiet`: at debug level.
    fn emit(&mut self, interval: &Interval, quiet: bool) {
        let line = self.line(interval);
        let (number, elapsed_s) = (interval.number(), interval.elapsed().as_secs_f64());
        if quiet {
            tracing::debug!(interval = number, elapsed_s, "{line}");
        } else {
            tracing::info!(interval = number, elapsed_s, "{line}");
        }
    }
}

impl<F: FnMut(&Interval) -> String + Send> Line for F {
    fn line(&mut self, interval: &Interval) -> String {
        self(interval)
    }
}

/// Ticks at an interval; at each tick the primary among all servers drains and logs.
///
/// Run one in every server: any of them takes over when the primary is gone. In the first interval
/// of a region only server 0, or one without an index, tries to be primary, so that the line usually
/// comes from there. A line is logged at most once: what a primary drained and did not log before it
/// died is in the totals and in no line.
///
/// A server that wanted a region and has none yet logs nothing: it keeps its counts to carry them
/// over, and tries for a slot at each tick. One that never wanted any logs its own line.
pub struct StatLogger {
    server: Option<Server>,
    /// The region that is drained; for a server that could not have one yet, none.
    region: Option<Region>,
    interval: Duration,
    line: Box<dyn Line>,
    primary: Option<(Primary, Interval)>,
    forwarder: Option<Forwarder>,
    was_idle: bool,
    warned_removed: bool,
    /// Of the process that built it: a forked child's copy does nothing.
    fork: u64,
}

impl fmt::Debug for StatLogger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatLogger")
            .field("region", &self.region)
            .field("interval", &self.interval)
            .field("is_primary", &self.primary.is_some())
            .finish_non_exhaustive()
    }
}

/// Collects options; see [`StatLogger::builder`].
#[must_use]
pub struct StatLoggerBuilder {
    server: Option<Server>,
    region: Region,
    interval: Duration,
    line: Box<dyn Line>,
}

impl fmt::Debug for StatLoggerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatLoggerBuilder")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

impl StatLoggerBuilder {
    /// Time between lines: 10 s by default, at least 1 ms, at most a year.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.clamp(Duration::from_millis(1), LONGEST_INTERVAL);
        self
    }

    /// What a line looks like; by default [`GenericLine`].
    pub fn line(mut self, line: impl Line + 'static) -> Self {
        self.line = Box::new(line);
        self
    }

    /// A logger for a loop of the caller's own, which calls [`StatLogger::tick`].
    pub fn build(self) -> StatLogger {
        let waits = self.server.as_ref().is_some_and(|server| server.wanted().is_some());
        let first = self.server.as_ref().is_none_or(|server| server.index().unwrap_or(0) == 0);
        let mut logger = StatLogger {
            server: self.server,
            region: (!waits).then_some(self.region),
            interval: self.interval,
            line: self.line,
            primary: None,
            forwarder: None,
            was_idle: false,
            warned_removed: false,
            fork: fork_number(),
        };
        if first {
            logger.try_for_primary();
        }
        logger
    }

    /// A logger on a thread of its own, until [`LoggerThread::stop`].
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no thread to give.
    pub fn spawn(self) -> Result<LoggerThread> {
        let mut logger = self.build();
        let (stop, stopped) = mpsc::channel::<()>();
        let run = move || {
            let mut next = Instant::now() + logger.interval;
            while let Err(RecvTimeoutError::Timeout) =
                stopped.recv_timeout(next.saturating_duration_since(Instant::now()))
            {
                logger.tick();
                next += logger.interval;
                // After a tick that came more than an interval late (a process that was stopped),
                // the next one comes a whole interval later and not at once.
                let now = Instant::now();
                if next <= now {
                    next = now + logger.interval;
                }
            }
            logger.finish();
        };
        let thread = std::thread::Builder::new()
            .name("shmstats-logger".into())
            .spawn(run)
            .map_err(|e| Error::io("start a thread for", "the stat logger", e))?;
        Ok(LoggerThread { stop: Some(stop), thread: Some(thread), fork: fork_number() })
    }
}

impl StatLogger {
    /// A logger for a server.
    pub fn builder(server: &Server) -> StatLoggerBuilder {
        let builder = StatLogger::for_region(server.region());
        StatLoggerBuilder { server: Some(server.clone()), ..builder }
    }

    /// A logger for a process that serves nothing itself, such as a launcher.
    pub fn for_region(region: &Region) -> StatLoggerBuilder {
        StatLoggerBuilder {
            server: None,
            region: region.clone(),
            interval: Duration::from_secs(10),
            line: Box::new(GenericLine::default()),
        }
    }

    /// Whether this process is the one that logs.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.primary.is_some() && self.is_mine()
    }

    /// To be called once per interval: logs a line if this process is, or can now be, primary.
    pub fn tick(&mut self) {
        if !self.is_mine() {
            return;
        }
        self.attend();
        if self.primary.is_none() && self.is_past_first_interval() {
            self.try_for_primary();
        }
        self.drain_and_log(false);
    }

    /// Logs what is left since the last line. A server that stops calls this last; if the primary
    /// is still there, it will log what this server counted.
    pub fn finish(&mut self) {
        if !self.is_mine() {
            return;
        }
        self.attend();
        if self.primary.is_none() {
            self.try_for_primary();
        }
        self.drain_and_log(true);
        if self.region.is_none() {
            tracing::warn!("this server never had a slot: what it counted is in no total");
        }
        self.primary = None;
    }

    fn is_mine(&self) -> bool {
        self.fork == fork_number()
    }

    /// What every server does at a tick, primary or not.
    fn attend(&mut self) {
        if let Some(server) = &self.server {
            server.heartbeat();
            if self.region.is_none() && self.forwarder.is_none() {
                self.forwarder = Forwarder::join(server);
                self.region = self.forwarder.as_ref().map(|f| f.region().clone());
            }
        }
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.forward();
        }
        if !self.warned_removed && self.region.as_ref().is_some_and(Region::is_removed) {
            self.warned_removed = true;
            let path = self.region.as_ref().map(|r| r.path().display().to_string());
            tracing::warn!(
                path,
                "the region's file was removed (by rm, or by logind's RemoveIPC at a logout): \
                 its servers go on, but nobody new finds it"
            );
        }
    }

    fn is_past_first_interval(&self) -> bool {
        self.region.as_ref().is_some_and(|region| {
            let began = region.view().region_block()[RegionBlock::RESET_AT].load(Ordering::Relaxed);
            let age = clock::monotonic_ns().saturating_sub(began);
            u128::from(age) >= self.interval.as_nanos()
        })
    }

    fn try_for_primary(&mut self) {
        let Some(region) = &self.region else { return };
        match region.primary() {
            Ok(primary) => {
                let interval = primary.interval();
                self.primary = Some((primary, interval));
            }
            Err(Error::Held { .. }) => {}
            Err(error) => tracing::warn!(%error, "cannot become primary"),
        }
    }

    fn drain_and_log(&mut self, last: bool) {
        let Some((primary, interval)) = &mut self.primary else { return };
        if let Err(error) = primary.probe() {
            tracing::warn!(%error, "cannot tell which servers are alive");
        }
        primary.drain_into(interval);
        let idle = self.line.is_idle(interval);
        // A last line that says nothing is not worth a line at all.
        if !(last && idle) {
            self.line.emit(interval, idle && self.was_idle);
        }
        self.was_idle = idle;
    }
}

/// A [`StatLogger`] on its own thread. Dropping it stops it, too.
#[derive(Debug)]
pub struct LoggerThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    fork: u64,
}

impl LoggerThread {
    /// Logs what is left and ends the thread. Call it after the last count.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for LoggerThread {
    fn drop(&mut self) {
        if fork_number() != self.fork {
            // A forked child has a copy of the handle and no such thread: nothing can be joined,
            // and the channel's locks may be in the hands of threads that do not exist here.
            std::mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        // The channel's end is what the thread waits for.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the stat logger's thread panicked");
        }
    }
}
