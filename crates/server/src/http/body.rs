//! The body of a request, read to its end within the server's limits.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::extract::Request;
use futures_util::StreamExt;

use crate::api::fields::Fields;
use crate::api::heavy;
use crate::app::App;
use crate::error::ApiError;
use crate::http::limits;
use crate::observe::ticket::Ticket;

/// A body that is too large is read on, and thrown away, up to so many times the limit: most clients look for an answer only when they have sent all they have.
const READ_ON: usize = 8;

/// Reads a body as a JSON object.
pub(crate) async fn read(app: &App, request: Request<Body>) -> Result<Fields, ApiError> {
    let ticket = app.records_bodies().then(|| Ticket::of(&request));
    let bytes = collect(request.into_body(), app.options().body_limit, app.bodies());
    match tokio::time::timeout(app.options().read_timeout, bytes).await {
        Ok(bytes) => {
            let bytes = bytes?;
            let fields = heavy::run(bytes.bytes.len(), || Fields::read(&bytes.bytes))?;
            if let Some(ticket) = ticket {
                ticket.keep(bytes.bytes.clone().into());
            }
            Ok(fields)
        }
        Err(_) => Err(ApiError::too_slow()),
    }
}

/// The bytes of a body, which count among those that the server holds.
struct Held<'a> {
    bytes: Vec<u8>,
    all: &'a AtomicUsize,
}

impl Held<'_> {
    fn push(&mut self, piece: &[u8]) -> Result<(), ApiError> {
        let held = self.all.fetch_add(piece.len(), Ordering::SeqCst) + piece.len();
        self.bytes.extend_from_slice(piece);
        // One alone is never too much.
        if held > limits::BODIES && held > self.bytes.len() {
            return Err(ApiError::overloaded("the bodies that are on their way are more than this server holds"));
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.all.fetch_sub(self.bytes.len(), Ordering::SeqCst);
        self.bytes = Vec::new();
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// All of a body. `all`: bytes of all bodies that are held.
async fn collect(body: Body, limit: usize, all: &AtomicUsize) -> Result<Held<'_>, ApiError> {
    let mut pieces = body.into_data_stream();
    let (mut held, mut seen) = (Held { bytes: Vec::new(), all }, 0_usize);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| ApiError::bad_request(format!("the body cannot be read: {error}")))?;
        seen = seen.saturating_add(piece.len());
        if seen <= limit {
            held.push(&piece)?;
        } else if seen <= limit.saturating_mul(READ_ON) {
            held.clear();
        } else {
            break;
        }
    }
    if seen > limit { Err(ApiError::too_large(limit)) } else { Ok(held) }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;

    use super::*;

    async fn sent(sizes: &[usize], limit: usize, all: &AtomicUsize) -> Result<usize, u64> {
        let pieces: Vec<_> = sizes.iter().map(|size| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; *size]))).collect();
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let held = collect(body, limit, all).await.map(|held| held.bytes.len());
        held.map_err(|error| axum::response::IntoResponse::into_response(error).status().as_u16().into())
    }

    #[tokio::test]
    async fn a_body_is_held_within_its_limit_and_that_of_all_of_them() {
        let all = AtomicUsize::new(0);
        assert_eq!(sent(&[4, 6], 10, &all).await, Ok(10));
        assert_eq!(sent(&[4, 6, 1], 10, &all).await, Err(413));
        assert_eq!(sent(&[60, 60], 10, &all).await, Err(413), "it is not read for ever");
        assert_eq!(all.load(Ordering::SeqCst), 0, "all is given back");
        all.store(limits::BODIES - 5, Ordering::SeqCst);
        assert_eq!((sent(&[5], 10, &all).await, sent(&[4, 2], 10, &all).await), (Ok(5), Err(429)));
        assert_eq!(all.load(Ordering::SeqCst), limits::BODIES - 5);
    }
}
