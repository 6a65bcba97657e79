//! [`Compute::attention`]: attention of many rows over paged keys and values, spread over the team.
//!
//! The rows of a step are cut into *chunks* of consecutive rows of one sequence. A unit of work is
//! a chunk and a KV head: it reads each block of pages once, for all the chunk's rows and all query
//! heads that share the KV head. With too few units to keep the threads busy, the queries of a unit
//! are divided among threads. With too few queries as well (a row or two of one sequence), its
//! blocks are divided, and each gives a partial. Partials are always merged in the order of the
//! blocks, so every division gives the same bits (`tile.rs` says why).

use std::cell::RefCell;
use std::ops::Range;

use crate::attention::kv_type::{Element, KvType};
use crate::attention::pages::{KvPages, PAGE_POSITIONS};
use crate::attention::tile::{BLOCK, QueryTile, TILE, finish, merge, partial_len, run_tile, tile_queries};
use crate::compute::Compute;
use crate::simd::Isa;

/// A row that attends: the pages of its sequence, and the positions that it sees.
#[derive(Debug, Clone, Copy)]
pub struct AttentionRow<'a> {
    /// The sequence's pages, in order: position p lies in page `pages[p / PAGE_POSITIONS]`.
    pub pages: &'a [u32],
    /// The row's own position, the last one that it sees. Its K and V must have been written.
    pub pos: usize,
    /// The first position that it sees: 0, or the start of a sliding window.
    pub first: usize,
}

/// Most queries of a chunk (rows times query heads of a KV head), unless a single row has more.
const CHUNK_QUERIES: usize = 48;
/// With this many units for each thread, units are not divided.
const UNITS_PER_THREAD: usize = 4;
/// Up to this many blocks (2048 positions), a chunk's queries are divided rather than its blocks. K
/// and V are then read more than once, from a near cache.
const PIECE_BLOCKS: usize = 16;
/// Most bytes of partials at a time. Longer contexts are computed in several passes.
const PARTIAL_BYTES: usize = 4 << 20;
/// With fewer multiply-adds the calling thread works alone: a fork-join costs more than it saves.
const SMALL: usize = 1 << 16;
/// With fewer values of states the calling thread merges them alone.
const SMALL_MERGE: usize = 1 << 11;

/// Consecutive rows of one sequence.
#[derive(Clone, Copy)]
struct RowChunk {
    from: usize,  // first row
    to: usize,    // one past the last row
    start: usize, // first block that any of its rows sees
    end: usize,   // one past the last block
}

/// Buffers of the calling thread, kept from call to call.
#[derive(Default)]
struct Plan {
    chunks: Vec<RowChunk>,
    states: Vec<f32>,   // (query in the order of the units, partial_len), when blocks are divided
    partials: Vec<f32>, // (query in the order of the units, block of the pass, partial_len)
    merges: Vec<(usize, usize, usize, usize)>, // (chunk, KV head, first query of these among all, first query of the unit among these)
}

thread_local! {
    static PLAN: RefCell<Plan> = RefCell::default();
    /// States of the unit that a thread works on, then the partials of one tile.
    static WORK: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that several threads write to, each its own part.
struct SharedBuffer(*mut f32, usize);

// SAFETY: access goes through `SharedBuffer::part`, whose callers take disjoint parts.
unsafe impl Sync for SharedBuffer {}

impl SharedBuffer {
    fn new(data: &mut [f32]) -> Self {
        SharedBuffer(data.as_mut_ptr(), data.len())
    }

    /// Values `at..at + len`.
    ///
    /// # Safety
    /// The buffer must outlive the part, and no two parts that exist at the same time may overlap.
    #[allow(clippy::mut_from_ref)]
    unsafe fn part(&self, at: usize, len: usize) -> &mut [f32] {
        assert!(at <= self.1 && len <= self.1 - at);
        // SAFETY: the range is inside the buffer, and the caller makes sure that no other part
        // overlaps it.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(at), len) }
    }
}

/// The arguments of a call, which all units share.
struct AttentionCall<'a> {
    isa: Isa,
    kv: &'a KvPages,
    layer: usize,
    rows: &'a [AttentionRow<'a>],
    q: &'a [f32],
    heads: usize,
    group: usize, // query heads of a KV head
    dim: usize,
    scale: f32,
}

