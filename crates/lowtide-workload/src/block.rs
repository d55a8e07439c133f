//! The page record: whole pages made of 512-byte blocks, each with its own position.
//!
//! Workloads on whole pages (`random-read`, `scan`, `replay`) run on pages of any size from 512
//! bytes up. Their content is therefore made of 512-byte blocks, numbered through the file, so that
//! a block verifies alone. That detects a wrong page of any size, a wrong part of a page, and a
//! page of which the device returned only half.
//!
//! | bytes | field | encoding |
//! |---|---|---|
//! | 0..8 | magic: ASCII `lowtide` and a zero byte | bytes |
//! | 8..16 | index: number of the block in its file | `u64`, little-endian |
//! | 16..24 | seed: of the run that wrote the block | `u64`, little-endian |
//! | 24..32 | checksum of index, seed and payload | `u64`, little-endian |
//! | 32..512 | payload | drawn from index and seed |
//!
//! The seed serves as a version: a player that rewrites a page gives it a new one, and a block left
//! over from an earlier run does not pass for one of this run. The checksum is made as the
//! [record](crate::record)'s; verifying one block costs about 20 ns.

use crate::prng::{SplitMix64, mix64};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 512;
/// What every block starts with.
pub const BLOCK_MAGIC: [u8; 8] = *b"lowtide\0";
/// Where the payload starts.
const PAYLOAD: usize = 32;

/// Why bytes are not the expected block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The slice is not a block, or not a whole number of blocks.
    #[error("block {index}: {found} bytes are not a whole number of {BLOCK_BYTES}-byte blocks")]
    Length {
        /// The expected block.
        index: u64,
        /// Bytes given.
        found: usize,
    },
    /// All bytes are zero: never written, lost, or a hole in the file.
    #[error("block {index}: all {BLOCK_BYTES} bytes are zero; it was never written, or lost")]
    Blank {
        /// The expected block.
        index: u64,
    },
    /// The bytes do not start with the magic: not a file made by this program.
    #[error(
        "block {index}: does not start with the block magic; was this file made for this workload?"
    )]
    Magic {
        /// The expected block.
        index: u64,
    },
    /// The checksum does not match.
    #[error(
        "block {index}: checksum does not match (the bytes claim block {found_index}, seed \
         {found_seed})"
    )]
    Corrupt {
        /// The expected block.
        index: u64,
        /// The index in the bytes.
        found_index: u64,
        /// The seed in the bytes.
        found_seed: u64,
    },
    /// An intact block of another place.
    #[error("block {index}: found the intact block {found_index} (seed {found_seed}) in its place")]
    WrongBlock {
        /// The expected block.
        index: u64,
        /// The index in the bytes.
        found_index: u64,
        /// The seed in the bytes.
        found_seed: u64,
    },
    /// An intact block of this place, but from another run or an earlier write.
    #[error(
        "block {index}: written with seed {found_seed}, not {seed}; it is left from another \
         write"
    )]
    WrongSeed {
        /// The expected block.
        index: u64,
        /// The expected seed.
        seed: u64,
        /// The seed in the bytes.
        found_seed: u64,
    },
}

/// Writes block number `index` with `seed` into `block`. About 80 ns.
pub fn fill_block(index: u64, seed: u64, block: &mut [u8; BLOCK_BYTES]) {
    let (words, _) = block.as_chunks_mut::<8>();
    let (header, payload) = words.split_at_mut(PAYLOAD / 8);
    let mut rng = SplitMix64::new(mix64(index)).fork(seed);
    for word in payload {
        *word = rng.next_u64().to_le_bytes();
    }
    header[0] = BLOCK_MAGIC;
    header[1] = index.to_le_bytes();
    header[2] = seed.to_le_bytes();
    let checksum = checksum(index, seed, &block[PAYLOAD..]);
    block[24..32].copy_from_slice(&checksum.to_le_bytes());
}

/// Checks that `block` is block number `index`, whole, and returns the seed it was written with.
///
/// # Errors
/// A [`BlockError`] that says in what way the bytes are wrong.
#[inline]
pub fn inspect_block(index: u64, block: &[u8]) -> Result<u64, BlockError> {
    let Ok(block) = <&[u8; BLOCK_BYTES]>::try_from(block) else {
        return Err(BlockError::Length { index, found: block.len() });
    };
    let (header, _) = block.as_chunks::<8>();
    let [found_index, seed, stored] = [header[1], header[2], header[3]].map(u64::from_le_bytes);
    let intact =
        header[0] == BLOCK_MAGIC && checksum(found_index, seed, &block[PAYLOAD..]) == stored;
    if intact && found_index == index {
        Ok(seed)
    } else {
        Err(diagnose(index, block, intact, found_index, seed))
    }
}

