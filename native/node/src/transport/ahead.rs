//! Fewer and longer reads from a socket: encryption asks for a few kilobytes at a time.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use futures::{AsyncRead, AsyncWrite, ready};

const AHEAD_BYTES: usize = 256 * 1024;

/// Reads ahead in one go while more is waiting than is asked for. A connection with little to
/// do has no buffer.
pub struct Ahead<T> {
    inner: T,
    /// Empty, or `AHEAD_BYTES` long.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The last read gave more than was asked for, or all of it.
    expects_more: bool,
}

impl<T> Ahead<T> {
    pub fn new(inner: T) -> Ahead<T> {
        Ahead { inner, buffer: Box::default(), start: 0, end: 0, expects_more: false }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Ahead<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.start == this.end {
            if !this.expects_more {
                let read = ready!(Pin::new(&mut this.inner).poll_read(cx, target))?;
                this.expects_more = read > 0 && read == target.len();
                if !this.expects_more {
                    this.buffer = Box::default();
                }
                return Poll::Ready(Ok(read));
            }
            if this.buffer.is_empty() {
                this.buffer = vec![0; AHEAD_BYTES].into();
            }
            this.expects_more = false;
            this.end = this.start;
            let read = ready!(Pin::new(&mut this.inner).poll_read(cx, &mut this.buffer))?;
            (this.start, this.end) = (0, read);
            this.expects_more = read > target.len();
        }
        let count = target.len().min(this.end - this.start);
        target[..count].copy_from_slice(&this.buffer[this.start..this.start + count]);
        this.start += count;
        Poll::Ready(Ok(count))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Ahead<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures::{AsyncReadExt, FutureExt};

    use super::*;

    /// Gives what is there in pieces of so many bytes, with a pause after each.
    struct Bursts {
        bytes: Vec<u8>,
        piece: usize,
        left: usize,
    }

    impl AsyncRead for Bursts {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            target: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            if self.left == 0 && !self.bytes.is_empty() {
                self.left = self.piece;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let count = target.len().min(self.left).min(self.bytes.len());
            target[..count].copy_from_slice(&self.bytes[..count]);
            self.bytes.drain(..count);
            self.left -= count;
            Poll::Ready(Ok(count))
        }
    }

    #[test]
    fn every_byte_comes_once_and_in_order_then_the_end() {
        let bytes: Vec<u8> = (0..100_000u32).map(|number| (number % 251) as u8).collect();
        for piece in [1000, 4096, 70_000] {
            for asked in [512, 4096, 90_000] {
                let source = Bursts { bytes: bytes.clone(), piece, left: 0 };
                let mut ahead = Ahead::new(source);
                let (mut read, mut target) = (Vec::new(), vec![0; asked]);
                loop {
                    match ahead.read(&mut target).now_or_never() {
                        Some(Ok(0)) => break,
                        Some(count) => read.extend_from_slice(&target[..count.expect("a read")]),
                        None => {}
                    }
                }
                assert!(read == bytes, "{piece} at once, {asked} asked for");
            }
        }
    }

    #[test]
    fn a_connection_with_little_to_do_has_no_buffer() {
        let mut ahead = Ahead::new(Bursts { bytes: vec![1; 10_010], piece: 10_000, left: 0 });
        let mut target = [0; 4000];
        let mut lengths = Vec::new();
        let mut total = 0;
        while total < 10_010 {
            if let Some(count) = ahead.read(&mut target).now_or_never() {
                total += count.expect("a read");
                lengths.push(ahead.buffer.len());
            }
        }
        assert_eq!(lengths.first(), Some(&0));
        assert!(lengths.contains(&AHEAD_BYTES));
        assert_eq!(lengths.last(), Some(&0));
    }
}
