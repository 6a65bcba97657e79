//! [`KvPages`]: the memory of the KV cache, pages of keys and values as f16 or q8 ([`KvType`]).
//!
//! A page holds [`PAGE_POSITIONS`] positions of one sequence, for all layers and KV heads. Its
//! layout is `[layer][kv_head]{ K, V, scales }`, so that attention reads one contiguous stretch of
//! a page for each head:
//!
//! - K is transposed in blocks of 16 positions, `[position / 16][head_dim][position % 16]`: one
//!   load gives one dimension of 16 keys, and the scores of 16 positions come from broadcast
//!   multiply-adds, without a sum across lanes.
//! - V is `[position][v_stride]`, where `v_stride` is `head_dim` rounded up to 16; the padding
//!   stays zero.
//! - Scales, if the type has them, are f32: those of K `[position]`, then those of V `[position]`.
//!
//! The caller decides which page belongs to which sequence. Pages are never cleared: attention
//! reads only the positions that a row sees, so the contents that an earlier owner left never
//! matter.

use bytemuck::allocation::try_zeroed_slice_box;

use crate::attention::kv_type::{Element, KvType};
use crate::compute::Compute;
use crate::simd::Isa;
use crate::simd::{Lanes, per_isa};

/// Positions in a page.
pub const PAGE_POSITIONS: usize = 64;

/// Positions in a block of transposed keys.
pub(crate) const K_BLOCK: usize = 16;

/// The page memory starts on a cache line; so does every head's part of a page.
const ALIGN: usize = 64;

/// Why [`KvPages::new`] failed.
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
/// The memory comes zeroed from the system and is not touched before it is written. So an unused
/// page takes no memory, except within the same 2 MiB as a used one, where the system has huge
/// pages.
pub struct KvPages {
    memory: Box<[u8]>,
    start: usize, // index of the first aligned byte in `memory`
    kv_type: KvType,
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    pages: usize,
}

/// Keys and values of one page, layer and KV head.
#[derive(Clone, Copy)]
pub(crate) struct HeadPage<'a, E> {
    pub(crate) k: &'a [E],          // (PAGE_POSITIONS / K_BLOCK, head_dim, K_BLOCK)
    pub(crate) v: &'a [E],          // (PAGE_POSITIONS, v_stride)
    pub(crate) k_scales: &'a [f32], // (PAGE_POSITIONS), or empty if the type has none
    pub(crate) v_scales: &'a [f32], // likewise
}

