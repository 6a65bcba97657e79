//! How the server stops: it takes no new requests, and running ones get time to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// How often the caller's own reason to stop is checked.
const POLL: Duration = Duration::from_millis(50);

/// Whether the server still takes requests, and whether running ones may still run.
#[derive(Debug, Default)]
pub(crate) struct DrainState {
    draining: AtomicBool,
    over: watch::Sender<bool>,
}

/// The end of the time that running requests have.
#[derive(Debug, Clone)]
pub(crate) struct DrainEnd(watch::Receiver<bool>);

impl DrainEnd {
    /// Waits for it.
    pub(crate) async fn reached(&mut self) {
        if self.0.wait_for(|over| *over).await.is_err() {
            std::future::pending().await // the server is gone, and its tasks go with it
        }
    }
}

impl DrainState {
    /// Refuses new requests from now on.
    pub(crate) fn begin(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Ends running requests with an error.
    pub(crate) fn end(&self) {
        self.over.send_replace(true);
    }

    /// The end, for a request.
    pub(crate) fn watch(&self) -> DrainEnd {
        DrainEnd(self.over.subscribe())
    }
}

/// Waits until `interrupted` holds.
pub(crate) async fn poll(interrupted: impl Fn() -> bool) {
    while !interrupted() {
        tokio::time::sleep(POLL).await;
    }
}

/// The signal SIGTERM, where the system has it.
pub(crate) struct TerminationSignal {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

impl TerminationSignal {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(TerminationSignal {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        self.signal.recv().await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}
