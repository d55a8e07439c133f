//! Mappings that were left to the kernel: how many, how large, why, and the first of each kind.
//!
//! Written by threads of the program without a lock and without memory of their own, read by the
//! summary.

#![allow(unsafe_code)]

use crate::judge::Reason;
use crate::lock::Lock;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a path that are remembered.
const PATH: usize = 240;

/// The mappings that one reason concerns. All zeroes is none.
#[derive(Debug)]
struct Pile {
    count: AtomicU64,
    bytes: AtomicU64,
    /// The path of the first, under the lock: its length, and its last bytes.
    first: UnsafeCell<(usize, [u8; PATH])>,
}

/// All of them. All zeroes is none.
#[derive(Debug)]
pub(crate) struct Left {
    lock: Lock,
    piles: [Pile; Reason::ALL.len()],
}

// SAFETY: paths are touched under the lock.
unsafe impl Sync for Left {}

/// What the summary says of one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftAlone<R = Reason> {
    /// Why.
    pub(crate) reason: R,
    /// Mappings, or parts of mappings that were adopted before.
    pub(crate) count: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The first one's file, if it is known; the end of it, if it is long.
    pub(crate) first: Option<String>,
}

impl Left {
    /// Counts a mapping. `path` gives the name of its file, and is called for the first.
    pub(crate) fn add<P: Deref<Target = [u8]>>(
        &self,
        reason: Reason,
        bytes: u64,
        path: impl FnOnce() -> P,
    ) {
        let pile = &self.piles[reason as usize];
        pile.bytes.fetch_add(bytes, Ordering::Relaxed);
        if pile.count.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        let path = path();
        let path = &path[path.len().saturating_sub(PATH)..];
        let _held = self.lock.lock();
        // SAFETY: the lock is held.
        let first = unsafe { &mut *pile.first.get() };
        first.1[..path.len()].copy_from_slice(path);
        first.0 = path.len();
    }

    /// All reasons with a mapping.
    pub(crate) fn all(&self) -> Vec<LeftAlone> {
        let mut all = Vec::new();
        for (reason, pile) in Reason::ALL.into_iter().zip(&self.piles) {
            let count = pile.count.load(Ordering::Relaxed);
            if count == 0 {
                continue;
            }
            let (len, path) = {
                let _held = self.lock.lock();
                // SAFETY: the lock is held.
                unsafe { *pile.first.get() }
            };
            let first = String::from_utf8_lossy(&path[..len]).into_owned();
            let first = (!first.is_empty()).then_some(first);
            let bytes = pile.bytes.load(Ordering::Relaxed);
            all.push(LeftAlone { reason, count, bytes, first });
        }
        all
    }
}
