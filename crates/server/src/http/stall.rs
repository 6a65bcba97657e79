//! A connection that fails when the other side reads nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail when no byte could be written for `limit`.
pub(crate) struct StallGuard<S> {
    stream: S,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>, // ends `limit` after the first write that could not proceed
}

impl<S: AsyncRead + AsyncWrite + Unpin> StallGuard<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        StallGuard { stream, limit, stalled: None }
    }

    /// Passes on the result of a write; an error if writes have been stalled for too long.
    fn attempt<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let until = Instant::now() + self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.attempt(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.attempt(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.attempt(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.attempt(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_after_the_stall_limit_and_not_before() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut guarded = StallGuard::new(near, Duration::from_secs(60));
        guarded.write_all(b"12345678").await.expect("there is room");
        let slow = tokio::spawn(async move {
            let mut byte = [0];
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_secs(59)).await;
                far.read_exact(&mut byte).await.expect("there are bytes");
            }
            far // and reads nothing from now on
        });
        guarded.write_all(b"abcdefgh").await.expect("one byte in 59 seconds is enough");
        let _far = slow.await.expect("no panic");
        let started = Instant::now();
        let error = guarded.write_all(b"x").await.expect_err("nothing was read");
        assert_eq!((error.kind(), started.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
    }
}
