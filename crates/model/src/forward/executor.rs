//! The device's half of a backend.

use crate::backend::BackendError;
use crate::kv::place::PageCopy;
use crate::kv::shape::DeviceShape;
use crate::kv::step::ValidatedStep;
use crate::output::{StepOutput, StepReadouts};
use crate::profile::Profiler;

/// Runs validated steps on a device.
///
/// It owns all values: K and V of pages, kept hidden states, features of the auxiliary layer. It
/// owns no bookkeeping: which page, slot and layer each row uses is in the [`ValidatedStep`].
/// [`PagedBackend`](crate::PagedBackend) makes a backend of it.
pub trait Executor: Send {
    /// The measures of the device and its model. They never change.
    fn shape(&self) -> DeviceShape;

    /// Copies K and V of whole pages, in every layer, the auxiliary ones included.
    fn copy_pages(&mut self, copies: &[PageCopy]);

    /// Runs the rows of a step and leaves their readouts in `out`, which is empty. The step's page
    /// copies have been done.
    ///
    /// # Errors
    /// The device failed. The backend then forgets what the step's sequences had not committed.
    fn run(
        &mut self,
        step: &ValidatedStep<'_>,
        readouts: &StepReadouts<'_>,
        out: &mut StepOutput,
    ) -> Result<(), BackendError>;

    /// The profiler of the parts of its steps, if it has one.
    fn profiler(&mut self) -> Option<&mut Profiler> {
        None
    }
}
