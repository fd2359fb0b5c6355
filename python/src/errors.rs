//! The crate's errors as the exceptions of `shmstats._errors`.

use std::io::ErrorKind;
use std::path::Path;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;
use shmstats::Error;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;

static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// One of our exceptions, by the name of its class.
pub(crate) fn raise(py: Python<'_>, class: &str, message: String) -> PyErr {
    build(py, class, (message,))
}

fn build<'py, A>(py: Python<'py>, class: &str, arguments: A) -> PyErr
where
    A: pyo3::call::PyCallArgs<'py>,
{
    let made = MODULE
        .get_or_try_init(py, || PyModule::import(py, "shmstats._errors").map(Bound::unbind))
        .and_then(|module| module.bind(py).getattr(class)?.call1(arguments));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

fn os(py: Python<'_>, class: &str, errno: i32, message: String, path: &Path) -> PyErr {
    build(py, class, (errno, message, path))
}

/// The exception for an error.
pub(crate) fn exception(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    match &error {
        Error::Io { source, path, .. } => {
            let errno = source.raw_os_error();
            let (class, fallback) = match source.kind() {
                ErrorKind::NotFound => ("RegionNotFoundError", ENOENT),
                ErrorKind::AlreadyExists => ("RegionExistsError", EEXIST),
                ErrorKind::PermissionDenied => ("AccessError", EACCES),
                _ => ("RegionOSError", EIO),
            };
            os(py, class, errno.unwrap_or(fallback), text, path)
        }
        Error::PermissionDenied { path, .. } | Error::Untrusted { path, .. } => {
            os(py, "AccessError", EACCES, text, path)
        }
        Error::AlreadyExists { path, .. } => os(py, "RegionExistsError", EEXIST, text, path),
        Error::Removed { path, .. } => os(py, "RegionNotFoundError", ENOENT, text, path),
        Error::Held { path, .. } => os(py, "HeldError", EAGAIN, text, path),
        Error::NoFreeSlot { path, .. } => os(py, "NoFreeSlotError", EAGAIN, text, path),
        Error::NoSuchSlot { .. } => raise(py, "NoSuchSlotError", text),
        Error::NoSuchRecord { .. } => raise(py, "NoSuchRecordError", text),
        Error::InvalidSchema { .. } => raise(py, "InvalidSchemaError", text),
        Error::SchemaMismatch { .. } => raise(py, "SchemaMismatchError", text),
        Error::NotARegularFile { .. }
        | Error::InvalidRegion { .. }
        | Error::UnsupportedVersion { .. }
        | Error::UnsupportedFileSystem { .. } => raise(py, "InvalidRegionError", text),
        Error::Environment { .. } => raise(py, "EnvironmentVariableError", text),
        _ => raise(py, "Error", text),
    }
}

/// `?` for the crate's results.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for shmstats::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        crate::log::flush(py);
        self.map_err(|error| exception(py, error))
    }
}

/// What a closed object answers.
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    raise(py, "ClosedError", format!("the {what} is closed"))
}
