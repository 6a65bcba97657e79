//! What the index decides about a row.

/// A page whose contents must be copied to another page before a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCopy {
    /// The page to read.
    pub from: u32,
    /// The page to write.
    pub to: u32,
}

/// Where the features are that an auxiliary layer reads of the position before a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureSource {
    /// Nowhere: the row is the first one, or the sequence's past was computed elsewhere.
    Missing,
    /// With the step's own row of this index, which is at the position before.
    Row(usize),
    /// In this slot of the exact features, which the model itself computed.
    Exact(u32),
    /// In this slot of the auxiliary layer's own states, which stand for features where the model
    /// has not run.
    Drafted(u32),
}

/// What a row does in the auxiliary layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuxiliaryWork {
    /// A row of the full plan writes the layer's K and V, and its exact features to slot `keep`.
    KeepUp {
        /// The features that it reads.
        source: FeatureSource,
        /// The slot of the exact features that it leaves.
        keep: u32,
    },
    /// A drafting row runs the whole layer, and leaves its own state in slot `keep`.
    Draft {
        /// The features that it reads.
        source: FeatureSource,
        /// The slot of the layer's states.
        keep: u32,
    },
}

/// What the index decided about one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPlace {
    /// Layer where the row enters.
    pub(crate) first_layer: usize,
    /// Slot of the kept state from which it enters; none: from the embedding.
    pub(crate) enter: Option<u32>,
    /// Slot where its hidden state after its plan's exact prefix is kept.
    pub(crate) keep: Option<u32>,
    pub(crate) auxiliary: Option<AuxiliaryWork>,
}
