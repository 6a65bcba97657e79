//! A connection that gives up when the other side takes nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail when nothing could be written for a time.
pub(crate) struct Wire<S> {
    stream: S,
    patience: Duration,
    waits: Option<Pin<Box<Sleep>>>, // since nothing can be written
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Wire { stream, patience, waits: None }
    }

    /// What came of an attempt to write; an error if there were none but in vain for too long.
    fn attempt<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let until = Instant::now() + self.patience;
        let waits = self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(waits.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<S> {
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
    async fn writing_fails_when_nothing_is_taken_for_the_time_and_not_before() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut wire = Wire::new(near, Duration::from_secs(60));
        wire.write_all(b"12345678").await.expect("there is room");
        let slow = tokio::spawn(async move {
            let mut byte = [0];
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_secs(59)).await;
                far.read_exact(&mut byte).await.expect("there are bytes");
            }
            far // and takes nothing from now on
        });
        wire.write_all(b"abcdefgh").await.expect("a byte in 59 seconds is enough");
        let _far = slow.await.expect("no panic");
        let started = Instant::now();
        let error = wire.write_all(b"x").await.expect_err("nothing was taken");
        assert_eq!((error.kind(), started.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
    }
}