/// Checks that `block` is block number `index`, whole, written with `seed`.
///
/// # Errors
/// A [`BlockError`] that says in what way the bytes are wrong.
#[inline]
pub fn verify_block(index: u64, seed: u64, block: &[u8]) -> Result<(), BlockError> {
    let found_seed = inspect_block(index, block)?;
    if found_seed == seed { Ok(()) } else { Err(BlockError::WrongSeed { index, seed, found_seed }) }
}

/// Fills the page number `page` of `bytes.len()` bytes with its blocks.
///
/// # Errors
/// [`BlockError::Length`] when the page is not a whole number of blocks.
pub fn fill_page(page: u64, seed: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
    let first = first_block(page, bytes.len())?;
    let (blocks, _) = bytes.as_chunks_mut::<BLOCK_BYTES>();
    for (index, block) in (first..).zip(blocks) {
        fill_block(index, seed, block);
    }
    Ok(())
}

/// Checks every block of the page number `page` of `bytes.len()` bytes.
///
/// # Errors
/// The [`BlockError`] of the first block that is wrong.
pub fn verify_page(page: u64, seed: u64, bytes: &[u8]) -> Result<(), BlockError> {
    let first = first_block(page, bytes.len())?;
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    (first..).zip(blocks).try_for_each(|(index, block)| verify_block(index, seed, block))
}

/// The number of the first block of a page of `page_bytes`.
fn first_block(page: u64, page_bytes: usize) -> Result<u64, BlockError> {
    let index = page.saturating_mul((page_bytes / BLOCK_BYTES) as u64);
    if page_bytes == 0 || !page_bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(BlockError::Length { index, found: page_bytes });
    }
    Ok(index)
}

#[inline]
fn checksum(index: u64, seed: u64, payload: &[u8]) -> u64 {
    mix64(mix64(mix64(index) ^ seed) ^ xxh3_64(payload))
}

/// What is wrong, once something is.
#[cold]
fn diagnose(
    index: u64,
    block: &[u8; BLOCK_BYTES],
    intact: bool,
    found_index: u64,
    found_seed: u64,
) -> BlockError {
    if intact {
        BlockError::WrongBlock { index, found_index, found_seed }
    } else if block.iter().all(|&byte| byte == 0) {
        BlockError::Blank { index }
    } else if block[..8] != BLOCK_MAGIC {
        BlockError::Magic { index }
    } else {
        BlockError::Corrupt { index, found_index, found_seed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(index: u64, seed: u64) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        fill_block(index, seed, &mut block);
        block
    }

    /// The bytes are an interface: files made by one build must verify in the next.
    #[test]
    fn layout_is_fixed() {
        let block = block(5, 6);
        assert_eq!(block[..24], *b"lowtide\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0");
        assert_eq!(xxh3_64(&block), 0x1f42_7372_2ef0_ba8c);
    }

    #[test]
    fn every_kind_of_wrong_bytes_is_named() {
        assert_eq!(verify_block(0, 1, &[0; 512]), Err(BlockError::Blank { index: 0 }));
        assert_eq!(verify_block(0, 1, &[7; 512]), Err(BlockError::Magic { index: 0 }));
        assert_eq!(verify_block(2, 1, &[0; 100]), Err(BlockError::Length { index: 2, found: 100 }));
        assert_eq!(
            verify_block(2, 1, &block(3, 1)),
            Err(BlockError::WrongBlock { index: 2, found_index: 3, found_seed: 1 })
        );
        assert_eq!(
            verify_block(2, 1, &block(2, 9)),
            Err(BlockError::WrongSeed { index: 2, seed: 1, found_seed: 9 })
        );
        assert_eq!(inspect_block(2, &block(2, 9)), Ok(9));
    }

    #[test]
    fn pages_of_every_size_share_one_numbering_of_blocks() {
        let mut large = vec![0; 8192];
        fill_page(3, 7, &mut large).unwrap();
        for page_bytes in [512, 1024, 4096, 8192] {
            let first = 3 * 8192 / page_bytes as u64;
            for (page, bytes) in (first..).zip(large.chunks(page_bytes)) {
                assert_eq!(verify_page(page, 7, bytes), Ok(()), "page {page} of {page_bytes}");
            }
        }
        large[5000] ^= 1;
        assert!(matches!(verify_page(3, 7, &large), Err(BlockError::Corrupt { index: 57, .. })));
    }

    #[test]
    fn odd_page_sizes_are_refused() {
        for len in [0, 1, 511, 700] {
            assert!(matches!(fill_page(1, 1, &mut vec![0; len]), Err(BlockError::Length { .. })));
            assert!(matches!(verify_page(1, 1, &vec![0; len]), Err(BlockError::Length { .. })));
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(index: u64, seed: u64, bit in 0..BLOCK_BYTES * 8) {
            let mut bytes = block(index, seed);
            prop_assert_eq!(verify_block(index, seed, &bytes), Ok(()));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(verify_block(index, seed, &bytes).is_err());
        }
    }
}
