//! The executor of the fake target: provenance of K and V instead of their values.

use selfspec_model::{
    AuxiliaryWork, BackendError, DeviceShape, Executor, FeatureSource, LayerPlan, PageCopy, Readout, Row, StepOutput,
    StepReadouts, TokenId, ValidatedStep,
};

use crate::fake_target::options::{FakeOptions, mix};

/// K and V at one layer and position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Provenance {
    prefix: u64, // hash of the tokens up to the position
    exact: bool, // the model's own, not a draft's
}

/// The row that was computed last at a position.
#[derive(Debug, Clone, Copy)]
struct Position {
    token: TokenId,
    prefix: u64,
}

/// One position of a page.
#[derive(Debug, Clone, Default)]
struct PagePosition {
    row: Option<Position>,
    layers: Vec<Option<Provenance>>, // (layer); the auxiliary layer last
}

/// A kept hidden state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeptState {
    prefix: u64,
    layer: usize,
}

/// Runs validated steps without a model.
///
/// For each page, position and layer it records which tokens led to the K and V there, and whether
/// a draft or the model itself wrote them. It does the same for kept states and features. A row
/// that would read a gap, another continuation's leftovers, or a draft's approximation where the
/// model's own is needed, is refused with [`BackendError::BadRow`].
#[derive(Debug)]
pub struct FakeExecutor {
    options: FakeOptions,
    shape: DeviceShape,
    pages: Vec<PagePosition>,     // (page, position)
    kept: Vec<Option<KeptState>>, // (slot)
    features: Vec<Option<u64>>,   // (slot): prefix of the position whose exact features it holds
    drafted: Vec<Option<u64>>,    // (slot): the same of the auxiliary layer's own states
    layer_rows: u64,
    steps: u64,
}

impl FakeExecutor {
    /// An executor with empty pages.
    pub fn new(options: FakeOptions) -> Self {
        FakeExecutor {
            shape: options.shape(),
            pages: vec![PagePosition::default(); options.pages * options.page_positions],
            options,
            kept: Vec::new(),
            features: Vec::new(),
            drafted: Vec::new(),
            layer_rows: 0,
            steps: 0,
        }
    }

    /// Its options.
    pub fn options(&self) -> &FakeOptions {
        &self.options
    }

    /// Rows times layers computed so far, over all steps.
    pub fn layer_rows(&self) -> u64 {
        self.layer_rows
    }

