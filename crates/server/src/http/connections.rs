//! Connections: their number, their time limits, and their end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::limits;
use crate::http::stall::StallGuard;

/// Idle time after which the system probes whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Time that connections opened just before the stop have to send a request; idle ones are closed
/// then.
const LAST_CALL: Duration = Duration::from_millis(300);
/// Wait before the next attempt when the system has no free socket.
const NO_SOCKET: Duration = Duration::from_millis(100);

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Most connections at a time.
    pub(crate) most: usize,
    /// Time limit for the headers of a request.
    pub(crate) header_time: Duration,
    /// Time limit for a client that reads nothing.
    pub(crate) stall_time: Duration,
}

/// How connections are served.
struct Connections {
    http: http1::Builder,
    places: Arc<Semaphore>,
    router: Router,
    stall: Duration,
}

/// Serves until `stop`, and then until running requests have their answers. A connection that is
/// opened later gets one answer: the router knows that the server stops.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &ConnectionLimits,
    stop: impl Future<Output = ()>,
) {
    let mut connections = Connections::new(router, limits);
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            (stream, place) = connections.accept(&listener) => connections.open(stream, place, Some(&graceful)),
        }
    }
    connections.http.keep_alive(false);
    let over = async {
        if graceful.count() > 0 {
            tokio::time::sleep(LAST_CALL).await;
        }
        graceful.shutdown().await;
    };
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => return,
            (stream, place) = connections.accept(&listener) => connections.open(stream, place, None),
        }
    }
}

impl Connections {
    fn new(router: Router, connections: &ConnectionLimits) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(connections.header_time)
            .max_headers(limits::MOST_HEADERS)
            .max_header_size(limits::HEADER_BYTES)
            .max_buf_size(limits::BUFFER);
        let places = Arc::new(Semaphore::new(connections.most.clamp(1, Semaphore::MAX_PERMITS)));
        Connections { http, places, router, stall: connections.stall_time }
    }

    /// The next connection, once the number of open ones allows it.
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, OwnedSemaphorePermit) {
        loop {
            let Ok(place) = self.places.clone().acquire_owned().await else {
                return std::future::pending().await; // the semaphore is never closed
            };
            match listener.accept().await {
                Ok((stream, _)) => return (stream, place),
                Err(error) => {
                    // The client has left already, or the system has no free socket until other
                    // connections end.
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(NO_SOCKET).await;
                }
            }
        }
    }

    /// Serves a connection on its own task; `graceful` waits for its end.
    fn open(&self, stream: TcpStream, place: OwnedSemaphorePermit, graceful: Option<&GracefulShutdown>) {
        if let Err(error) = configure(&stream, self.stall) {
            tracing::debug!(%error, "a connection could not be set up");
        }
        let stream = TokioIo::new(StallGuard::new(stream, self.stall));
        let served = self.http.serve_connection(stream, TowerToHyperService::new(self.router.clone()));
        let served = match graceful {
            Some(graceful) => futures_util::future::Either::Left(graceful.watch(served)),
            None => futures_util::future::Either::Right(served),
        };
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(place);
        });
    }
}

/// Sends tokens at once, bounds what the system buffers, and detects clients that have vanished.
fn configure(stream: &TcpStream, stall: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_send_buffer_size(limits::SEND_BUFFER)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(stall))?;
    #[cfg(not(target_os = "linux"))]
    let _ = stall;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))
}
