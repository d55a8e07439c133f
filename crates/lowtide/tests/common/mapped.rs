//! Files that are mapped, and what their words are.
#![allow(dead_code, reason = "each test file uses some of it")]

use lowtide::Pager;
use std::io::Write;

pub(crate) const PAGE: usize = 4096;

/// A file whose every eight bytes are their own offset.
pub(crate) fn file(pages: usize) -> tempfile::NamedTempFile {
    // The build folder is on a disk, the system's temporary folder may be in memory.
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let words = (0..pages * PAGE / 8).flat_map(|word| (word as u64 * 8).to_le_bytes());
    file.write_all(&words.collect::<Vec<_>>()).unwrap();
    file.as_file().sync_all().unwrap();
    file
}

pub(crate) fn pager(max: &str) -> Pager {
    Pager::builder().max(max.parse().unwrap()).build().unwrap()
}

pub(crate) fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

/// Numbers without a pattern.
pub(crate) fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}
