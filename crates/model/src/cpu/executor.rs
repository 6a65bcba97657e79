//! The executor on the CPU: packed weights, pages of K and V in memory, and a worker team.

use std::sync::Arc;

use selfspec_kernels::{Compute, KvPages, PAGE_POSITIONS};

use crate::backend::BackendError;
use crate::cpu::options::CpuOptions;
use crate::error::ModelError;
use crate::forward::executor::Executor;
use crate::forward::layers::Pass;
use crate::forward::scratch::Scratch;
use crate::forward::states::RowStates;
use crate::kv::place::PageCopy;
use crate::kv::shape::DeviceShape;
use crate::kv::step::ValidatedStep;
use crate::output::{StepOutput, StepReadouts};
use crate::panels::draft_heads::DraftHeads;
use crate::panels::model::CpuModel;
use crate::profile::Profiler;
use crate::rope::Rope;

/// Runs validated steps on the CPU.
pub struct CpuExecutor {
    pub(super) model: Arc<CpuModel>,
    heads: DraftHeads,
    pub(super) compute: Compute,
    context: usize,
    pages: u32,
    kv: KvPages,
    states: RowStates,
    rope: Rope,
    local_rope: Option<Rope>,
    scratch: Scratch,
    profiler: Profiler,
    pub(super) without_exit_norm: bool,
}

impl CpuExecutor {
    /// An executor with memory for a cache, and its own worker team.
    ///
    /// # Errors
    /// [`ModelError::Cache`] if a cache of that many positions cannot be had.
    pub fn new(model: Arc<CpuModel>, heads: DraftHeads, options: &CpuOptions) -> Result<Self, ModelError> {
        let c = model.config();
        let pages = options.kv_positions.div_ceil(PAGE_POSITIONS).max(1);
        let Ok(page_numbers) = u32::try_from(pages) else {
            return Err(ModelError::Cache(format!("{pages} pages are more than page numbers can tell apart")));
        };
        let layers = c.n_layers + usize::from(heads.exit.is_some());
        let kv = KvPages::new(options.kv_type, layers, c.kv_heads, c.head_dim, pages)
            .map_err(|e| ModelError::Cache(e.to_string()))?;
        Ok(CpuExecutor {
            compute: Compute::new(options.isa, options.threads.max(1)),
            context: options.context.min(c.context).max(1),
            pages: page_numbers,
            kv,
            states: RowStates::default(),
            rope: model.spec().rope().clone(),
            local_rope: model.spec().local_rope().cloned(),
            scratch: Scratch::default(),
            profiler: Profiler::default(),
            without_exit_norm: false,
            heads,
            model,
        })
    }
}

impl Executor for CpuExecutor {
    fn shape(&self) -> DeviceShape {
        let c = self.model.config();
        DeviceShape {
            n_layers: c.n_layers,
            vocab: self.model.vocab(),
            context: self.context,
            page_positions: PAGE_POSITIONS,
            pages: self.pages,
            draft_vocab: self.heads.vocab.as_ref().map(|v| v.ids.clone()),
            exit_head: self.heads.exit.as_ref().map(|e| e.info(c.n_layers)),
        }
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) {
        for copy in copies {
            self.kv.copy_page(copy.from, copy.to);
        }
    }

    fn run(
        &mut self,
        step: &ValidatedStep<'_>,
        readouts: &StepReadouts<'_>,
        out: &mut StepOutput,
    ) -> Result<(), BackendError> {
        Pass {
            model: &self.model,
            heads: &self.heads,
            compute: &self.compute,
            kv: &mut self.kv,
            states: &mut self.states,
            rope: &mut self.rope,
            local_rope: &mut self.local_rope,
            scratch: &mut self.scratch,
            profiler: &mut self.profiler,
            without_exit_norm: self.without_exit_norm,
        }
        .run(step, readouts, out);
        Ok(())
    }

    fn profiler(&mut self) -> Option<&mut Profiler> {
        Some(&mut self.profiler)
    }
}
