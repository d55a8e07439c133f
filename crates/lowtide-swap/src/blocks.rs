//! The memory of one class of objects: blocks, and which of their objects are used.
//!
//! A [`Class`] has blocks of up to eight pages ([`classes`](crate::classes)). Its bookkeeping is
//! outside of the pages: a word for each object, which is the handle of its owner, or a link to the
//! next free object of the block. So nothing that is written into a page can break the lists, and
//! the owners of a block's objects are known when the block is to be emptied.
//!
//! **Blocks grow page by page.** An object is smaller than a page and begins where the one before
//! ends, so one more object never needs more than one more page. A class has at most one block that
//! is still growing, unless compaction has interrupted one. So whatever is stored needs at most one
//! page of memory first, and the last block of a class wastes less than a page.
//!
//! Blocks that are partly used are kept in groups by how full they are. A new object goes into a
//! block of the fullest group: blocks that are nearly full fill up, and those that are nearly empty
//! become empty, and go back to the source at once. What fragmentation remains is the work of
//! `compact.rs`.
//!
//! A class is used under its own lock, and does nothing but copy bytes and move words there. Pages
//! come in and go out as values, so that the caller takes and drops them without that lock.

use crate::classes::{Shape, shape};
use std::ops::DerefMut;

/// Groups of blocks by fullness.
const GROUPS: usize = 8;
/// The group of blocks from which nothing may be allocated: full ones, and those being emptied.
const APART: u8 = u8::MAX;
/// Marks a free object; the other bits are the next one.
const FREE: u32 = 1 << 31;
/// No free object follows.
const LAST: u32 = FREE | 0xffff;

/// Where an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) block: u32,
    pub(crate) index: u16,
    pub(crate) class: u8,
}

/// The pages of a block.
pub(crate) type Pages<P> = Vec<P>;

struct Block<P> {
    pages: Pages<P>,
    /// For each object that lies in the pages the owner, below [`FREE`], or [`FREE`] and the next
    /// free one.
    owners: Vec<u32>,
    first_free: u32,
    used: u16,
    group: u8,
    draining: bool,
    /// Position in its group.
    at: u32,
}

/// All blocks of one class.
pub(crate) struct Class<P> {
    number: u8,
    shape: Shape,
    page_bytes: usize,
    blocks: Vec<Option<Block<P>>>,
    /// Unused positions of `blocks`.
    vacant: Vec<u32>,
    groups: [Vec<u32>; GROUPS],
    /// The block that gets the next page.
    growing: Option<u32>,
    /// Objects that are used, and that lie in pages.
    used: usize,
    capacity: usize,
    live: usize,
}

