//! A [`Backend`] without a model: logits are a function of the last few tokens, and every rule of the contract is checked.
//!
//! It computes nothing but it keeps books: for each layer and position, which tokens led to the K and V there and whether a draft or the
//! model itself wrote them. A row that would attend to a gap, to another continuation's leftovers, or to a draft's approximation where the
//! model's own is needed, is refused with [`BackendError::BadRow`]. So a test that passes on it has not read a stale cache.

use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use selfspec_model::{Backend, BackendError, Enter, ExitHeadInfo, LayerPlan, Readout, Row, SeqId, StepOutput, TokenId};

/// What the fake target is like.
#[derive(Debug, Clone)]
pub struct FakeOptions {
    /// Layers.
    pub n_layers: usize,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Longest sequence.
    pub context: usize,
    /// KV pages in all.
    pub pages: usize,
    /// Positions in a page.
    pub page_positions: usize,
    /// Last tokens that the logits depend on. With few of them and without the position, greedy output soon repeats itself.
    pub order: usize,
    /// Whether the logits depend on the position too.
    pub by_position: bool,
    /// Share of contexts in which a draft plan's logits are the model's but for a little noise; elsewhere they are unrelated to it.
    pub agreement: f64,
    /// Logits lie within plus and minus this; one token in each context gets twice this on top.
    pub spread: f32,
    /// Makes another target of it.
    pub seed: u64,
    /// The head's share of a plain step's time; the rest is the layers'.
    pub head_share: f64,
    /// What a row beyond the first adds to the time of a pass, as a share of a plain step.
    pub row_share: f64,
    /// Tokens of the draft vocabulary, ascending; none: there is no such vocabulary.
    pub draft_vocab: Vec<TokenId>,
    /// Layers below the exit head, and the tokens that it can propose.
    pub exit_head: Option<(usize, Vec<TokenId>)>,
}

impl Default for FakeOptions {
    fn default() -> Self {
        FakeOptions {
            n_layers: 8,
            vocab: 40,
            context: 512,
            pages: 256,
            page_positions: 16,
            order: 3,
            by_position: true,
            agreement: 0.7,
            spread: 2.0,
            seed: 1,
            head_share: 0.15,
            row_share: 0.04,
            draft_vocab: Vec::new(),
            exit_head: None,
        }
    }
}

/// K and V at one layer and position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    prefix: u64, // hash of the tokens up to the position
    exact: bool, // the model's own, not a draft's
}

#[derive(Debug, Clone, Copy)]
struct Position {
    token: TokenId,
    prefix: u64,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    prefix: u64,
    layer: usize,
}

#[derive(Debug, Clone, Default)]
struct FakeSequence {
    len: usize,
    pages: usize,
    chain: Vec<Position>,             // (position): the rows computed last
    entries: Vec<Vec<Option<Entry>>>, // (layer, position)
    kept: HashMap<usize, Kept>,       // by position
}

/// A [`Backend`] double with books instead of a model.
#[derive(Debug)]
pub struct FakeTarget {
    options: FakeOptions,
    draft_vocab: Option<Arc<[TokenId]>>,
    exit_head: Option<ExitHeadInfo>,
    sequences: Vec<Option<FakeSequence>>,
    free_pages: usize,
    layer_rows: u64,
    steps: u64,
    faults: Vec<(SeqId, usize, f32)>,
    full_next: bool,
}

fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform in [0, 1).
fn unit(z: u64) -> f64 {
    (mix(z) >> 11) as f64 / (1u64 << 53) as f64
}

