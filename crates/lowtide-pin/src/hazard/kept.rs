//! Slots that are kept: a thread that reads one page at a time announces the next in the same slot,
//! and so ends the reading of the last.
//!
//! That is a later value of the slot, written with release order after the bytes were read, as the
//! safety argument of the parent module requires of each later value. Between pages that it does
//! not read behind it the slot has a value that is no entry's address, so that no other guard takes
//! it.

use super::{Record, SLOTS, own_records, register_record, retire, take_record};
use crate::sync::{AtomicUsize, Ordering, full, is_asymmetric, light_if_asymmetric};
use std::marker::PhantomData;

/// In a slot: it is a [`KeptSlot`] that announces nothing. No entry has this address.
const RESTING: usize = usize::MAX;

/// A slot that a thread keeps, to announce one entry after the other there without looking for a
/// vacant slot each time, and without vacating it in between. It does not leave its thread.
pub struct KeptSlot {
    slot: &'static AtomicUsize,
    not_send: PhantomData<*const ()>,
}

impl KeptSlot {
    /// Takes a slot of this thread that [`hold_unfenced`](super::hold_unfenced) does not try first.
    pub fn take() -> Self {
        let slot = own_records().find_map(spare).unwrap_or_else(|| {
            let record = take_record();
            if !register_record(record) {
                // It has a slot that is taken, so it serves no other thread before that is vacated.
                record.slots[SLOTS - 1].store(RESTING, Ordering::Release);
                retire(record);
            }
            &record.slots[SLOTS - 1]
        });
        slot.store(RESTING, Ordering::Release);
        Self { slot, not_send: PhantomData }
    }

    /// Whether [`announce`](Self::announce) is enough for entries that permit it.
    pub fn spares_the_fence() -> bool {
        is_asymmetric()
    }

    /// As [`hold_unfenced`](super::hold_unfenced): steps 1 and 2 of a reader. What was announced
    /// before is held no more.
    #[inline(always)]
    pub fn announce(&self, address: usize) {
        debug_assert!(address != 0 && address != RESTING, "these mark slots without an entry");
        self.slot.store(address, Ordering::Release);
        light_if_asymmetric();
    }

    /// Makes the reader one with a fence. It has to load the entry again.
    #[inline]
    pub fn fence(&self) {
        full();
    }

    /// Nothing is held any more.
    #[inline]
    pub fn rest(&self) {
        self.slot.store(RESTING, Ordering::Release);
    }
}

impl Drop for KeptSlot {
    fn drop(&mut self) {
        self.slot.store(0, Ordering::Release);
    }
}

/// Whether what a slot holds is the address of an entry.
pub(super) const fn is_entry(held: usize) -> bool {
    held != 0 && held != RESTING
}

/// A slot of a record that its owner may keep: a vacant one, but not the first.
fn spare(record: &'static Record) -> Option<&'static AtomicUsize> {
    record.slots[1..].iter().find(|slot| slot.load(Ordering::Relaxed) == 0)
}
