//! A long frame, read by Python where it arrived: it is never copied into `bytes`.

use std::{ffi::c_int, ops::Range, sync::Arc};

use pyo3::{exceptions::PyBufferError, ffi, prelude::*};

#[pyclass(frozen, module = "mycel._native")]
pub struct Slice {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Slice {
    pub(crate) fn new(bytes: Arc<Vec<u8>>, range: Range<usize>) -> Slice {
        Slice { bytes, range }
    }
}

#[pymethods]
impl Slice {
    fn __len__(&self) -> usize {
        self.range.len()
    }

    /// Read-only. The view holds this object, and this object the bytes, which nobody changes.
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let slice = this.get();
        let data = slice.bytes[slice.range.clone()].as_ptr().cast_mut().cast();
        let length = slice.range.len().try_into().map_err(PyBufferError::new_err)?;
        // SAFETY: the interpreter gives a view to fill, and the bytes outlive it, see above.
        match unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), data, length, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(this.py())),
        }
    }
}
