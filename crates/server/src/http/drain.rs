//! How the server stops: it takes no new requests, and running ones get time to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the caller's own reason to stop is checked.
const POLL: Duration = Duration::from_millis(50);

/// Whether the server still takes requests.
#[derive(Debug, Default)]
pub(crate) struct DrainState(AtomicBool);

impl DrainState {
    /// Refuses new requests from now on.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.0.load(Ordering::SeqCst)
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
