//! What is known of each stored page: one of the shards into which the table of handles is split.
//!
//! A [`Handle`](crate::Handle) is an index into the table. Its low bits name the shard, so that
//! threads that store and load at the same time rarely need the same lock. An entry is 40 bytes:
//! the word of a page that is one word, or where the object is, how long it is, its form and its
//! checksum; the caller's tag; and the links of the list by last use.
//!
//! ```text
//!   free ── reserve ──► reserved ── publish ──► stored ── remove ──► free
//!                           └────── cancel ──────────────────────────►
//! ```
//!
//! A reserved entry has an owner word in a block before the caller has the handle: compaction
//! leaves its object where it is.
//!
//! **Versions.** The background does its work without locks and then looks whether the entry is
//! still the one from which it began. Every change of what an entry refers to gives it a new
//! version, so an entry that was freed and used again, even with an object at the same place, is
//! not taken for the old one.
//!
//! **Last use.** Entries with an object are in a list, the coldest first; a load moves its entry to
//! the end. Pages of one word are not in the list: they take no memory that eviction could free.
//! Each entry has a stamp of the store's clock, so that lists of different shards can be merged.
//! The *cursor* is the coldest entry that has not been recompressed or tried.
//!
//! **By tag.** Where a caller keeps no handles, a shard has a table from tags to entries: five to
//! ten bytes a page.

use crate::blocks::Place;
use crate::codec::Form;
use crate::figures::Sums;
use hashbrown::HashTable;

/// No entry.
const NIL: u32 = u32::MAX;
/// Entries that are allocated together: few, because a small store has a chunk in each shard.
const CHUNK: usize = 32;
/// What a chunk takes: its entries, and for each a word in the block of its object.
pub(crate) const CHUNK_BYTES: usize = CHUNK * (size_of::<Entry>() + size_of::<u32>());

/// An object and how to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) checksum: u32,
    pub(crate) place: Place,
    pub(crate) len: u16,
    pub(crate) form: Form,
    /// Whether zstd was tried.
    pub(crate) tried: bool,
}

/// What an entry refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing; the next free entry.
    Free(u32),
    /// A page that is being stored.
    Reserved,
    /// A page of one word.
    Same(u64),
    Object(Object),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) state: State,
    pub(crate) tag: u64,
    pub(crate) version: u32,
    /// The store's clock at the last use.
    pub(crate) stamp: u32,
    before: u32,
    after: u32,
}

/// A part of the table of handles.
pub(crate) struct Shard {
    chunks: Vec<Box<[Entry]>>,
    free: u32,
    /// Entries that are in use.
    used: u32,
    coldest: u32,
    warmest: u32,
    cursor: u32,
    /// Stores and loads, for the store's clock.
    pub(crate) uses: u32,
    pub(crate) sums: Sums,
    /// Published entries by the hash of their tags, if they are found so.
    by_tag: Option<HashTable<u32>>,
}

impl Shard {
    pub(crate) fn new(is_by_tag: bool) -> Shard {
        Shard {
            chunks: Vec::new(),
            free: NIL,
            used: 0,
            coldest: NIL,
            warmest: NIL,
            cursor: NIL,
            uses: 0,
            sums: Sums::ZERO,
            by_tag: is_by_tag.then(HashTable::new),
        }
    }

    /// Bytes of the tables.
    pub(crate) fn bytes(&self) -> usize {
        let by_tag = self.by_tag.as_ref().map_or(0, HashTable::allocation_size);
        self.chunks.len() * CHUNK * size_of::<Entry>() + by_tag
    }

    /// An entry for a page that is about to be stored. `None` if all are in use.
    pub(crate) fn reserve(&mut self, tag: u64) -> Option<u32> {
        if self.free == NIL {
            return None;
        }
        let index = self.free;
        let entry = self.at(index);
        let State::Free(next) = entry.state else { unreachable!("a free entry is free") };
        entry.state = State::Reserved;
        entry.tag = tag;
        self.free = next;
        self.used += 1;
        Some(index)
    }

    /// A reserved entry is free again.
    pub(crate) fn cancel(&mut self, index: u32) {
        self.release(index);
    }

