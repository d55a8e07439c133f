//! The next use of a page: the future that OPT needs, computed in one backward pass.
//!
//! The pass keeps the position of the nearest later access of each page. It is stored as a distance
//! in records, one word per record, where 0 means "never". An access after a `free` of the page
//! counts as never, because it misses in any case. Distances above `2^32 - 2` are stored as `2^32 -
//! 1`, so such pages look equally far away: OPT is exact for every tape of fewer than `2^32 - 1`
//! records, and practically exact beyond (no relevant cache keeps a page over four billion
//! accesses).

use super::run::MrcError;
use super::tape::{Effect, Record, Tape};
use super::watch::Watch;
use super::words::{Chunk, SpillError, Words};
use crate::baseline::NEVER;
use std::sync::atomic::AtomicBool;

/// For each record of a tape, the position of the page's next access.
#[derive(Debug)]
pub struct NextUse {
    distances: Words,
}

impl NextUse {
    /// Computes it. Uses 8 bytes per distinct page meanwhile, and 4 bytes per record afterwards (in
    /// memory or in a file, like the tape).
    ///
    /// # Errors
    /// [`MrcError::Spill`] when a temporary file fails, [`MrcError::Cancelled`] when `stop` becomes
    /// true.
    pub fn of(tape: &Tape, stop: &AtomicBool) -> Result<Self, MrcError> {
        Self::watched(tape, &Watch::new(stop, &|_| (), 0))
    }

    pub(super) fn watched(tape: &Tape, watch: &Watch<'_>) -> Result<Self, MrcError> {
        let words = tape.words();
        let mut distances = Words::with_len(words.len(), words.storage())?;
        let mut upcoming = vec![NEVER; tape.distinct() as usize];
        let mut room = Chunk::default();
        let mut position = words.len();
        for index in (0..words.chunks()).rev() {
            let chunk = words.chunk(index, &mut room)?;
            let mut out = vec![0; chunk.len()];
            for (word, distance) in chunk.iter().zip(&mut out).rev() {
                position -= 1;
                let record = Record::from_word(*word);
                let next = &mut upcoming[record.page() as usize];
                match record.effect() {
                    Effect::Access => {
                        *distance = encode(position, *next);
                        *next = position;
                    }
                    Effect::Remove => *next = NEVER,
                    Effect::Nothing => (),
                }
            }
            watch.played(out.len())?;
            distances.write_chunk(index, out)?;
        }
        Ok(Self { distances })
    }

    /// The next accesses of the records of chunk `index`, whose first record is at position
    /// `start`.
    pub(super) fn chunk<'a>(
        &'a self,
        index: u64,
        start: u64,
        room: &'a mut Chunk,
    ) -> Result<impl Iterator<Item = u64> + 'a, SpillError> {
        let distances = self.distances.chunk(index, room)?;
        Ok(distances.iter().zip(start..).map(|(&distance, position)| decode(position, distance)))
    }
}

fn encode(position: u64, next: u64) -> u32 {
    if next == NEVER { 0 } else { u32::try_from(next - position).unwrap_or(u32::MAX) }
}

#[inline]
fn decode(position: u64, distance: u32) -> u64 {
    if distance == 0 { NEVER } else { position + u64::from(distance) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{op, tape};
    use lowtide_workload::OpKind::{Free, Load, Read, Sync};

    #[test]
    fn a_free_ends_the_wish_for_a_page() {
        let pages = [(Read, 1), (Load, 2), (Sync, 1), (Read, 1), (Free, 1), (Read, 2), (Read, 1)];
        let tape = tape(&pages.map(|(kind, page)| op(kind, 0, page, 1)));
        let next = NextUse::of(&tape, &AtomicBool::new(false)).unwrap();
        let mut room = Chunk::default();
        let positions: Vec<u64> = next.chunk(0, 0, &mut room).unwrap().collect();
        assert_eq!(positions, [3, 5, NEVER, NEVER, NEVER, NEVER, NEVER]);
    }

    #[test]
    fn distances_that_do_not_fit_are_far_away() {
        assert_eq!(decode(7, encode(7, 8)), 8);
        assert_eq!(decode(7, encode(7, NEVER)), NEVER);
        assert_eq!(decode(7, encode(7, 1 << 40)), 7 + u64::from(u32::MAX));
    }
}
