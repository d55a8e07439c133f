//! Compaction: blocks that are partly used become fewer, and their pages go back to the source.
//!
//! A block goes back when its last object is freed, but objects are freed in any order, and one
//! that stays keeps up to eight pages. Compaction empties the emptiest block of a class into the
//! fullest ones, as long as they have room for all of its objects.
//!
//! An object is moved under the lock of its entry's shard and that of the class, so a load finds it
//! before or after. The owner of an object is known from the block, but whether the object is
//! still what its owner refers to, only the entry knows: an object whose entry is not yet
//! published, or refers to another place by now, is left where it is.

use crate::blocks::Place;
use crate::classes::CLASSES;
use crate::entries::{Object, State};
use crate::handle::Handle;
use crate::lock::lock;
use crate::source::PageSource;
use crate::store::CompressedStore;
use std::sync::atomic::Ordering;

impl<S: PageSource> CompressedStore<S> {
    /// Moves objects together until about `budget` pages of memory are free, or nothing is left to
    /// gain. Returns how many pages went back to the source.
    ///
    /// Needs no memory but one buffer. A step moves at most a block's objects at a time, some tens
    /// of microseconds. One thread compacts at a time; another one waits for it.
    pub fn compact(&self, budget: usize) -> usize {
        if self.shards().is_empty() {
            return 0;
        }
        let _alone = lock(&self.compacting);
        let mut buffer = vec![0; self.source.page_bytes()].into_boxed_slice();
        let mut freed = 0;
        // Objects of the last class are whole pages.
        for class in (0..CLASSES as u8 - 1).rev() {
            while freed < budget {
                let drained = self.class(class).drain();
                let Some((block, objects)) = drained else { break };
                for (place, owner) in objects {
                    freed += self.relocate(place, Handle::from_bits(owner), &mut buffer);
                }
                if self.class(class).end_drain(block) {
                    // It could not be emptied: the others would fare no better now.
                    break;
                }
            }
        }
        self.compacted.fetch_add(freed as u64, Ordering::Relaxed);
        freed
    }

    /// Moves an object into another block. Returns how many pages were freed by that.
    fn relocate(&self, place: Place, owner: Handle, buffer: &mut [u8]) -> usize {
        let mut shard = self.shard(owner.shard());
        let state = shard.get(owner.index()).map(|entry| entry.state);
        let Some(State::Object(object)) = state else { return 0 };
        if object.place != place {
            return 0;
        }
        let mut class = self.class(place.class);
        let bytes = &mut buffer[..usize::from(object.len)];
        class.read(place, bytes);
        let Ok(new) = class.put(owner.to_bits(), bytes) else { return 0 };
        let gone = class.remove(place);
        drop(class);
        shard.replace(owner.index(), Object { place: new, ..object });
        drop(shard);
        self.give_back(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{HeapPages, PAGE_BYTES};
    use crate::store::StoreLimits;

    /// Half random, half zero: a little more than 2 KiB.
    fn page(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut page = vec![0; PAGE_BYTES];
        for byte in &mut page[..PAGE_BYTES / 2] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        page
    }

    #[test]
    fn what_is_left_of_many_blocks_moves_into_few() {
        let store = CompressedStore::new(HeapPages::new(1 << 20), StoreLimits::default());
        let all: Vec<Handle> = (0..800).map(|n| store.store(&page(n)).expect("room")).collect();
        let full = store.memory();
        let (stay, go): (Vec<_>, Vec<_>) =
            (0..).zip(&all).partition(|(n, _): &(u64, _)| n % 8 == 0);
        go.into_iter().for_each(|(_, &handle)| store.free(handle));
        let before = store.memory();
        assert!(before * 2 > full, "an eighth of the objects is spread over the blocks");
        let some = store.compact(8);
        assert!((8..16).contains(&some), "{some} pages");
        let rest = store.compact(usize::MAX);
        let after = store.memory();
        assert_eq!(before - after, some + rest);
        assert!(after * 6 < full, "{full} → {before} → {after} pages");
        assert_eq!(store.stat().compacted, (some + rest) as u64);
        assert_eq!(store.compact(usize::MAX), 0, "there is nothing left to gain");
        let mut back = vec![0; PAGE_BYTES];
        for &(n, &handle) in &stay {
            store.load(handle, &mut back).expect("what was stored");
            assert_eq!(back, page(n));
            store.free(handle);
        }
        assert_eq!((store.memory(), store.source().taken()), (0, 0));
    }

    #[test]
    fn an_object_that_its_owner_does_not_refer_to_stays_where_it_is() {
        let store = CompressedStore::new(HeapPages::new(1 << 20), StoreLimits::default());
        let all: Vec<Handle> = (0..40).map(|n| store.store(&page(n)).expect("room")).collect();
        let place = |handle: Handle| {
            let shard = store.shard(handle.shard());
            let Some(State::Object(object)) = shard.get(handle.index()).map(|entry| entry.state)
            else {
                panic!("an object")
            };
            object.place
        };
        let (one, other) = (place(all[0]), place(all[1]));
        let mut buffer = vec![0; PAGE_BYTES];
        let memory = store.memory();
        store.relocate(other, all[0], &mut buffer);
        store.free(all[2]);
        store.relocate(other, all[2], &mut buffer);
        assert_eq!((place(all[0]), place(all[1]), store.memory()), (one, other, memory));
        let mut back = vec![0; PAGE_BYTES];
        for (n, &handle) in (0..).zip(&all).filter(|(n, _)| *n != 2) {
            store.load(handle, &mut back).expect("what was stored");
            assert_eq!(back, page(n));
        }
    }
}