    /// Steps run so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn place(&self, pages: &[u32], pos: usize) -> usize {
        pages[pos / self.options.page_positions] as usize * self.options.page_positions
            + pos % self.options.page_positions
    }

    fn at(&self, pages: &[u32], pos: usize) -> &PagePosition {
        &self.pages[self.place(pages, pos)]
    }

    /// The hash of the tokens before `pos`, which must be one chain.
    fn prefix_before(&self, row: &Row, pages: &[u32]) -> Result<u64, BackendError> {
        let mut prefix = 0;
        for pos in 0..row.pos {
            let before = self.at(pages, pos).row.ok_or_else(|| bad(row, "a position before it was never computed"))?;
            prefix = extend(prefix, before.token);
            if before.prefix != prefix {
                return Err(bad(row, "a position before it belongs to another continuation"));
            }
        }
        Ok(prefix)
    }

    /// Records the row's token, and checks the state from which it enters. The row's prefix.
    fn enter(&mut self, step: &ValidatedStep<'_>, i: usize) -> Result<u64, BackendError> {
        let (row, pages) = (&step.rows()[i], step.pages(i));
        let prefix = extend(self.prefix_before(row, pages)?, row.token);
        if let Some(slot) = step.enter_slot(i) {
            let own = KeptState { prefix, layer: step.first_layer(i) };
            if get(&self.kept, slot) != Some(own) {
                return Err(bad(row, "the kept state is another row's"));
            }
        }
        let place = self.place(pages, row.pos);
        self.pages[place].row = Some(Position { token: row.token, prefix });
        if let Some(slot) = step.keep_slot(i) {
            set(&mut self.kept, slot, KeptState { prefix, layer: row.plan.exact_prefix() });
        }
        Ok(prefix)
    }

    /// Writes the row's K and V at `layer`.
    fn write(&mut self, row: &Row, pages: &[u32], layer: usize, entry: Provenance) {
        let (place, layers) = (self.place(pages, row.pos), self.options.n_layers + 1);
        self.pages[place].layers.resize(layers, None);
        self.pages[place].layers[layer] = Some(entry);
    }

    /// Checks the K and V at `layer` that the row attends to.
    fn attend(&self, row: &Row, pages: &[u32], layer: usize, exact: bool) -> Result<(), BackendError> {
        for pos in 0..row.pos {
            let position = self.at(pages, pos);
            let prefix = position.row.map(|p| p.prefix);
            match position.layers.get(layer).copied().flatten() {
                None => return Err(bad(row, "a position before it has no K and V in a layer that it runs")),
                Some(e) if Some(e.prefix) != prefix => {
                    return Err(bad(row, "K and V before it are another continuation's"));
                }
                Some(e) if exact && !e.exact => return Err(bad(row, "K and V before it are a draft's")),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// The auxiliary layer: its features must be those of the position before, its K and V
    /// complete.
    fn auxiliary(&mut self, step: &ValidatedStep<'_>, i: usize, prefix: u64) -> Result<(), BackendError> {
        let (row, pages) = (&step.rows()[i], step.pages(i));
        let (source, drafts) = match step.auxiliary(i) {
            Some(AuxiliaryWork::KeepUp { source, .. }) => (source, false),
            Some(AuxiliaryWork::Draft { source, .. }) => (source, true),
            None => return Ok(()),
        };
        let before = row.pos.checked_sub(1).and_then(|pos| self.at(pages, pos).row).map(|p| p.prefix);
        let found = match source {
            FeatureSource::Missing => before,
            FeatureSource::Row(j) => {
                let other = &step.rows()[j];
                Some(other).filter(|r| r.seq == row.seq && r.pos + 1 == row.pos && r.plan.is_full()).and(before)
            }
            FeatureSource::Exact(slot) => get(&self.features, slot),
            FeatureSource::Drafted(slot) => get(&self.drafted, slot),
        };
        if found != before {
            return Err(bad(row, "the auxiliary layer would read another position's features"));
        }
        let layer = self.options.n_layers;
        self.write(row, pages, layer, Provenance { prefix, exact: !drafts });
        if drafts {
            self.attend(row, pages, layer, false)?;
        }
        match step.auxiliary(i) {
            Some(AuxiliaryWork::KeepUp { keep, .. }) => set(&mut self.features, keep, prefix),
            Some(AuxiliaryWork::Draft { keep, .. }) => set(&mut self.drafted, keep, prefix),
            None => {}
        }
        Ok(())
    }

    fn logits(&self, step: &ValidatedStep<'_>, i: usize) -> Vec<f32> {
        let (row, pages) = (&step.rows()[i], step.pages(i));
        let tokens: Vec<TokenId> =
            (0..=row.pos).filter_map(|pos| self.at(pages, pos).row).map(|position| position.token).collect();
        let logits = self.options.row_logits(&tokens, Some(&row.plan).filter(|p: &&LayerPlan| !p.is_full()));
        let vocab = match row.readout {
            Readout::Nothing | Readout::Head => None,
            Readout::DraftVocab => self.shape.draft_vocab.as_deref(),
            Readout::ExitHead => self.shape.exit_head.as_ref().map(|head| &*head.vocab),
        };
        match vocab {
            None => logits,
            Some(vocab) => vocab.iter().map(|token| logits[*token as usize]).collect(),
        }
    }
}

fn extend(prefix: u64, token: TokenId) -> u64 {
    mix(prefix ^ mix(u64::from(token) + 1))
}

fn get<T: Copy>(values: &[Option<T>], slot: u32) -> Option<T> {
    values.get(slot as usize).copied().flatten()
}

fn set<T: Copy>(values: &mut Vec<Option<T>>, slot: u32, value: T) {
    if values.len() <= slot as usize {
        values.resize(slot as usize + 1, None);
    }
    values[slot as usize] = Some(value);
}

fn bad(row: &Row, why: &'static str) -> BackendError {
    BackendError::BadRow { seq: row.seq, pos: row.pos, why }
}

impl Executor for FakeExecutor {
    fn shape(&self) -> DeviceShape {
        self.shape.clone()
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) {
        let n = self.options.page_positions;
        for copy in copies {
            let page = self.pages[copy.from as usize * n..][..n].to_vec();
            self.pages[copy.to as usize * n..][..n].clone_from_slice(&page);
        }
    }

    fn run(
        &mut self,
        step: &ValidatedStep<'_>,
        readouts: &StepReadouts<'_>,
        out: &mut StepOutput,
    ) -> Result<(), BackendError> {
        let rows = step.rows();
        let prefixes = (0..rows.len()).map(|i| self.enter(step, i)).collect::<Result<Vec<u64>, _>>()?;
        let mut layer_rows = 0;
        for layer in 0..self.options.n_layers {
            let active: Vec<usize> = (0..rows.len()).filter(|i| step.runs(*i, layer)).collect();
            for i in &active {
                let exact = layer < rows[*i].plan.exact_prefix();
                self.write(&rows[*i], step.pages(*i), layer, Provenance { prefix: prefixes[*i], exact });
            }
            for i in &active {
                self.attend(&rows[*i], step.pages(*i), layer, layer < rows[*i].plan.exact_prefix())?;
            }
            layer_rows += active.len() as u64;
        }
        let drafts = |i: &usize| matches!(step.auxiliary(*i), Some(AuxiliaryWork::Draft { .. }));
        let (drafting, others): (Vec<usize>, Vec<usize>) = (0..rows.len()).partition(drafts);
        for i in others.into_iter().chain(drafting) {
            self.auxiliary(step, i, prefixes[i])?;
        }
        for i in (0..rows.len()).filter(|i| rows[*i].readout != Readout::Nothing) {
            out.push(i, &self.logits(step, i), readouts.choose);
        }
        out.layer_rows = layer_rows;
        self.layer_rows += layer_rows;
        self.steps += 1;
        Ok(())
    }
}
