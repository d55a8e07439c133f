//! The content of a data file, so that every byte read can be checked.
//!
//! | content | for | made of |
//! |---|---|---|
//! | records | `ycsb-*` | records of 1 KiB with key, version, checksum (`workload::record`) |
//! | documents | `ycsb-* --contents json` | such records, whose payload is JSON |
//! | text | `ycsb-* --contents text` | such records, whose payload is lines of text |
//! | blocks | `random-read`, `scan`, `replay` | 512 B: number, seed, checksum (`workload::block`) |
//! | words | `gather`, `hit` | 64-bit words, each a function of its position |
//! | integers | `gather --contents integers` | such words that ascend, as identifiers do |
//! | unknown | a user's file (`--file`) | anything; it cannot be checked |
//!
//! The content depends only on the position, never on a run's seed, so one file serves all runs of
//! its size. Updated records stay valid (an update is the next version); rewritten blocks cannot be
//! used by another run.

use lowtide_workload::block::{BLOCK_BYTES, fill_page, verify_page};
use lowtide_workload::prng::mix64;
use lowtide_workload::record::{self, Payload, RECORD_BYTES};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The seed of new blocks; rewritten blocks have other seeds.
pub const BLOCK_SEED: u64 = 0;
/// Bytes of a word.
pub const WORD_BYTES: usize = 8;
/// The unit that [`Content::fill`] and [`Content::check`] work in: whole records, blocks and words.
pub const UNIT_BYTES: usize = RECORD_BYTES;

/// The content of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Records of 1 KiB.
    Records,
    /// Records of 1 KiB that are documents of JSON.
    Documents,
    /// Records of 1 KiB that are lines of text.
    Text,
    /// Blocks of 512 bytes.
    Blocks,
    /// 64-bit words.
    Words,
    /// 64-bit words that ascend.
    Integers,
    /// Unknown bytes of a user's file.
    Unknown,
}

impl Content {
    /// The name, as it is part of file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Documents => "documents",
            Self::Text => "text",
            Self::Blocks => "blocks",
            Self::Words => "words",
            Self::Integers => "integers",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it is records of some kind.
    pub const fn is_records(self) -> bool {
        matches!(self, Self::Records | Self::Documents | Self::Text)
    }

    /// Writes the content of a fresh file at `offset`, a multiple of [`UNIT_BYTES`] as is the
    /// length of `bytes`. About 0.16 µs a KiB. Unknown content stays as it is.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        let (units, _) = bytes.as_chunks_mut::<UNIT_BYTES>();
        for (unit, bytes) in (offset / UNIT_BYTES as u64..).zip(units) {
            match self {
                Self::Records => record::fill(unit, 0, bytes),
                Self::Documents => record::fill_with(Payload::Json, unit, 0, bytes),
                Self::Text => record::fill_with(Payload::Text, unit, 0, bytes),
                // A unit is two blocks, so its length is always valid.
                Self::Blocks => fill_page(unit, BLOCK_SEED, bytes).unwrap_or_default(),
                Self::Words => fill_words(unit, bytes, word),
                Self::Integers => fill_words(unit, bytes, integer),
                Self::Unknown => {}
            }
        }
    }

    /// Whether `unit`, the [`UNIT_BYTES`] number `index` of its file, is what [`Content::fill`]
    /// writes; records may have any version.
    pub fn check(self, index: u64, unit: &[u8; UNIT_BYTES]) -> bool {
        match self {
            Self::Records | Self::Documents | Self::Text => record::verify(index, unit).is_ok(),
            Self::Blocks => verify_page(index, BLOCK_SEED, unit).is_ok(),
            Self::Words | Self::Integers => {
                self.verify_words(index * UNIT_BYTES as u64, unit).is_ok()
            }
            Self::Unknown => true,
        }
    }

    /// Checks that `bytes` are those at `offset` of a file of words or integers; both are multiples
    /// of [`WORD_BYTES`]. About 1 ns a word.
    ///
    /// # Errors
    /// [`WrongWord`].
    #[inline]
    pub fn verify_words(self, offset: u64, bytes: &[u8]) -> Result<(), WrongWord> {
        match self {
            Self::Integers => verify_with(offset, bytes, integer),
            _ => verify_with(offset, bytes, word),
        }
    }

    /// The content of a file, detected from its first unit.
    pub fn recognise(unit: &[u8; UNIT_BYTES]) -> Self {
        [Self::Records, Self::Blocks, Self::Words, Self::Integers]
            .into_iter()
            .find(|content| content.check(0, unit))
            .unwrap_or(Self::Unknown)
    }
}

