//! Rotary position embedding: rotates pairs of a head's dimensions by an angle that grows with the
//! position.

/// The dimensions of a head that form a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// (2i, 2i + 1): the order of the Llama family's heads in GGUF files.
    Interleaved,
    /// (i, i + rot / 2): the GPT-NeoX order, of Hugging Face files and of the other families.
    Halves,
}

/// The angles of a list of rows: cosine and sine of each pair's angle at the row's position.
#[derive(Debug, Clone, Copy)]
pub struct RopeRows<'a> {
    /// Cosines. Shape: (row, rot / 2).
    pub cos: &'a [f32],
    /// Sines. Shape: (row, rot / 2).
    pub sin: &'a [f32],
    /// The dimensions that form a pair.
    pub style: RopeStyle,
    /// Leading dimensions of a head to rotate; the rest stay as they are. Even; 0 for layers
    /// without rotation.
    pub rot: usize,
}

impl RopeRows<'_> {
    /// # Panics
    /// If `rot` is odd or exceeds the head, or the angles are not those of `rows` rows.
    pub(crate) fn check(&self, rows: usize, head_dim: usize) {
        let RopeRows { cos, sin, rot, .. } = self;
        assert!(rot.is_multiple_of(2) && *rot <= head_dim, "{rot} rotated dimensions of a head of {head_dim}");
        let expected = rows * rot / 2;
        assert!(cos.len() == expected, "{} cosines for {rows} rows, expected {expected}", cos.len());
        assert!(sin.len() == expected, "{} sines for {rows} rows, expected {expected}", sin.len());
    }

    /// Cosines and sines of one row.
    pub(crate) fn row(&self, row: usize) -> (&[f32], &[f32]) {
        let half = self.rot / 2;
        (&self.cos[row * half..][..half], &self.sin[row * half..][..half])
    }
}

/// Rotates the leading dimensions of one head, (head_dim), by one row's angles, (rot / 2) each.
///
/// Plain code, whose products and differences round the same however the compiler vectorises it:
/// the bits are the same on every instruction set.
#[inline(always)]
pub(crate) fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], style: RopeStyle) {
    let half = cos.len();
    let head = &mut head[..2 * half];
    match style {
        RopeStyle::Interleaved => {
            for ((pair, c), s) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                let (a, b) = (pair[0], pair[1]);
                pair[0] = a * c - b * s;
                pair[1] = a * s + b * c;
            }
        }
        RopeStyle::Halves => {
            let (first, second) = head.split_at_mut(half);
            for (((x, y), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                let (a, b) = (*x, *y);
                *x = a * c - b * s;
                *y = a * s + b * c;
            }
        }
    }
}
