//! Output under a mask is that of plain decoding under it, and what the mask forces is drafted.

use crate::common::{Guard, Live, Runner, always, exit, greedy, plain, prompt, seeded, skip};
use selfspec_model::TokenId;
use selfspec_speculate::{
    DraftLen, DrafterChoice, DrafterKind, LogitsRow, PenaltyHistory, RoundPosition, Sampler, SamplingParams,
    SequenceError, SequenceParams, SpeculationParams, TokenConstraint, TokenMask,
};
use selfspec_testkit::fake_target::FakeOptions;

const N: usize = 8;
const VOCAB: TokenId = 40;

/// Allows what depends on the last token and on how many there were; every few tokens just one.
#[derive(Debug, Default)]
struct Automaton {
    held: Vec<TokenId>,
    fails_at: Option<usize>,
}

impl Automaton {
    fn may(&self, token: TokenId) -> bool {
        let n = self.held.len() as TokenId;
        let last = self.held.last().copied().unwrap_or(0);
        match n % 10 {
            6..=8 => token == (n * 7 + 3) % VOCAB,
            _ => token < VOCAB && !(token + last + n).is_multiple_of(3),
        }
    }
}

impl TokenConstraint for Automaton {
    fn allowed(&mut self) -> Result<TokenMask, String> {
        if self.fails_at.is_some_and(|at| self.held.len() >= at) {
            return Err("too much".to_owned());
        }
        let bits = (0..VOCAB.div_ceil(32)).map(|word| {
            let bit = |bit| u32::from(self.may(word * 32 + bit)) << bit;
            (0..32).map(bit).sum()
        });
        Ok(TokenMask::from_bits(bits.collect()))
    }

    fn push(&mut self, token: TokenId) -> Result<bool, String> {
        let may = self.may(token);
        if may {
            self.held.push(token);
        }
        Ok(may)
    }

    fn pop(&mut self, n: usize) -> Result<(), String> {
        self.held.truncate(self.held.len() - n);
        Ok(())
    }

    fn forced(&mut self) -> Vec<TokenId> {
        let before = self.held.len();
        while self.held.len() % 10 >= 6 && self.held.len() % 10 <= 8 {
            self.held.push((self.held.len() as TokenId * 7 + 3) % VOCAB);
        }
        self.held.split_off(before)
    }
}

fn run(options: &FakeOptions, params: SequenceParams, fails_at: Option<usize>) -> crate::common::Output {
    let mut runner = Runner::new(options.clone());
    let Live { sequence, output, .. } = runner.start(params);
    let sequence = sequence.with_constraint(Box::new(Automaton { fails_at, ..Automaton::default() }));
    let mut live = vec![Live { sequence, output, first: 0 }];
    while runner.step(&mut live, 64) {}
    live.remove(0).output
}

fn options() -> FakeOptions {
    FakeOptions {
        n_layers: N,
        agreement: 0.75,
        exit_head: Some((3, (0..VOCAB).filter(|t| t % 4 != 1).collect())),
        ..FakeOptions::default()
    }
}

fn request(sampling: SamplingParams, speculation: SpeculationParams) -> SequenceParams {
    SequenceParams { sampling, speculation, logprobs: Some(2), ..SequenceParams::new(prompt(3, 30, VOCAB), 60) }
}

