//! Short writes that wait for the next: Yamux writes a header and then its frame, and each
//! would become a record of its own.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use futures::{AsyncRead, AsyncWrite, ready};

/// What is this short is held until more comes, or a flush.
const SHORT_BYTES: usize = 512;

pub struct Joined<T> {
    inner: T,
    /// Shorter than twice `SHORT_BYTES`.
    held: Vec<u8>,
}

impl<T> Joined<T> {
    pub fn new(inner: T) -> Joined<T> {
        Joined { inner, held: Vec::new() }
    }
}

impl<T: AsyncWrite + Unpin> Joined<T> {
    /// Writes what is held and behind it as much of `bytes` as goes along; how much that was.
    fn poll_held(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        while !self.held.is_empty() {
            let both = [IoSlice::new(&self.held), IoSlice::new(bytes)];
            match ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, &both))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written if written < self.held.len() => {
                    self.held.drain(..written);
                }
                written => {
                    let beyond = written - self.held.len();
                    self.held.clear();
                    return Poll::Ready(Ok(beyond));
                }
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Joined<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.len() < SHORT_BYTES && self.held.len() < SHORT_BYTES {
            self.held.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        match ready!(self.poll_held(cx, bytes))? {
            0 => Pin::new(&mut self.inner).poll_write(cx, bytes),
            written => Poll::Ready(Ok(written)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_held(cx, &[]))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_held(cx, &[]))?;
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Joined<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_read(cx, target)
    }
}

#[cfg(test)]
mod tests {
    use futures::{AsyncWriteExt, FutureExt};

    use super::*;

    /// Takes a few bytes at a time, and remembers how they came.
    #[derive(Default)]
    struct Narrow {
        writes: Vec<Vec<u8>>,
        at_once: usize,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.at_once);
            self.writes.push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
            self.poll_write(cx, &all)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn written(at_once: usize, writes: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut joined = Joined::new(Narrow { at_once, writes: Vec::new() });
        for bytes in writes {
            joined.write_all(bytes).now_or_never().expect("never waits").expect("is written");
        }
        joined.flush().now_or_never().expect("never waits").expect("is flushed");
        joined.inner.writes
    }

    #[test]
    fn a_header_goes_with_its_frame() {
        let frame = [7; 5000];
        assert_eq!(written(usize::MAX, &[b"header", &frame]), [[&b"header"[..], &frame].concat()]);
        assert_eq!(written(usize::MAX, &[b"header", b"short"]), [b"headershort".to_vec()]);
    }

    #[test]
    fn nothing_is_lost_or_moved_however_little_goes_at_once() {
        let (long, short) = ([1; 2000], [2; 100]);
        let writes: [&[u8]; 8] = [&short, &long, &short, &short, &short, b"", &long, &short];
        for at_once in [1, 7, 99, 100, 101, 1000, 5000] {
            assert_eq!(written(at_once, &writes).concat(), writes.concat(), "{at_once}");
        }
    }
}
