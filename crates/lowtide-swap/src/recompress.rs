//! Cold pages become smaller: zstd in place of lz4.
//!
//! lz4 stores and loads a page in some microseconds, which is what a fault can afford; zstd takes
//! several times longer and packs a third tighter. A page that was not used for long is worth
//! that. The owner's background thread calls [`CompressedStore::recompress`] in steps, the coldest
//! pages first, each page once: whether it became smaller or not, it is not tried again before it
//! is stored again.
//!
//! The result is kept only if its size class is smaller (`docs/kernel/fault-and-writeback.md` C6):
//! some bytes less in a block of the same class free nothing, and cost every later load. Pages
//! that lz4 could not compress are tried, too.
//!
//! All work is done on a copy and without locks. If the entry has another version afterwards, its
//! page was freed, stored again or moved meanwhile, and the result is thrown away.

use crate::classes::class_of;
use crate::codec::{self, Form};
use crate::entries::{Entry, Object, State};
use crate::handle::Handle;
use crate::lock::lock;
use crate::source::PageSource;
use crate::store::{CompressedStore, verify};
use std::sync::atomic::Ordering;

/// What a step of recompression has done, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recompressed {
    /// Pages that were looked at. Fewer than the budget: all cold pages are done, or there is no
    /// memory for another page now.
    pub tried: usize,
    /// Pages that are in a smaller class now.
    pub smaller: usize,
}

/// What became of one page.
enum Outcome {
    Smaller,
    AsBefore,
    NoMemory,
}

/// A page and what it is compressed to.
struct Buffers {
    object: Box<[u8]>,
    page: Box<[u8]>,
    packed: Box<[u8]>,
}

impl<S: PageSource> CompressedStore<S> {
    /// Looks at up to `budget` cold pages ([`age`](CompressedStore::age)) and compresses them with
    /// zstd. Takes some tens of microseconds a page, and about a MiB of heap for zstd's contexts
    /// while it runs; a few contexts are kept in the process.
    ///
    /// A page may be needed before an old block is empty. Without the feature `zstd` nothing is
    /// looked at.
    pub fn recompress(&self, budget: usize) -> Recompressed {
        if !cfg!(feature = "zstd") {
            return Recompressed::default();
        }
        let bytes = || vec![0; self.source.page_bytes()].into_boxed_slice();
        let mut buffers = Buffers { object: bytes(), page: bytes(), packed: bytes() };
        let lines = *lock(&self.age);
        let mut done = Recompressed::default();
        for number in self.shards() {
            while done.tried < budget {
                let next = self.shard(number).next_untried(|stamp| lines.is_cold(stamp));
                let Some((index, entry)) = next else { break };
                done.tried += 1;
                let handle = Handle::new(number, index);
                match self.recompress_one(handle, &entry, &mut buffers) {
                    Outcome::Smaller => done.smaller += 1,
                    Outcome::AsBefore => {}
                    Outcome::NoMemory => {
                        self.shard(number).try_again(index);
                        done.tried -= 1;
                        return done;
                    }
                }
            }
        }
        done
    }

    fn recompress_one(&self, handle: Handle, entry: &Entry, buffers: &mut Buffers) -> Outcome {
        let State::Object(object) = entry.state else { return Outcome::AsBefore };
        if object.tried || !self.copy(handle, entry.version, &object, &mut buffers.object) {
            return Outcome::AsBefore;
        }
        let bytes = &buffers.object[..usize::from(object.len)];
        // A page that is wrong stays as it is: its load reports it.
        let whole = verify(&object, bytes).is_ok()
            && codec::unpack(object.form, bytes, &mut buffers.page, None);
        let len =
            whole.then(|| self.encoders.pack(&buffers.page, &mut buffers.packed, None)).flatten();
        let class = |len| class_of(len, self.source.page_bytes());
        let smaller = |&len: &usize| class(len) < class(usize::from(object.len));
        let Some(len) = len.filter(smaller) else {
            self.exchange(handle, entry.version, Object { tried: true, ..object });
            return Outcome::AsBefore;
        };
        let bytes = &buffers.packed[..len];
        let checksum = codec::checksum(bytes);
        let Ok(place) = self.place(handle, bytes) else { return Outcome::NoMemory };
        let new = Object { checksum, place, len: len as u16, form: Form::Zstd, tried: true };
        let exchanged = self.exchange(handle, entry.version, new);
        let unused = if exchanged { object.place } else { place };
        let gone = self.class(unused.class).remove(unused);
        self.give_back(gone);
        if !exchanged {
            return Outcome::AsBefore;
        }
        self.recompressed.fetch_add(1, Ordering::Relaxed);
        Outcome::Smaller
    }

    /// Copies an object, if its entry has this version.
    fn copy(&self, handle: Handle, version: u32, object: &Object, into: &mut [u8]) -> bool {
        let shard = self.shard(handle.shard());
        let same = shard.get(handle.index()).is_some_and(|entry| entry.version == version);
        if same {
            let bytes = &mut into[..usize::from(object.len)];
            self.class(object.place.class).read(object.place, bytes);
        }
        same
    }

