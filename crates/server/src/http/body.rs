//! Reading the body of a request within the server's limits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt;

use crate::error::ApiError;
use crate::http::limits;

/// A body that is too large is read on, and discarded, up to this many times the limit: most
/// clients read an answer only after they have sent everything.
const READ_ON: usize = 8;

/// Reads bodies, and counts the bytes of those that are being received.
#[derive(Debug)]
pub(crate) struct BodyReader {
    limit: usize, // bytes of one body
    time: Duration,
    received: AtomicUsize, // bytes of all bodies that are held
}

impl BodyReader {
    /// `limit`: largest body in bytes; `time`: time limit of one.
    pub(crate) fn new(limit: usize, time: Duration) -> Self {
        BodyReader { limit, time, received: AtomicUsize::new(0) }
    }

    /// All bytes of a body. They count among the received ones until they are dropped.
    pub(crate) async fn read(&self, body: Body) -> Result<ReceivedBody<'_>, ApiError> {
        let received = tokio::time::timeout(self.time, self.collect(body)).await;
        received.unwrap_or_else(|_| Err(ApiError::too_slow()))
    }

    async fn collect(&self, body: Body) -> Result<ReceivedBody<'_>, ApiError> {
        let mut pieces = body.into_data_stream();
        let (mut received, mut seen) = (ReceivedBody { bytes: Vec::new(), all: &self.received }, 0_usize);
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| ApiError::bad_request(format!("cannot read the body: {error}")))?;
            seen = seen.saturating_add(piece.len());
            if seen <= self.limit {
                received.push(&piece)?;
            } else if seen <= self.limit.saturating_mul(READ_ON) {
                received.clear();
            } else {
                break;
            }
        }
        if seen > self.limit { Err(ApiError::too_large(self.limit)) } else { Ok(received) }
    }
}

/// The bytes of a body, counted among those of all bodies.
#[derive(Debug)]
pub(crate) struct ReceivedBody<'a> {
    bytes: Vec<u8>,
    all: &'a AtomicUsize,
}

impl ReceivedBody<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), ApiError> {
        let all = self.all.fetch_add(piece.len(), Ordering::SeqCst) + piece.len();
        self.bytes.extend_from_slice(piece);
        // A single body is never refused here, whatever its size.
        if all > limits::BODIES && all > self.bytes.len() {
            let why = format!("the bodies being received exceed the server's limit of {} bytes", limits::BODIES);
            return Err(ApiError::overloaded(why));
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.all.fetch_sub(self.bytes.len(), Ordering::SeqCst);
        self.bytes = Vec::new();
    }
}

impl Drop for ReceivedBody<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;

    use super::*;

    async fn sent(sizes: &[usize], reader: &BodyReader) -> Result<usize, u16> {
        let pieces: Vec<_> = sizes.iter().map(|size| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; *size]))).collect();
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let received = reader.read(body).await.map(|received| received.bytes().len());
        received.map_err(|error| error.status().as_u16())
    }

    #[tokio::test]
    async fn a_body_is_held_within_its_own_limit_and_that_of_all_bodies() {
        let reader = BodyReader::new(10, Duration::from_secs(3600));
        assert_eq!(sent(&[4, 6], &reader).await, Ok(10));
        assert_eq!(sent(&[4, 6, 1], &reader).await, Err(413));
        assert_eq!(sent(&[60, 60], &reader).await, Err(413), "reading on has a bound");
        assert_eq!(reader.received.load(Ordering::SeqCst), 0, "all bytes are given back");
        reader.received.store(limits::BODIES - 5, Ordering::SeqCst);
        assert_eq!((sent(&[5], &reader).await, sent(&[4, 2], &reader).await), (Ok(5), Err(429)));
        assert_eq!(reader.received.load(Ordering::SeqCst), limits::BODIES - 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_refused() {
        let reader = BodyReader::new(10, Duration::from_secs(30));
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(reader.read(body).await.map_err(|error| error.status().as_u16()).err(), Some(408));
    }
}
