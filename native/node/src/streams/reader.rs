//! The reading half: everything that is there becomes one event. It stops while the
//! application has not taken what it was told, and notices silence.

use std::{io, sync::Arc, sync::atomic::Ordering::SeqCst};

use futures::{AsyncRead, AsyncReadExt, FutureExt};
use tokio::time::Instant;

use super::{frame, stream::Stream};
use crate::{clock, conduct, event::Event};

const CHUNK_BYTES: usize = 64 * 1024;
/// A read stops to collect here and hands over what it has.
const BATCH_BYTES: usize = 512 * 1024;

pub(super) async fn read_frames(
    stream: &Arc<Stream>,
    mut io: impl AsyncRead + Unpin,
) -> io::Result<()> {
    let mut buffer = Buffer::default();
    let mut silence = Silence::new(stream);
    let mut lost = false;
    loop {
        let read = match lost {
            // The connection is gone: take what has arrived, wait for nothing.
            true => match io.read(buffer.space()).now_or_never() {
                Some(read) => read?,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            },
            false => tokio::select! {
                biased;
                read = io.read(buffer.space()) => read?,
                () = stream.lost.notified() => {
                    lost = true;
                    continue;
                }
                () = silence.noticed() => {
                    let seconds = silence.tell();
                    stream.tell(Event::Silent { stream: stream.clone(), seconds });
                    continue;
                }
            },
        };
        buffer.filled += read;
        let mut at_end = read == 0;
        while !at_end && buffer.filled < BATCH_BYTES {
            match io.read(buffer.space()).now_or_never() {
                Some(Ok(read)) => {
                    buffer.filled += read;
                    at_end = read == 0;
                }
                // An error comes again with the next read, after the frames before it.
                Some(Err(_)) | None => break,
            }
        }
        silence.broken();
        stream.heard.now();
        if hand_over(stream, &mut buffer)? {
            return Ok(());
        }
        if at_end {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was lost"));
        }
        if wait_for_room(stream, lost).await {
            silence.broken();
        }
    }
}

/// Tells the whole frames in the buffer; true after the peer's goodbye.
fn hand_over(stream: &Arc<Stream>, buffer: &mut Buffer) -> io::Result<bool> {
    let arrived_at = clock::boot_seconds();
    let cut = frame::cut(&buffer.bytes[..buffer.filled], stream.protocol.max_frame_bytes)
        .inspect_err(|_| {
            stream.conduct.strike(stream.peer, conduct::MALFORMED_FRAME);
        })?;
    if stream.protocol.limited && !stream.conduct.spend(stream.peer, cut.frames.len()) {
        return Err(io::Error::other("the peer sends too many messages"));
    }
    if let Some(peer_clock) = cut.heartbeat {
        stream.tell(Event::Heartbeat { stream: stream.clone(), peer_clock, arrived_at });
    }
    buffer.wanted = cut.wanted;
    if cut.end > 0 {
        let bytes = buffer.take(cut.end);
        if !cut.frames.is_empty() {
            // With the prefixes: a flood of empty frames has to count, too.
            stream.unconsumed.fetch_add(bytes.len(), SeqCst);
            let (stream_of_frames, frames) = (stream.clone(), cut.frames);
            stream.tell(Event::Frames { stream: stream_of_frames, bytes, frames, arrived_at });
        }
    }
    Ok(cut.goodbye)
}

/// Waits while the application is behind, with this stream or with everything; true if
/// there was anything to wait for.
async fn wait_for_room(stream: &Arc<Stream>, lost: bool) -> bool {
    let is_behind = || stream.unconsumed.load(SeqCst) >= stream.protocol.read_high_bytes;
    if lost || (!is_behind() && !stream.queue.is_congested()) {
        return false;
    }
    while is_behind() {
        stream.consumed.notified().await;
    }
    stream.queue.room().await;
    true
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
    /// The length of the frame that begins in the buffer, as far as it is known.
    wanted: usize,
}

impl Buffer {
    /// Free space to read into: a chunk, or the rest of a long frame.
    fn space(&mut self) -> &mut [u8] {
        // Grows with what has come, never by what a prefix announces alone.
        let announced = self.wanted.saturating_sub(self.filled).min(self.filled);
        let space = announced.max(CHUNK_BYTES);
        if self.bytes.len() < self.filled + space {
            self.bytes.resize(self.filled + space, 0);
        }
        &mut self.bytes[self.filled..]
    }

    /// The first `end` bytes; the rest moves to the front.
    fn take(&mut self, end: usize) -> Vec<u8> {
        let rest = self.filled - end;
        let taken = if end < CHUNK_BYTES {
            // Short: copied, and the buffer with its cleared space is used again.
            let taken = self.bytes[..end].to_vec();
            self.bytes.copy_within(end..self.filled, 0);
            taken
        } else {
            // What comes next is likely to be as long: growing by pieces would copy it again.
            let mut next = Vec::with_capacity(self.bytes.len().min(BATCH_BYTES + CHUNK_BYTES));
            next.extend_from_slice(&self.bytes[end..self.filled]);
            let mut taken = std::mem::replace(&mut self.bytes, next);
            taken.truncate(end);
            taken
        };
        self.filled = rest;
        taken
    }
}

/// When the next silence is to be told. Streams without heartbeats may be silent.
struct Silence {
    applies: bool,
    since: Instant,
    tell_at: Instant,
    first: std::time::Duration,
    repeat: std::time::Duration,
}

impl Silence {
    fn new(stream: &Stream) -> Silence {
        let now = Instant::now();
        Silence {
            applies: stream.protocol.heartbeats,
            since: now,
            tell_at: now + stream.liveness.silence,
            first: stream.liveness.silence,
            repeat: stream.liveness.repeat,
        }
    }

    async fn noticed(&self) {
        match self.applies {
            true => tokio::time::sleep_until(self.tell_at).await,
            false => std::future::pending().await,
        }
    }

    /// How long it has lasted, in seconds.
    fn tell(&mut self) -> f64 {
        let now = Instant::now();
        self.tell_at = now + self.repeat;
        now.duration_since(self.since).as_secs_f64()
    }

    fn broken(&mut self) {
        self.since = Instant::now();
        self.tell_at = self.since + self.first;
    }
}
