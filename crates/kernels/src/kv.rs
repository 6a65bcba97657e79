//! The KV cache's memory: pages of keys and values in f16.
//!
//! A page holds [`PAGE_POSITIONS`] positions of one sequence, for all layers and KV heads. It is laid out as
//! `[layer][kv_head]{ K, V }`, so that what attention reads of a page for one head is one contiguous stretch:
//!
//! - K is transposed in blocks of 16 positions, `[position / 16][head_dim][position % 16]`: one load gives one dimension
//!   of 16 keys, and the scores of 16 positions come from broadcast multiply-adds, without a sum across lanes.
//! - V is `[position][v_stride]`, where `v_stride` is `head_dim` rounded up to 16; the padding stays zero.
//!
//! Which page belongs to which sequence is the caller's business. Nothing is ever cleared: attention reads only the
//! positions that a row may see, so what an earlier owner left behind never matters.

use bytemuck::allocation::try_zeroed_slice_box;

use crate::compute::Compute;
use crate::isa::Isa;
use crate::lanes::{Lanes, per_isa};

/// Positions in a page.
pub const PAGE_POSITIONS: usize = 64;

/// Positions in a block of transposed keys.
pub(crate) const K_BLOCK: usize = 16;

/// The page memory starts on a cache line; so does every head's part of a page.
const ALIGN: usize = 64;

/// Why a KV cache cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// A cache without layers, heads or dimensions.
    #[error("a KV cache of {layers} layers, {kv_heads} KV heads and head dimension {head_dim} holds nothing")]
    Empty {
        /// Layers asked for.
        layers: usize,
        /// KV heads asked for.
        kv_heads: usize,
        /// Head dimension asked for.
        head_dim: usize,
    },
    /// The size does not fit the address space, or the system has no memory for it.
    #[error("no memory for a KV cache of {pages} pages of {page_bytes} bytes")]
    OutOfMemory {
        /// Pages asked for.
        pages: usize,
        /// Bytes in a page; `usize::MAX` if they cannot be counted.
        page_bytes: usize,
    },
}

/// Pages of keys and values; see the module's description for the layout.
///
/// The memory comes zeroed from the system and is not touched before it is written: an unused page costs nothing (to the
/// nearest 2 MiB, where the system has huge pages).
pub struct KvPages {
    memory: Box<[u16]>,
    start: usize, // index of the first aligned value in `memory`
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    pages: usize,
}

/// Keys and values of one page, layer and KV head.
#[derive(Clone, Copy)]
pub(crate) struct HeadPage<'a> {
    pub(crate) k: &'a [u16], // (PAGE_POSITIONS / K_BLOCK, head_dim, K_BLOCK)
    pub(crate) v: &'a [u16], // (PAGE_POSITIONS, v_stride)
}

