//! shmstats
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("shmstats shares regions between processes of 64-bit Linux only");

mod clock;
pub mod env;
mod error;
mod inspector;
mod interval;
mod layout;
mod lease;
pub mod llm;
pub mod logger;
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
pub use inspector::{Inspector, Observation, Owner, PrimaryInfo, RegionInfo, Totals, Watch};
pub use interval::Interval;
pub use logger::StatLogger;
pub use primary::Primary;
pub use process::ProcessManager;
pub use region::{Region, RegionOptions};
pub use schema::Schema;
pub use server::{Counter, Field, Gauge, InFlight, Server, SingleWriterCounter, Snapshot};
pub use table::SlotState;
pub use value::{GaugeValue, Value};
