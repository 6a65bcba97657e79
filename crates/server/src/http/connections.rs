//! The connections: how many there may be, how long they may take, and how they end.

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
use crate::http::wire::Wire;
use crate::serve::ServeOptions;

/// After how long without a word the system asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How long connections that were opened just before the stop have to bring their requests; those that bring none are closed.
const LAST_CALL: Duration = Duration::from_millis(300);
/// How long to wait when the system has no more sockets to give.
const NO_SOCKET: Duration = Duration::from_millis(100);

/// How connections are served.
struct Connections {
    http: http1::Builder,
    places: Arc<Semaphore>,
    router: Router,
    stall: Duration,
}

/// Serves until `stop`, and then until the requests under way have their answers. Connections that come after that get one answer each: the router knows that the
/// server is about to stop.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    options: &ServeOptions,
    stop: impl Future<Output = ()>,
) {
    let mut connections = Connections::new(router, options);
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
    fn new(router: Router, options: &ServeOptions) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(options.read_timeout)
            .max_headers(limits::MOST_HEADERS)
            .max_header_size(limits::HEADER_BYTES)
            .max_buf_size(limits::BUFFER);
        let places = Arc::new(Semaphore::new(options.most_connections.clamp(1, Semaphore::MAX_PERMITS)));
        Connections { http, places, router, stall: options.stall_timeout }
    }

    /// The next connection, when there is a place for it.
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, OwnedSemaphorePermit) {
        loop {
            let Ok(place) = self.places.clone().acquire_owned().await else {
                return std::future::pending().await; // nobody closes the semaphore
            };
            match listener.accept().await {
                Ok((stream, _)) => return (stream, place),
                Err(error) => {
                    // A client that has left already, or no socket left: others end in time.
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(NO_SOCKET).await;
                }
            }
        }
    }

    /// Serves a connection to its end on a task of its own; `graceful` waits for it.
    fn open(&self, stream: TcpStream, place: OwnedSemaphorePermit, graceful: Option<&GracefulShutdown>) {
        if let Err(error) = settle(&stream, self.stall) {
            tracing::debug!(%error, "a connection could not be set up");
        }
        let wire = TokioIo::new(Wire::new(stream, self.stall));
        let served = self.http.serve_connection(wire, TowerToHyperService::new(self.router.clone()));
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

/// Tokens go out at once, no more than a bounded part of them is in the system's hands, and a client that has vanished is noticed.
fn settle(stream: &TcpStream, stall: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_send_buffer_size(limits::SEND_BUFFER)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(stall))?;
    #[cfg(not(target_os = "linux"))]
    let _ = stall;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))
}
