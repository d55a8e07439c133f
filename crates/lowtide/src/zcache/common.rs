//! What the pages of one file have in common: a dictionary, which makes small pages as small as
//! large ones become, and compressing them faster.
//!
//! It is made once for each file, of pages that were tried while nothing was compressed: the first
//! [`SAMPLES`] that shrink. That takes a tenth of a second, in a thread of its own where the pager
//! has threads. Pages that are stored with it need it to be loaded, so it stays until the file is
//! closed. Where it would be more than a sixty-fourth of the budget, or
//! where pages are so large that it does not help, there is none.

use crate::thread_locals;
use lowtide_pin::sync::lock;
use lowtide_swap::Dictionary;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

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

    /// Whether there are dictionaries at all.
    pub(super) const fn is_worth_it(page_bytes: usize, budget_bytes: u64) -> bool {
        page_bytes <= PAGE_MAX && budget_bytes >= PART * BYTES as u64
    }

    /// Takes a page that shrinks as a sample, and makes the dictionary of the last, if it is worth
    /// it; in another thread, if there may be one. `charge`: counts its bytes, if there is room.
    pub(super) fn add(
        self: &Arc<Self>,
        page: &[u8],
        (is_worth_it, threads): (bool, bool),
        charge: impl FnOnce(usize) -> bool,
    ) {
        if !is_worth_it {
            let _ = self.made.set(None);
            return;
        }
        let samples = {
            let mut samples = lock(&self.samples);
            samples.extend_from_slice(page);
            if samples.len() < SAMPLES * page.len() {
                return;
            }
            std::mem::take(&mut *samples)
        };
        if !charge(BYTES) {
            let _ = self.made.set(None);
            return;
        }
        self.charged.store(true, Relaxed);
        let (common, each) = (Arc::clone(self), page.len());
        let make = move || drop(common.made.set(Dictionary::of(&samples, each)));
        if threads {
            // Without a thread there is no dictionary.
            drop(thread_locals::spawn("lowtide-common", make));
        } else {
            make();
        }
    }
}
