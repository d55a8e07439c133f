//! What compressed pages take: memory in which swap keeps the pages that it was given.
//!
//! Swap on compressed memory trades many frames for few. A page that went there takes a share of a
//! frame, the same for every page of a machine (`compressed_percent` of its description); a page of
//! zeros is only noted and takes nothing (`docs/kernel/workloads.md` §2(b), zero-page map). Pages
//! that are in swap are nowhere else: a synchronous device takes a page's slot back as soon as the
//! page is mapped again, so the bytes follow from which pages come and go, and no other event is
//! needed.

use crate::memory::ObjectId;

/// See the module documentation. The default keeps everything for nothing, which is right for swap
/// on a device.
#[derive(Debug, Default)]
pub struct Zram {
    /// Bytes that a page takes unless it holds zeros.
    page_bytes: u64,
    /// Heaps that hold nothing but zeros, by number.
    zeros: Vec<bool>,
    bytes: u64,
}

impl Zram {
    /// Compressed memory in which a page takes `page_bytes`.
    pub(crate) const fn new(page_bytes: u64) -> Self {
        Self { page_bytes, zeros: Vec::new(), bytes: 0 }
    }

    /// From now on a heap, none of whose pages is in swap yet, has only zeros.
    pub(crate) fn set_zeros(&mut self, heap: ObjectId) {
        let at = heap.0 as usize;
        if at >= self.zeros.len() {
            self.zeros.resize(at + 1, false);
        }
        self.zeros[at] = true;
    }

    /// Whether a heap holds nothing but zeros.
    pub(crate) fn is_zeros(&self, heap: ObjectId) -> bool {
        self.zeros.get(heap.0 as usize).is_some_and(|&zeros| zeros)
    }

    /// A page of a heap is in swap from now on.
    pub(crate) fn keep(&mut self, heap: ObjectId) {
        self.bytes += self.bytes_of(heap);
    }

    /// It is there no more.
    pub(crate) fn drop_page(&mut self, heap: ObjectId) {
        self.bytes -= self.bytes_of(heap);
    }

    /// Bytes kept.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bytes_of(&self, heap: ObjectId) -> u64 {
        if self.is_zeros(heap) { 0 } else { self.page_bytes }
    }
}