#[test]
fn output_under_a_mask_is_that_of_plain_decoding_under_it() {
    let options = options();
    let penalised = SamplingParams { presence_penalty: 0.7, repetition_penalty: 1.1, ..seeded(8) };
    let drafters =
        [exit(N, 4), skip(N, 2, 5), DrafterChoice::ExitHead, DrafterChoice::PromptLookup, DrafterChoice::Auto];
    for sampling in [greedy(), seeded(3), penalised, SamplingParams { temperature: 1.0, seed: Some(4), ..greedy() }] {
        let expected = run(&options, plain(&request(sampling.clone(), SpeculationParams::off())), None);
        assert_eq!((expected.tokens.len(), expected.stats.drafted), (60, 0));
        let mut automaton = Automaton::default();
        for token in &expected.tokens {
            assert!(automaton.push(*token).expect("sound"), "{:?}", expected.tokens);
        }
        let mut guard = Guard::default();
        for drafter in drafters.clone() {
            for draft_len in [DraftLen::Fixed(1), DraftLen::Fixed(3), DraftLen::Fixed(8), DraftLen::Adaptive] {
                for bonus in [true, false] {
                    for on in [true, false] {
                        let speculation = SpeculationParams { bonus, always: on, ..always(drafter.clone(), draft_len) };
                        let got = run(&options, request(sampling.clone(), speculation.clone()), None);
                        assert_eq!(got.result(), expected.result(), "{speculation:?} {sampling:?}");
                        guard.add(&got);
                    }
                }
            }
        }
        guard.check(3, "mask");
    }
}

#[test]
fn what_the_mask_forces_is_drafted_and_stands() {
    let got = run(&options(), request(greedy(), SpeculationParams::default()), None);
    let forced = got.stats.drafter(DrafterKind::Grammar);
    assert!(forced.drafted >= 12 && forced.accepted == forced.drafted, "{:?}", got.stats);
    let off = run(&options(), request(greedy(), SpeculationParams::off()), None);
    assert_eq!((off.stats.drafted, off.tokens), (0, got.tokens), "without speculation nothing is drafted");
}

#[test]
fn a_mask_that_fails_ends_the_sequence_where_it_fails_without_drafts() {
    let plain = run(&options(), request(greedy(), SpeculationParams::off()), Some(9));
    let Some(SequenceError::Constraint { pos, why }) = &plain.error else { panic!("{:?}", plain.error) };
    assert!(*pos <= 30 + 9 && why == "too much", "{pos}");
    assert!(!plain.tokens.is_empty() && plain.tokens.len() <= 9);
    for draft_len in [1, 4, 8] {
        let speculation = always(DrafterChoice::ExitHead, DraftLen::Fixed(draft_len));
        let got = run(&options(), request(greedy(), speculation), Some(9));
        // A draft row may fail first, but drafts do not decide whether the sequence goes on.
        assert_eq!((&got.error, &got.tokens), (&plain.error, &plain.tokens), "drafts of {draft_len}");
        assert!(got.stats.drafted > 0);
    }
}

/// A mask does what logits of minus infinity do, in every rule.
#[test]
fn masked_tokens_are_impossible_ones() {
    let logits: Vec<f32> = (0..VOCAB).map(|t| ((t * 37) % 17) as f32 * 0.3).collect();
    let mut automaton = Automaton::default();
    let mask = automaton.allowed().expect("sound");
    let cut: Vec<f32> =
        (0..VOCAB).map(|t| if mask.contains(t) { logits[t as usize] } else { f32::NEG_INFINITY }).collect();
    assert!(!mask.contains(VOCAB) && !mask.contains(10_000));
    for sampling in [greedy(), seeded(5), SamplingParams { temperature: 0.9, top_p: 0.8, ..greedy() }] {
        let history = PenaltyHistory::new(&sampling, &[]);
        let (one, other) = (Sampler::new(&sampling, 7), Sampler::new(&sampling, 7));
        for pos in 0..200 {
            let at = RoundPosition { pos, row: 0 };
            let masked = LogitsRow { mask: Some(&mask), ..LogitsRow::all(&logits) };
            let got = one.verify(masked, history.view(), at, None).expect("possible");
            assert_eq!(got, other.verify(LogitsRow::all(&cut), history.view(), at, None).expect("possible"));
            assert!(mask.contains(got.token));
            let tokens: Vec<TokenId> = (0..VOCAB).step_by(2).collect();
            let every_second: Vec<f32> = logits.iter().step_by(2).copied().collect();
            let row = LogitsRow { logits: &every_second, tokens: Some(&tokens), mask: Some(&mask) };
            let draft = one.draft(row, history.view(), at, 0.0).expect("possible");
            assert!(mask.contains(draft.token));
        }
    }
}
