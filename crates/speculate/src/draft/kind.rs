//! The kinds of drafter, their names, and how a request chooses one.

use std::fmt;

use selfspec_model::LayerPlan;

/// A way to draft. Its number is its place in [`DrafterKind::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DrafterKind {
    /// The model itself on fewer layers.
    LayerSkip,
    /// Copying from the prompt and the output.
    PromptLookup,
    /// A trained head on an early layer of the model.
    ExitHead,
    /// The tokens that a grammar forces.
    Grammar,
    /// Copying from the output that the request predicts.
    Prediction,
}

/// Each kind, its name in prose, and its name as a flag's value or a field.
const NAMES: [(DrafterKind, &str, &str); 5] = [
    (DrafterKind::LayerSkip, "layer skip", "layer-skip"),
    (DrafterKind::PromptLookup, "prompt lookup", "prompt-lookup"),
    (DrafterKind::ExitHead, "exit head", "exit-head"),
    (DrafterKind::Grammar, "grammar", "grammar"),
    (DrafterKind::Prediction, "prediction", "prediction"),
];

impl DrafterKind {
    /// How many kinds there are.
    pub const COUNT: usize = NAMES.len();

    /// All kinds, in the order of [`SpecStats::by_drafter`](crate::SpecStats::by_drafter).
    pub const ALL: [DrafterKind; Self::COUNT] = {
        let mut all = [DrafterKind::LayerSkip; Self::COUNT];
        let mut i = 0;
        while i < all.len() {
            all[i] = NAMES[i].0;
            assert!(all[i] as usize == i, "the table has the kinds in their order");
            i += 1;
        }
        all
    };

    /// Its name in prose: `layer skip`, `prompt lookup` and so on.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Its name as a flag's value or a field: `layer-skip`, `prompt-lookup` and so on.
    pub fn flag(self) -> &'static str {
        NAMES[self as usize].2
    }
}

/// The name in prose.
impl fmt::Display for DrafterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which drafter proposes tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DrafterChoice {
    /// None: plain decoding.
    Off,
    /// Prompt lookup where it has a match that is expected to pay; else the exit head, or layer
    /// skip on a model without one, where it is expected to pay; else none.
    #[default]
    Auto,
    /// The model itself on the layers of this plan. The full plan is refused: it skips nothing.
    LayerSkip(LayerPlan),
    /// The exit head, which the model must have.
    ExitHead,
    /// Copies what followed the same last tokens earlier in the prompt or the output.
    PromptLookup,
}

impl DrafterChoice {
    /// The choice as a flag's value: `off`, `auto`, or the drafter's own name.
    pub fn flag(&self) -> &'static str {
        match self {
            DrafterChoice::Off => "off",
            DrafterChoice::Auto => "auto",
            DrafterChoice::LayerSkip(_) => DrafterKind::LayerSkip.flag(),
            DrafterChoice::ExitHead => DrafterKind::ExitHead.flag(),
            DrafterChoice::PromptLookup => DrafterKind::PromptLookup.flag(),
        }
    }
}
