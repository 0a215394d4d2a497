//! What the kernel can do with files and Python does not offer.

use std::os::fd::RawFd;

use pyo3::pyfunction;

/// Lets the disk begin with what was written to a part of a file: whoever syncs it later waits
/// less. A hint that may fail; it returns before anything is on disk.
#[pyfunction]
pub fn begin_write_back(descriptor: RawFd, offset: i64, length: i64) {
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is involved, and a bad descriptor is an error that nobody needs.
    unsafe {
        libc::sync_file_range(descriptor, offset, length, libc::SYNC_FILE_RANGE_WRITE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (descriptor, offset, length);
}