    /// A reserved entry has contents.
    pub(crate) fn publish(&mut self, index: u32, state: State, stamp: u32) {
        let entry = self.at(index);
        debug_assert_eq!(entry.state, State::Reserved);
        entry.state = state;
        entry.version = entry.version.wrapping_add(1);
        entry.stamp = stamp;
        self.sums.add(&state);
        if matches!(state, State::Object(_)) {
            self.append(index);
        }
        if let Some(by_tag) = &mut self.by_tag {
            let tag = |index: u32| self.chunks[index as usize / CHUNK][index as usize % CHUNK].tag;
            by_tag.insert_unique(hash(tag(index)), index, |&other| hash(tag(other)));
        }
    }

    /// The entry of a page.
    pub(crate) fn find(&self, tag: u64) -> Option<u32> {
        let same = |&index: &u32| self.get(index).is_some_and(|entry| entry.tag == tag);
        self.by_tag.as_ref()?.find(hash(tag), same).copied()
    }

    /// The tags of all pages that are found by them.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u64> {
        let entries = self.by_tag.iter().flatten();
        entries.filter_map(|&index| self.get(index).map(|entry| entry.tag))
    }

    /// The entry, if there is something stored.
    pub(crate) fn get(&self, index: u32) -> Option<&Entry> {
        let entry = self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)?;
        matches!(entry.state, State::Same(_) | State::Object(_)).then_some(entry)
    }

    /// An entry was used: it is the warmest now.
    pub(crate) fn touch(&mut self, index: u32, stamp: u32) {
        self.at(index).stamp = stamp;
        if self.warmest != index {
            self.unlink(index);
            self.append(index);
        }
    }

    /// Removes what is stored. `None` if nothing is.
    pub(crate) fn remove(&mut self, index: u32) -> Option<State> {
        let Entry { state, tag, .. } = *self.get(index)?;
        if let Some(by_tag) = &mut self.by_tag
            && let Ok(found) = by_tag.find_entry(hash(tag), |&other| other == index)
        {
            found.remove();
        }
        if matches!(state, State::Object(_)) {
            self.unlink(index);
        }
        self.sums.remove(&state);
        self.release(index);
        Some(state)
    }

    /// The object of an entry is another one now, or elsewhere; its place in the list is the same.
    ///
    /// # Panics
    /// When the entry has no object.
    pub(crate) fn replace(&mut self, index: u32, object: Object) {
        let entry = self.at(index);
        let before = std::mem::replace(&mut entry.state, State::Object(object));
        entry.version = entry.version.wrapping_add(1);
        assert!(matches!(before, State::Object(_)), "only an object is replaced");
        self.sums.remove(&before);
        self.sums.add(&State::Object(object));
    }

    /// Entries in the order of their last use, the coldest first.
    pub(crate) fn by_use(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let entry = |index: u32| &self.chunks[index as usize / CHUNK][index as usize % CHUNK];
        let mut next = self.coldest;
        std::iter::from_fn(move || {
            let index = next;
            let found = (index != NIL).then(|| entry(index))?;
            next = found.after;
            Some((index, found))
        })
    }

    /// The coldest entry that no recompression has looked at, if its last use was before a stamp.
    /// The cursor passes it.
    pub(crate) fn next_untried(&mut self, cold: impl Fn(u32) -> bool) -> Option<(u32, Entry)> {
        let index = self.cursor;
        let entry = (index != NIL).then(|| *self.at(index)).filter(|entry| cold(entry.stamp))?;
        self.cursor = entry.after;
        Some((index, entry))
    }

    /// The cursor goes back to an entry that could not be tried now.
    pub(crate) fn try_again(&mut self, index: u32) {
        if let Some(State::Object(_)) = self.get(index).map(|entry| entry.state) {
            self.cursor = index;
        }
    }

    fn at(&mut self, index: u32) -> &mut Entry {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    /// Whether all entries are in use, and there may be more: fewer than `most`.
    pub(crate) fn may_grow(&self, most: u32) -> bool {
        self.free == NIL && self.chunks.len() * CHUNK < most as usize
    }

    /// Makes the table a chunk larger.
    pub(crate) fn grow(&mut self) {
        let begin = (self.chunks.len() * CHUNK) as u32;
        let entry = |n: usize| Entry {
            state: State::Free(if n + 1 == CHUNK { NIL } else { begin + n as u32 + 1 }),
            tag: 0,
            version: 0,
            stamp: 0,
            before: NIL,
            after: NIL,
        };
        self.chunks.push((0..CHUNK).map(entry).collect());
        self.free = begin;
    }

    /// Gives the tables back if no entry is in use. Returns how many chunks there were.
    pub(crate) fn shrink(&mut self) -> usize {
        if self.used > 0 {
            return 0;
        }
        self.free = NIL;
        self.by_tag = self.by_tag.as_ref().map(|_| HashTable::new());
        std::mem::take(&mut self.chunks).len()
    }

    fn release(&mut self, index: u32) {
        self.used -= 1;
        let next = std::mem::replace(&mut self.free, index);
        let entry = self.at(index);
        entry.state = State::Free(next);
        entry.version = entry.version.wrapping_add(1);
    }

    fn append(&mut self, index: u32) {
        let before = std::mem::replace(&mut self.warmest, index);
        let entry = self.at(index);
        (entry.before, entry.after) = (before, NIL);
        if before == NIL {
            self.coldest = index;
        } else {
            self.at(before).after = index;
        }
        if self.cursor == NIL {
            self.cursor = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry { before, after, .. } = *self.at(index);
        if before == NIL {
            self.coldest = after;
        } else {
            self.at(before).after = after;
        }
        if after == NIL {
            self.warmest = before;
        } else {
            self.at(after).before = before;
        }
        if self.cursor == index {
            self.cursor = after;
        }
    }
}

/// Spreads tags, which are numbers of pages: a hash table looks at the upper bits, too.
pub(crate) const fn hash(tag: u64) -> u64 {
    let mixed = (tag ^ tag >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> State {
        let place = Place { block: 0, index: 0, class: 0 };
        State::Object(Object { checksum: 1, place, len: 100, form: Form::Lz4, tried: false })
    }

    fn order(shard: &Shard) -> Vec<u64> {
        shard.by_use().map(|(_, entry)| entry.tag).collect()
    }

    fn reserve(shard: &mut Shard, tag: u64) -> u32 {
        if shard.may_grow(1 << 20) {
            shard.grow();
        }
        shard.reserve(tag).expect("room")
    }

    fn shard(tags: std::ops::Range<u64>) -> (Shard, Vec<u32>) {
        let mut shard = Shard::new(false);
        let add = |tag| {
            let index = reserve(&mut shard, tag);
            shard.publish(index, object(), tag as u32);
            index
        };
        let all = tags.map(add).collect();
        (shard, all)
    }

    #[test]
    fn an_entry_is_as_small_as_documented() {
        assert_eq!(size_of::<Entry>(), 40);
    }

    #[test]
    fn a_touched_entry_is_the_warmest() {
        let (mut shard, all) = shard(0..4);
        shard.touch(all[0], 9);
        shard.touch(all[2], 9);
        assert_eq!(order(&shard), [1, 3, 0, 2]);
        shard.remove(all[3]).expect("stored");
        shard.remove(all[2]).expect("stored");
        assert_eq!(order(&shard), [1, 0]);
        assert!(shard.remove(all[2]).is_none(), "it is gone");
    }

    #[test]
    fn the_cursor_passes_each_cold_entry_once() {
        let (mut shard, all) = shard(0..4);
        let next = |shard: &mut Shard| shard.next_untried(|s| s < 9).map(|(_, e)| e.tag);
        assert_eq!(next(&mut shard), Some(0));
        shard.remove(all[1]).expect("stored");
        shard.touch(all[2], 9);
        assert_eq!(next(&mut shard), Some(3));
        assert_eq!(next(&mut shard), None, "what was touched is not cold");
        assert_eq!(shard.next_untried(|_| true).map(|(_, e)| e.tag), Some(2), "until it is");
        assert_eq!(next(&mut shard), None);
    }

    #[test]
    fn an_entry_that_is_used_again_has_another_version() {
        let (mut shard, all) = shard(0..1);
        let before = *shard.get(all[0]).expect("stored");
        shard.remove(all[0]).expect("stored");
        let again = reserve(&mut shard, 0);
        shard.publish(again, object(), 0);
        let after = *shard.get(again).expect("stored");
        assert_eq!((again, before.state), (all[0], after.state));
        assert_ne!(before.version, after.version);
    }

    #[test]
    fn the_table_ends_where_it_must() {
        let mut shard = Shard::new(false);
        let mut got = 0;
        while shard.may_grow(300) {
            shard.grow();
            got += std::iter::from_fn(|| shard.reserve(0)).count();
        }
        assert_eq!(got, 320, "whole chunks below the end");
        assert_eq!(shard.bytes(), 320 * 40);
    }
}