/// Why bytes are not those of a file of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "word {index}, at byte {}: found {found:#018x}, which is not its content; {}",
    index * WORD_BYTES as u64,
    if *found == 0 { "was it never written, or lost?" } else { "are these bytes of another place?" }
)]
pub struct WrongWord {
    /// The first word that is wrong.
    pub index: u64,
    /// The bytes in its place.
    pub found: u64,
}

/// Fills a unit with words that are a function of their position.
fn fill_words(unit: u64, bytes: &mut [u8; UNIT_BYTES], word: impl Fn(u64) -> u64) {
    let (words, _) = bytes.as_chunks_mut::<WORD_BYTES>();
    for (index, bytes) in (unit * (UNIT_BYTES / WORD_BYTES) as u64..).zip(words) {
        *bytes = word(index).to_le_bytes();
    }
}

#[inline]
fn verify_with(offset: u64, bytes: &[u8], word: impl Fn(u64) -> u64) -> Result<(), WrongWord> {
    let first = offset / WORD_BYTES as u64;
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    let found = || (first..).zip(words.iter().map(|&bytes| u64::from_le_bytes(bytes)));
    // Without a branch for each word.
    if found().fold(0, |wrong, (index, found)| wrong | (found ^ word(index))) == 0 {
        return Ok(());
    }
    let wrong = found().find(|&(index, found)| found != word(index));
    wrong.map_or(Ok(()), |(index, found)| Err(WrongWord { index, found }))
}

/// The word number `index`.
#[inline]
pub const fn word(index: u64) -> u64 {
    // Not mix64(index) itself, which is 0 for the first word.
    mix64(index ^ 0x6c6f_7774_6964_6500)
}

/// The integer number `index`: they ascend by up to 32.
#[inline]
pub const fn integer(index: u64) -> u64 {
    (index + 1) * 16 + mix64(index) % 16
}

const _: () =
    assert!(UNIT_BYTES.is_multiple_of(BLOCK_BYTES) && UNIT_BYTES.is_multiple_of(WORD_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_unit_is_recognised_only_in_its_place() {
        for content in [Content::Records, Content::Blocks, Content::Words, Content::Integers] {
            let mut bytes = [0; 2 * UNIT_BYTES];
            content.fill(0, &mut bytes);
            let (units, _) = bytes.as_chunks::<UNIT_BYTES>();
            assert_eq!(Content::recognise(&units[0]), content);
            assert!(
                content.check(1, &units[1]) && !content.check(0, &units[1]),
                "{}",
                content.name()
            );
        }
        assert_eq!(Content::recognise(&[0; UNIT_BYTES]), Content::Unknown);
    }

    #[test]
    fn words_are_right_only_in_their_place() {
        let mut bytes = [0; 2 * UNIT_BYTES];
        Content::Words.fill(0, &mut bytes);
        for (offset, len) in [(0, 64), (8, 1000), (1016, 16), (2040, 8), (0, 2048)] {
            let row = &bytes[offset..offset + len];
            assert_eq!(Content::Words.verify_words(offset as u64, row), Ok(()));
            let wrong = Content::Words.verify_words(offset as u64 + 8, row).unwrap_err();
            assert_eq!(wrong.index, offset as u64 / 8 + 1);
        }
        bytes[1023] ^= 1;
        assert_eq!(Content::Words.verify_words(512, &bytes[512..1536]).unwrap_err().index, 127);
        let lost = Content::Words.verify_words(8, &[0; 8]).unwrap_err();
        assert!(lost.to_string().contains("byte 8") && lost.to_string().contains("lost"), "{lost}");
    }
}
