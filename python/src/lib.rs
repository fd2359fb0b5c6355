//! The Python package's compiled half: `shmstats._shmstats`.

mod buffer;
mod cell;
mod errors;
mod handles;
mod inspector;
mod log;
mod primary;
mod recorder;
mod region;
mod schema;
mod server;
mod state;

use pyo3::prelude::*;

#[pymodule]
mod _shmstats {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::handles::{PyCounter, PyGauge, PyInFlight, PySnapshot};
    #[pymodule_export]
    use super::inspector::{PyInspector, PyObservation, PyOwner, PyTotals};
    #[pymodule_export]
    use super::primary::{PyInterval, PyPrimary};
    #[pymodule_export]
    use super::recorder::PyRecorder;
    #[pymodule_export]
    use super::region::{PyRegion, default_path};
    #[pymodule_export]
    use super::schema::{PyCounterDef, PyGaugeDef, PyRecord, PySchema, PySnapshotDef};
    #[pymodule_export]
    use super::server::PyServer;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        super::log::install();
        Ok(())
    }
}
