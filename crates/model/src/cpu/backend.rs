//! The CPU's [`Backend`]: sequences over a paged KV cache, and steps through the forward pass.

use std::sync::Arc;

use selfspec_kernels::{Compute, Isa, KvPages, KvType, PAGE_POSITIONS};

use crate::backend::{Backend, BackendError, ExitHeadInfo, Readout, Row, SeqId, StepOutput, TokenId};
use crate::error::ModelError;
use crate::fault::Fault;
use crate::forward::pass::{Pass, Scratch};
use crate::kv::pages::PageTable;
use crate::kv::sequence::Sequence;
use crate::panels::draft_heads::DraftHeads;
use crate::panels::model::CpuModel;
use crate::profile::Profiler;
use crate::rope::Rope;

/// How a model is run on the CPU.
#[derive(Debug, Clone)]
pub struct CpuOptions {
    /// Instruction set.
    pub isa: Isa,
    /// Worker threads, the calling one included; at least 1.
    pub threads: usize,
    /// Longest sequence, in positions; at most the model's own context is used.
    pub context: usize,
    /// Positions that the KV cache holds over all sequences, rounded up to whole pages. Memory is taken as pages are first used.
    pub kv_positions: usize,
    /// What the KV cache holds its numbers in.
    pub kv_type: KvType,
}

/// A model run on the CPU.
pub struct CpuBackend {
    model: Arc<CpuModel>,
    heads: DraftHeads,
    exit_info: Option<ExitHeadInfo>,
    compute: Compute,
    context: usize,
    kv: KvPages,
    pages: PageTable,
    sequences: Vec<Option<Sequence>>, // (SeqId)
    unused: Vec<Sequence>,            // freed, kept for their memory
    rope: Rope,
    local_rope: Option<Rope>,
    scratch: Scratch,
    profiler: Profiler,
    fault: Option<Fault>,
}

impl CpuBackend {
    /// A backend with an empty cache and its own worker team.
    ///
    /// # Errors
    /// [`ModelError::Cache`] if a cache of that many positions cannot be had.
    pub fn new(model: Arc<CpuModel>, options: &CpuOptions) -> Result<Self, ModelError> {
        CpuBackend::with_heads(model, DraftHeads::default(), options)
    }

    /// The same with what drafts have of their own.
    ///
    /// # Errors
    /// As [`CpuBackend::new`].
    pub fn with_heads(model: Arc<CpuModel>, heads: DraftHeads, options: &CpuOptions) -> Result<Self, ModelError> {
        let c = model.config();
        let pages = options.kv_positions.div_ceil(PAGE_POSITIONS).max(1);
        if u32::try_from(pages).is_err() {
            return Err(ModelError::Cache(format!("{pages} pages are more than page numbers can tell apart")));
        }
        let layers = c.n_layers + usize::from(heads.exit.is_some());
        let kv = KvPages::new(options.kv_type, layers, c.kv_heads, c.head_dim, pages)
            .map_err(|e| ModelError::Cache(e.to_string()))?;
        Ok(CpuBackend {
            compute: Compute::new(options.isa, options.threads.max(1)),
            context: options.context.min(c.context).max(1),
            kv,
            pages: PageTable::new(pages),
            sequences: Vec::new(),
            unused: Vec::new(),
            rope: model.spec().rope().clone(),
            local_rope: model.spec().local_rope().cloned(),
            scratch: Scratch::default(),
            profiler: Profiler::default(),
            fault: None,
            exit_info: heads.exit.as_ref().map(|e| e.info(c.n_layers)),
            heads,
            model,
        })
    }

    /// Has the backend do something wrong from now on.
    pub fn plant(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// The model that is run.
    pub fn model(&self) -> &Arc<CpuModel> {
        &self.model
    }

    /// The instruction set and the worker team.
    pub fn compute(&self) -> &Compute {
        &self.compute
    }

    fn sequence(&self, seq: SeqId) -> Result<&Sequence, BackendError> {
        self.sequences.get(seq.0 as usize).and_then(Option::as_ref).ok_or(BackendError::UnknownSequence(seq))
    }

    fn check_row(&self, row: &Row) -> Result<(), BackendError> {
        self.sequence(row.seq)?;
        if row.pos >= self.context {
            return Err(BackendError::BeyondContext { pos: row.pos, context: self.context });
        }
        if row.token as usize >= self.vocab() {
            return Err(BackendError::UnknownToken { token: row.token, vocab: self.vocab() });
        }
        if row.plan.n_layers() != self.n_layers() {
            return Err(BackendError::BadRow {
                seq: row.seq,
                pos: row.pos,
                why: "its plan is for another number of layers",
            });
        }
        let why = match (row.readout, &self.exit_info) {
            (Readout::ExitHead, None) => "there is no exit head",
            (Readout::ExitHead, Some(info)) if row.plan != info.plan => "its plan is not that of the exit head",
            (Readout::DraftVocab, _) if self.heads.vocab.is_none() => "there is no draft vocabulary",
            (Readout::Nothing | Readout::Head | Readout::DraftVocab, _) if row.plan.cost_layers() == 0 => {
                "its plan runs no layer"
            }
            _ => return Ok(()),
        };
        Err(BackendError::BadRow { seq: row.seq, pos: row.pos, why })
    }

    /// Pages that `rows` need beyond those their sequences own alone. Rows of a sequence may come in any number; a page is
    /// counted when its first row is met, which is enough because rows of a sequence ascend.
    fn pages_wanted(&self, rows: &[Row]) -> Result<usize, BackendError> {
        let mut wanted = 0;
        for (i, row) in rows.iter().enumerate() {
            let page = row.pos / PAGE_POSITIONS;
            let met = |r: &Row| r.seq == row.seq && r.pos / PAGE_POSITIONS == page;
            // Rows of one sequence usually stand together, so the search from the back ends at once.
            if rows[..i].iter().rev().any(met) {
                continue;
            }
            match self.sequence(row.seq)?.pages.get(page) {
                Some(owned) if !self.pages.is_shared(*owned) => {}
                _ => wanted += 1,
            }
        }
        Ok(wanted)
    }

    /// Takes the page for `row`'s position, and copies it first where it is shared.
    fn own_page(&mut self, row: &Row) -> Result<(), BackendError> {
        let page = row.pos / PAGE_POSITIONS;
        let Some(sequence) = self.sequences[row.seq.0 as usize].as_mut() else {
            return Err(BackendError::UnknownSequence(row.seq));
        };
        match sequence.pages.get_mut(page) {
            None => sequence.pages.push(self.pages.take()?),
            Some(shared) if self.pages.is_shared(*shared) => {
                let own = self.pages.take()?;
                self.kv.copy_page(*shared, own);
                self.pages.release(*shared);
                *shared = own;
            }
            Some(_) => {}
        }
        Ok(())
    }
}

impl Backend for CpuBackend {
    fn n_layers(&self) -> usize {
        self.model.config().n_layers
    }