    /// Makes an entry refer to another object, if it has this version.
    fn exchange(&self, handle: Handle, version: u32, object: Object) -> bool {
        let mut shard = self.shard(handle.shard());
        let same = shard.get(handle.index()).is_some_and(|entry| entry.version == version);
        if same {
            shard.replace(handle.index(), object);
        }
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{HeapPages, PAGE_BYTES};
    use crate::store::StoreLimits;

    /// Words in an order without repetition nearby: zstd packs them by their frequencies, lz4
    /// finds little.
    fn page(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let letter = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            b"aaaaaaabbbbccd e"[(state >> 40) as usize % 16]
        };
        (0..PAGE_BYTES).map(letter).collect()
    }

    fn cold_store(pages: u64) -> (CompressedStore<HeapPages>, Vec<Handle>) {
        let store = CompressedStore::new(HeapPages::new(1 << 20), StoreLimits::default());
        let all = (0..pages).map(|n| store.store(&page(n)).expect("room")).collect();
        store.age();
        store.age();
        (store, all)
    }

    fn check(store: &CompressedStore<HeapPages>, all: &[Handle]) {
        let mut back = vec![0; PAGE_BYTES];
        for (n, &handle) in (0..).zip(all) {
            store.load(handle, &mut back).expect("what was stored");
            assert_eq!(back, page(n), "page {n}");
        }
    }

    #[test]
    fn cold_pages_become_smaller_and_stay_the_same() {
        let (store, all) = cold_store(100);
        let before = store.stat();
        let done = store.recompress(30);
        assert_eq!(done, Recompressed { tried: 30, smaller: 30 });
        assert_eq!(store.stat().zstd, 30);
        assert_eq!(store.recompress(1000).tried, 70, "each page once");
        assert_eq!(store.recompress(1000), Recompressed::default());
        let after = store.stat();
        assert_eq!((after.zstd, after.recompressed, after.stored), (100, 100, 100));
        assert!(after.memory < before.memory, "{} → {} pages", before.memory, after.memory);
        check(&store, &all);
        all.iter().for_each(|&handle| store.free(handle));
        assert_eq!((store.memory(), store.source().taken()), (0, 0));
    }

    #[test]
    fn what_is_in_use_is_left_alone() {
        let store = CompressedStore::new(HeapPages::new(1 << 20), StoreLimits::default());
        let all: Vec<Handle> = (0..40).map(|n| store.store(&page(n)).expect("room")).collect();
        store.age();
        check(&store, &all[..10]);
        assert_eq!(store.recompress(1000).tried, 0, "the interval is not over");
        store.age();
        check(&store, &all[..10]);
        assert_eq!(store.recompress(1000).tried, 30, "ten pages were used");
        store.age();
        store.age();
        assert_eq!(store.recompress(1000).tried, 10);
    }

    #[test]
    fn a_page_that_does_not_shrink_stays_and_is_not_tried_again() {
        let store = CompressedStore::new(HeapPages::new(64), StoreLimits::default());
        let mut state = 1_u64;
        let random: Vec<u8> = (0..PAGE_BYTES)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let handle = store.store(&random).expect("room");
        assert_eq!(store.stat().raw, 1);
        store.age();
        store.age();
        assert_eq!(store.recompress(9), Recompressed { tried: 1, smaller: 0 });
        assert_eq!((store.recompress(9).tried, store.stat().raw, store.memory()), (0, 1, 1));
        let mut back = vec![0; PAGE_BYTES];
        store.load(handle, &mut back).expect("what was stored");
        assert!(back == random);
    }

    #[test]
    fn without_memory_for_another_page_the_rest_waits() {
        let (store, all) = cold_store(40);
        store.set_limit(0);
        assert_eq!(store.recompress(1000), Recompressed::default());
        store.set_limit(1 << 20);
        assert_eq!(store.recompress(1000).tried, 40, "none was skipped");
        check(&store, &all);
    }

    #[test]
    fn a_page_that_was_freed_meanwhile_is_not_replaced_by_its_old_contents() {
        let (store, all) = cold_store(1);
        let (index, before) = store.shard(all[0].shard()).next_untried(|_| true).expect("cold");
        let State::Object(object) = before.state else { panic!("an object") };
        store.free(all[0]);
        // The next pages go to the other shards first, and then to the same entry.
        let again: Vec<Handle> = (0..16).map(|n| store.store(&page(n)).expect("room")).collect();
        let (n, handle) = (0..).zip(again).find(|(_, handle)| *handle == all[0]).expect("reused");
        assert_eq!(handle.index(), index);
        let bytes = || vec![0; PAGE_BYTES].into_boxed_slice();
        let mut buffers = Buffers { object: bytes(), page: bytes(), packed: bytes() };
        assert!(!store.copy(handle, before.version, &object, &mut buffers.object));
        assert!(matches!(store.recompress_one(handle, &before, &mut buffers), Outcome::AsBefore));
        // And if it is freed after its contents were copied.
        assert!(!store.exchange(handle, before.version, object));
        let mut back = vec![0; PAGE_BYTES];
        store.load(handle, &mut back).expect("what was stored");
        assert!(back == page(n));
    }
}
