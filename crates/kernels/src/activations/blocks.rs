//! The memory layout of the 8-bit blocks of activations.

/// Values in a block.
pub(crate) const BLOCK: usize = 32;

/// Shifts, in bits, of the stored negated sums: the offsets of Q4_0 and Q8_0, whose kernels then
/// need no shift.
pub(crate) const NEG_SUM: [i32; 2] = [3, 7];
/// The same for the sums of half blocks: the offset of Q6_K.
pub(crate) const NEG_HALF: i32 = 5;

/// Pointers to one block's values, scale and sums. In a tile the rows' first blocks lie together,
/// then their second blocks, and so on. The quantiser writes through these pointers; the kernels
/// only read.
#[derive(Clone, Copy)]
pub(crate) struct BlockPtrs {
    pub(crate) q: *mut i8,
    pub(crate) scale: *mut f32,
    pub(crate) sum: *mut f32,
    pub(crate) half_sum: *mut [f32; 2],
    pub(crate) neg_sum: *mut [i32; 2],
    pub(crate) neg_half: *mut [i32; 2],
}

impl BlockPtrs {
    /// The pointers to the block that is `blocks` further on.
    #[inline(always)]
    pub(crate) fn skip(self, blocks: usize) -> BlockPtrs {
        BlockPtrs {
            q: self.q.wrapping_add(blocks * BLOCK),
            scale: self.scale.wrapping_add(blocks),
            sum: self.sum.wrapping_add(blocks),
            half_sum: self.half_sum.wrapping_add(blocks),
            neg_sum: self.neg_sum.wrapping_add(blocks),
            neg_half: self.neg_half.wrapping_add(blocks),
        }
    }
}
