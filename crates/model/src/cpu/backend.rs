//! The CPU's [`Backend`](crate::Backend).

use std::sync::Arc;

use selfspec_kernels::Compute;

use crate::cpu::executor::CpuExecutor;
use crate::cpu::options::CpuOptions;
use crate::error::ModelError;
use crate::fault::BackendFault;
use crate::forward::paged::PagedBackend;
use crate::panels::draft_heads::DraftHeads;
use crate::panels::model::CpuModel;

/// A model run on the CPU.
pub type CpuBackend = PagedBackend<CpuExecutor>;

impl CpuBackend {
    /// A backend with an empty cache and its own worker team, without draft heads.
    ///
    /// # Errors
    /// [`ModelError::Cache`] if a cache of that many positions cannot be had.
    pub fn new(model: Arc<CpuModel>, options: &CpuOptions) -> Result<Self, ModelError> {
        CpuBackend::with_heads(model, DraftHeads::default(), options)
    }

    /// The same with draft heads.
    ///
    /// # Errors
    /// As [`CpuBackend::new`].
    pub fn with_heads(model: Arc<CpuModel>, heads: DraftHeads, options: &CpuOptions) -> Result<Self, ModelError> {
        Ok(PagedBackend::of(CpuExecutor::new(model, heads, options)?))
    }

    /// Plants a fault: from now on the backend does something wrong.
    pub fn plant(&mut self, fault: BackendFault) {
        match fault {
            BackendFault::ExitNorm => self.executor_mut().without_exit_norm = true,
            BackendFault::Rollback => self.plant_short_rollback(),
        }
    }

    /// The model that is run.
    pub fn model(&self) -> &Arc<CpuModel> {
        &self.executor().model
    }

    /// The instruction set and the worker team.
    pub fn compute(&self) -> &Compute {
        &self.executor().compute
    }
}
