//! The server: a socket, its options, and its end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use selfspec_engine::Engine;
use selfspec_text::ToolStyle;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

use crate::app::{App, router};
use crate::http::{connections, limits};
use crate::observe::record::RecordOptions;

/// Connections that the system holds until they are accepted.
const BACKLOG: i32 = 4096;
/// Most threads that stand in for those which are busy with a long input.
const BUSY_THREADS: usize = 16;

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address to listen on.
    pub addr: SocketAddr,
    /// Name of the model in the API.
    pub model_id: String,
    /// How the model writes calls of functions; `None`: as its chat template shows it.
    pub tool_style: Option<ToolStyle>,
    /// Keys of which a request must carry one; none: no request needs one.
    pub api_keys: Vec<String>,
    /// Most requests that are taken on at a time, those that wait included; others are told to come back.
    pub most_requests: usize,
    /// Most prompt tokens of all of them.
    pub most_tokens: usize,
    /// Most connections at a time; others wait to be accepted.
    pub most_connections: usize,
    /// Largest body, in bytes.
    pub body_limit: usize,
    /// How long headers may take to come, and a body. A connection without requests is closed after this.
    pub read_timeout: Duration,
    /// How long a client may take none of what is sent to it; then its connection is closed, and its request is over.
    pub stall_timeout: Duration,
    /// How long a request may wait and run. One that has not begun by then is answered 503, with Retry-After. One that has begun is answered 504, not with the part that
    /// it has said: no reason to end that clients know would be true of it. In a stream, whose status has been sent, the same error is the last event before `[DONE]`.
    /// `None`: as long as it takes.
    pub request_timeout: Option<Duration>,
    /// Origins whose pages may use the server from a browser, `*` for all; none: no page may.
    pub cors_origins: Vec<String>,
    /// How long requests under way have to end when the server stops.
    pub drain: Duration,
    /// Share of the requests that draft, from 0 to 1, of those that do not say how to; none: what the model's tuning says for all.
    pub speculate_share: Option<f64>,
    /// Where requests that have ended are recorded, if they are.
    pub record: Option<RecordOptions>,
}

impl ServeOptions {
    /// The options for a model of this name.
    pub fn new(addr: SocketAddr, model_id: impl Into<String>) -> Self {
        ServeOptions {
            addr,
            model_id: model_id.into(),
            tool_style: None,
            api_keys: Vec::new(),
            most_requests: limits::REQUESTS,
            most_tokens: limits::TOKENS,
            most_connections: limits::CONNECTIONS,
            body_limit: limits::BODY,
            read_timeout: limits::READ_TIME,
            stall_timeout: limits::STALL_TIME,
            request_timeout: None,
            cors_origins: Vec::new(),
            drain: limits::DRAIN_TIME,
            speculate_share: None,
            record: None,
        }
    }
}

/// Why a server could not be.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file of the record cannot be opened.
    #[error("cannot record to {}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An origin is none.
    #[error("{origin:?} is no origin: expected one like https://example.org, or *")]
    Origin {
        /// As it was given.
        origin: String,
    },
    /// The system refused something while it ran.
    #[error("the server ended: {0}")]
    Io(#[from] std::io::Error),
}

/// A server that listens and has not begun to answer.
pub struct Server {
    app: Arc<App>,
    router: Router,
    listener: std::net::TcpListener,
    addr: SocketAddr,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// [`ServeError::Listen`], [`ServeError::Origin`] and [`ServeError::Record`].
    pub fn bind(engine: Arc<Engine>, options: ServeOptions) -> Result<Server, ServeError> {
        let listen = |source| ServeError::Listen { addr: options.addr, source };
        let listener = self::listen(options.addr).map_err(listen)?;
        let addr = listener.local_addr()?;
        let app = App::new(engine, options)?;
        Ok(Server { router: router(app.clone())?, app, listener, addr })
    }

    /// Where it listens: with port 0, the port that the system chose.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Answers until `interrupted` says so or the process is told to terminate; then takes no more, and gives those under way their time. A second signal
    /// ends it at once.
    ///
    /// # Errors
    /// The runtime cannot be started, or the socket fails.
    pub fn run(self, interrupted: impl Fn() -> bool + Send + 'static) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(BUSY_THREADS)
            .enable_all()
            .build()?;
        let app = self.app;
        let ended = app.clone();
        let result = runtime.block_on(async {
            let listener = TcpListener::from_std(self.listener)?;
            let drain = app.options().drain;
            let (tell, told) = tokio::sync::oneshot::channel();
            let draining = app.clone();
            let mut terminated = Terminated::new()?;
            let stop = async move {
                tokio::select! {
                    () = terminated.next() => {}
                    () = poll(interrupted) => {}
                }
                draining.drain();
                let _ = tell.send(terminated); // whoever should hear of it has ended
            };
            let server = connections::serve(listener, self.router, app.options(), stop);
            let late = async {
                match told.await {
                    Ok(mut terminated) => {
                        tokio::select! {
                            () = tokio::time::sleep(drain) => {}
                            () = terminated.next() => {}
                        }
                    }
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = server => {}
                () = late => {}
            }
            Ok(())
        });
        runtime.shutdown_timeout(Duration::from_millis(200));
        ended.close_record();
        result
    }
}

/// Listens; many clients may come at the same moment.
fn listen(addr: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    // On Windows it would let another program take the port away.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Waits until `interrupted` holds.
async fn poll(interrupted: impl Fn() -> bool) {
    while !interrupted() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The signal to terminate, where there is one.
struct Terminated {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

impl Terminated {
    fn new() -> std::io::Result<Self> {
        Ok(Terminated {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        self.signal.recv().await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}