impl AttentionCall<'_> {
    /// Index in (row, head) of query `i` of a chunk and KV head.
    fn query(&self, chunk: &RowChunk, kv_head: usize, i: usize) -> usize {
        (chunk.from + i / self.group) * self.heads + kv_head * self.group + i % self.group
    }

    fn queries(&self, chunk: &RowChunk) -> usize {
        (chunk.to - chunk.from) * self.group
    }

    /// Calls `f(first, end, tile)` for each tile of the given queries of a chunk and KV head with
    /// one block of positions. The tile holds the chunk's queries `first..end`.
    fn tiles<E: Element>(
        &self,
        chunk: &RowChunk,
        kv_head: usize,
        queries: Range<usize>,
        block: usize,
        mut f: impl FnMut(usize, usize, &QueryTile<'_, E>),
    ) {
        let pages = self.rows[chunk.from].pages;
        // A page before every row's window may have any number. Pages that a row sees have been
        // checked.
        let head_page = |at: usize| {
            let page = *pages.get(at)?;
            ((page as usize) < self.kv.pages()).then(|| self.kv.head_page(self.layer, kv_head, page))
        };
        let per_block = BLOCK / PAGE_POSITIONS;
        let mut tile = QueryTile {
            pages: [head_page(block * per_block), head_page(block * per_block + 1)],
            next: if block + 1 < chunk.end { head_page((block + 1) * per_block) } else { None },
            q: [&[]; TILE],
            from: [0; TILE],
            to: [0; TILE],
            dim: self.dim,
            scale: self.scale,
        };
        let start = block * BLOCK;
        let tiles = queries.len().div_ceil(tile_queries(self.isa));
        for t in 0..tiles {
            let (first, end) = (queries.len() * t / tiles, queries.len() * (t + 1) / tiles);
            let (first, end) = (queries.start + first, queries.start + end);
            for i in first..end {
                let row = &self.rows[chunk.from + i / self.group];
                tile.q[i - first] = &self.q[self.query(chunk, kv_head, i) * self.dim..][..self.dim];
                tile.from[i - first] = row.first.saturating_sub(start).min(BLOCK);
                tile.to[i - first] = (row.pos + 1).saturating_sub(start).min(BLOCK);
            }
            f(first, end, &tile);
            tile.next = None;
        }
    }

    /// Computes some queries of a chunk and KV head, from the first block to the last. Shape of
    /// `out`: (row, head, head_dim).
    fn whole<E: Element>(&self, chunk: &RowChunk, kv_head: usize, queries: Range<usize>, out: &SharedBuffer) {
        let len = partial_len(self.dim);
        WORK.with_borrow_mut(|work| {
            let needed = (queries.len() + TILE) * len;
            if work.len() < needed {
                work.resize(needed, 0.0);
            }
            let (states, memory) = work[..needed].split_at_mut(queries.len() * len);
            for block in chunk.start..chunk.end {
                self.tiles::<E>(chunk, kv_head, queries.clone(), block, |first, end, tile| {
                    let states = &mut states[(first - queries.start) * len..(end - queries.start) * len];
                    if block == chunk.start {
                        run_tile(self.isa, end - first, tile, states);
                    } else {
                        let partials = &mut memory[..(end - first) * len];
                        run_tile(self.isa, end - first, tile, partials);
                        merge(self.isa, len, states, partials);
                    }
                });
            }
            for (i, state) in queries.zip(states.chunks_exact(len)) {
                // SAFETY: each (row, head) belongs to one unit, and `out` outlives the call.
                let out = unsafe { out.part(self.query(chunk, kv_head, i) * self.dim, self.dim) };
                finish(self.isa, state, out);
            }
        });
    }
}

