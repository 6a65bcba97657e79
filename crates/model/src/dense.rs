//! A model's weights as plain floats, for what computes with them outside the forward pass: training.

use selfspec_kernels::{PanelMatrix, RopeStyle};

use crate::model::Model;
use crate::row::TokenId;

/// The weights of one layer as floats. Matrices are row by row: (outputs, inputs).
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // named after the tensors
pub struct DenseLayer {
    pub attention_norm: Vec<f32>,              // (dim)
    pub query: Vec<f32>,                       // (heads * head_dim, dim)
    pub key: Vec<f32>,                         // (kv_heads * head_dim, dim)
    pub value: Vec<f32>,                       // (kv_heads * head_dim, dim)
    pub attention_output: Vec<f32>,            // (dim, heads * head_dim)
    pub query_bias: Option<Vec<f32>>,          // (heads * head_dim)
    pub key_bias: Option<Vec<f32>>,            // (kv_heads * head_dim)
    pub value_bias: Option<Vec<f32>>,          // (kv_heads * head_dim)
    pub query_norm: Option<Vec<f32>>,          // (head_dim)
    pub key_norm: Option<Vec<f32>>,            // (head_dim)
    pub post_attention_norm: Option<Vec<f32>>, // (dim)
    pub ffn_norm: Vec<f32>,                    // (dim)
    pub gate: Vec<f32>,                        // (ffn_dim, dim)
    pub up: Vec<f32>,                          // (ffn_dim, dim)
    pub down: Vec<f32>,                        // (dim, ffn_dim)
    pub post_ffn_norm: Option<Vec<f32>>,       // (dim)
}

/// The rotary angles of positions `0..n`, as the model's global layers and its exit heads use them.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotations {
    /// Cosines. Shape: (position, rot / 2).
    pub cos: Vec<f32>,
    /// Sines. Shape: (position, rot / 2).
    pub sin: Vec<f32>,
    /// Leading dimensions of a head that turn.
    pub rot: usize,
    /// Which dimensions make a pair.
    pub style: RopeStyle,
}

impl Model {
    /// The weights of layer `l`, as the floats that their blocks stand for.
    ///
    /// # Panics
    /// If the model has no layer `l`.
    pub fn dense_layer(&self, l: usize) -> DenseLayer {
        let layer = &self.layers[l];
        let ffn = layer.ffn.as_ref().expect("every layer of a model has one");
        DenseLayer {
            attention_norm: layer.attention_norm.clone(),
            query: dense(&layer.query),
            key: dense(&layer.key),
            value: dense(&layer.value),
            attention_output: dense(&layer.attention_output),
            query_bias: layer.query_bias.clone(),
            key_bias: layer.key_bias.clone(),
            value_bias: layer.value_bias.clone(),
            query_norm: layer.query_norm.clone(),
            key_norm: layer.key_norm.clone(),
            post_attention_norm: layer.post_attention_norm.clone(),
            ffn_norm: ffn.norm.clone(),
            gate: dense(&ffn.gate),
            up: dense(&ffn.up),
            down: dense(&ffn.down),
            post_ffn_norm: ffn.post_norm.clone(),
        }
    }

    /// The weight of the norm before the head. Shape: (dim).
    pub fn output_norm(&self) -> &[f32] {
        &self.output_norm
    }

    /// Whether the head is the embedding.
    pub fn tied(&self) -> bool {
        self.head.is_none()
    }

    /// The head's row for `token`. `out` has shape (dim).
    ///
    /// # Panics
    /// If the vocabulary lacks the token or `out` has another length.
    pub fn head_row(&self, token: TokenId, out: &mut [f32]) {
        self.head().row(token as usize, out);
    }

    /// The hidden state with which `token` enters the first layer. `out` has shape (dim).
    ///
    /// # Panics
    /// As [`Model::head_row`].
    pub fn embedding_row(&self, token: TokenId, out: &mut [f32]) {
        self.embedding.row(token as usize, out);
        out.iter_mut().for_each(|x| *x *= self.config.embedding_scale);
    }

    /// The rotary angles of positions `0..positions`.
    pub fn rotations(&self, positions: usize) -> Rotations {
        let mut rope = self.rope.clone();
        rope.set_positions(0..positions);
        let rows = rope.rows();
        Rotations { cos: rows.cos.to_vec(), sin: rows.sin.to_vec(), rot: rows.rot, style: rows.style }
    }
}

fn dense(matrix: &PanelMatrix) -> Vec<f32> {
    let mut out = vec![0.0; matrix.n() * matrix.k()];
    for (i, row) in out.chunks_exact_mut(matrix.k()).enumerate() {
        matrix.row(i, row);
    }
    out
}
