//! The eventfd that wakes the event loop.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

pub struct EventFd(OwnedFd);

impl EventFd {
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: a plain system call without pointers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and belongs to nobody else.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn ring(&self) {
        let one: u64 = 1;
        // SAFETY: `one` outlives the call and has the size that an eventfd wants. It can
        // fail only when the counter is full, and then the loop wakes up anyway.
        unsafe { libc::write(self.descriptor(), (&raw const one).cast(), size_of::<u64>()) };
    }

    pub fn clear(&self) {
        let mut count: u64 = 0;
        // SAFETY: `count` outlives the call and has the size that an eventfd wants. It
        // fails only when nobody rang.
        unsafe { libc::read(self.descriptor(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}
