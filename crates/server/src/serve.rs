//! A listening socket, the runtime that serves it, and the order in which both end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use selfspec_engine::Engine;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

use crate::app_state::AppState;
use crate::http::connections::{self, ConnectionLimits};
use crate::http::drain::{TerminationSignal, poll};
use crate::options::ServeOptions;
use crate::router::router;
use crate::serve_error::ServeError;

/// Time to send the errors with which running requests end.
const LAST_EVENTS: Duration = Duration::from_secs(5);
/// Connections that the system holds until they are accepted.
const BACKLOG: i32 = 4096;
/// Most threads that take over the other requests while one is busy with a long input.
const BLOCKING_THREADS: usize = 16;

/// A server that listens but does not answer yet.
pub struct Server {
    app: Arc<AppState>,
    router: Router,
    listener: std::net::TcpListener,
    addr: SocketAddr,
    connections: ConnectionLimits,
    drain: Duration,
}

impl Server {
    /// Opens the socket and the record.
    ///
    /// # Errors
    /// [`ServeError::Listen`], [`ServeError::Origin`], [`ServeError::Record`] and
    /// [`ServeError::Tuning`].
    pub fn bind(engine: Arc<Engine>, options: ServeOptions) -> Result<Server, ServeError> {
        let cannot_listen = |source| ServeError::Listen { addr: options.addr, source };
        let listener = listen(options.addr).map_err(cannot_listen)?;
        let addr = listener.local_addr()?;
        let connections = ConnectionLimits {
            most: options.most_connections,
            header_time: options.read_timeout,
            stall_time: options.stall_timeout,
        };
        let app = AppState::new(engine, &options)?;
        let router = router(app.clone(), &options)?;
        Ok(Server { app, router, listener, addr, connections, drain: options.drain })
    }

    /// Where it listens: with port 0, the port that the system chose.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Answers until `interrupted` holds or the process gets SIGTERM. Then it takes no new
    /// requests, and running ones have [`ServeOptions::drain`] to end. After it, or at a second
    /// signal, they end with an error; a third signal ends the server at once.
    ///
    /// # Errors
    /// The runtime cannot be started, or the socket fails.
    pub fn run(self, interrupted: impl Fn() -> bool + Send + 'static) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(BLOCKING_THREADS)
            .enable_all()
            .build()?;
        let app = self.app.clone();
        let result = runtime.block_on(self.serve(interrupted));
        runtime.shutdown_timeout(Duration::from_millis(200));
        app.close_record();
        result
    }

    async fn serve(self, interrupted: impl Fn() -> bool + Send + 'static) -> Result<(), ServeError> {
        let listener = TcpListener::from_std(self.listener)?;
        let mut signal = TerminationSignal::new()?;
        let app = self.app.clone();
        let (stopped, stop_seen) = tokio::sync::oneshot::channel();
        let stop = async move {
            tokio::select! {
                () = signal.next() => {}
                () = poll(interrupted) => {}
            }
            self.app.draining().begin();
            let _ = stopped.send(signal); // the receiver is gone when the server has ended
        };
        let served = connections::serve(listener, self.router, &self.connections, stop);
        let cut_off = async {
            match stop_seen.await {
                Ok(mut signal) => {
                    tokio::select! {
                        () = tokio::time::sleep(self.drain) => {}
                        () = signal.next() => {}
                    }
                    app.draining().end();
                    tokio::select! {
                        () = tokio::time::sleep(LAST_EVENTS) => {}
                        () = signal.next() => {}
                    }
                }
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = served => {}
            () = cut_off => {}
        }
        Ok(())
    }
}

/// Listens with a backlog for many clients that connect at the same moment.
fn listen(addr: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    // On Windows this option would let another program take the port away.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
