//! The clocks of this machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds of CLOCK_BOOTTIME, which goes on while a laptop sleeps.
pub fn boot_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call and has the type that it fills.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Whole seconds of wall time since 1970; a clock before that counts as the end of time,
/// so that every token has expired.
pub fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |passed| passed.as_secs())
}

/// Milliseconds of wall time since 1970, likewise.
pub fn wall_milliseconds() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    passed.map_or(u64::MAX, |passed| passed.as_millis() as u64)
}

/// A length of time that came from outside: negative, endless or not a number is refused.
pub fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}
