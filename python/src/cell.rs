//! State shared by Python objects, guarded by the GIL.
#![allow(unsafe_code)]

use std::cell::{RefCell, RefMut};

use pyo3::Python;

#[cfg(Py_GIL_DISABLED)]
compile_error!(
    "shmstats relies on the GIL: it cannot be built for a free-threaded interpreter (python3.13t \
     and later); use the ordinary build of Python"
);

/// A value that is reached with the GIL held only. A lock would cost as much as the counting, and
/// could stay locked for ever in a forked child.
pub(crate) struct GilCell<T>(RefCell<T>);

// SAFETY: the only ways in are `new` and `borrow_mut`. The latter asks for a GIL token, and this
// crate does not build for interpreters without a GIL, so no two threads run it, or the drop of
// what it returns, at once; the GIL's handover orders one thread's use before the next one's. A
// guard that is kept while the GIL is released makes the next `borrow_mut` panic, no more. `T: Send`
// since any thread may come next.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub(crate) fn new(value: T) -> Self {
        GilCell(RefCell::new(value))
    }

    /// No Python code may run while the result lives: it could come back here.
    #[inline]
    pub(crate) fn borrow_mut<'a>(&'a self, _gil: Python<'a>) -> RefMut<'a, T> {
        self.0.borrow_mut()
    }
}