    fn vocab(&self) -> usize {
        self.model.vocab()
    }

    fn context(&self) -> usize {
        self.context
    }

    fn page_positions(&self) -> usize {
        PAGE_POSITIONS
    }

    fn free_pages(&self) -> usize {
        self.pages.free_pages()
    }

    fn total_pages(&self) -> usize {
        self.pages.total_pages()
    }

    fn create(&mut self) -> SeqId {
        let sequence = self.unused.pop().unwrap_or_default();
        let index = match self.sequences.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.sequences.push(None);
                self.sequences.len() - 1
            }
        };
        self.sequences[index] = Some(sequence);
        SeqId(u32::try_from(index).expect("fewer sequences than page numbers"))
    }

    fn fork(&mut self, seq: SeqId, len: usize) -> Result<SeqId, BackendError> {
        let source = self.sequence(seq)?;
        if len > source.len {
            return Err(BackendError::BadRow { seq, pos: len, why: "a fork cannot be longer than what is committed" });
        }
        let mut pages = source.pages[..len.div_ceil(PAGE_POSITIONS)].to_vec();
        let partial = !len.is_multiple_of(PAGE_POSITIONS);
        if partial {
            self.pages.check(1)?;
        }
        for (i, page) in pages.iter_mut().enumerate() {
            if partial && i == len / PAGE_POSITIONS {
                let own = self.pages.take()?;
                self.kv.copy_page(*page, own);
                *page = own;
            } else {
                self.pages.share(*page);
            }
        }
        let id = self.create();
        self.sequences[id.0 as usize] = Some(Sequence::forked(pages, len));
        Ok(id)
    }

    fn free(&mut self, seq: SeqId) {
        let Some(mut sequence) = self.sequences.get_mut(seq.0 as usize).and_then(Option::take) else { return };
        for page in sequence.pages.drain(..) {
            self.pages.release(page);
        }
        sequence.clear();
        self.unused.push(sequence);
    }

    fn kv_len(&self, seq: SeqId) -> Result<usize, BackendError> {
        Ok(self.sequence(seq)?.len)
    }

    fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError> {
        let sequence = self.sequences.get_mut(seq.0 as usize).and_then(Option::as_mut);
        let sequence = sequence.ok_or(BackendError::UnknownSequence(seq))?;
        let one_more = self.fault == Some(Fault::Rollback) && len < sequence.computed();
        let len = len + usize::from(one_more);
        sequence.set_len(seq, len)?;
        let needed = len.div_ceil(PAGE_POSITIONS);
        for page in sequence.pages.drain(needed.min(sequence.pages.len())..) {
            self.pages.release(page);
        }
        Ok(())
    }

    fn step(&mut self, rows: &[Row], out: &mut StepOutput) -> Result<(), BackendError> {
        out.clear();
        for row in rows {
            self.check_row(row)?;
        }
        self.pages.check(self.pages_wanted(rows)?)?;
        self.scratch.first_layer.clear();
        let mut last: Option<&Row> = None;
        for row in rows {
            let sequence = self.sequences[row.seq.0 as usize].as_mut().expect("checked above");
            let admitted = match last.filter(|l| l.seq == row.seq && l.pos >= row.pos) {
                Some(_) => Err(BackendError::BadRow {
                    seq: row.seq,
                    pos: row.pos,
                    why: "rows of a sequence must ascend in a step",
                }),
                None => sequence.admit(row),
            };
            match admitted {
                Ok(first_layer) => self.scratch.first_layer.push(first_layer),
                Err(error) => {
                    for row in rows {
                        if let Some(sequence) = self.sequences[row.seq.0 as usize].as_mut() {
                            sequence.forget_uncommitted();
                        }
                    }
                    return Err(error);
                }
            }
            last = Some(row);
        }
        for row in rows {
            self.own_page(row)?;
        }
        Pass {
            model: &self.model,
            heads: &self.heads,
            compute: &self.compute,
            kv: &mut self.kv,
            sequences: &mut self.sequences,
            rope: &mut self.rope,
            local_rope: &mut self.local_rope,
            scratch: &mut self.scratch,
            profiler: &mut self.profiler,
            fault: self.fault,
        }
        .run(rows, out);
        Ok(())
    }

    fn draft_vocab(&self) -> Option<&Arc<[TokenId]>> {
        self.heads.vocab.as_ref().map(|v| &v.ids)
    }

    fn exit_head(&self) -> Option<&ExitHeadInfo> {
        self.exit_info.as_ref()
    }

    fn profiler(&mut self) -> Option<&mut Profiler> {
        Some(&mut self.profiler)
    }
}
