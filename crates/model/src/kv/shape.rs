//! The sizes of a device and its model, against which rows are checked.

use std::sync::Arc;

use crate::row::{ExitHeadInfo, TokenId};

/// What describes a device and its model. Fixed for the device's life.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceShape {
    /// Layers of the model.
    pub n_layers: usize,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Longest sequence, in positions.
    pub context: usize,
    /// Positions in a KV page.
    pub page_positions: usize,
    /// KV pages in all.
    pub pages: u32,
    /// The tokens of [`Readout::DraftVocab`](crate::Readout::DraftVocab), ascending, if there is a
    /// draft vocabulary.
    pub draft_vocab: Option<Arc<[TokenId]>>,
    /// The exit head, if there is one: an auxiliary layer, whose K and V follow the model's layers.
    pub exit_head: Option<ExitHeadInfo>,
}

impl DeviceShape {
    /// Whether there are layers beside the model's own that the device keeps up.
    pub fn has_auxiliary(&self) -> bool {
        self.exit_head.is_some()
    }
}
