//! Counts the bytes of every substream, whatever transport carries it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use futures::{AsyncRead, AsyncWrite, ready};
use libp2p::core::muxing::{StreamMuxer, StreamMuxerBox, StreamMuxerEvent, SubstreamBox};

/// What has gone over one kind of path since the start.
#[derive(Debug, Default)]
pub struct Traffic {
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
}

pub struct Counted<T> {
    inner: T,
    traffic: Arc<Traffic>,
}

pub fn counted(muxer: StreamMuxerBox, traffic: Arc<Traffic>) -> StreamMuxerBox {
    StreamMuxerBox::new(Counted { inner: muxer, traffic })
}

impl<T> Counted<T> {
    fn wrap(&self, stream: io::Result<SubstreamBox>) -> Poll<io::Result<Counted<SubstreamBox>>> {
        Poll::Ready(stream.map(|inner| Counted { inner, traffic: self.traffic.clone() }))
    }
}

impl StreamMuxer for Counted<StreamMuxerBox> {
    type Substream = Counted<SubstreamBox>;
    type Error = io::Error;

    fn poll_inbound(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Self::Substream>> {
        let stream = ready!(Pin::new(&mut self.inner).poll_inbound(cx));
        self.wrap(stream)
    }

    fn poll_outbound(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Self::Substream>> {
        let stream = ready!(Pin::new(&mut self.inner).poll_outbound(cx));
        self.wrap(stream)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
        Pin::new(&mut self.inner).poll(cx)
    }
}

impl AsyncRead for Counted<SubstreamBox> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        self.traffic.bytes_in.fetch_add(read as u64, Relaxed);
        Poll::Ready(Ok(read))
    }
}

impl AsyncWrite for Counted<SubstreamBox> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.traffic.bytes_out.fetch_add(written as u64, Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, parts))?;
        self.traffic.bytes_out.fetch_add(written as u64, Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}
