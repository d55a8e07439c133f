//! Files that are mapped, and what their words are.
#![allow(dead_code, reason = "each test file uses some of it")]

use lowtide::Pager;
use lowtide::Size;
use lowtide::map::MapError;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

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
    Pager::builder().max(max.parse::<Size>().unwrap()).build().unwrap()
}

pub(crate) fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

/// What was made, unless the machine has no `userfaultfd`.
pub(crate) fn or_skip<T>(made: Result<T, MapError>) -> Option<T> {
    match made {
        Err(MapError::Mode { why, .. }) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        made => Some(made.unwrap()),
    }
}

/// All memory and all swap of a pager has been given back.
pub(crate) fn check_empty(pager: &Pager) {
    pager.validate().unwrap();
    let root = pager.root();
    assert_eq!((root.usage().unwrap(), root.swap_usage().unwrap()), (0, 0));
    assert_eq!(root.stat().unwrap().anon, 0);
    assert_eq!(pager.swap_file().map_or(0, |file| file.used), 0);
}

/// Bytes of a file in the page cache.
pub(crate) fn cached_bytes(file: &File) -> u64 {
    lowtide_sys::page_cache::cached_pages(file).expect("a count") * PAGE as u64
}

/// Waits until the page cache has at most this much of a file.
pub(crate) fn await_cached(file: &File, most: u64) {
    let began = Instant::now();
    while cached_bytes(file) > most {
        assert!(began.elapsed() < Duration::from_secs(60), "{} bytes stay", cached_bytes(file));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The mappings of this process: addresses, the line that names them, and flags.
pub(crate) fn smaps() -> Vec<(Range<usize>, String, String)> {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut all = Vec::new();
    let mut last = None;
    for line in text.lines() {
        let first = line.split(' ').next().unwrap();
        if let Some((start, end)) = first.split_once('-')
            && let (Ok(start), Ok(end)) =
                (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            last = Some((start..end, line.to_owned()));
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && let Some((range, name)) = last.take()
        {
            all.push((range, name, flags.to_owned()));
        }
    }
    all
}

/// Numbers without a pattern.
pub(crate) fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}