impl FakeTarget {
    /// A target without sequences.
    pub fn new(options: FakeOptions) -> Self {
        let n = options.n_layers;
        let exit_head = options.exit_head.as_ref().map(|(exit, vocab)| ExitHeadInfo {
            plan: LayerPlan::exit(n, *exit).unwrap_or_else(|_| LayerPlan::none(n)),
            vocab: vocab.clone().into(),
            acceptance: None,
        });
        FakeTarget {
            free_pages: options.pages,
            draft_vocab: Some(options.draft_vocab.clone().into()).filter(|v: &Arc<[TokenId]>| !v.is_empty()),
            exit_head,
            options,
            sequences: Vec::new(),
            layer_rows: 0,
            steps: 0,
            faults: Vec::new(),
            full_next: false,
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

    /// From now on a full row of `seq` at `pos` has a logit of `value` in its middle: NaN, or an infinity.
    pub fn break_logits(&mut self, seq: SeqId, pos: usize, value: f32) {
        self.faults.push((seq, pos, value));
    }

    /// The next step fails for want of a page.
    pub fn fail_next_step(&mut self) {
        self.full_next = true;
    }

    /// The model's own logits after `tokens`.
    pub fn logits_after(&self, tokens: &[TokenId]) -> Vec<f32> {
        self.row_logits(tokens, None)
    }

    /// Time of a step of these rows, where a plain step takes 1: layers that any row runs, the head if any row wants logits, and a share for
    /// each row beyond the first.
    pub fn seconds(&self, rows: &[Row], exact_prefix: usize) -> f64 {
        let n = self.options.n_layers;
        let runs = |row: &Row, l: usize| row.plan.runs(l) && (row.enter == Enter::Token || l >= exact_prefix);
        let touched = (0..n).filter(|l| rows.iter().any(|r| runs(r, *l))).count() as f64;
        let o = &self.options;
        let share = |readout: Readout| match readout {
            Readout::Nothing => 0.0,
            Readout::Head => o.head_share,
            Readout::DraftVocab => o.head_share * o.draft_vocab.len() as f64 / o.vocab as f64,
            // Its rows of the head, and a layer of its own.
            Readout::ExitHead => {
                let vocab = o.exit_head.as_ref().map_or(0, |(_, vocab)| vocab.len());
                o.head_share * vocab as f64 / o.vocab as f64 + (1.0 - o.head_share) / n as f64
            }
        };
        let head = rows.iter().map(|r| share(r.readout)).fold(0.0, f64::max);
        let layer = (1.0 - self.options.head_share) / n as f64;
        touched * layer + head + self.options.row_share * (rows.len() as f64 - 1.0)
    }

    fn row_logits(&self, tokens: &[TokenId], draft: Option<&LayerPlan>) -> Vec<f32> {
        let o = &self.options;
        let from = tokens.len().saturating_sub(o.order);
        let mut context = mix(o.seed);
        if o.by_position {
            context = mix(context ^ tokens.len() as u64);
        }
        for token in &tokens[from..] {
            context = mix(context ^ (u64::from(*token) + 1));
        }
        let logit = |context: u64, x: u64| (unit(context ^ mix(x)) * 2.0 - 1.0) as f32 * o.spread;
        let row = |context: u64| -> Vec<f32> {
            let favourite = mix(context) % o.vocab as u64;
            let bonus = |x| if x == favourite { 2.0 * o.spread } else { 0.0 };
            (0..o.vocab as u64).map(|x| logit(context, x) + bonus(x)).collect()
        };
        let Some(plan) = draft else { return row(context) };
        let plan: u64 = (0..plan.n_layers()).fold(7, |h, l| mix(h ^ u64::from(plan.runs(l))));
        if unit(context ^ plan) >= o.agreement {
            return row(context ^ plan);
        }
        row(context).iter().zip(0..).map(|(l, x)| l + 0.1 * logit(context ^ mix(plan), x)).collect()
    }

    fn sequence(&self, seq: SeqId) -> Result<&FakeSequence, BackendError> {
        self.sequences.get(seq.0 as usize).and_then(Option::as_ref).ok_or(BackendError::UnknownSequence(seq))
    }

    fn pages_for(&self, positions: usize) -> usize {
        positions.div_ceil(self.options.page_positions)
    }

    fn check(&self, row: &Row) -> Result<(), BackendError> {
        let o = &self.options;
        self.sequence(row.seq)?;
        if row.pos >= o.context {
            return Err(BackendError::BeyondContext { pos: row.pos, context: o.context });
        }
        if row.token as usize >= o.vocab {
            return Err(BackendError::UnknownToken { token: row.token, vocab: o.vocab });
        }
        if row.plan.n_layers() != o.n_layers {
            return Err(bad(row, "its plan is for another number of layers"));
        }
        match row.readout {
            Readout::ExitHead if self.exit_head.as_ref().is_none_or(|head| head.plan != row.plan) => {
                Err(bad(row, "its plan is not that of an exit head"))
            }
            Readout::DraftVocab if self.draft_vocab.is_none() => Err(bad(row, "there is no draft vocabulary")),
            Readout::Nothing | Readout::Head | Readout::DraftVocab if row.plan.cost_layers() == 0 => {
                Err(bad(row, "its plan runs no layer"))
            }
            _ => Ok(()),
        }
    }

    /// Takes pages for the rows of each sequence, all or none.
    fn take_pages(&mut self, rows: &[Row]) -> Result<(), BackendError> {
        let mut needed: HashMap<SeqId, usize> = HashMap::new();
        for row in rows {
            let pages = needed.entry(row.seq).or_default();
            *pages = (*pages).max(self.pages_for(row.pos + 1));
        }
        let mut wanted = 0;
        for (seq, pages) in &needed {
            wanted += pages.saturating_sub(self.sequence(*seq)?.pages);
        }
        if std::mem::take(&mut self.full_next) || wanted > self.free_pages {
            return Err(BackendError::KvFull { wanted: wanted.max(1), free: self.free_pages });
        }
        self.free_pages -= wanted;
        for (seq, pages) in needed {
            if let Some(Some(s)) = self.sequences.get_mut(seq.0 as usize) {
                s.pages = s.pages.max(pages);
            }
        }
        Ok(())
    }
}

fn bad(row: &Row, why: &'static str) -> BackendError {
    BackendError::BadRow { seq: row.seq, pos: row.pos, why }
}

impl FakeSequence {
    fn new(n_layers: usize) -> Self {
        FakeSequence { entries: vec![Vec::new(); n_layers], ..FakeSequence::default() }
    }

    /// Puts the row into the chain of positions; returns the layer where it starts.
    fn enter(&mut self, row: &Row) -> Result<usize, BackendError> {
        if row.pos < self.len {
            return Err(bad(row, "the position is committed already"));
        }
        if row.pos > self.chain.len() {
            return Err(bad(row, "positions before it hold nothing"));
        }
        let before = if row.pos == 0 { 0 } else { self.chain[row.pos - 1].prefix };
        let prefix = mix(before ^ mix(u64::from(row.token) + 1));
        if self.chain.get(row.pos).is_some_and(|p| p.prefix != prefix) {
            self.chain.truncate(row.pos);
            self.kept.retain(|pos, _| *pos < row.pos);
        }
        if row.pos == self.chain.len() {
            self.chain.push(Position { token: row.token, prefix });
        }
        match row.enter {
            Enter::Token => {
                if row.keep {
                    self.kept.insert(row.pos, Kept { prefix, layer: row.plan.exact_prefix() });
                }
                Ok(0)
            }
            Enter::Kept if !row.plan.is_full() => {
                Err(bad(row, "only a row of the full plan may enter at a kept hidden state"))
            }
            Enter::Kept => match self.kept.get(&row.pos) {
                Some(kept) if kept.prefix == prefix => Ok(kept.layer),
                Some(_) => Err(bad(row, "the hidden state kept at this position is another token's")),
                None => Err(bad(row, "no hidden state was kept at this position")),
            },
        }
    }

    /// Writes the row's K and V at `layer` and checks what it attends to.
    fn attend(&mut self, row: &Row, layer: usize) -> Result<(), BackendError> {
        let exact = layer < row.plan.exact_prefix();
        let entries = &mut self.entries[layer];
        if entries.len() <= row.pos {
            entries.resize(row.pos + 1, None);
        }
        for (entry, position) in entries.iter().zip(&self.chain).take(row.pos) {
            match entry {
                None => return Err(bad(row, "a position before it has no K and V in a layer that it runs")),
                Some(e) if e.prefix != position.prefix => {
                    return Err(bad(row, "K and V before it are another continuation's"));
                }
                Some(e) if exact && !e.exact => return Err(bad(row, "K and V before it are a draft's")),
                Some(_) => {}
            }
        }
        entries[row.pos] = Some(Entry { prefix: self.chain[row.pos].prefix, exact });
        Ok(())
    }

    fn holds(&self, pos: usize) -> bool {
        let Some(position) = self.chain.get(pos) else { return false };
        let own = Some(Entry { prefix: position.prefix, exact: true });
        self.entries.iter().all(|layer| layer.get(pos).copied().flatten() == own)
    }
}

impl Backend for FakeTarget {
    fn n_layers(&self) -> usize {
        self.options.n_layers
    }

    fn vocab(&self) -> usize {
        self.options.vocab
    }

    fn context(&self) -> usize {
        self.options.context
    }

    fn page_positions(&self) -> usize {
        self.options.page_positions
    }

    fn free_pages(&self) -> usize {
        self.free_pages
    }

    fn total_pages(&self) -> usize {
        self.options.pages
    }

    fn create(&mut self) -> SeqId {
        let new = Some(FakeSequence::new(self.options.n_layers));
        let at = match self.sequences.iter().position(Option::is_none) {
            Some(at) => {
                self.sequences[at] = new;
                at
            }
            None => {
                self.sequences.push(new);
                self.sequences.len() - 1
            }
        };
        SeqId(u32::try_from(at).expect("a test has few sequences"))
    }

    fn fork(&mut self, seq: SeqId, len: usize) -> Result<SeqId, BackendError> {
        let source = self.sequence(seq)?;
        if len > source.len {
            return Err(BackendError::BadRow { seq, pos: len, why: "a fork cannot be longer than what is committed" });
        }
        let mut copy = source.clone();
        copy.len = len;
        copy.pages = self.pages_for(len);
        copy.chain.truncate(len);
        copy.kept.clear();
        for layer in &mut copy.entries {
            layer.truncate(len);
        }
        if copy.pages > self.free_pages {
            return Err(BackendError::KvFull { wanted: copy.pages, free: self.free_pages });
        }
        self.free_pages -= copy.pages;
        let id = self.create();
        self.sequences[id.0 as usize] = Some(copy);
        Ok(id)
    }

    fn free(&mut self, seq: SeqId) {
        if let Some(freed) = self.sequences.get_mut(seq.0 as usize).and_then(Option::take) {
            self.free_pages += freed.pages;
        }
    }

    fn kv_len(&self, seq: SeqId) -> Result<usize, BackendError> {
        Ok(self.sequence(seq)?.len)
    }

    fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError> {
        let sequence = self.sequence(seq)?;
        if let Some(pos) = (sequence.len..len).find(|pos| !sequence.holds(*pos)) {
            return Err(BackendError::BadRow {
                seq,
                pos,
                why: "the position is not computed in every layer by the model itself",
            });
        }
        let pages = self.pages_for(len);
        if let Some(Some(sequence)) = self.sequences.get_mut(seq.0 as usize) {
            sequence.len = len;
            sequence.chain.truncate(len);
            for layer in &mut sequence.entries {
                layer.truncate(len);
            }
            sequence.kept.clear();
            self.free_pages += sequence.pages.saturating_sub(pages);
            sequence.pages = sequence.pages.min(pages);
        }
        Ok(())
    }

    fn draft_vocab(&self) -> Option<&Arc<[TokenId]>> {
        self.draft_vocab.as_ref()
    }

    fn exit_head(&self) -> Option<&ExitHeadInfo> {
        self.exit_head.as_ref()
    }

    fn step(&mut self, rows: &[Row], out: &mut StepOutput) -> Result<(), BackendError> {
        out.clear();
        for row in rows {
            self.check(row)?;
        }
        // The books are kept in copies until the whole step is known to be right.
        let mut touched: HashMap<SeqId, FakeSequence> = HashMap::new();
        let mut last: HashMap<SeqId, usize> = HashMap::new();
        let mut starts = Vec::with_capacity(rows.len());
        for row in rows {
            if last.insert(row.seq, row.pos).is_some_and(|pos| pos >= row.pos) {
                return Err(bad(row, "rows of a sequence must ascend in a step"));
            }
            let sequence = match touched.entry(row.seq) {
                hash_map::Entry::Occupied(there) => there.into_mut(),
                hash_map::Entry::Vacant(place) => place.insert(self.sequence(row.seq)?.clone()),
            };
            starts.push(sequence.enter(row)?);
        }
        let mut layer_rows = 0;
        for layer in 0..self.options.n_layers {
            for (row, start) in rows.iter().zip(&starts) {
                if layer >= *start && row.plan.runs(layer) {
                    touched.get_mut(&row.seq).expect("every row's sequence is there").attend(row, layer)?;
                    layer_rows += 1;
                }
            }
        }
        self.take_pages(rows)?;
        for row in rows.iter().filter(|r| r.readout != Readout::Nothing) {
            let chain = &touched[&row.seq].chain;
            let tokens: Vec<TokenId> = chain[..=row.pos].iter().map(|p| p.token).collect();
            let draft = Some(&row.plan).filter(|p| !p.is_full());
            let mut logits = self.row_logits(&tokens, draft);
            for (_, _, value) in
                self.faults.iter().filter(|(s, p, _)| draft.is_none() && (*s, *p) == (row.seq, row.pos))
            {
                logits[self.options.vocab / 2] = *value;
            }
            let vocab = match row.readout {
                Readout::Nothing | Readout::Head => None,
                Readout::DraftVocab => self.draft_vocab.as_deref(),
                Readout::ExitHead => self.exit_head.as_ref().map(|head| &*head.vocab),
            };
            match vocab {
                None => out.push(&logits),
                Some(vocab) => out.push(&vocab.iter().map(|token| logits[*token as usize]).collect::<Vec<f32>>()),
            }
        }
        for (seq, mut sequence) in touched {
            let own = &mut self.sequences[seq.0 as usize];
            sequence.pages = own.as_ref().map_or(0, |s| s.pages);
            *own = Some(sequence);
        }
        out.layer_rows = layer_rows;
        self.layer_rows += layer_rows;
        self.steps += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: SeqId, pos: usize, token: TokenId, plan: &LayerPlan) -> Row {
        Row {
            seq,
            pos,
            token,
            enter: Enter::Token,
            plan: plan.clone(),
            keep: !plan.is_full(),
            readout: Readout::Head,
            exit_kv: false,
        }
    }

    fn refused(target: &mut FakeTarget, rows: &[Row]) -> &'static str {
        match target.step(rows, &mut StepOutput::default()) {
            Err(BackendError::BadRow { why, .. }) => why,
            other => panic!("not refused as a bad row: {other:?}"),
        }
    }

    #[test]
    fn rows_that_break_the_contract_are_refused() {
        let mut target = FakeTarget::new(FakeOptions::default());
        let (full, exit) = (LayerPlan::full(8), LayerPlan::exit(8, 4).expect("valid"));
        let seq = target.create();
        let mut out = StepOutput::default();
        assert_eq!(refused(&mut target, &[row(seq, 1, 5, &full)]), "positions before it hold nothing");
        target.step(&[row(seq, 0, 5, &full)], &mut out).expect("fits");
        target.set_len(seq, 1).expect("computed");
        assert_eq!(refused(&mut target, &[row(seq, 0, 5, &full)]), "the position is committed already");
        target.step(&[row(seq, 1, 6, &exit)], &mut out).expect("a draft row");
        assert!(target.set_len(seq, 2).is_err(), "a drafted position is not computed");
        assert_eq!(
            refused(&mut target, &[row(seq, 2, 7, &full)]),
            "a position before it has no K and V in a layer that it runs"
        );
        let kept = |pos, token| Row { enter: Enter::Kept, keep: false, ..row(seq, pos, token, &full) };
        assert_eq!(refused(&mut target, &[kept(2, 7)]), "no hidden state was kept at this position");
        assert_eq!(refused(&mut target, &[kept(1, 9)]), "no hidden state was kept at this position");
        target.step(&[kept(1, 6), row(seq, 2, 7, &full)], &mut out).expect("a verification");
        assert_eq!(out.layer_rows, 4 + 8);
        target.set_len(seq, 3).expect("computed in every layer");
        target.set_len(seq, 2).expect("shorter always goes");
        target.step(&[row(seq, 2, 8, &full)], &mut out).expect("another continuation");
        assert_eq!(out.logits(0), target.logits_after(&[5, 6, 8]));
    }

    #[test]
    fn leftovers_of_a_middle_skip_are_not_taken_for_the_models_own() {
        let mut target = FakeTarget::new(FakeOptions::default());
        let (full, skip) = (LayerPlan::full(8), LayerPlan::skip_middle(8, 2, 5).expect("valid"));
        let seq = target.create();
        let mut out = StepOutput::default();
        target.step(&[row(seq, 0, 5, &full)], &mut out).expect("fits");
        target.set_len(seq, 1).expect("computed");
        target.step(&[row(seq, 1, 6, &skip)], &mut out).expect("a draft row");
        target.step(&[row(seq, 2, 7, &skip)], &mut out).expect("a draft may see drafts");
        assert_eq!(
            refused(&mut target, &[row(seq, 2, 7, &full)]),
            "a position before it has no K and V in a layer that it runs"
        );
        assert!(target.set_len(seq, 2).is_err());
    }

    #[test]
    fn pages_are_taken_and_given_back() {
        let mut target = FakeTarget::new(FakeOptions { pages: 2, page_positions: 2, ..FakeOptions::default() });
        let full = LayerPlan::full(8);
        let seq = target.create();
        let rows: Vec<Row> = (0..4).map(|pos| row(seq, pos, 1, &full)).collect();
        let mut out = StepOutput::default();
        target.step(&rows, &mut out).expect("four positions fit two pages");
        assert_eq!(target.free_pages(), 0);
        target.set_len(seq, 2).expect("computed");
        assert_eq!(target.free_pages(), 1);
        let five: Vec<Row> = (2..7).map(|pos| row(seq, pos, 1, &full)).collect();
        assert_eq!(target.step(&five, &mut out), Err(BackendError::KvFull { wanted: 3, free: 1 }));
        target.free(seq);
        assert_eq!(target.free_pages(), 2);
    }
}
