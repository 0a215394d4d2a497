//! A stream as Python sees it: it satisfies `mycel.swarm.interface.Stream` by itself, so
//! that no Python object stands between a frame and its receiver.

use std::{
    fs::File,
    mem::ManuallyDrop,
    os::fd::{FromRawFd, RawFd},
    sync::Arc,
};

use mycel_node::streams::stream::Stream as NodeStream;
use pyo3::{exceptions::PyOSError, prelude::*, types::PyString};

use crate::errors::FrameTooLong;

#[pyclass(frozen, module = "mycel._native")]
pub struct Stream {
    pub(crate) inner: Arc<NodeStream>,
    peer: Py<PyString>,
    protocol: Py<PyString>,
}

impl Stream {
    pub(crate) fn new(py: Python<'_>, inner: Arc<NodeStream>, peer: Bound<'_, PyString>) -> Self {
        let protocol = PyString::intern(py, inner.protocol.name.as_ref()).unbind();
        Stream { inner, peer: peer.unbind(), protocol }
    }
}

#[pymethods]
impl Stream {
    #[getter]
    fn peer(&self, py: Python<'_>) -> Py<PyString> {
        self.peer.clone_ref(py)
    }

    #[getter]
    fn protocol(&self, py: Python<'_>) -> Py<PyString> {
        self.protocol.clone_ref(py)
    }

    /// True while more is queued than the protocol's `write_high_bytes`.
    #[getter]
    fn full(&self) -> bool {
        self.inner.is_full()
    }

    /// Queues one frame; on a closed stream it is dropped.
    fn write(&self, frame: &[u8]) -> PyResult<()> {
        self.inner.write(frame).map_err(|error| FrameTooLong::new_err(error.to_string()))
    }

    /// Queues a part of a file as frames of `frame_bytes`, until it is queued or the stream is
    /// full; how much of it that was. Reads the disk: not for the loop's thread.
    fn write_file(
        &self,
        py: Python<'_>,
        descriptor: RawFd,
        offset: u64,
        length: usize,
        frame_bytes: usize,
    ) -> PyResult<usize> {
        // SAFETY: it stays the caller's, who keeps it open for as long as this takes.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        let queued = py.detach(|| self.inner.write_file(&file, offset, length, frame_bytes));
        queued.map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))
    }

    /// Sends what is queued, then ends the stream. Idempotent.
    fn close(&self) {
        self.inner.close();
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<Stream {} {} with {}>", self.inner.id, self.protocol, self.peer.bind(py))
    }
}
