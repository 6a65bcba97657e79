//! The result of `tune` for a model on a machine: a file beside the model, which later runs read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use selfspec_model::{LayerPlan, TokenId};
use selfspec_speculate::{DrafterChoice, SpeculationParams};
use serde::{Deserialize, Serialize};

use crate::error::EngineError;

/// The drafter that was measured as the fastest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "drafter", rename_all = "kebab-case")]
pub enum TunedDrafter {
    /// No drafter pays.
    Off,
    /// Prompt lookup alone.
    PromptLookup,
    /// Prompt lookup, else layer skip with all layers but `from..to`.
    LayerSkip {
        /// First layer that drafts leave out.
        from: usize,
        /// One past the last one.
        to: usize,
    },
    /// Prompt lookup, else the exit head.
    ExitHead,
}

/// The result of `tune` for a model on a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Version of the file's format: 1.
    pub version: u32,
    /// Name of the model.
    pub model: String,
    /// Fingerprint of its weights.
    pub fingerprint: String,
    /// Instruction set that it was measured with.
    pub isa: String,
    /// Threads that it was measured with.
    pub threads: usize,
    /// The prompts that it was measured on.
    pub prompts: String,
    /// How to draft.
    #[serde(flatten)]
    pub drafter: TunedDrafter,
    /// Median speed-up over plain decoding that was measured with it.
    pub speedup: f64,
    /// The draft vocabulary of layer skip, ascending; empty: all tokens.
    #[serde(default)]
    pub draft_vocab: Vec<TokenId>,
    /// The file of the exit head, if it is not a built-in one.
    #[serde(default)]
    pub exit_head: Option<PathBuf>,
    /// Share of drafts accepted by category of prompts, with 4 drafted a round. The first number is
    /// that of a round's first draft, the second that of its second draft where the first was
    /// accepted, and so on, while there were enough of them. `doctor` compares with it.
    #[serde(default)]
    pub acceptance: BTreeMap<String, Vec<f64>>,
    /// c, the cost of a draft step over that of a plain step; `None` where no layers run to draft.
    #[serde(default)]
    pub c: Option<f64>,
}

impl Tuning {
    /// The version that is read and written.
    pub const VERSION: u32 = 1;

    /// The path of a model's tuning: beside a file, inside a folder.
    pub fn path(model: &Path) -> PathBuf {
        if model.is_dir() {
            return model.join("selfspec-tuning.json");
        }
        let mut name = model.as_os_str().to_owned();
        name.push(".tuning.json");
        name.into()
    }

    /// The tuning of the model at `model`; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or does not hold a tuning.
    pub fn read(model: &Path) -> Result<Option<Tuning>, EngineError> {
        let path = Tuning::path(model);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(EngineError::Io { path, source }),
        };
        Tuning::parse(&bytes, &path).map(Some)
    }

    /// The tuning that the bytes of a file hold; `path` is its name in errors.
    ///
    /// # Errors
    /// [`EngineError::Tuning`]: they are no tuning, or one of another version of the format.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Tuning, EngineError> {
        let wrong = |why: String| EngineError::Tuning { path: path.to_owned(), why };
        let tuning: Tuning = serde_json::from_slice(bytes).map_err(|e| wrong(format!("not a tuning: {e}")))?;
        if tuning.version != Self::VERSION {
            let why = format!("its format is version {}, this program reads version {}", tuning.version, Self::VERSION);
            return Err(wrong(why));
        }
        Ok(tuning)
    }

    /// Writes it for the model at `model`, whole or not at all. Returns its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, model: &Path) -> Result<PathBuf, EngineError> {
        let path = Tuning::path(model);
        let io = |source| EngineError::Io { path: path.clone(), source };
        let text = serde_json::to_string_pretty(self).expect("plain data");
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".part");
        let written = std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(&unfinished, &path));
        if let Err(error) = written {
            let _ = std::fs::remove_file(&unfinished); // the write's error is the one to tell
            return Err(io(error));
        }
        Ok(path)
    }

    /// The speculation of a request that does not choose, on a model of `n_layers` layers.
    ///
    /// # Errors
    /// Its layers do not fit the model.
    pub fn speculation(&self, n_layers: usize) -> Result<SpeculationParams, EngineError> {
        let with = |drafter| SpeculationParams { drafter, ..SpeculationParams::default() };
        Ok(match self.drafter {
            TunedDrafter::Off => SpeculationParams::off(),
            TunedDrafter::PromptLookup => with(DrafterChoice::PromptLookup),
            TunedDrafter::ExitHead => with(DrafterChoice::Auto),
            TunedDrafter::LayerSkip { from, to } => {
                let plan = LayerPlan::skip_middle(n_layers, from, to);
                let why = |e| EngineError::InvalidRequest { field: "tuning", why: format!("{e}") };
                SpeculationParams { auto_plan: Some(plan.map_err(why)?), ..with(DrafterChoice::Auto) }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(drafter: TunedDrafter) -> Tuning {
        Tuning {
            version: Tuning::VERSION,
            model: "tiny".to_owned(),
            fingerprint: "f".to_owned(),
            isa: "scalar".to_owned(),
            threads: 2,
            prompts: "mine.jsonl".to_owned(),
            drafter,
            speedup: 1.5,
            draft_vocab: vec![1, 5],
            exit_head: None,
            acceptance: BTreeMap::from([("chat".to_owned(), vec![0.5, 0.25])]),
            c: Some(0.5),
        }
    }

    #[test]
    fn what_is_written_beside_a_model_is_read_again() {
        let dir = std::env::temp_dir().join(format!("selfspec-tuning-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let model = dir.join("m.gguf");
        assert_eq!(Tuning::read(&model).expect("none"), None);
        for drafter in [TunedDrafter::Off, TunedDrafter::LayerSkip { from: 3, to: 8 }, TunedDrafter::ExitHead] {
            let tuning = tuning(drafter);
            let path = tuning.write(&model).expect("written");
            assert_eq!(path, dir.join("m.gguf.tuning.json"));
            assert_eq!(Tuning::read(&model).expect("there"), Some(tuning));
        }
        std::fs::write(Tuning::path(&model), "{}").expect("written");
        assert!(Tuning::read(&model).expect_err("no tuning").to_string().contains("not a tuning"));
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_tuning_becomes_the_speculation_of_a_request() {
        let of = |drafter| tuning(drafter).speculation(8);
        assert_eq!(of(TunedDrafter::Off).expect("fits"), SpeculationParams::off());
        let skip = of(TunedDrafter::LayerSkip { from: 3, to: 8 }).expect("fits");
        assert_eq!(skip.auto_plan, Some(LayerPlan::exit(8, 3).expect("fits")));
        assert!(of(TunedDrafter::LayerSkip { from: 3, to: 9 }).is_err());
    }
}