/// Asks the system to back the memory with huge pages as it is touched. Attention jumps from page to page of the cache, and with
/// small pages a quarter of its time goes into address translation. The price is memory in steps of 2 MiB.
fn prefer_huge_pages(memory: &[u16]) {
    #[cfg(target_os = "linux")]
    {
        const SMALL_PAGE: usize = 4096;
        let range = memory.as_ptr_range();
        let (from, to) = (range.start as usize, range.end as usize);
        let (from, to) = (from.next_multiple_of(SMALL_PAGE), to / SMALL_PAGE * SMALL_PAGE);
        if from < to {
            // SAFETY: the range lies within `memory`. The advice changes no contents, so its failure is of no account either.
            unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// Narrows one head's key and value to f16. The key's values go to every [`K_BLOCK`]-th place of `keys`.
#[inline(always)]
fn narrow_head<L: Lanes>(l: L, k: &[f32], v: &[f32], keys: &mut [u16], values: &mut [u16]) {
    let mut narrow = [0u16; 16];
    let mut one = |from: &[f32]| {
        for (i, part) in from.chunks(L::WIDTH).enumerate() {
            // SAFETY: `narrow` holds 16 values, and WIDTH divides 16: i * WIDTH < 16, as `from` is at most 16 long.
            unsafe { l.store_f16(l.load(part), narrow.as_mut_ptr().add(i * L::WIDTH)) };
        }
        narrow
    };
    for (i, k) in k.chunks(16).enumerate() {
        let lines = keys[16 * i * K_BLOCK..].chunks_mut(K_BLOCK);
        for (line, x) in lines.zip(one(k)).take(k.len()) {
            line[0] = x;
        }
    }
    for (v, values) in v.chunks(16).zip(values.chunks_mut(16)) {
        values.copy_from_slice(&one(v)[..v.len()]);
    }
}

per_isa! {
    fn write_head(k: &[f32], v: &[f32], keys: &mut [u16], values: &mut [u16]) = |l| narrow_head(l, k, v, keys, values)
}

/// Length of a row of V: the head's dimension rounded up to whole vectors.
pub(crate) fn v_stride(head_dim: usize) -> usize {
    head_dim.next_multiple_of(16)
}

impl KvPages {
    /// Bytes of one page, which holds [`PAGE_POSITIONS`] positions in all layers. `usize::MAX` if that does not fit.
    pub fn page_bytes(layers: usize, kv_heads: usize, head_dim: usize) -> usize {
        Self::checked_page_bytes(layers, kv_heads, head_dim).unwrap_or(usize::MAX)
    }

    fn checked_page_bytes(layers: usize, kv_heads: usize, head_dim: usize) -> Option<usize> {
        let row = head_dim.checked_next_multiple_of(16)?.checked_add(head_dim)?;
        row.checked_mul(2 * PAGE_POSITIONS)?.checked_mul(kv_heads)?.checked_mul(layers)
    }

    /// A cache of `pages` pages.
    ///
    /// # Errors
    /// [`KvError::Empty`] if a dimension other than `pages` is 0; [`KvError::OutOfMemory`] if the system refuses the memory.
    pub fn new(layers: usize, kv_heads: usize, head_dim: usize, pages: usize) -> Result<KvPages, KvError> {
        if layers == 0 || kv_heads == 0 || head_dim == 0 {
            return Err(KvError::Empty { layers, kv_heads, head_dim });
        }
        let page_bytes = Self::page_bytes(layers, kv_heads, head_dim);
        let out_of_memory = KvError::OutOfMemory { pages, page_bytes };
        let Some(len) = page_bytes.checked_mul(pages).and_then(|bytes| bytes.checked_add(ALIGN)) else {
            return Err(out_of_memory);
        };
        if len > isize::MAX as usize {
            return Err(out_of_memory);
        }
        // Plain alignment, so that the allocator can hand out untouched zero pages; the start is aligned by hand.
        let memory = try_zeroed_slice_box::<u16>(len / 2).map_err(|()| out_of_memory)?;
        prefer_huge_pages(&memory);
        let start = (ALIGN - memory.as_ptr() as usize % ALIGN) % ALIGN / 2;
        Ok(KvPages { memory, start, layers, kv_heads, head_dim, pages })
    }

    /// Layers.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// KV heads of a layer.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Dimensions of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes of all pages, touched or not.
    pub fn size_bytes(&self) -> usize {
        self.pages * self.page_len() * 2
    }

    /// Values of one head's part of a page.
    fn head_len(&self) -> usize {
        PAGE_POSITIONS * (self.head_dim + v_stride(self.head_dim))
    }

    fn page_len(&self) -> usize {
        self.layers * self.kv_heads * self.head_len()
    }

    /// Copies all layers of page `from` over page `to`.
    ///
    /// # Panics
    /// If either page is out of range.
    pub fn copy_page(&mut self, from: u32, to: u32) {
        self.check_page(from);
        self.check_page(to);
        let len = self.page_len();
        let from = self.start + from as usize * len;
        self.memory.copy_within(from..from + len, self.start + to as usize * len);
    }

    /// As [`Compute::write_kv`].
    fn write(&mut self, isa: Isa, layer: usize, page: u32, slot: usize, k: &[f32], v: &[f32]) {
        assert!(layer < self.layers, "layer {layer} of a KV cache of {} layers", self.layers);
        assert!(slot < PAGE_POSITIONS, "slot {slot} of a page of {PAGE_POSITIONS} positions");
        self.check_page(page);
        let dim = self.head_dim;
        let expected = self.kv_heads * dim;
        assert!(k.len() == expected, "{} key values for one position of {expected}", k.len());
        assert!(v.len() == expected, "{} value values for one position of {expected}", v.len());
        let at = self.start + page as usize * self.page_len() + layer * self.kv_heads * self.head_len();
        let len = self.kv_heads * self.head_len();
        let heads = self.memory[at..at + len].chunks_exact_mut(PAGE_POSITIONS * (dim + v_stride(dim)));
        for ((head, k), v) in heads.zip(k.chunks_exact(dim)).zip(v.chunks_exact(dim)) {
            let (keys, values) = head.split_at_mut(PAGE_POSITIONS * dim);
            let block = &mut keys[slot / K_BLOCK * K_BLOCK * dim..][..K_BLOCK * dim];
            let lanes = &mut block[slot % K_BLOCK..];
            write_head(isa, k, v, lanes, &mut values[slot * v_stride(dim)..][..dim]);
        }
    }

    /// # Panics
    /// If there is no such page.
    pub(crate) fn check_page(&self, page: u32) {
        assert!((page as usize) < self.pages, "page {page} of a KV cache of {} pages", self.pages);
    }

    /// # Panics
    /// If `layer`, `kv_head` or `page` is out of range.
    pub(crate) fn head_page(&self, layer: usize, kv_head: usize, page: u32) -> HeadPage<'_> {
        self.check_page(page);
        assert!(layer < self.layers && kv_head < self.kv_heads);
        let at = page as usize * self.page_len() + (layer * self.kv_heads + kv_head) * self.head_len();
        let (k, v) = self.memory[self.start + at..][..self.head_len()].split_at(PAGE_POSITIONS * self.head_dim);
        HeadPage { k, v }
    }
}

/// The shape; not the contents.
impl std::fmt::Debug for KvPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvPages")
            .field("pages", &self.pages)
            .field("layers", &self.layers)
            .field("kv_heads", &self.kv_heads)
            .field("head_dim", &self.head_dim)
            .finish_non_exhaustive()
    }
}

