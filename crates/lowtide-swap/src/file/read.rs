//! Reading from the swap file: one page that is needed, and the neighbours that are worth it.
//!
//! The neighbours of a slot are the other pages of the aligned window around it
//! ([`ReadAhead`] says how large). They were evicted at about the same time, and are often needed
//! together. What lies between the first and the last that the caller wants is read in one
//! request.
//!
//! Neighbours never harm the page that is needed: if the request for all of them fails, the page is
//! read alone; if one of them has wrong contents, it is counted and not given out. A neighbour may
//! be freed while it is read. Then its serial number has changed, and it is not given out either;
//! but it may also be freed an instant later. So a caller looks, under its own lock for the page,
//! whether the page still refers to that slot before it uses the bytes.

use super::backing::read_all;
use super::clusters::Found;
use super::{Backing, ReadAhead, Slot, SwapFile};
use crate::codec::checksum;
use crate::error::{Fault, ReadError};
use crate::source::PAGE_BYTES;
use std::io;

/// What a caller does with the neighbours of a page. Called without locks.
pub trait Neighbours {
    /// Whether a page is worth reading: it is not in memory, and there is room for it.
    fn wants(&mut self, slot: Slot, tag: u64) -> bool;

    /// Takes the verified contents of a page, if it still refers to that slot. Returns whether it
    /// did, and will report the first touch with [`SwapFile::touched`].
    fn take(&mut self, slot: Slot, tag: u64, page: &[u8]) -> bool;
}

/// No neighbours.
#[derive(Debug, Clone, Copy)]
pub struct Alone;

impl Neighbours for Alone {
    fn wants(&mut self, _: Slot, _: u64) -> bool {
        false
    }

    fn take(&mut self, _: Slot, _: u64, _: &[u8]) -> bool {
        false
    }
}

impl<B: Backing> SwapFile<B> {
    /// Reads a page, and around it those that `neighbours` wants, in one request. The slots stay
    /// in use. A page that was read ahead and is read again counts as wasted read-ahead.
    ///
    /// # Errors
    /// [`ReadError`]; then `page` may have been overwritten with bytes that mean nothing.
    /// Neighbours cause none.
    pub fn read(
        &self,
        slot: Slot,
        page: &mut [u8],
        ahead: &ReadAhead,
        neighbours: &mut dyn Neighbours,
    ) -> Result<(), ReadError> {
        let failed = |fault| ReadError::Corrupt { slot, fault };
        if page.len() != PAGE_BYTES {
            return Err(failed(Fault::Buffer(page.len())));
        }
        let window = ahead.next(slot.0);
        let (own, mut around) = {
            let mut table = self.lock();
            let own = table.stored(slot.0).ok_or_else(|| failed(Fault::Missing))?;
            let wasted = table.take_ahead(slot.0);
            table.stat.ahead_unused += u64::from(wasted);
            (own, if window > 1 { table.around(slot.0, window) } else { Vec::new() })
        };
        around.retain(|found| neighbours.wants(Slot(found.slot), found.contents.tag));
        if !around.is_empty() && self.read_span(&own, &around, page, neighbours)? {
            return Ok(());
        }
        let read = if page.as_ptr().align_offset(PAGE_BYTES) == 0 {
            self.request(slot, page)
        } else {
            self.buffers.with(PAGE_BYTES, |buffer| {
                self.request(slot, buffer).map(|()| page.copy_from_slice(buffer))
            })
        };
        read.map_err(|source| {
            self.lock().stat.read_errors += 1;
            ReadError::Io { slot, source }
        })?;
        self.check(&own, page)
    }

    /// Reads a page without read-ahead.
    ///
    /// # Errors
    /// As [`read`](SwapFile::read).
    pub fn read_alone(&self, slot: Slot, page: &mut [u8]) -> Result<(), ReadError> {
        self.read(slot, page, &ReadAhead::new(1), &mut Alone)
    }

    /// A page that has a slot was touched. If it was read ahead, and this is the first touch since,
    /// that is a hit, and `ahead` reads more next time. Returns whether it was.
    pub fn touched(&self, slot: Slot, ahead: &ReadAhead) -> bool {
        let mut table = self.lock();
        let hit = table.take_ahead(slot.0);
        table.stat.ahead_hits += u64::from(hit);
        drop(table);
        if hit {
            ahead.hit();
        }
        hit
    }

    /// Counts for an owner that frees the slot of a neighbour when it takes it, and knows by itself
    /// which are touched: pages taken, touched, and gone before a touch.
    pub fn count_ahead(&self, taken: u64, hits: u64, wasted: u64) {
        let stat = &mut self.lock().stat;
        stat.ahead += taken;
        stat.ahead_hits += hits;
        stat.ahead_unused += wasted;
    }

    /// Reads a page with neighbours. Returns whether the request succeeded.
    fn read_span(
        &self,
        own: &Found,
        around: &[Found],
        page: &mut [u8],
        neighbours: &mut dyn Neighbours,
    ) -> Result<bool, ReadError> {
        let slots = around.iter().map(|found| found.slot);
        let (first, last) =
            slots.fold((own.slot, own.slot), |(low, high), slot| (low.min(slot), high.max(slot)));
        let pages = (last - first) as usize + 1;
        self.buffers.with(pages * PAGE_BYTES, |buffer| {
            if self.request(Slot(first), buffer).is_err() {
                return Ok(false);
            }
            let bytes = |slot: u32| {
                let start = (slot - first) as usize * PAGE_BYTES;
                &buffer[start..start + PAGE_BYTES]
            };
            page.copy_from_slice(bytes(own.slot));
            self.check(own, page)?;
            around.iter().for_each(|found| self.deliver(found, bytes(found.slot), neighbours));
            Ok(true)
        })
    }

    /// Gives a neighbour to the caller.
    fn deliver(&self, found: &Found, page: &[u8], neighbours: &mut dyn Neighbours) {
        let right = checksum(page) == found.contents.checksum;
        {
            // The mark comes before the page, whose first touch may come at once.
            let mut table = self.lock();
            let same = table.mark_ahead(found);
            if !same {
                return;
            }
            if !right {
                table.unmark_ahead(found);
                table.stat.corrupt += 1;
                return;
            }
        }
        if !neighbours.take(Slot(found.slot), found.contents.tag, page) {
            self.lock().unmark_ahead(found);
        }
    }

    fn check(&self, own: &Found, page: &[u8]) -> Result<(), ReadError> {
        let found = checksum(page);
        self.lock().check(Slot(own.slot), Some(*own), found)
    }

    pub(super) fn request(&self, first: Slot, buffer: &mut [u8]) -> io::Result<()> {
        self.lock().stat.read_requests += 1;
        read_all(&self.backing, buffer, first.offset())
    }
}
