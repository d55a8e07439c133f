//! What the pages of a heap hold.
//!
//! ```text
//!   word 0     how often the page was stored to
//!   word 1…    functions of page and index, as an array of small objects has them:
//!              a type, a number, an address, a flag
//! ```
//!
//! The objects make a page compress to about a third, which is what published machines report for
//! their programs (`docs/kernel/workloads.md` §0.6). A load checks some words; the count of stores
//! shows a store that was lost: the program counts them, too, outside of the heap.

use lowtide_workload::prng::mix64;

/// Words of a page.
pub(crate) const WORDS: usize = (lowtide_experiments::programs::heap::PAGE / 8) as usize;
/// Words of a page that a load checks.
pub(crate) const CHECKED: usize = 8;

/// The word of a page at an index from 1 on.
pub(crate) const fn word(page: u64, index: usize) -> u64 {
    let random = mix64(page << 9 | index as u64);
    match index % 4 {
        0 => 0x0000_0031_0000_0007,
        1 => page ^ (index as u64 / 4),
        2 => 0x0000_7F3A_0000_0000 | random & 0xF_FFF8,
        _ => random & 1,
    }
}