impl Compute {
    /// Writes the keys and values of one position, rounded to f16: position `slot` of `page`, in `layer`.
    ///
    /// `k` and `v`: (kv_heads, head_dim). A magnitude above 65,504 becomes infinite.
    ///
    /// # Panics
    /// If `layer`, `page` or `slot` is out of range, or `k` or `v` has another length.
    pub fn write_kv(&self, kv: &mut KvPages, layer: usize, page: u32, slot: usize, k: &[f32], v: &[f32]) {
        kv.write(self.isa(), layer, page, slot, k, v);
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn keys_are_transposed_in_blocks_and_values_padded() {
        let k: Vec<f32> = (0..40).map(|i| i as f32).collect();
        let v: Vec<f32> = (0..40).map(|i| 100.0 + i as f32).collect();
        for isa in Isa::available() {
            let mut kv = KvPages::new(2, 2, 20, 3).expect("small");
            kv.write(isa, 1, 2, 37, &k, &v);
            let head = kv.head_page(1, 1, 2);
            for d in 0..20 {
                assert_eq!(f16::from_bits(head.k[(2 * 20 + d) * 16 + 5]).to_f32(), 20.0 + d as f32);
                assert_eq!(f16::from_bits(head.v[37 * 32 + d]).to_f32(), 120.0 + d as f32);
            }
            // Nothing else was touched: not the padding, not another head, layer or page.
            assert_eq!(kv.memory.iter().filter(|x| **x != 0).count(), 2 * 40 - 1); // the key of value 0 is 0
            assert_eq!(head.k.as_ptr() as usize % 64, 0);
            assert_eq!(kv.size_bytes(), 3 * KvPages::page_bytes(2, 2, 20));
        }
    }

    #[test]
    fn a_copied_page_is_equal_in_all_layers_and_the_others_are_left_alone() {
        let mut kv = KvPages::new(2, 1, 8, 3).expect("small");
        for layer in 0..2 {
            for slot in 0..PAGE_POSITIONS {
                let x = [(layer * 64 + slot) as f32 + 1.0; 8];
                kv.write(Isa::Scalar, layer, 0, slot, &x, &x);
            }
        }
        kv.copy_page(0, 2);
        for layer in 0..2 {
            assert_eq!(kv.head_page(layer, 0, 0).k, kv.head_page(layer, 0, 2).k);
            assert_eq!(kv.head_page(layer, 0, 0).v, kv.head_page(layer, 0, 2).v);
            assert!(kv.head_page(layer, 0, 1).k.iter().all(|x| *x == 0));
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert_eq!(KvPages::new(0, 1, 8, 1).map(|_| ()), Err(KvError::Empty { layers: 0, kv_heads: 1, head_dim: 8 }));
        assert!(matches!(KvPages::new(1 << 40, 1 << 20, 64, 1), Err(KvError::OutOfMemory { .. })));
        assert!(matches!(KvPages::new(1, 1, 64, usize::MAX / 20_000), Err(KvError::OutOfMemory { .. })));
        assert_eq!(KvPages::page_bytes(usize::MAX, 2, 64), usize::MAX);
        assert_eq!(KvPages::page_bytes(30, 3, 64), 30 * 3 * 64 * 64 * 4);
        assert_eq!(KvPages::page_bytes(1, 1, 72), 64 * (72 + 80) * 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_unused_cache_takes_no_memory() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("linux");
            statm.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number of pages") * 4096
        };
        let before = resident();
        let kv = KvPages::new(30, 3, 64, 1000).expect("1.4 GiB of address space");
        assert!(resident() < before + kv.size_bytes() / 2, "other tests of this process may take some");
    }
}
