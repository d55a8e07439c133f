//! Records of all sizes, side by side from the first byte of the file to the last, and their
//! pieces.
//!
//! ```text
//!   sectors │       0       │       1       │       2       │ …
//!   slots   │ 0  │    1        │      2           │    3 …
//!   pieces  │ 0  │ 1        │ 2│  3            │4 │ 5
//! ```
//!
//! A *slot* holds one record and is written by one `write_at`; slots are smaller than pages and
//! larger, and some lie across pages. Where a slot crosses from sector to sector it is cut into
//! *pieces*, which a disk writes whole. A piece begins with a word that no other place has, then
//! the record's sequence number; the rest follows from both. So a piece says by itself where it
//! belongs, how new it is, and whether each of its bytes is right. A piece that was never written
//! is all zeros, as number 0.

use std::ops::Range;

use lowtide_workload::prng::mix64;

/// Bytes that a disk writes all or none of.
const SECTOR: u64 = 512;
/// Lengths of records: each a multiple of the least piece, so that a piece always has room for its
/// two words. The longest holds whole pages and whole large folios.
const LENGTHS: [u64; 10] = [192, 448, 960, 64, 1472, 5056, 320, 2048, 4096, 36864];

/// Where the records of a file lie.
#[derive(Clone, Debug)]
pub struct Layout {
    slots: Vec<Range<u64>>,
    /// The first piece of each slot, and the number of pieces behind them.
    firsts: Vec<usize>,
}

impl Layout {
    /// Records over `bytes` bytes (a multiple of 64).
    pub fn new(bytes: u64) -> Self {
        let (mut slots, mut firsts, mut at) = (Vec::new(), vec![0], 0);
        for length in LENGTHS.into_iter().cycle() {
            if at >= bytes {
                break;
            }
            let slot = at..bytes.min(at + length);
            at = slot.end;
            firsts.push(firsts.last().unwrap_or(&0) + pieces_of(&slot).count());
            slots.push(slot);
        }
        Self { slots, firsts }
    }

    /// How many records.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The first record of the second half.
    pub fn tail(&self) -> usize {
        self.slots() / 2
    }

    /// How many pieces.
    pub fn pieces(&self) -> usize {
        self.firsts.last().copied().unwrap_or(0)
    }

    /// Where a record lies.
    pub fn slot(&self, slot: usize) -> Range<u64> {
        self.slots[slot].clone()
    }

    /// A record's pieces: their numbers and places.
    pub fn pieces_of(&self, slot: usize) -> impl Iterator<Item = (usize, Range<u64>)> + use<'_> {
        (self.firsts[slot]..).zip(pieces_of(&self.slots[slot]))
    }

    /// The bytes of a piece of a record; zeroes for number 0.
    pub fn piece(&self, slot: usize, piece: usize, number: u64) -> Vec<u8> {
        let place = self.pieces_of(slot).find_map(|(of, place)| (of == piece).then_some(place));
        let words = place.map_or(0, |place| (place.end - place.start) / 8);
        let content = |word| if number == 0 { 0 } else { content(piece, number, word) };
        (0..words).flat_map(|word| u64::to_le_bytes(content(word))).collect()
    }

    /// A record's bytes.
    pub fn record(&self, slot: usize, number: u64) -> Vec<u8> {
        let length = self.slots[slot].end - self.slots[slot].start;
        let mut bytes = Vec::with_capacity(length as usize);
        for (piece, place) in self.pieces_of(slot) {
            let words = (place.end - place.start) / 8;
            bytes.extend((0..words).flat_map(|word| content(piece, number, word).to_le_bytes()));
        }
        bytes
    }
}

fn pieces_of(slot: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let slot = slot.clone();
    let first = slot.start / SECTOR * SECTOR;
    (first..slot.end)
        .step_by(SECTOR as usize)
        .map(move |sector| slot.start.max(sector)..slot.end.min(sector + SECTOR))
}

/// A word of a piece.
fn content(piece: usize, number: u64, word: u64) -> u64 {
    let place = mix64(piece as u64 ^ 0x6C6F_7774_6964_6521);
    match word {
        0 => place,
        1 => number,
        // Of each two pieces one compresses.
        _ if place & 1 == 0 => mix64(place ^ mix64(number)),
        _ => mix64(place ^ mix64(number.wrapping_add(word << 48))),
    }
}

/// The number of the record that a piece is from, or `None` for bytes that were never written
/// there.
pub fn number_of(piece: usize, bytes: &[u8]) -> Option<u64> {
    let mut words = bytes.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let (place, number) = (words.next()?, words.next()?);
    let right = place == content(piece, number, 0)
        && (2..).zip(words).all(|(word, found)| found == content(piece, number, word));
    right.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_pieces_cover_the_file_and_pieces_lie_in_sectors() {
        let layout = Layout::new(100 * 1024 + 64);
        let (mut at, mut count) = (0, 0);
        for slot in 0..layout.slots() {
            for (piece, place) in layout.pieces_of(slot) {
                assert_eq!((piece, place.start), (count, at));
                assert_eq!(place.start / SECTOR, (place.end - 1) / SECTOR);
                assert!(place.end - place.start >= 64);
                (at, count) = (place.end, count + 1);
            }
        }
        assert_eq!((at, count), (100 * 1024 + 64, layout.pieces()));
        let across = (0..layout.slots()).map(|slot| layout.slot(slot));
        assert!(across.filter(|slot| slot.start / 4096 != (slot.end - 1) / 4096).count() > 5);
    }

    #[test]
    fn a_piece_knows_its_place_and_its_number_and_every_changed_byte() {
        let layout = Layout::new(1 << 16);
        let record = layout.record(5, 77);
        let start = layout.slot(5).start;
        for (piece, place) in layout.pieces_of(5) {
            let mut bytes =
                record[(place.start - start) as usize..(place.end - start) as usize].to_vec();
            assert_eq!(number_of(piece, &bytes), Some(77));
            assert_eq!(number_of(piece + 1, &bytes), None, "of another place");
            for at in 0..bytes.len() {
                bytes[at] ^= 1;
                assert_ne!(number_of(piece, &bytes), Some(77), "byte {at}");
                bytes[at] ^= 1;
            }
        }
        assert_eq!(number_of(3, &[0; 64]), Some(0));
    }
}