/// Asks the system to back the memory with huge pages when it is touched. Attention jumps from page
/// to page of the cache, and with small pages address translation takes a quarter of its time. The
/// cost is memory in steps of 2 MiB.
fn prefer_huge_pages(memory: &[u8]) {
    #[cfg(target_os = "linux")]
    {
        const SMALL_PAGE: usize = 4096;
        let range = memory.as_ptr_range();
        let (from, to) = (range.start as usize, range.end as usize);
        let (from, to) = (from.next_multiple_of(SMALL_PAGE), to / SMALL_PAGE * SMALL_PAGE);
        if from < to {
            // SAFETY: the range lies within `memory`. The advice changes no contents, so its
            // failure does not matter.
            unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// Narrows one head's key and value. The key's values go to every [`K_BLOCK`]-th place of `keys`.
#[inline(always)]
fn narrow_head<L: Lanes, E: Element>(
    l: L,
    (k, v): (&[f32], &[f32]),
    keys: &mut [E],
    values: &mut [E],
    scales: &mut (f32, f32),
) {
    *scales = (E::scale(k), E::scale(v));
    for (i, k) in k.chunks(16).enumerate() {
        let lines = keys[16 * i * K_BLOCK..].chunks_mut(K_BLOCK);
        for (line, x) in lines.zip(E::narrow(l, k, scales.0)).take(k.len()) {
            line[0] = x;
        }
    }
    for (v, values) in v.chunks(16).zip(values.chunks_mut(16)) {
        values.copy_from_slice(&E::narrow(l, v, scales.1)[..v.len()]);
    }
}

per_isa! {
    fn write_head<E: Element>(kv: (&[f32], &[f32]), keys: &mut [E], values: &mut [E], scales: &mut (f32, f32)) =
        |l| narrow_head(l, kv, keys, values, scales)
}

/// Bytes of the keys and values in one head's part of a page.
fn values_len<E: Element>(head_dim: usize) -> usize {
    PAGE_POSITIONS * (head_dim + v_stride(head_dim)) * size_of::<E>()
}

/// Length of a row of V: the head's dimension rounded up to whole vectors.
pub(crate) fn v_stride(head_dim: usize) -> usize {
    head_dim.next_multiple_of(16)
}

impl KvPages {
    /// Bytes of one page, which holds [`PAGE_POSITIONS`] positions in all layers. `usize::MAX` if
    /// that does not fit.
    pub fn page_bytes(kv_type: KvType, layers: usize, kv_heads: usize, head_dim: usize) -> usize {
        Self::checked_page_bytes(kv_type, layers, kv_heads, head_dim).unwrap_or(usize::MAX)
    }

    fn checked_page_bytes(kv_type: KvType, layers: usize, kv_heads: usize, head_dim: usize) -> Option<usize> {
        let values = head_dim.checked_next_multiple_of(16)?.checked_add(head_dim)?;
        let position = values.checked_mul(kv_type.value_bytes())?.checked_add(2 * kv_type.scale_bytes())?;
        position.checked_mul(PAGE_POSITIONS)?.checked_mul(kv_heads)?.checked_mul(layers)
    }

    /// A cache of `pages` pages.
    ///
    /// # Errors
    /// [`KvError::Empty`] if a dimension other than `pages` is 0; [`KvError::OutOfMemory`] if the
    /// system refuses the memory.
    pub fn new(
        kv_type: KvType,
        layers: usize,
        kv_heads: usize,
        head_dim: usize,
        pages: usize,
    ) -> Result<KvPages, KvError> {
        if layers == 0 || kv_heads == 0 || head_dim == 0 {
            return Err(KvError::Empty { layers, kv_heads, head_dim });
        }
        let page_bytes = Self::page_bytes(kv_type, layers, kv_heads, head_dim);
        let out_of_memory = KvError::OutOfMemory { pages, page_bytes };
        let Some(len) = page_bytes.checked_mul(pages).and_then(|bytes| bytes.checked_add(ALIGN)) else {
            return Err(out_of_memory);
        };
        if len > isize::MAX as usize {
            return Err(out_of_memory);
        }
        // Without an alignment the allocator can return untouched zero pages. The start is aligned
        // below.
        let memory = try_zeroed_slice_box::<u8>(len).map_err(|()| out_of_memory)?;
        prefer_huge_pages(&memory);
        let start = (ALIGN - memory.as_ptr() as usize % ALIGN) % ALIGN;
        Ok(KvPages { memory, start, kv_type, layers, kv_heads, head_dim, pages })
    }

    /// The number type.
    pub fn kv_type(&self) -> KvType {
        self.kv_type
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
        self.pages * self.page_len()
    }

    /// Bytes of one head's part of a page: a multiple of [`ALIGN`].
    fn head_len(&self) -> usize {
        Self::page_bytes(self.kv_type, 1, 1, self.head_dim)
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
        match self.kv_type {
            KvType::F16 => self.write_as::<u16>(isa, layer, page, slot, k, v),
            KvType::Q8 => self.write_as::<i8>(isa, layer, page, slot, k, v),
        }
    }

    fn write_as<E: Element>(&mut self, isa: Isa, layer: usize, page: u32, slot: usize, k: &[f32], v: &[f32]) {
        let (dim, head_len) = (self.head_dim, self.head_len());
        let at = self.start + page as usize * self.page_len() + layer * self.kv_heads * head_len;
        let heads = self.memory[at..at + self.kv_heads * head_len].chunks_exact_mut(head_len);
        for ((head, k), v) in heads.zip(k.chunks_exact(dim)).zip(v.chunks_exact(dim)) {
            let (values, scales) = head.split_at_mut(values_len::<E>(dim));
            let (keys, values) = bytemuck::cast_slice_mut::<u8, E>(values).split_at_mut(PAGE_POSITIONS * dim);
            let block = &mut keys[slot / K_BLOCK * K_BLOCK * dim..][..K_BLOCK * dim];
            let lanes = &mut block[slot % K_BLOCK..];
            let mut scale = (0.0, 0.0);
            write_head(isa, (k, v), lanes, &mut values[slot * v_stride(dim)..][..dim], &mut scale);
            if E::SCALED {
                let scales = bytemuck::cast_slice_mut::<u8, f32>(scales);
                (scales[slot], scales[PAGE_POSITIONS + slot]) = scale;
            }
        }
    }

    /// # Panics
    /// If there is no such page.
    pub(crate) fn check_page(&self, page: u32) {
        assert!((page as usize) < self.pages, "page {page} of a KV cache of {} pages", self.pages);
    }

    /// # Panics
    /// If `layer`, `kv_head` or `page` is out of range, or the cache holds another type than `E`.
    pub(crate) fn head_page<E: Element>(&self, layer: usize, kv_head: usize, page: u32) -> HeadPage<'_, E> {
        self.check_page(page);
        assert!(layer < self.layers && kv_head < self.kv_heads && E::TYPE == self.kv_type);
        let at = page as usize * self.page_len() + (layer * self.kv_heads + kv_head) * self.head_len();
        let head = &self.memory[self.start + at..][..self.head_len()];
        let (values, scales) = head.split_at(values_len::<E>(self.head_dim));
        let (k, v) = bytemuck::cast_slice(values).split_at(PAGE_POSITIONS * self.head_dim);
        let (k_scales, v_scales) = bytemuck::cast_slice(scales).split_at(if E::SCALED { PAGE_POSITIONS } else { 0 });
        HeadPage { k, v, k_scales, v_scales }
    }
}

/// The shape; not the contents.
impl std::fmt::Debug for KvPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvPages")
            .field("kv_type", &self.kv_type)
            .field("pages", &self.pages)
            .field("layers", &self.layers)
            .field("kv_heads", &self.kv_heads)
            .field("head_dim", &self.head_dim)
            .finish_non_exhaustive()
    }
}

