//! Reading pages that the caller knows to be needed together, whatever their slots.
//!
//! [`SwapFile::read`] brings the neighbours of a slot. Here the caller has a list: the pages that
//! follow each other in memory, for example. Slots that lie together are read in one request, with
//! the few between them that are not wanted: a device takes as long for these as for itself.
//!
//! ```text
//!   slots   3 4 5 . 7    40 41 42    90        ( . is not wanted)
//!           └───────┘    └──────┘    ╵
//!   spans       1           2        3         requests
//! ```

use super::clusters::Found;
use super::{Backing, CLUSTER_SLOTS, Slot, SwapFile};
use crate::codec::checksum;
use crate::error::{Fault, ReadError};
use crate::source::PAGE_BYTES;
use std::ops::Range;

/// Slots between two wanted ones that are read with them: a request for itself takes a device
/// longer.
const HOLE: u32 = 8;

/// A page that is wanted.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// Where it is.
    pub slot: Slot,
    /// Where it is to be: [`PAGE_BYTES`] bytes.
    pub to: &'a mut [u8],
}

/// The parts of a list of slots, in ascending order, that are read in one request each.
#[must_use]
pub fn spans(slots: &[Slot]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (at, slot) in slots.iter().enumerate() {
        match spans.last_mut() {
            Some(span)
                if slot.0 - slots[at - 1].0 <= HOLE
                    && slot.0 - slots[span.start].0 < CLUSTER_SLOTS as u32 =>
            {
                span.end = at + 1;
            }
            _ => spans.push(at..at + 1),
        }
    }
    spans
}

impl<B: Backing> SwapFile<B> {
    /// Reads pages, in ascending order of their slots, in a request for each of their [`spans`].
    /// The slots stay in use. Returns a result for each page: where a request fails, its pages are
    /// read one by one, so that a bad block costs the page alone that it is in.
    ///
    /// # Errors
    /// Each is a [`ReadError`] of one page.
    pub fn read_together(&self, pages: &mut [Incoming<'_>]) -> Vec<Result<(), ReadError>> {
        let slots: Vec<Slot> = pages.iter().map(|page| page.slot).collect();
        let spans = spans(&slots);
        spans.into_iter().flat_map(|span| self.read_a_span(&mut pages[span])).collect()
    }

    fn read_a_span(&self, pages: &mut [Incoming<'_>]) -> Vec<Result<(), ReadError>> {
        let alone = |page: &mut Incoming<'_>| self.read_alone(page.slot, page.to);
        if pages.len() == 1 || pages.iter().any(|page| page.to.len() != PAGE_BYTES) {
            return pages.iter_mut().map(alone).collect();
        }
        let found: Vec<Option<Found>> = {
            let table = self.lock();
            pages.iter().map(|page| table.stored(page.slot.0)).collect()
        };
        let (first, last) = (pages[0].slot, pages[pages.len() - 1].slot);
        let bytes = ((last.0 - first.0) as usize + 1) * PAGE_BYTES;
        let read = self.buffers.with(bytes, |buffer| {
            self.request(first, buffer)?;
            for page in pages.iter_mut() {
                let start = (page.slot.0 - first.0) as usize * PAGE_BYTES;
                page.to.copy_from_slice(&buffer[start..start + PAGE_BYTES]);
            }
            std::io::Result::Ok(())
        });
        if read.is_err() {
            return pages.iter_mut().map(alone).collect();
        }
        let sums: Vec<u32> = pages.iter().map(|page| checksum(page.to)).collect();
        let mut table = self.lock();
        let checks = pages.iter().zip(found).zip(sums);
        let check = |((page, found), sum): ((&Incoming<'_>, Option<Found>), u32)| {
            table.check(page.slot, found, sum)
        };
        checks.map(check).collect()
    }
}

impl super::Clusters {
    /// Whether a page that was read is what was written, and its slot is still its own: another
    /// page may have been written there meanwhile, whose checksum may be the same.
    pub(super) fn check(
        &mut self,
        slot: Slot,
        own: Option<Found>,
        sum: u32,
    ) -> Result<(), ReadError> {
        let missing = ReadError::Corrupt { slot, fault: Fault::Missing };
        let Some(own) = own else { return Err(missing) };
        if self.stored(slot.0).is_none_or(|now| now.serial != own.serial) {
            return Err(missing);
        }
        let expected = own.contents.checksum;
        if sum != expected {
            self.stat.corrupt += 1;
            return Err(ReadError::Corrupt {
                slot,
                fault: Fault::Checksum { expected, found: sum },
            });
        }
        self.stat.read += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans_of(slots: &[u32]) -> Vec<Range<usize>> {
        spans(&slots.iter().map(|slot| Slot(*slot)).collect::<Vec<_>>())
    }

    #[test]
    fn slots_that_lie_together_are_one_request_of_a_cluster_at_most() {
        assert!(spans_of(&[]).is_empty());
        assert_eq!(spans_of(&[3, 4, 5, 7, 40, 41, 42, 90]), [0..4, 4..7, 7..8]);
        assert_eq!(spans_of(&[0, HOLE, 2 * HOLE + 1]), [0..2, 2..3]);
        let long: Vec<u32> = (10..10 + 150).collect();
        assert_eq!(spans_of(&long), [0..64, 64..128, 128..150]);
    }
}