/// How a caller of [`Class::put`] proceeds without room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl<P: DerefMut<Target = [u8]>> Class<P> {
    /// One for pages of a size.
    pub(crate) fn new(number: usize, page_bytes: usize) -> Class<P> {
        Class {
            number: u8::try_from(number).expect("there are fewer classes"),
            shape: shape(number, page_bytes),
            page_bytes,
            blocks: Vec::new(),
            vacant: Vec::new(),
            groups: Default::default(),
            growing: None,
            used: 0,
            capacity: 0,
            live: 0,
        }
    }

    /// Objects that lie in pages and are not used.
    fn free(&self) -> usize {
        self.capacity - self.used
    }

    /// Copies an object into the fullest block that has room.
    ///
    /// # Panics
    /// When the bytes are more than the size of the class, or the owner is no handle.
    pub(crate) fn put(&mut self, owner: u32, bytes: &[u8]) -> Result<Place, NoRoom> {
        assert!(owner < FREE && bytes.len() <= self.shape.size);
        let group = (0..GROUPS).rev().find(|&group| !self.groups[group].is_empty());
        let number = self.groups[group.ok_or(NoRoom)?][0];
        let block = block(&mut self.blocks, number);
        let index = block.first_free & !FREE;
        block.first_free = std::mem::replace(&mut block.owners[index as usize], owner);
        block.used += 1;
        self.used += 1;
        let place = Place { block: number, index: index as u16, class: self.number };
        for (from, to) in pieces(place.index, (self.shape.size, self.page_bytes), bytes.len()) {
            block.pages[to.page][to.start..to.start + from.len()].copy_from_slice(&bytes[from]);
        }
        self.regroup(number);
        Ok(place)
    }

    /// Adds a page, in which there is room for one object at least.
    ///
    /// # Panics
    /// When it has another size.
    pub(crate) fn grow(&mut self, page: P) {
        assert_eq!(page.len(), self.page_bytes, "pages of a store are of one size");
        let number = self.growing.unwrap_or_else(|| self.begin());
        let block = block(&mut self.blocks, number);
        block.pages.push(page);
        let objects = block.pages.len() * self.page_bytes / self.shape.size;
        let more = block.owners.len() as u32..objects.min(self.shape.objects) as u32;
        self.capacity += more.len();
        for index in more {
            block.owners.push(block.first_free);
            block.first_free = FREE | index;
        }
        let whole = block.pages.len() == self.shape.pages;
        self.growing = (!whole).then_some(number);
        self.regroup(number);
    }

    /// A block without pages.
    fn begin(&mut self) -> u32 {
        let new = Block {
            pages: Vec::with_capacity(self.shape.pages),
            owners: Vec::with_capacity(self.shape.objects),
            first_free: LAST,
            used: 0,
            group: APART,
            draining: false,
            at: 0,
        };
        self.live += 1;
        if let Some(number) = self.vacant.pop() {
            self.blocks[number as usize] = Some(new);
            return number;
        }
        self.blocks.push(Some(new));
        u32::try_from(self.blocks.len() - 1).expect("fewer blocks than handles")
    }

    /// Copies the first bytes of an object.
    ///
    /// # Panics
    /// When there is no such object.
    pub(crate) fn read(&self, place: Place, into: &mut [u8]) {
        let block = self.blocks[place.block as usize].as_ref().expect("the block of an object");
        assert!(block.owners[usize::from(place.index)] < FREE, "{place:?} is free");
        for (to, from) in pieces(place.index, (self.shape.size, self.page_bytes), into.len()) {
            let bytes = &block.pages[from.page][from.start..from.start + to.len()];
            into[to].copy_from_slice(bytes);
        }
    }

    /// Frees an object. Returns the pages of its block if that is empty now, for the caller to
    /// drop.
    ///
    /// # Panics
    /// When there is no such object.
    #[must_use]
    pub(crate) fn remove(&mut self, place: Place) -> Option<Pages<P>> {
        let block = block(&mut self.blocks, place.block);
        let owner = &mut block.owners[usize::from(place.index)];
        assert!(*owner < FREE, "{place:?} is free already");
        *owner = block.first_free;
        block.first_free = FREE | u32::from(place.index);
        block.used -= 1;
        self.used -= 1;
        if block.used == 0 {
            return Some(self.take_out(place.block));
        }
        self.regroup(place.block);
        None
    }

    /// Takes a block apart from the others, to be emptied: nothing is put into it any more. That is
    /// the one that is still growing, or one of the emptiest group. Returns it with its objects
    /// and their owners. `None` if they do not fit into the other blocks.
    pub(crate) fn drain(&mut self) -> Option<(u32, Vec<(Place, u32)>)> {
        let emptiest = self.groups.iter().find_map(|group| group.last().copied());
        let fits = |number: &u32| {
            let one = self.blocks[*number as usize].as_ref().expect("a block that is listed");
            let used = usize::from(one.used);
            used > 0 && self.free() - (one.owners.len() - used) >= used
        };
        let number = self.growing.filter(fits).or_else(|| emptiest.filter(fits))?;
        if self.growing == Some(number) {
            self.growing = None;
        }
        block(&mut self.blocks, number).draining = true;
        self.regroup(number);
        let owners = block(&mut self.blocks, number).owners.iter().enumerate();
        let place = |index| Place { block: number, index, class: self.number };
        let objects = owners.filter(|(_, owner)| **owner < FREE);
        Some((number, objects.map(|(index, owner)| (place(index as u16), *owner)).collect()))
    }

    /// The end of [`drain`](Class::drain): what could not be moved stays, and the block is one of
    /// the others again. Returns whether it still exists.
    pub(crate) fn end_drain(&mut self, number: u32) -> bool {
        let entry = self.blocks.get_mut(number as usize);
        let Some(block) = entry.and_then(Option::as_mut).filter(|block| block.draining) else {
            return false;
        };
        block.draining = false;
        if block.pages.len() < self.shape.pages && self.growing.is_none() {
            self.growing = Some(number);
        }
        self.regroup(number);
        true
    }

    /// Puts a block into the group where it belongs now.
    fn regroup(&mut self, number: u32) {
        let block = block(&mut self.blocks, number);
        let (used, objects) = (usize::from(block.used), block.owners.len());
        let group =
            if used == objects || block.draining { APART } else { (used * GROUPS / objects) as u8 };
        if group == block.group {
            return;
        }
        let (before, at) = (std::mem::replace(&mut block.group, group), block.at);
        if group != APART {
            block.at = self.groups[usize::from(group)].len() as u32;
            self.groups[usize::from(group)].push(number);
        }
        self.leave(before, at);
    }

    /// Removes the entry at a position of a group.
    fn leave(&mut self, group: u8, at: u32) {
        if group == APART {
            return;
        }
        let list = &mut self.groups[usize::from(group)];
        list.swap_remove(at as usize);
        if let Some(&moved) = list.get(at as usize) {
            block(&mut self.blocks, moved).at = at;
        }
    }

    fn take_out(&mut self, number: u32) -> Pages<P> {
        let gone = self.blocks[number as usize].take().expect("the block of an object");
        self.leave(gone.group, gone.at);
        if self.growing == Some(number) {
            self.growing = None;
        }
        self.capacity -= gone.owners.len();
        self.live -= 1;
        self.vacant.push(number);
        if self.live == 0 {
            // The bookkeeping goes, too.
            self.blocks = Vec::new();
            self.vacant = Vec::new();
        }
        gone.pages
    }
}