impl Compute {
    /// Attention: for each row and query head the mean of the visible V, weighted by the softmax of
    /// `q . k * scale`.
    ///
    /// `q` and `out`: (row, heads, head_dim). Query head h reads KV head `h / (heads / kv_heads)`.
    /// Consecutive rows with equal `pages` count as one sequence, whose pages are read once for all
    /// of them.
    ///
    /// The bits of a row depend only on its query, position and window and on the K and V that it
    /// sees. A NaN in the K or V that a row sees makes its result NaN.
    ///
    /// # Panics
    /// If `heads` is not a multiple of the cache's KV heads, `q` or `out` has another length,
    /// `layer` is out of range, or a row has `first > pos` or sees a position whose page is missing
    /// or out of range.
    #[allow(clippy::too_many_arguments)]
    pub fn attention(
        &self,
        kv: &KvPages,
        layer: usize,
        rows: &[AttentionRow<'_>],
        heads: usize,
        q: &[f32],
        scale: f32,
        out: &mut [f32],
    ) {
        let (kv_heads, dim) = (kv.kv_heads(), kv.head_dim());
        assert!(layer < kv.layers(), "layer {layer} of a KV cache of {} layers", kv.layers());
        assert!(
            heads > 0 && heads.is_multiple_of(kv_heads),
            "{heads} query heads do not divide over {kv_heads} KV heads"
        );
        let expected = rows.len() * heads * dim;
        assert!(q.len() == expected, "{} query values for {} rows, expected {expected}", q.len(), rows.len());
        assert!(out.len() == expected, "{} output values for {} rows, expected {expected}", out.len(), rows.len());
        let call = AttentionCall { isa: self.isa(), kv, layer, rows, q, heads, group: heads / kv_heads, dim, scale };
        match kv.kv_type() {
            KvType::F16 => self.attention_over::<u16>(&call, out),
            KvType::Q8 => self.attention_over::<i8>(&call, out),
        }
    }

    fn attention_over<E: Element>(&self, call: &AttentionCall<'_>, out: &mut [f32]) {
        let (kv_heads, dim) = (call.kv.kv_heads(), call.dim);
        PLAN.with_borrow_mut(|plan| {
            cut(call, &mut plan.chunks);
            let units = plan.chunks.len() * kv_heads;
            let work: usize = plan
                .chunks
                .iter()
                // For few queries the reading of K and V dominates. It costs about as much as the
                // arithmetic of four queries.
                .map(|c| (c.end - c.start) * BLOCK * call.queries(c).max(4) * kv_heads * dim)
                .sum();
            let out = SharedBuffer::new(out);
            let threads = self.team().threads();
            let alone = threads == 1 || work < SMALL;
            let pieces = if alone || units >= threads * UNITS_PER_THREAD {
                Some(1)
            } else {
                pieces(call, &plan.chunks, threads)
            };
            let Some(pieces) = pieces else {
                return self.attention_by_blocks::<E>(call, plan, &out);
            };
            // Later chunks of a sequence have more to do, so they come first.
            let whole = |unit: usize| {
                let (piece, unit) = (unit % pieces, unit / pieces);
                let chunk = &plan.chunks[plan.chunks.len() - 1 - unit / kv_heads];
                let queries = call.queries(chunk);
                let piece = queries * piece / pieces..queries * (piece + 1) / pieces;
                call.whole::<E>(chunk, unit % kv_heads, piece, &out);
            };
            if alone {
                (0..units).for_each(whole);
            } else {
                self.team().run(units * pieces, &whole);
            }
        });
    }

    /// For few units: divides their blocks among the threads.
    fn attention_by_blocks<E: Element>(&self, call: &AttentionCall<'_>, plan: &mut Plan, out: &SharedBuffer) {
        let (kv_heads, len) = (call.kv.kv_heads(), partial_len(call.dim));
        let Plan { chunks, states, partials, merges } = plan;
        let queries: usize = chunks.iter().map(|c| call.queries(c)).sum::<usize>() * kv_heads;
        let (first, last) =
            chunks.iter().fold((usize::MAX, 0), |(first, last), c| (first.min(c.start), last.max(c.end)));
        // Blocks of a pass: as many as have room for their partials.
        let in_pass = (PARTIAL_BYTES / (queries * len * size_of::<f32>())).clamp(1, last - first);
        if states.len() < queries * len {
            states.resize(queries * len, 0.0);
        }
        if partials.len() < queries * len * in_pass {
            partials.resize(queries * len * in_pass, 0.0);
        }
        states[..queries * len].fill(0.0);
        for start in (first..last).step_by(in_pass) {
            // The blocks of a chunk that belong to this pass.
            let blocks = |c: &RowChunk| c.start.max(start)..c.end.min(start + in_pass).max(c.start.max(start));
            let units: usize = chunks.iter().map(|c| blocks(c).len() * kv_heads).sum();
            let shared = SharedBuffer::new(partials);
            // The chunk, KV head and block of a unit, and the index of the first query of its chunk
            // and head among all queries.
            let find = |mut unit: usize| {
                let mut query = 0;
                for chunk in chunks.iter() {
                    let blocks = blocks(chunk);
                    if unit < blocks.len() * kv_heads {
                        let kv_head = unit / blocks.len();
                        let query = query + kv_head * call.queries(chunk);
                        return (chunk, kv_head, blocks.start + unit % blocks.len(), query);
                    }
                    unit -= blocks.len() * kv_heads;
                    query += call.queries(chunk) * kv_heads;
                }
                unreachable!("units are counted over the same chunks");
            };
            // A few runs of neighbouring units for each thread: shares are even, and each block
            // prefetches the next.
            let parts = units.min(self.team().threads() * 4);
            self.team().run(parts, &|part| {
                for unit in units * part / parts..units * (part + 1) / parts {
                    let (chunk, kv_head, block, query) = find(unit);
                    // (query of all, block of the pass): a unit's queries of one block lie
                    // together.
                    let base = query * in_pass + (block - start) * call.queries(chunk);
                    call.tiles::<E>(chunk, kv_head, 0..call.queries(chunk), block, |first, end, tile| {
                        // SAFETY: each (chunk, KV head, block, query) has its own place, and
                        // `partials` outlives the call.
                        let partials = unsafe { shared.part((base + first) * len, (end - first) * len) };
                        run_tile(call.isa, end - first, tile, partials);
                    });
                }
            });
            // Then the partials of each query are merged in the order of its blocks, and the last
            // pass writes the result. A unit is a few queries of one chunk and KV head.
            let last_pass = start + in_pass >= last;
            let partials = &*partials;
            let shared = SharedBuffer::new(states);
            let merge_unit = |(chunk, kv_head, query, first, count): (&RowChunk, usize, usize, usize, usize)| {
                // SAFETY: each query belongs to one unit, and `states` outlives the call.
                let states = unsafe { shared.part((query + first) * len, count * len) };
                for block in blocks(chunk) {
                    let base = query * in_pass + (block - start) * call.queries(chunk) + first;
                    merge(call.isa, len, states, &partials[base * len..(base + count) * len]);
                }
                for (i, state) in states.chunks_exact(len).enumerate().filter(|_| last_pass) {
                    // SAFETY: each (row, head) belongs to one unit, and `out` outlives the call.
                    let out = unsafe { out.part(call.query(chunk, kv_head, first + i) * call.dim, call.dim) };
                    finish(call.isa, state, out);
                }
            };
            merges.clear();
            let mut query = 0;
            for (c, chunk) in chunks.iter().enumerate() {
                for kv_head in 0..kv_heads {
                    let queries = call.queries(chunk);
                    merges.extend((0..queries).step_by(TILE).map(|first| (c, kv_head, query, first)));
                    query += queries;
                }
            }
            let unit = |i: usize| {
                let (c, kv_head, query, first) = merges[i];
                let chunk = &chunks[c];
                merge_unit((chunk, kv_head, query, first, TILE.min(call.queries(chunk) - first)));
            };
            if queries * len < SMALL_MERGE {
                (0..merges.len()).for_each(unit);
            } else {
                self.team().run(merges.len(), &unit);
            }
        }
    }
}

/// Number of pieces of the queries of each chunk and KV head that keeps all threads busy to the
/// end. `None` if the blocks must be divided instead: for few queries, or a context so long that
/// reading it once for each piece would be slow.
fn pieces(call: &AttentionCall<'_>, chunks: &[RowChunk], threads: usize) -> Option<usize> {
    let units = chunks.len() * call.kv.kv_heads();
    let fewest = chunks.iter().map(|c| call.queries(c)).min()?;
    if chunks.iter().any(|c| c.end - c.start > PIECE_BLOCKS) {
        return None;
    }
    // A piece of half a tile still computes at nearly full speed.
    (1..=fewest / (tile_queries(call.isa) / 2)).find(|pieces| {
        let units = units * pieces;
        units.next_multiple_of(threads) * 8 <= units * 9
    })
}

/// Cuts the rows into chunks of about equal size, each of one sequence.
///
/// # Panics
/// If a row sees nothing, or a page that is missing or out of range.
fn cut(call: &AttentionCall<'_>, chunks: &mut Vec<RowChunk>) {
    chunks.clear();
    let most = (CHUNK_QUERIES / call.group).max(1);
    let rows = call.rows;
    let mut start = 0;
    while start < rows.len() {
        let pages = rows[start].pages;
        let same = |row: &&AttentionRow<'_>| std::ptr::eq(row.pages, pages) || row.pages == pages;
        let n = rows[start..].iter().take_while(same).count();
        let parts = n.div_ceil(most);
        for part in 0..parts {
            let (from, to) = (start + n * part / parts, start + n * (part + 1) / parts);
            let (mut first, mut last) = (usize::MAX, 0);
            for row in &rows[from..to] {
                assert!(row.first <= row.pos, "a row at position {} sees nothing before {}", row.pos, row.first);
                (first, last) = (first.min(row.first), last.max(row.pos));
            }
            assert!(
                last / PAGE_POSITIONS < pages.len(),
                "a row at position {last} of a sequence with {} pages",
                pages.len()
            );
            for page in &pages[first / PAGE_POSITIONS..=last / PAGE_POSITIONS] {
                call.kv.check_page(*page);
            }
            chunks.push(RowChunk { from, to, start: first / BLOCK, end: last / BLOCK + 1 });
        }
        start += n;
    }
}
