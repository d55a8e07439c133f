//! What the pages of one file have in common: a dictionary, which makes small pages as small as
//! large ones become, and compressing them faster.
//!
//! It is made once for each file, of pages that were tried while nothing was compressed: the first
//! [`SAMPLES`] that shrink. That takes a tenth of a second: where the pager has threads it is the
//! work of the one that reclaims ahead of need, since a thread that serves a page fault must not
//! take so long, nor wait for another to begin. Pages that are stored with it need it to be loaded,
//! so it stays until the file is closed. Where it would be more than a sixty-fourth of the budget,
//! or all of them more than a sixteenth, or where pages are so large that it does not help, there
//! is none.

use lowtide_pin::sync::lock;
use lowtide_swap::Dictionary;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// Pages that a dictionary is made of.
const SAMPLES: usize = 256;
/// Bytes that it takes, about: what it is charged for.
const BYTES: usize = 160 << 10;
/// The part of a budget that one may be.
const PART: u64 = 64;
/// Bytes of the largest page for which it pays: above, a page has enough in common with itself.
const PAGE_MAX: usize = 4096;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Common {
    made: OnceLock<Option<Dictionary>>,
    samples: Mutex<Vec<u8>>,
    charged: AtomicBool,
}

impl Common {
    pub(super) fn get(&self) -> Option<&Dictionary> {
        self.made.get()?.as_ref()
    }

    /// Whether pages are still collected.
    pub(super) fn collects(&self) -> bool {
        self.made.get().is_none()
    }

    /// Bytes that were charged and are not any more: the file is closed.
    pub(super) fn end(&self) -> usize {
        if self.charged.swap(false, Relaxed) { BYTES } else { 0 }
    }

    /// How many dictionaries there may be at a time: each is at most this part of the budget, and
    /// all together four times as much.
    pub(super) const fn most(page_bytes: usize, budget_bytes: u64) -> usize {
        let each = budget_bytes / (PART * BYTES as u64);
        if page_bytes <= PAGE_MAX { 4 * each as usize } else { 0 }
    }

    /// Takes a page that shrinks as a sample. True with the last: then the dictionary is to be
    /// [made](Self::make). `charge`: counts its bytes, if there is room.
    pub(super) fn add(
        &self,
        page: &[u8],
        is_worth_it: bool,
        charge: impl FnOnce(usize) -> bool,
    ) -> bool {
        let mut samples = lock(&self.samples);
        if samples.len() == SAMPLES * page.len() {
            return false;
        }
        if is_worth_it {
            samples.extend_from_slice(page);
            if samples.len() < SAMPLES * page.len() {
                return false;
            }
            self.charged.store(charge(BYTES), Relaxed);
        }
        let is_full = self.charged.load(Relaxed);
        if !is_full {
            let _ = self.made.set(None);
            *samples = Vec::new();
        }
        is_full
    }

    /// Makes the dictionary of what was collected, for pages of this size.
    pub(super) fn make(&self, page_bytes: usize) {
        let samples = lock(&self.samples).clone();
        let _ = self.made.set(Dictionary::of(&samples, page_bytes));
        *lock(&self.samples) = Vec::new();
    }
}
