//! A stream as the application holds it, and the task that serves it.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

use futures::AsyncReadExt;
use libp2p::{PeerId, Stream as RawStream};
use tokio::sync::Notify;

use super::{frame, reader, writer};
use crate::{
    conduct::Conduct,
    event::Event,
    facts::Heard,
    lock,
    queue::EventQueue,
    settings::{Liveness, Protocol},
};

/// Whoever writes on although the stream is full gets this many times `write_high_bytes`;
/// then the stream breaks, so that no queue is without a bound.
const OVERFLOW_FACTOR: usize = 16;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("a frame of {length} bytes is over the protocol's limit of {limit}")]
    FrameTooLong { length: usize, limit: usize },
}

pub struct Stream {
    pub id: u64,
    pub peer: PeerId,
    pub protocol: Protocol,
    pub(super) liveness: Liveness,
    pub(super) queue: Arc<EventQueue>,
    pub(super) heard: Arc<Heard>,
    pub(super) conduct: Arc<Conduct>,
    pub(super) outgoing: Mutex<Outgoing>,
    pub(super) written: Notify,
    full: AtomicBool,
    pub(super) unconsumed: AtomicUsize,
    pub(super) consumed: Notify,
    /// The connection is gone: what has arrived is still read, then the stream ends.
    pub(super) lost: Notify,
    /// Breaks the task off at once.
    broken: Notify,
    /// True once the end was told. Held while anything about this stream is told, so that
    /// nothing can follow the end.
    ended: Mutex<bool>,
}

#[derive(Default)]
pub(super) struct Outgoing {
    pub buffer: Vec<u8>,
    /// What the writer has taken and not yet handed to the connection.
    pub in_flight_bytes: usize,
    pub closing: bool,
    overflowed: bool,
}

impl Stream {
    pub(crate) fn new(
        peer: PeerId,
        protocol: Protocol,
        liveness: Liveness,
        queue: Arc<EventQueue>,
        heard: Arc<Heard>,
        conduct: Arc<Conduct>,
    ) -> Arc<Stream> {
        Arc::new(Stream {
            id: NEXT_ID.fetch_add(1, SeqCst),
            peer,
            protocol,
            liveness,
            queue,
            heard,
            conduct,
            outgoing: Mutex::default(),
            written: Notify::new(),
            full: AtomicBool::new(false),
            unconsumed: AtomicUsize::new(0),
            consumed: Notify::new(),
            lost: Notify::new(),
            broken: Notify::new(),
            ended: Mutex::new(false),
        })
    }

    /// True while more is queued than `write_high_bytes`; `Writable` tells when it ends.
    pub fn is_full(&self) -> bool {
        self.full.load(SeqCst)
    }

    /// Queues one frame; on a stream that is closed or closing it is dropped.
    pub fn write(&self, frame: &[u8]) -> Result<(), WriteError> {
        let limit = self.protocol.max_frame_bytes;
        if frame.len() > limit {
            return Err(WriteError::FrameTooLong { length: frame.len(), limit });
        }
        self.queue_up(|buffer| frame::append_data(buffer, frame));
        Ok(())
    }

    /// Queues a part of a file in frames of `frame_bytes`, as much of it as there is room for;
    /// how many bytes of the file that were. Nothing is held while the disk is read.
    pub fn write_file(
        &self,
        file: &File,
        offset: u64,
        length: usize,
        frame_bytes: usize,
    ) -> io::Result<usize> {
        let frame_bytes = frame_bytes.clamp(1, self.protocol.max_frame_bytes);
        let mut part = vec![0; frame_bytes.min(length)];
        let mut queued = 0;
        while queued < length && !self.is_full() && !lock(&self.outgoing).closing {
            part.truncate(length - queued);
            file.read_exact_at(&mut part, offset + queued as u64)?;
            self.queue_up(|buffer| frame::append_data(buffer, &part));
            queued += part.len();
        }
        Ok(queued)
    }

    fn queue_up(&self, append: impl FnOnce(&mut Vec<u8>)) {
        let mut outgoing = lock(&self.outgoing);
        if outgoing.closing || outgoing.overflowed {
            return;
        }
        let was_empty = outgoing.buffer.is_empty();
        append(&mut outgoing.buffer);
        let unsent = outgoing.buffer.len() + outgoing.in_flight_bytes;
        let high = self.protocol.write_high_bytes;
        if unsent > high {
            self.full.store(true, SeqCst);
            let limit = self.protocol.max_frame_bytes;
            if unsent > high.saturating_mul(OVERFLOW_FACTOR).saturating_add(limit) {
                outgoing.overflowed = true;
                self.broken.notify_one();
            }
        }
        drop(outgoing);
        if was_empty {
            self.written.notify_one();
        }
    }

    /// The application is done with this many of the `bytes` that `Frames` brought.
    pub fn consume(&self, bytes: usize) {
        let before = self.unconsumed.fetch_sub(bytes, SeqCst);
        debug_assert!(before >= bytes, "more was consumed than was told");
        if before >= self.protocol.read_high_bytes {
            self.consumed.notify_one();
        }
    }

    /// Sends what is queued, then ends the stream. Idempotent.
    pub fn close(&self) {
        lock(&self.outgoing).closing = true;
        self.written.notify_one();
    }

    /// The connection is gone. Needed because Yamux wakes no reader when it is our own
    /// node that closes the connection: such a read would wait for ever.
    pub(crate) fn connection_lost(&self) {
        self.lost.notify_one();
    }

    /// Tells the end, once, and stops the task.
    pub(crate) fn end(self: &Arc<Self>, error: String) {
        let mut ended = lock(&self.ended);
        if *ended {
            return;
        }
        *ended = true;
        self.queue.push(Event::StreamClosed { stream: self.clone(), error });
        drop(ended);
        lock(&self.outgoing).closing = true;
        self.full.store(false, SeqCst);
        self.broken.notify_one();
    }

    /// Tells something about this stream, unless its end was told already.
    pub(super) fn tell(&self, event: Event) {
        let ended = lock(&self.ended);
        if !*ended {
            self.queue.push(event);
        }
    }

    pub(super) fn became_writable(self: &Arc<Self>) {
        if self.full.swap(false, SeqCst) {
            self.tell(Event::Writable { stream: self.clone() });
        }
    }
}

/// Serves a stream until either direction ends: a half-dead stream helps nobody here.
pub(crate) async fn serve(stream: Arc<Stream>, raw: RawStream) {
    let (incoming, outgoing) = raw.split();
    let result = tokio::select! {
        biased;
        () = stream.broken.notified() => Err(match lock(&stream.outgoing).overflowed {
            true => io::Error::other("the peer does not keep up and the write queue is full"),
            false => io::ErrorKind::ConnectionAborted.into(),
        }),
        result = reader::read_frames(&stream, incoming) => result,
        result = writer::write_frames(&stream, outgoing) => result,
    };
    stream.end(result.err().map_or_else(String::new, |error| error.to_string()));
}
