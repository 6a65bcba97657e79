//! The one table of a layer's tensors: their names, their shapes, and when a layer has them.
//!
//! Loading, exit heads, training, copies as floats and the writers of tiny models read it. A new
//! tensor is one entry here and its use in the forward pass.

use self::LayerTensor as T;

/// A weight of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // named after the tensors
pub enum LayerTensor {
    AttentionNorm,
    Query,
    Key,
    Value,
    AttentionOutput,
    QueryBias,
    KeyBias,
    ValueBias,
    QueryNorm,
    KeyNorm,
    PostAttentionNorm,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
    PostFeedForwardNorm,
}

/// The kind and the shape of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorShape {
    /// The weight of a norm. Shape: (values).
    Norm(usize),
    /// Shape: (values).
    Bias(usize),
    /// Shape: (rows, cols).
    Matrix {
        /// Outputs.
        rows: usize,
        /// Inputs.
        cols: usize,
    },
}

impl TensorShape {
    /// The dimensions, outermost first.
    pub fn dims(self) -> Vec<usize> {
        match self {
            TensorShape::Norm(values) | TensorShape::Bias(values) => vec![values],
            TensorShape::Matrix { rows, cols } => vec![rows, cols],
        }
    }

    /// The outermost dimension.
    pub fn rows(self) -> usize {
        self.dims()[0]
    }

    /// Number of values.
    pub fn values(self) -> usize {
        self.dims().iter().product()
    }

    /// (rows, cols) of a matrix; `None` for a vector.
    pub fn matrix(self) -> Option<(usize, usize)> {
        match self {
            TensorShape::Norm(_) | TensorShape::Bias(_) => None,
            TensorShape::Matrix { rows, cols } => Some((rows, cols)),
        }
    }
}

/// Whether a layer has a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It must be there.
    Needed,
    /// It is used where it is there.
    Optional,
    /// No layer of this form has it.
    Absent,
}

/// The facts that decide which tensors a layer has and which shapes they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayerForm {
    /// Width of the residual stream.
    pub dim: usize,
    /// Width of the feed-forward part; 0: the layer has none.
    pub ffn_dim: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// Biases on q, k and v must be there. Otherwise they are used where they are there.
    pub qkv_bias: bool,
    /// Norms on each head of q and k.
    pub qk_norm: bool,
    /// Norms after attention and after the feed-forward part, before they are added to the residual
    /// stream.
    pub sandwich_norms: bool,
}