impl Compute {
    /// Writes the keys and values of one position, rounded to the cache's type: position `slot` of
    /// `page`, in `layer`.
    ///
    /// `k` and `v`: (kv_heads, head_dim). In f16 a magnitude above 65,504 becomes infinite. In q8 a
    /// NaN or an infinity makes all of its head's K or V NaN.
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
            let mut kv = KvPages::new(KvType::F16, 2, 2, 20, 3).expect("small");
            kv.write(isa, 1, 2, 37, &k, &v);
            let head = kv.head_page::<u16>(1, 1, 2);
            for d in 0..20 {
                assert_eq!(f16::from_bits(head.k[(2 * 20 + d) * 16 + 5]).to_f32(), 20.0 + d as f32);
                assert_eq!(f16::from_bits(head.v[37 * 32 + d]).to_f32(), 120.0 + d as f32);
            }
            // Nothing else was touched: not the padding, not another head, layer or page.
            let words: Vec<u16> =
                kv.memory[kv.start..][..kv.size_bytes()].chunks(2).map(|b| b[0] as u16 | (b[1] as u16) << 8).collect();
            assert_eq!(words.iter().filter(|x| **x != 0).count(), 2 * 40 - 1); // the key of value 0 is 0
            assert_eq!(head.k.as_ptr() as usize % 64, 0);
            assert_eq!(kv.size_bytes(), 3 * KvPages::page_bytes(KvType::F16, 2, 2, 20));
        }
    }

    #[test]
    fn q8_rounds_to_a_127th_of_the_largest_of_a_position_and_head() {
        let k: Vec<f32> = (0..40).map(|i| (i as f32 - 13.3) * 0.37).collect();
        let v: Vec<f32> = (0..40).map(|i| (i as f32 - 31.0).powi(3)).collect();
        let rounded = |x: &[f32]| {
            let scale = x.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 127.0;
            (scale, x.iter().map(|x| (x / scale).round_ties_even() as i8).collect::<Vec<i8>>())
        };
        for isa in Isa::available() {
            let mut kv = KvPages::new(KvType::Q8, 2, 2, 20, 3).expect("small");
            kv.write(isa, 1, 2, 37, &k, &v);
            for head in 0..2 {
                let page = kv.head_page::<i8>(1, head, 2);
                let at = 20 * head..20 * head + 20;
                let keys: Vec<i8> = (0..20).map(|d| page.k[(2 * 20 + d) * 16 + 5]).collect();
                assert_eq!((page.k_scales[37], keys), rounded(&k[at.clone()]), "{isa}");
                assert_eq!((page.v_scales[37], page.v[37 * 32..][..20].to_vec()), rounded(&v[at]), "{isa}");
                assert_eq!(page.k_scales.as_ptr() as usize % 64, 0);
            }
            // Nothing else was touched.
            let page = kv.head_page::<i8>(1, 1, 2);
            let values = |x: &[i8]| x.iter().filter(|x| **x != 0).count();
            assert!(values(page.k) <= 20 && values(page.v) <= 20);
            assert_eq!(page.k_scales.iter().chain(page.v_scales).filter(|x| **x != 0.0).count(), 2);
            let elsewhere = kv.memory[kv.start..][..kv.size_bytes() - kv.page_len() / 2].iter();
            assert!(elsewhere.clone().all(|x| *x == 0), "page 2, layer 1 is the last half of the last page");
            assert_eq!(kv.size_bytes(), 3 * KvPages::page_bytes(KvType::Q8, 2, 2, 20));
        }
    }

    #[test]
    fn q8_scales_of_what_has_no_largest_are_nan_and_of_nothing_0() {
        for isa in Isa::available() {
            let mut kv = KvPages::new(KvType::Q8, 1, 1, 20, 1).expect("small");
            let mut scale = |k: &[f32]| {
                kv.write(isa, 0, 0, 3, k, &[f32::MAX; 20]);
                let page = kv.head_page::<i8>(0, 0, 0);
                assert_eq!((page.v_scales[3], page.v[3 * 32]), (f32::MAX / 127.0, 127));
                (page.k_scales[3], page.k[3])
            };
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, 7, 19] {
                    let mut k = [0.5; 20];
                    k[at] = bad;
                    assert!(scale(&k).0.is_nan(), "{isa} {bad} at {at}");
                }
            }
            for tiny in [0.0, -0.0, 1e-45, f32::MIN_POSITIVE] {
                assert_eq!(scale(&[tiny; 20]), (0.0, 0), "{isa} {tiny}");
            }
            let small = 200.0 * f32::MIN_POSITIVE;
            assert_eq!(scale(&[-small; 20]), (small / 127.0, -127), "{isa}");
        }
    }

    #[test]
    fn a_copied_page_is_equal_in_all_layers_and_the_others_are_left_alone() {
        for kv_type in KvType::ALL {
            let mut kv = KvPages::new(kv_type, 2, 1, 8, 3).expect("small");
            for layer in 0..2 {
                for slot in 0..PAGE_POSITIONS {
                    let x = [(layer * 64 + slot) as f32 + 1.0; 8];
                    kv.write(Isa::Scalar, layer, 0, slot, &x, &x);
                }
            }
            kv.copy_page(0, 2);
            let page = |page: usize| &kv.memory[kv.start + page * kv.page_len()..][..kv.page_len()];
            assert_eq!(page(0), page(2));
            assert!(page(1).iter().all(|x| *x == 0) && page(0).iter().any(|x| *x != 0));
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        use KvType::{F16, Q8};
        let empty = KvError::Empty { layers: 0, kv_heads: 1, head_dim: 8 };
        assert_eq!(KvPages::new(F16, 0, 1, 8, 1).map(|_| ()), Err(empty));
        for ty in KvType::ALL {
            assert!(matches!(KvPages::new(ty, 1 << 40, 1 << 20, 64, 1), Err(KvError::OutOfMemory { .. })));
            assert!(matches!(KvPages::new(ty, 1, 1, 64, usize::MAX / 10_000), Err(KvError::OutOfMemory { .. })));
            assert_eq!(KvPages::page_bytes(ty, usize::MAX, 2, 64), usize::MAX);
        }
        assert_eq!(KvPages::page_bytes(F16, 30, 3, 64), 30 * 3 * 64 * 64 * 4);
        assert_eq!(KvPages::page_bytes(F16, 1, 1, 72), 64 * (72 + 80) * 2);
        assert_eq!(KvPages::page_bytes(Q8, 30, 3, 64), 30 * 3 * 64 * (64 * 2 + 8));
        assert_eq!(KvPages::page_bytes(Q8, 1, 1, 72), 64 * (72 + 80 + 8));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_unused_cache_takes_no_memory() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("linux");
            statm.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number of pages") * 4096
        };
        let before = resident();
        let kv = KvPages::new(KvType::F16, 30, 3, 64, 1000).expect("1.4 GiB of address space");
        assert!(resident() < before + kv.size_bytes() / 2, "other tests of this process may take some");
    }
}