fn block<P>(blocks: &mut [Option<Block<P>>], number: u32) -> &mut Block<P> {
    blocks[number as usize].as_mut().expect("a block that is listed exists")
}

/// A position in the pages of a block.
struct At {
    page: usize,
    start: usize,
}

/// The one or two pieces of the first `len` bytes of an object: the range of its bytes, and where
/// they are.
fn pieces(
    index: u16,
    (size, page_bytes): (usize, usize),
    len: usize,
) -> impl Iterator<Item = (std::ops::Range<usize>, At)> {
    let begin = usize::from(index) * size;
    let at = At { page: begin / page_bytes, start: begin % page_bytes };
    let first = len.min(page_bytes - at.start);
    let next = At { page: at.page + 1, start: 0 };
    let second = (first < len).then_some((first..len, next));
    std::iter::once((0..first, at)).chain(second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{CLASSES, class_of};
    use crate::source::PAGE_BYTES;

    /// Puts an object, and gives the class a page if it needs one. Returns whether it did.
    fn put(class: &mut Class<Vec<u8>>, owner: u32, bytes: &[u8]) -> (Place, bool) {
        match class.put(owner, bytes) {
            Ok(place) => (place, false),
            Err(NoRoom) => {
                class.grow(vec![0; PAGE_BYTES]);
                (class.put(owner, bytes).expect("one page is enough"), true)
            }
        }
    }

    fn contents(owner: u32, len: usize) -> Vec<u8> {
        (0..len).map(|n| (n as u32 * 7 + owner) as u8).collect()
    }

    #[test]
    fn objects_of_every_class_keep_their_bytes_across_pages() {
        // Miri takes minutes for all classes.
        let (first, step) = if cfg!(miri) { (50, 13) } else { (0, 1) };
        for number in (first..CLASSES).step_by(step) {
            let mut class = Class::new(number, PAGE_BYTES);
            let Shape { size, pages, objects } = shape(number, PAGE_BYTES);
            let put: Vec<(Place, bool)> = (0..2 * objects as u32)
                .map(|owner| put(&mut class, owner, &contents(owner, size)))
                .collect();
            assert_eq!(put.iter().filter(|(_, grown)| *grown).count(), 2 * pages);
            assert_eq!((class.capacity, class.free()), (2 * objects, 0), "class {number}");
            let mut bytes = vec![0; size];
            for (owner, &(place, _)) in (0..).zip(&put) {
                class.read(place, &mut bytes);
                assert_eq!(bytes, contents(owner, size), "class {number}, object {owner}");
            }
            let gone = put.iter().filter_map(|&(place, _)| class.remove(place));
            assert_eq!(gone.map(|block| block.len()).sum::<usize>(), 2 * pages);
            assert_eq!((class.live, class.capacity, class.used, class.growing), (0, 0, 0, None));
        }
    }

    #[test]
    fn the_fullest_block_is_filled_first_and_the_emptiest_is_drained() {
        let number = class_of(500, PAGE_BYTES);
        let each = shape(number, PAGE_BYTES).objects;
        assert!(each > 2);
        let mut class = Class::new(number, PAGE_BYTES);
        let put = |class: &mut _, owner| put(class, owner, &contents(owner, 500)).0;
        let places: Vec<Place> = (0..3 * each as u32).map(|n| put(&mut class, n)).collect();
        assert!(class.drain().is_none(), "all blocks are full");
        // One object stays in the first block, all but one in the second.
        assert!(places[1..each].iter().all(|&place| class.remove(place).is_none()));
        assert!(class.remove(places[each]).is_none());
        let (number, objects) = class.drain().expect("the first");
        assert_eq!((number, objects), (places[0].block, vec![(places[0], 0)]));
        let moved = class.put(0, &contents(0, 500)).expect("room in the second");
        assert_eq!(moved.block, places[each].block);
        assert_eq!(class.put(9, &[1]), Err(NoRoom), "nothing goes into a block being drained");
        assert!(class.end_drain(number));
        assert!(class.put(9, &[1]).is_ok(), "a block that was not emptied is used again");
    }

    #[test]
    fn a_block_that_is_drained_while_it_grows_is_whole_or_grows_on() {
        let number = class_of(3000, PAGE_BYTES);
        let Shape { pages, objects, .. } = shape(number, PAGE_BYTES);
        assert!(pages > 2 && objects > 2);
        let mut class = Class::new(number, PAGE_BYTES);
        let places: Vec<Place> =
            (0..=objects as u32).map(|n| put(&mut class, n, &contents(n, 3000)).0).collect();
        assert!(class.remove(places[0]).is_none());
        // The second block has one page and one object, for which the first has room.
        let (number, rest) = class.drain().expect("the second");
        assert_eq!(rest, [(places[objects], objects as u32)]);
        assert!(class.end_drain(number), "it was not emptied");
        let (place, _) = put(&mut class, 77, &contents(77, 3000));
        assert_eq!(place, places[0], "the free object of the first");
        let (place, grown) = put(&mut class, 78, &contents(78, 3000));
        assert_eq!((place.block, grown), (number, true), "and then the second grows");
        assert_eq!(class.growing, Some(number));
    }
}
