//! Runs on the prompts: plain answers, the acceptance of every drafter, and the speed of the best
//! ones.

use std::collections::{BTreeMap, VecDeque};

use selfspec_engine::{Engine, Generation, Request, RequestSummary};
use selfspec_model::TokenId;
use selfspec_speculate::{SamplingParams, SpecStats, SpeculationParams};

use super::candidate::DrafterCandidate;
use super::options::TuneOptions;
use crate::error::LabError;
use crate::fixed_drafts::DRAFT_LEN;
use crate::progress::{LabNote, Stage, StageProgress};
use crate::prompts::PromptCase;
use crate::statistics::{acceptance_at, acceptance_by_place, median, tokens_per_second};

/// Prompts on which the best drafters run against plain decoding.
const PAIRED: usize = 24;
/// Requests under way at a time.
const UNDER_WAY: usize = 16;

/// The acceptance of a candidate's drafts.
#[derive(Debug, Clone, Default)]
pub struct CandidateAcceptance {
    /// Over all prompts.
    pub stats: SpecStats,
    /// By category of prompts.
    pub by_category: BTreeMap<String, SpecStats>,
}

impl CandidateAcceptance {
    /// Acceptance at a place of the round, given that the drafts before it were accepted; beyond
    /// the last measured place as there.
    pub fn at(&self, place: usize) -> f64 {
        acceptance_at(&self.stats, place)
    }

    /// Acceptance at each place by category of prompts. Shape of a value: (place).
    pub fn places_by_category(&self) -> BTreeMap<String, Vec<f64>> {
        self.by_category.iter().map(|(category, stats)| (category.clone(), acceptance_by_place(stats))).collect()
    }
}

/// A candidate's speed against plain decoding.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeasuredSpeed {
    /// Median of the ratios to plain decoding of the same prompt.
    pub(super) speedup: f64,
    /// Median tokens a second.
    pub(super) tok_s: f64,
}

/// The prompts of a tuning, and how they run.
#[derive(Clone, Copy)]
pub(super) struct PromptSweep<'a> {
    pub(super) prompts: &'a [PromptCase],
    pub(super) options: &'a TuneOptions,
    pub(super) progress: &'a dyn StageProgress,
}

impl PromptSweep<'_> {
    fn request(&self, case: &PromptCase, speculation: SpeculationParams) -> Request {
        let mut request = Request::new(case.prompt(self.options.style));
        request.max_tokens = Some(self.options.max_tokens);
        let temperature = self.options.temperature;
        request.sampling = SamplingParams { temperature, seed: Some(1), ..SamplingParams::default() };
        request.speculation = speculation;
        request
    }

    /// Runs all prompts, some at a time.
    fn all(
        &self,
        engine: &Engine,
        speculation: &SpeculationParams,
        stage: &Stage<'_>,
    ) -> Result<Vec<RequestSummary>, LabError> {
        let mut under_way: VecDeque<Generation> = VecDeque::new();
        let mut summaries = Vec::new();
        for case in self.prompts {
            if under_way.len() == UNDER_WAY
                && let Some(first) = under_way.pop_front()
            {
                summaries.push(first.wait()?);
                stage.step();
            }
            under_way.push_back(engine.submit(self.request(case, speculation.clone()))?);
        }
        for generation in under_way {
            summaries.push(generation.wait()?);
            stage.step();
        }
        Ok(summaries)
    }

    /// The model's plain answers. Shape: (prompt).
    pub(super) fn answers(&self, engine: &Engine) -> Result<Vec<Vec<TokenId>>, LabError> {
        let stage = Stage::begin(self.progress, "answering prompts", self.prompts.len());
        let summaries = self.all(engine, &SpeculationParams::off(), &stage)?;
        Ok(summaries.into_iter().map(|summary| summary.token_ids).collect())
    }

    /// The acceptance of every candidate. Shape: (candidate).
    pub(super) fn acceptance(
        &self,
        engine: &Engine,
        candidates: &[DrafterCandidate],
    ) -> Result<Vec<CandidateAcceptance>, LabError> {
        let stage = Stage::begin(self.progress, "measuring acceptance", self.prompts.len() * candidates.len());
        let mut all = Vec::new();
        for candidate in candidates {
            let mut acceptance = CandidateAcceptance::default();
            let summaries = self.all(engine, &candidate.always(DRAFT_LEN), &stage)?;
            for (case, summary) in self.prompts.iter().zip(summaries) {
                acceptance.stats.merge(&summary.stats);
                acceptance.by_category.entry(case.category.clone()).or_default().merge(&summary.stats);
            }
            let (name, first) = (candidate.name.clone(), acceptance.at(0));
            self.progress.note(&LabNote::CandidateAcceptance { name, first });
            all.push(acceptance);
        }
        Ok(all)
    }

    /// Runs the finalists against plain decoding, prompt by prompt.
    pub(super) fn speeds(
        &self,
        engine: &Engine,
        candidates: &[DrafterCandidate],
        finalists: &[usize],
    ) -> Result<Vec<(usize, MeasuredSpeed)>, LabError> {
        let stride = self.prompts.len().div_ceil(PAIRED).max(1);
        let chosen: Vec<&PromptCase> = self.prompts.iter().step_by(stride).collect();
        let stage = Stage::begin(self.progress, "measuring speed", chosen.len() * (finalists.len() + 1));
        let mut samples: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); finalists.len()];
        for case in chosen {
            let speed = |speculation: SpeculationParams| -> Result<f64, LabError> {
                let summary = engine.submit(self.request(case, speculation))?.wait()?;
                stage.step();
                Ok(tokens_per_second(&summary))
            };
            let plain = speed(SpeculationParams::off())?;
            for (finalist, (ratios, speeds)) in finalists.iter().zip(&mut samples) {
                let drafted = speed(candidates[*finalist].in_use())?;
                if plain > 0.0 && drafted > 0.0 {
                    ratios.push(drafted / plain);
                    speeds.push(drafted);
                }
            }
        }
        let results = finalists.iter().zip(samples);
        Ok(results
            .map(|(i, (mut ratios, mut speeds))| {
                (*i, MeasuredSpeed { speedup: median(&mut ratios), tok_s: median(&mut speeds) })
            })
            .collect())
    }
}
