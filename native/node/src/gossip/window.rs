//! Which messages of a source have been seen: each passes once.
//!
//! Messages overtake each other on their way, so a sequence that merely is not the highest
//! is no replay. Per source the last few are remembered one by one, and whatever is older
//! than those is refused.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use libp2p::PeerId;

/// So many messages of one source may overtake another.
const WIDTH: u64 = 1024;
const WORDS: usize = (WIDTH / 64) as usize;

struct Seen {
    highest: u64,
    /// Bit `sequence % WIDTH`, for the last `WIDTH` sequences.
    bits: [u64; WORDS],
    heard_at: Instant,
}

impl Seen {
    fn new(sequence: u64, now: Instant) -> Seen {
        let mut seen = Seen { highest: sequence, bits: [0; WORDS], heard_at: now };
        seen.mark(sequence);
        seen
    }

    fn place(sequence: u64) -> (usize, u64) {
        let bit = sequence % WIDTH;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn mark(&mut self, sequence: u64) {
        let (word, bit) = Seen::place(sequence);
        self.bits[word] |= bit;
    }

    fn is_new(&mut self, sequence: u64) -> bool {
        if sequence > self.highest {
            if sequence - self.highest >= WIDTH {
                self.bits = [0; WORDS];
            } else {
                for passed in self.highest + 1..sequence {
                    let (word, bit) = Seen::place(passed);
                    self.bits[word] &= !bit;
                }
            }
            self.highest = sequence;
            self.mark(sequence);
            return true;
        }
        if self.highest - sequence >= WIDTH {
            return false;
        }
        let (word, bit) = Seen::place(sequence);
        let is_new = self.bits[word] & bit == 0;
        self.mark(sequence);
        is_new
    }
}

pub struct Windows {
    sources: HashMap<PeerId, Seen>,
    max_sources: usize,
    /// Beyond this age a message is refused by its time alone.
    kept: Duration,
}

impl Windows {
    pub fn new(max_sources: usize, kept: Duration) -> Windows {
        Windows { sources: HashMap::new(), max_sources, kept }
    }

    /// Whether this message of the source comes for the first time. While too many sources
    /// speak at once, those not yet known are not heard.
    pub fn is_new(&mut self, source: PeerId, sequence: u64, now: Instant) -> bool {
        if let Some(seen) = self.sources.get_mut(&source) {
            seen.heard_at = now;
            return seen.is_new(sequence);
        }
        if self.sources.len() >= self.max_sources {
            self.forget(now);
            if self.sources.len() >= self.max_sources {
                return false;
            }
        }
        self.sources.insert(source, Seen::new(sequence, now));
        true
    }

    pub fn forget(&mut self, now: Instant) {
        let kept = self.kept;
        self.sources.retain(|_, seen| now.duration_since(seen.heard_at) < kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows() -> Windows {
        Windows::new(2, Duration::from_secs(100))
    }

    #[test]
    fn each_passes_once_in_any_order() {
        let (mut windows, source, now) = (windows(), PeerId::random(), Instant::now());
        for sequence in [5, 3, 4, 900, 1, 1028] {
            assert!(windows.is_new(source, sequence, now), "{sequence}");
        }
        for sequence in [5, 900, 1028] {
            assert!(!windows.is_new(source, sequence, now), "{sequence} again");
        }
        assert!(windows.is_new(source, 6, now));
        assert!(!windows.is_new(source, 4, now), "older than the window");
    }

    #[test]
    fn every_sequence_of_a_long_run_passes_once() {
        let (mut windows, source, now) = (windows(), PeerId::random(), Instant::now());
        for sequence in (0..5000u64).map(|n| n ^ 3) {
            assert!(windows.is_new(source, sequence, now), "{sequence}");
            assert!(!windows.is_new(source, sequence, now), "{sequence} again");
        }
    }

    #[test]
    fn a_jump_forgets_what_lies_behind() {
        let (mut windows, source, now) = (windows(), PeerId::random(), Instant::now());
        assert!(windows.is_new(source, 1, now));
        assert!(windows.is_new(source, u64::MAX, now));
        assert!(!windows.is_new(source, 1, now));
        assert!(windows.is_new(source, u64::MAX - 1023, now));
    }

    #[test]
    fn silent_sources_make_room_for_others() {
        let (mut windows, now) = (windows(), Instant::now());
        let [one, two, three] = [(); 3].map(|()| PeerId::random());
        assert!(windows.is_new(one, 1, now));
        assert!(windows.is_new(two, 1, now));
        assert!(!windows.is_new(three, 1, now));
        assert!(windows.is_new(three, 1, now + Duration::from_secs(101)));
    }
}
