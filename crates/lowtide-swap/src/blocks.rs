//! The memory of one class of objects: blocks, and which of their objects are used.
//!
//! A [`Class`] has blocks of a few pages ([`classes`](crate::classes)). Its bookkeeping is outside
//! of the pages: a word for each object, which is the handle of its owner, or a link to the next
//! free object of the block. So nothing that is written into a page can break the lists, and the
//! owners of a block's objects are known when the block is to be emptied.
//!
//! Blocks that are partly used are kept in groups by how full they are. A new object goes into a
//! block of the fullest group: blocks that are nearly full fill up, and those that are nearly empty
//! become empty, and go back to the source at once. What fragmentation remains is the work of
//! `compact.rs`.
//!
//! A class is used under its own lock, and does nothing but copy bytes and move words there. Pages
//! come in and go out as values, so that the caller takes and drops them without that lock.

use crate::classes::{Shape, shape};
use crate::source::PAGE_BYTES;
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
    /// For each object the owner, below [`FREE`], or [`FREE`] and the next free one.
    owners: Box<[u32]>,
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
    blocks: Vec<Option<Block<P>>>,
    /// Unused positions of `blocks`.
    vacant: Vec<u32>,
    groups: [Vec<u32>; GROUPS],
    used: usize,
    live: usize,
}

/// How a caller of [`Class::put`] proceeds without room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl<P: DerefMut<Target = [u8]>> Class<P> {
    pub(crate) fn new(number: usize) -> Class<P> {
        Class {
            number: u8::try_from(number).expect("there are fewer classes"),
            shape: shape(number),
            blocks: Vec::new(),
            vacant: Vec::new(),
            groups: Default::default(),
            used: 0,
            live: 0,
        }
    }

    /// Objects that are not used, in blocks that exist.
    pub(crate) fn free(&self) -> usize {
        self.live * self.shape.objects - self.used
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
        for (from, to) in pieces(place.index, self.shape.size, bytes.len()) {
            block.pages[to.page][to.start..to.start + from.len()].copy_from_slice(&bytes[from]);
        }
        self.regroup(number);
        Ok(place)
    }

    /// Adds a block.
    ///
    /// # Panics
    /// When it has not as many pages of the right size as blocks of the class have.
    pub(crate) fn add(&mut self, pages: Pages<P>) {
        assert_eq!(pages.len(), self.shape.pages);
        assert!(pages.iter().all(|page| page.len() == PAGE_BYTES), "pages have {PAGE_BYTES} bytes");
        let objects = self.shape.objects as u32;
        let owners =
            (1..=objects).map(|next| if next == objects { LAST } else { FREE | next }).collect();
        let new = Block {
            pages,
            owners,
            first_free: FREE,
            used: 0,
            group: APART,
            draining: false,
            at: 0,
        };
        let number = if let Some(number) = self.vacant.pop() {
            self.blocks[number as usize] = Some(new);
            number
        } else {
            self.blocks.push(Some(new));
            u32::try_from(self.blocks.len() - 1).expect("fewer blocks than handles")
        };
        self.live += 1;
        self.regroup(number);
    }

    /// Copies the first bytes of an object.
    ///
    /// # Panics
    /// When there is no such object.
    pub(crate) fn read(&self, place: Place, into: &mut [u8]) {
        let block = self.blocks[place.block as usize].as_ref().expect("the block of an object");
        assert!(block.owners[usize::from(place.index)] < FREE, "{place:?} is free");
        for (to, from) in pieces(place.index, self.shape.size, into.len()) {
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

    /// Takes a block of the emptiest group apart from the others, to be emptied: nothing is put
    /// into it any more. Returns it with its objects and their owners. `None` if its objects do not
    /// fit into the other blocks.
    pub(crate) fn drain(&mut self) -> Option<(u32, Vec<(Place, u32)>)> {
        let number = *self.groups.iter().find_map(|group| group.last())?;
        let used = usize::from(block(&mut self.blocks, number).used);
        if self.free() - (self.shape.objects - used) < used {
            return None;
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
        self.regroup(number);
        true
    }

    /// Pages of the blocks.
    #[cfg(test)]
    fn pages(&self) -> usize {
        self.live * self.shape.pages
    }

    /// Puts a block into the group where it belongs now.
    fn regroup(&mut self, number: u32) {
        let objects = self.shape.objects;
        let block = block(&mut self.blocks, number);
        let used = usize::from(block.used);
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
    size: usize,
    len: usize,
) -> impl Iterator<Item = (std::ops::Range<usize>, At)> {
    let begin = usize::from(index) * size;
    let at = At { page: begin / PAGE_BYTES, start: begin % PAGE_BYTES };
    let first = len.min(PAGE_BYTES - at.start);
    let next = At { page: at.page + 1, start: 0 };
    let second = (first < len).then_some((first..len, next));
    std::iter::once((0..first, at)).chain(second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{CLASSES, class_of};

    fn pages(class: usize) -> Vec<Vec<u8>> {
        vec![vec![0; PAGE_BYTES]; shape(class).pages]
    }

    fn contents(owner: u32, len: usize) -> Vec<u8> {
        (0..len).map(|n| (n as u32 * 7 + owner) as u8).collect()
    }

    #[test]
    fn objects_of_every_class_keep_their_bytes_across_pages() {
        for number in 0..CLASSES {
            let mut class = Class::new(number);
            let size = shape(number).size;
            assert_eq!(class.put(1, &[1]), Err(NoRoom));
            class.add(pages(number));
            let all: Vec<Place> = (0..shape(number).objects as u32)
                .map(|owner| class.put(owner, &contents(owner, size)).expect("room"))
                .collect();
            assert_eq!(class.put(1, &[1]), Err(NoRoom), "the block is full");
            let mut bytes = vec![0; size];
            for (owner, &place) in (0..).zip(&all) {
                class.read(place, &mut bytes);
                assert_eq!(bytes, contents(owner, size), "class {number}, object {owner}");
            }
            let gone = all.iter().filter_map(|&place| class.remove(place)).count();
            assert_eq!((gone, class.pages(), class.free()), (1, 0, 0));
        }
    }

    #[test]
    fn the_fullest_block_is_filled_first_and_the_emptiest_is_drained() {
        let number = class_of(500);
        let each = shape(number).objects;
        assert!(each > 2);
        let mut class = Class::new(number);
        let mut places = Vec::new();
        for owner in 0..3 * each as u32 {
            if class.free() == 0 {
                class.add(pages(number));
            }
            places.push(class.put(owner, &contents(owner, 500)).expect("room"));
        }
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
}
