//! After a panic: the requests of the step end, and the backend is built again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::EngineError;
use crate::events::event::Event;
use crate::scheduler::engine_thread::EngineThread;

impl EngineThread {
    /// A step panicked: its requests fail, their sequences are freed, and the engine goes on with
    /// the queue.
    pub(super) fn recover(&mut self, message: &str) {
        tracing::error!(message, "a step panicked");
        self.counters.panicked();
        for request in self.running.drain(..) {
            let event = Event::Failed(EngineError::Panic { message: message.to_owned() });
            let backend = &mut *self.backend;
            // The backend may panic again. It is replaced below.
            let _ = catch_unwind(AssertUnwindSafe(|| request.close(backend, event)));
        }
        self.restore_backend(message);
    }

    /// Builds the backend again after a panic, while no request runs: its state is unknown. A
    /// backend that cannot be built again must at least have all its pages back.
    pub(super) fn restore_backend(&mut self, message: &str) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.prefixes.shrink(&mut *self.backend, 0)));
        self.prefixes.forget();
        self.broken = match &self.rebuild {
            Some(rebuild) => match rebuild() {
                Ok(backend) => {
                    self.backend = backend;
                    None
                }
                Err(error) => Some(format!("{message}; and then: {error}")),
            },
            None => {
                let whole = AssertUnwindSafe(|| self.backend.free_pages() == self.backend.total_pages());
                let whole = catch_unwind(whole).unwrap_or(false);
                (!whole).then(|| message.to_owned())
            }
        };
    }
}
