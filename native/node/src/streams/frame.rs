//! The framing: what the four bytes before each frame mean.
//!
//! ```text
//!   0 ········ length of a data frame (31 bits)
//!   1 kkkkkkk  length (24 bits)        a frame of our own: heartbeat or goodbye
//! ```
//!
//! A heartbeat carries the sender's CLOCK_BOOTTIME. A goodbye tells an orderly close
//! from a lost connection, which Yamux shows to a reader as the same end of data.

use std::{io, ops::Range};

pub const PREFIX_BYTES: usize = 4;
pub const MAX_DATA_BYTES: usize = (1 << 31) - 1;

const OURS: u32 = 1 << 31;
const HEARTBEAT: u32 = OURS | 8;
const GOODBYE: u32 = OURS | 1 << 24;
const CLOCK_BYTES: usize = 8;

pub fn append_data(buffer: &mut Vec<u8>, frame: &[u8]) {
    debug_assert!(frame.len() <= MAX_DATA_BYTES);
    buffer.reserve(PREFIX_BYTES + frame.len());
    buffer.extend_from_slice(&(frame.len() as u32).to_be_bytes());
    buffer.extend_from_slice(frame);
}

pub fn append_heartbeat(buffer: &mut Vec<u8>, clock: f64) {
    buffer.extend_from_slice(&HEARTBEAT.to_be_bytes());
    buffer.extend_from_slice(&clock.to_be_bytes());
}

pub fn append_goodbye(buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&GOODBYE.to_be_bytes());
}

/// What stands at the start of a read buffer.
#[derive(Debug, Default, PartialEq)]
pub struct Cut {
    pub frames: Vec<Range<usize>>,
    /// The latest of the heartbeats: an older reading says nothing more, and a peer
    /// cannot make events out of thin air.
    pub heartbeat: Option<f64>,
    pub goodbye: bool,
    /// Where the whole frames end.
    pub end: usize,
    /// How many bytes the frame that begins there has with its prefix, if known.
    pub wanted: usize,
}

/// Cuts the whole frames off the start of `data`. A data frame over `max_frame_bytes` and
/// a frame of ours that we do not know are errors, before the rest of them is read.
pub fn cut(data: &[u8], max_frame_bytes: usize) -> io::Result<Cut> {
    let mut cut = Cut { wanted: PREFIX_BYTES, ..Cut::default() };
    while let Some((prefix, rest)) = data[cut.end..].split_first_chunk() {
        let prefix = u32::from_be_bytes(*prefix);
        let length = match prefix {
            HEARTBEAT => CLOCK_BYTES,
            GOODBYE => 0,
            _ if prefix & OURS != 0 => return Err(invalid("a frame of unknown kind")),
            _ => prefix as usize,
        };
        if prefix & OURS == 0 && length > max_frame_bytes {
            return Err(invalid("a frame over the limit"));
        }
        cut.wanted = PREFIX_BYTES + length;
        if rest.len() < length {
            return Ok(cut);
        }
        let start = cut.end + PREFIX_BYTES;
        match prefix {
            HEARTBEAT => cut.heartbeat = rest.first_chunk().copied().map(f64::from_be_bytes),
            GOODBYE => cut.goodbye = true,
            _ => cut.frames.push(start..start + length),
        }
        cut.end = start + length;
        cut.wanted = PREFIX_BYTES;
        if cut.goodbye {
            break;
        }
    }
    Ok(cut)
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_frames_are_cut_and_the_rest_is_kept() {
        let mut data = Vec::new();
        append_data(&mut data, b"seven");
        append_heartbeat(&mut data, 1.0);
        append_data(&mut data, b"");
        append_heartbeat(&mut data, 2.5);
        let whole = data.len();
        data.extend_from_slice(&[0, 0, 0, 2, 1]);
        let found = cut(&data, 16).expect("is valid");
        assert_eq!(found.frames, vec![4..9, 25..25]);
        assert_eq!(found.heartbeat, Some(2.5));
        assert_eq!((found.end, found.wanted, found.goodbye), (whole, 6, false));
    }

    #[test]
    fn the_cap_is_checked_before_the_frame_is_there() {
        assert!(cut(&[0, 0, 0, 17], 16).is_err());
        assert!(cut(&[0, 0, 0, 16], 16).is_ok());
        assert!(cut(&[0x7f, 0xff, 0xff, 0xff], 16).is_err());
    }

    #[test]
    fn unknown_frames_of_ours_are_refused() {
        assert!(cut(&[0x80, 0, 0, 9], 16).is_err());
        assert!(cut(&[0x82, 0, 0, 0], 16).is_err());
    }

    #[test]
    fn nothing_counts_after_a_goodbye() {
        let mut data = Vec::new();
        append_data(&mut data, b"x");
        append_goodbye(&mut data);
        append_data(&mut data, b"y");
        let found = cut(&data, 16).expect("is valid");
        assert!(found.goodbye);
        assert_eq!(found.frames.len(), 1);
    }

    #[test]
    fn every_split_of_the_bytes_gives_the_same_frames() {
        let mut data = Vec::new();
        append_data(&mut data, b"abc");
        append_heartbeat(&mut data, 3.0);
        append_data(&mut data, b"defgh");
        for at in 0..data.len() {
            let first = cut(&data[..at], 16).expect("is valid");
            let second = cut(&data[first.end..], 16).expect("is valid");
            assert_eq!(first.frames.len() + second.frames.len(), 2);
            assert_eq!(first.end + second.end, data.len());
        }
    }
}
