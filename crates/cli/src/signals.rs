//! Ctrl-C: cancels a registered generation, or asks long work to save its state and end, or ends
//! the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use selfspec_engine::Canceller;

static RUNNING: Mutex<Option<Canceller>> = Mutex::new(None);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static PAUSING: AtomicBool = AtomicBool::new(false);

fn running() -> MutexGuard<'static, Option<Canceller>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles Ctrl-C from now on. With no generation registered, and at the second press, the program
/// ends with 130.
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

/// While this lives, the first Ctrl-C only sets a flag: the work sees it, saves its state and ends.
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

/// While this lives, Ctrl-C cancels the generation instead of ending the program.
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