impl LayerForm {
    /// Values of all query heads of a row.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values of all key heads of a row.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// One line of the table.
struct Entry {
    tensor: LayerTensor,
    gguf: &'static str,      // name in a GGUF file, after `blk.N.`
    folder: &'static str,    // name in a Hugging Face folder, after `layers.N.`
    exit_head: &'static str, // name in an exit head's file
    shape: fn(&LayerForm) -> TensorShape,
    presence: fn(&LayerForm) -> Presence,
}

const fn entry(
    tensor: LayerTensor,
    names: [&'static str; 3],
    shape: fn(&LayerForm) -> TensorShape,
    presence: fn(&LayerForm) -> Presence,
) -> Entry {
    let [gguf, folder, exit_head] = names;
    Entry { tensor, gguf, folder, exit_head, shape, presence }
}

/// In the order in which they are loaded and in which training lays them out.
#[rustfmt::skip]
const TABLE: &[Entry] = &[
    entry(T::AttentionNorm, ["attn_norm.weight", "input_layernorm.weight", "layer.attention_norm.weight"],
        norm, needed),
    entry(T::Query, ["attn_q.weight", "self_attn.q_proj.weight", "layer.query.weight"],
        |f| matrix(f.q_dim(), f.dim), needed),
    entry(T::Key, ["attn_k.weight", "self_attn.k_proj.weight", "layer.key.weight"],
        |f| matrix(f.kv_dim(), f.dim), needed),
    entry(T::Value, ["attn_v.weight", "self_attn.v_proj.weight", "layer.value.weight"],
        |f| matrix(f.kv_dim(), f.dim), needed),
    entry(T::AttentionOutput, ["attn_output.weight", "self_attn.o_proj.weight", "layer.attention_output.weight"],
        |f| matrix(f.dim, f.q_dim()), needed),
    entry(T::QueryBias, ["attn_q.bias", "self_attn.q_proj.bias", "layer.query.bias"],
        |f| TensorShape::Bias(f.q_dim()), qkv_bias),
    entry(T::KeyBias, ["attn_k.bias", "self_attn.k_proj.bias", "layer.key.bias"],
        |f| TensorShape::Bias(f.kv_dim()), qkv_bias),
    entry(T::ValueBias, ["attn_v.bias", "self_attn.v_proj.bias", "layer.value.bias"],
        |f| TensorShape::Bias(f.kv_dim()), qkv_bias),
    entry(T::QueryNorm, ["attn_q_norm.weight", "self_attn.q_norm.weight", "layer.query_norm.weight"],
        head_norm, qk_norm),
    entry(T::KeyNorm, ["attn_k_norm.weight", "self_attn.k_norm.weight", "layer.key_norm.weight"],
        head_norm, qk_norm),
    entry(T::PostAttentionNorm,
        ["post_attention_norm.weight", "post_attention_layernorm.weight", "layer.post_attention_norm.weight"],
        norm, |f| present(f.sandwich_norms)),
    // Folders without sandwich norms call this one "post attention": see the families' own names.
    entry(T::FeedForwardNorm, ["ffn_norm.weight", "post_attention_layernorm.weight", "layer.ffn_norm.weight"],
        norm, feed_forward),
    entry(T::Gate, ["ffn_gate.weight", "mlp.gate_proj.weight", "layer.gate.weight"],
        |f| matrix(f.ffn_dim, f.dim), feed_forward),
    entry(T::Up, ["ffn_up.weight", "mlp.up_proj.weight", "layer.up.weight"],
        |f| matrix(f.ffn_dim, f.dim), feed_forward),
    entry(T::Down, ["ffn_down.weight", "mlp.down_proj.weight", "layer.down.weight"],
        |f| matrix(f.dim, f.ffn_dim), feed_forward),
    entry(T::PostFeedForwardNorm,
        ["post_ffw_norm.weight", "post_feedforward_layernorm.weight", "layer.post_ffn_norm.weight"],
        norm, |f| present(f.ffn_dim > 0 && f.sandwich_norms)),
];

fn matrix(rows: usize, cols: usize) -> TensorShape {
    TensorShape::Matrix { rows, cols }
}

fn norm(form: &LayerForm) -> TensorShape {
    TensorShape::Norm(form.dim)
}

fn head_norm(form: &LayerForm) -> TensorShape {
    TensorShape::Norm(form.head_dim)
}

fn present(there: bool) -> Presence {
    if there { Presence::Needed } else { Presence::Absent }
}

fn needed(_: &LayerForm) -> Presence {
    Presence::Needed
}

fn qk_norm(form: &LayerForm) -> Presence {
    present(form.qk_norm)
}

fn qkv_bias(form: &LayerForm) -> Presence {
    if form.qkv_bias { Presence::Needed } else { Presence::Optional }
}

fn feed_forward(form: &LayerForm) -> Presence {
    present(form.ffn_dim > 0)
}

impl LayerTensor {
    /// Number of tensors in the table.
    pub const COUNT: usize = TABLE.len();

    /// Every tensor, in the order of the table.
    pub fn all() -> impl Iterator<Item = LayerTensor> {
        TABLE.iter().map(|entry| entry.tensor)
    }

    fn entry(self) -> &'static Entry {
        &TABLE[self as usize]
    }

    /// The shape in a layer of this form.
    pub fn shape(self, form: &LayerForm) -> TensorShape {
        (self.entry().shape)(form)
    }

    /// Whether a layer of this form has it.
    pub fn presence(self, form: &LayerForm) -> Presence {
        (self.entry().presence)(form)
    }

    /// Its name in an exit head's file.
    pub fn exit_head_name(self) -> &'static str {
        self.entry().exit_head
    }

    /// Its name in GGUF files, after `blk.N.`.
    pub(crate) fn gguf_name(self) -> &'static str {
        self.entry().gguf
    }

    /// Its usual name in Hugging Face folders, after `layers.N.`.
    pub(crate) fn folder_name(self) -> &'static str {
        self.entry().folder
    }
}

/// Values for the tensors that one layer has.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerValues<T> {
    values: [Option<T>; LayerTensor::COUNT], // (LayerTensor)
}

impl<T> Default for LayerValues<T> {
    fn default() -> Self {
        LayerValues { values: std::array::from_fn(|_| None) }
    }
}

impl<T> LayerValues<T> {
    /// Sets the value of a tensor.
    pub fn insert(&mut self, tensor: LayerTensor, value: T) {
        self.values[tensor as usize] = Some(value);
    }

    /// The value of a tensor that the layer may lack.
    pub fn get(&self, tensor: LayerTensor) -> Option<&T> {
        self.values[tensor as usize].as_ref()
    }

    /// The tensors that the layer has, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (LayerTensor, &T)> {
        LayerTensor::all().filter_map(|tensor| Some((tensor, self.get(tensor)?)))
    }
}

/// A tensor of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelTensor {
    /// Shape: (vocab, dim).
    Embedding,
    /// The norm before the head. Shape: (dim).
    OutputNorm,
    /// The head, where it is not the embedding. Shape: (vocab, dim).
    Head,
    /// A tensor of the layer of this number.
    Layer(usize, LayerTensor),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tensor_has_its_own_line_at_its_own_number() {
        assert!(LayerTensor::all().enumerate().all(|(i, tensor)| tensor as usize == i));
        for (i, a) in TABLE.iter().enumerate() {
            for b in &TABLE[i + 1..] {
                assert!(a.gguf != b.gguf && a.exit_head != b.exit_head, "{:?} and {:?}", a.tensor, b.tensor);
            }
        }
    }
}
