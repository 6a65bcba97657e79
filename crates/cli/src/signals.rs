//! Ctrl-C: ends a generation if one is registered, lets long work that asked for it put its state away, else ends the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use selfspec_engine::Canceller;

static RUNNING: Mutex<Option<Canceller>> = Mutex::new(None);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static PAUSING: AtomicBool = AtomicBool::new(false);

fn running() -> MutexGuard<'static, Option<Canceller>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles Ctrl-C from now on. Where no generation is registered, and at the second press, the program ends with 130.
pub(crate) fn install() -> anyhow::Result<()> {
    ctrlc::set_handler(|| match running().take() {
        Some(canceller) => {
            INTERRUPTED.store(true, Ordering::SeqCst);
            canceller.cancel();
        }
        None if PAUSING.swap(false, Ordering::SeqCst) => INTERRUPTED.store(true, Ordering::SeqCst),
        None => std::process::exit(130),
    })?;
    Ok(())
}

/// While this lives, the first Ctrl-C ends nothing: the work looks for it, puts its state away and ends itself.
#[derive(Debug)]
pub(crate) struct Pausing;

impl Pausing {
    pub(crate) fn new() -> Self {
        INTERRUPTED.store(false, Ordering::SeqCst);
        PAUSING.store(true, Ordering::SeqCst);
        Pausing
    }

    /// Whether Ctrl-C was pressed since.
    pub(crate) fn interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::SeqCst)
    }
}

impl Drop for Pausing {
    fn drop(&mut self) {
        PAUSING.store(false, Ordering::SeqCst);
    }
}

/// While this lives, Ctrl-C ends the generation and not the program.
#[derive(Debug)]
pub(crate) struct Guarded;

impl Guarded {
    pub(crate) fn new(canceller: Canceller) -> Self {
        INTERRUPTED.store(false, Ordering::SeqCst);
        *running() = Some(canceller);
        Guarded
    }

    /// Whether Ctrl-C was pressed since.
    pub(crate) fn interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::SeqCst)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        *running() = None;
    }
}
