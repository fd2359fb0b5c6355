//! Lock-free statistics shared by the processes of one server, in a memory-mapped file.
//!
//! # The idea
//!
//! A *region* is a file that all server processes of a group map. Each *server* claims a *slot* in
//! it, which nobody else writes to, and counts there with plain atomic operations. One process, the
//! *primary*, *drains* all slots once per interval: it reads and resets every counter with
//! `swap(0)`, reads every gauge, and gets an [`Interval`] to log. *Inspectors* read totals at any
//! time and change nothing.
//!
//! ```text
//! Server ──add──▶ cells ──swap(0)──▶ Primary ──▶ Interval ──▶ StatLogger
//!                   └──────load──────▶ Inspector ──▶ totals ──▶ exporters, viewers
//! ```
//!
//! No lock is taken to count or to read. Who holds a slot, and who is primary, is a file lock that
//! the kernel drops when the process is gone.
//!
//! # Declare
//!
//! A [`Schema`] says what is measured; it is written into the file, so that a stranger can decode
//! it.
//!
//! ```
//! use shmstats::schema::{CounterDef, GaugeDef, SnapshotDef};
//! use shmstats::Schema;
//!
//! let schema = Schema::builder("shop")
//!     .counter("orders")
//!     .counter(CounterDef::new("requests").help("Requests answered").family("status", ["2xx", "5xx"]))
//!     .counter(CounterDef::new("sent").unit("bytes").single_writer())
//!     .gauge(GaugeDef::i64("in_flight").help("Requests being answered"))
//!     .snapshot(
//!         SnapshotDef::new("engine")
//!             .shared()
//!             .label("engine", "0")
//!             .gauge(GaugeDef::u64("running"))
//!             .gauge(GaugeDef::f64("cache_usage").unit("ratio").mean()),
//!     )
//!     .build()?;
//! # Ok::<(), shmstats::Error>(())
//! ```
//!
//! ## Which counter?
//!
//! * A **drained** counter (the default): any thread of the server adds, with one atomic
//!   `fetch_add`. The primary resets it. If the primary is killed in the middle of a drain, at most
//!   that one counter's last delta is missing from the totals.
//! * A **single-writer** counter: one thread adds through a `&mut` handle, with a load and a store
//!   and no lock prefix, which is many times cheaper. It is never reset and loses nothing, whoever
//!   is killed. Take it where one thread counts, such as an event loop.
//!
//! Five drained counters take 24 ns, exactly what five bare `fetch_add` take, and as long with
//! another server counting in the next slot; five single-writer counters take 2.4 ns
//! (`docs/performance.md` says on which machine, and how to measure yours). At a thousand requests
//! per second the difference is 0.002 % of a core: choose by who counts, and think of the cost only
//! in loops that count per byte or per token.
//!
//! ## Which gauge?
//!
//! * One that **stands alone** is set by any thread of the server and describes that server.
//! * A **snapshot** is a group of gauges published together by one thread, never seen half old, half
//!   new.
//! * A snapshot of scope **shared** describes a thing that several servers observe, named by its
//!   labels. Its newest publication wins, whichever server made it, also if that server has died
//!   since. Label sets are then rolled up (the sum of `running` over engines).
//!
//! Gauges go with their owner, unless they have [`Lifetime::Region`](schema::Lifetime::Region).
//!
//! # Serve
//!
//! ```
//! # use shmstats::schema::{CounterDef, GaugeDef};
//! # let schema = shmstats::Schema::builder("shop").counter("orders")
//! #     .counter(CounterDef::new("sent").single_writer()).gauge(GaugeDef::i64("in_flight")).build()?;
//! use shmstats::Server;
//!
//! // Finds the region and its slot through the environment that a launcher set. Without one it
//! // warns once and counts for itself: serving always starts.
//! let server = Server::from_env(&schema);
//! let orders = server.counter("orders")?; // Clone + Send + Sync
//! let mut sent = server.single_writer("sent")?; // one handle, `&mut` to add
//! let in_flight = server.gauge::<i64>("in_flight")?;
//!
//! let guard = in_flight.in_flight();
//! orders.inc();
//! sent.add(1024);
//! drop(guard);
//! # Ok::<(), shmstats::Error>(())
//! ```
//!
//! Handles cannot fail, and keep the slot claimed while they live.
//!
//! # Log
//!
//! Lines, and all warnings, go through the `tracing` crate: a program without a
//! subscriber (`tracing_subscriber::fmt::init()`) sees none of them.
//!
//! Run a [`StatLogger`] in every server: whichever of them is primary logs one line for all, and
//! another takes over when it is gone.
//!
//! ```no_run
//! # let schema = shmstats::Schema::builder("shop").counter("orders").build()?;
//! # let server = shmstats::Server::from_env(&schema);
//! use shmstats::StatLogger;
//! use shmstats::logger::GenericLine;
//!
//! let logger = StatLogger::builder(&server).line(GenericLine::with_noun("workers")).spawn()?;
//! // … serve …
//! logger.stop(); // after the last count: logs the rest
//! # Ok::<(), shmstats::Error>(())
//! ```
//!
//! Or drain yourself:
//!
//! ```
//! # let schema = shmstats::Schema::builder("shop").counter("orders").build()?;
//! # let region = shmstats::Region::private(&schema, 1);
//! let mut primary = region.primary()?;
//! let mut interval = primary.interval();
//! primary.probe()?; // asks the kernel who is alive
//! primary.drain_into(&mut interval); // no system call, no allocation
//! println!("{} orders, {:.1}/s", interval.delta("orders"), interval.rate("orders"));
//! # Ok::<(), shmstats::Error>(())
//! ```
//!
//! # Launch
//!
//! Create the region ([`Region::open_or_create`] at [`region::default_path`] goes on with one that a
//! crash has left), then start the servers with [`ProcessManager`], or with any other launcher
//! that sets the variables in [`env`](mod@env).
//!
//! # Look
//!
//! An [`Inspector`] needs permission to read the file and nothing else. Totals never go down, and
//! reading them takes nothing from the primary.
//!
//! # Fork
//!
//! A forked child shares its parent's mapping but owns nothing: it drops the leases it inherited.
//! It may go on adding to drained counters, which count for the parent's slot, also once that slot
//! has another owner: totals stay right. Its other writes are skipped and counted, and an inherited
//! logger, primary or process manager does nothing. It gets a slot of its own from `server.region().claim_any()`.
//!
//! # The file
//!
//! `docs/format.md` in the repository specifies it byte by byte, `docs/protocol.md` how words are
//! read and written, with every memory ordering and its pair.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("shmstats shares regions between processes of 64-bit Linux only");

mod clock;
#[cfg(test)]
mod crash_points;
pub mod env;
mod error;
mod inspector;
mod interval;
mod layout;
mod lease;
pub mod llm;
pub mod logger;
mod owner;
mod primary;
pub mod process;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod protocol;
mod reading;
pub mod region;
pub mod schema;
mod server;
mod sync;
mod table;
mod value;

pub use clock::monotonic_ns;
pub use error::{Error, Result};
pub use inspector::{Inspector, Observation, PrimaryInfo, RegionInfo, Totals, Watch};
pub use interval::Interval;
pub use logger::StatLogger;
pub use owner::Owner;
pub use primary::Primary;
pub use process::ProcessManager;
pub use region::{Region, RegionOptions};
pub use schema::Schema;
pub use server::{Counter, Field, Gauge, InFlight, Server, SingleWriterCounter, Snapshot};
pub use table::SlotState;
pub use value::{GaugeValue, Value};

/// The README's code, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
