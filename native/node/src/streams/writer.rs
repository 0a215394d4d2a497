//! The writing half: joins what waits into one write, so that the number of packets
//! follows the network, not the number of frames. Heartbeats go out from here.

use std::{io, sync::Arc};

use futures::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::{frame, stream::Stream};
use crate::{clock, lock};

/// A buffer that one large frame has grown is not kept.
const KEPT_CAPACITY_BYTES: usize = 1 << 20;

pub(super) async fn write_frames(
    stream: &Arc<Stream>,
    mut io: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut batch = Vec::new();
    let mut beat_at = stream.protocol.heartbeats.then(Instant::now);
    loop {
        let closing = take(stream, &mut batch);
        if beat_at.is_some_and(|at| at <= Instant::now()) {
            frame::append_heartbeat(&mut batch, clock::boot_seconds());
            beat_at = Some(Instant::now() + stream.liveness.heartbeat);
        }
        if closing {
            frame::append_goodbye(&mut batch);
        }
        if batch.is_empty() {
            match beat_at {
                Some(at) => tokio::select! {
                    () = stream.written.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => stream.written.notified().await,
            }
            continue;
        }
        io.write_all(&batch).await?;
        io.flush().await?;
        batch.clear();
        if batch.capacity() > KEPT_CAPACITY_BYTES {
            batch = Vec::new();
        }
        if closing {
            return io.close().await;
        }
        let unsent = {
            let mut outgoing = lock(&stream.outgoing);
            outgoing.in_flight_bytes = 0;
            outgoing.buffer.len()
        };
        if unsent <= stream.protocol.write_high_bytes / 4 {
            stream.became_writable();
        }
    }
}

/// Takes everything that waits; true if the stream shall be closed after it.
fn take(stream: &Stream, batch: &mut Vec<u8>) -> bool {
    let mut outgoing = lock(&stream.outgoing);
    std::mem::swap(batch, &mut outgoing.buffer);
    outgoing.in_flight_bytes = batch.len();
    outgoing.closing
}
