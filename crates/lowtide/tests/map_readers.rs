//! Promise: whatever reads all memory of the process (a debugger, a scanner, a crash handler)
//! changes no byte of a map that is stored to, and makes no memory: of a file and without one.

use lowtide::map::{MapError, MapMut, MapOptions, Way};
use lowtide::{Pager, Swap};
use std::fs::File;
use std::io::{IoSliceMut, Read, Seek, SeekFrom};

const PAGE: usize = 4096;
const PAGES: usize = 1024;
const BUDGET: u64 = 1 << 20;

/// Ranges of this process that can be read, and their flags, of mappings whose name says lowtide.
fn mappings() -> Vec<(std::ops::Range<usize>, String)> {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut all = Vec::new();
    let mut last = None;
    for line in text.lines() {
        let first = line.split(' ').next().unwrap();
        if let Some((start, end)) = first.split_once('-')
            && let (Ok(start), Ok(end)) =
                (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            last = line.contains("memfd:lowtide").then_some(start..end);
        } else if let (Some(range), Some(flags)) = (&last, line.strip_prefix("VmFlags:")) {
            all.push((range.clone(), flags.to_owned()));
        }
    }
    all
}

/// Reads all of the process's memory that is lowtide's, in each way that there is. Returns the
/// pages that could be read.
fn read_all() -> usize {
    let mut memory = File::open("/proc/self/mem").unwrap();
    let (mut read, mut page) = (0, [0; PAGE]);
    let mappings = mappings();
    assert!(!mappings.is_empty());
    for address in mappings.iter().flat_map(|(range, _)| range.clone().step_by(PAGE)) {
        memory.seek(SeekFrom::Start(address as u64)).unwrap();
        read += usize::from(memory.read_exact(&mut page).is_ok());
        let to =
            libc::iovec { iov_base: IoSliceMut::new(&mut page).as_mut_ptr().cast(), iov_len: 1 };
        let from = libc::iovec { iov_base: address as *mut _, iov_len: 1 };
        let me = std::process::id().cast_signed();
        // SAFETY: the place for the bytes is this function's; the other may be any.
        #[allow(unsafe_code)]
        let _ = unsafe { libc::process_vm_readv(me, &raw const to, 1, &raw const from, 1, 0) };
    }
    read
}

fn value(page: usize) -> u8 {
    (page % 251) as u8 + 1
}

/// Reads everything, and compares each page twice. Says how many pages are wrong.
fn wrong(map: &MapMut, at: usize) -> usize {
    assert!(read_all() > 0, "no page could be read");
    (0..2 * PAGES).filter(|page| map[page % PAGES * PAGE + at] != value(page % PAGES)).count()
}

/// Bytes of memory that the process has of memfds and the like.
fn shmem() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssShmem:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn skip<T>(made: Result<T, MapError>) -> Option<T> {
    match made {
        Err(MapError::Way { why, .. }) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        made => Some(made.unwrap()),
    }
}

#[test]
fn a_file_that_is_stored_to_keeps_its_bytes_and_every_store() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, (0..PAGES).flat_map(|page| [value(page); PAGE]).collect::<Vec<_>>())
        .unwrap();
    let pager = Pager::builder().max("1M".parse().unwrap()).build().unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: the file is this test's.
    #[allow(unsafe_code)]
    let made = unsafe { MapOptions::new().way(Way::Userfault).map_mut(&pager, &file) };
    let Some(mut map) = skip(made) else { return };
    assert_eq!(wrong(&map, 0), 0);
    (0..PAGES).for_each(|page| map[page * PAGE + 1] = value(page));
    assert_eq!(wrong(&map, 1), 0);
    assert!(shmem() <= 2 * BUDGET, "{} bytes", shmem());
    map.flush().unwrap();
    drop(map);
    let bytes = std::fs::read(&path).unwrap();
    let lost = (0..PAGES).filter(|page| bytes[page * PAGE + 1] != value(*page)).count();
    assert_eq!(lost, 0, "stores are not in the file");
}

#[test]
fn memory_without_a_file_keeps_its_bytes_and_its_budget() {
    let swap = Swap::compressed("4M".parse().unwrap());
    let pager = Pager::builder().max("1M".parse().unwrap()).swap(swap).build().unwrap();
    let options = MapOptions::new().len(PAGES * PAGE).growth(64 << 20);
    let Some(mut map) = skip(options.map_anon(&pager)) else { return };
    (0..PAGES).for_each(|page| map[page * PAGE..][..PAGE].fill(value(page)));
    assert_eq!(wrong(&map, 0), 0);
    assert_eq!(wrong(&map, PAGE - 1), 0);
    assert!(pager.root().usage().unwrap() <= BUDGET);
    assert!(shmem() <= 2 * BUDGET, "{} bytes", shmem());
    // A core dump has the map, and not the addresses that it may grow into.
    let dumped: usize = mappings()
        .iter()
        .filter(|(_, flags)| !flags.split(' ').any(|flag| flag == "dd"))
        .map(|(range, _)| range.len())
        .sum();
    assert_eq!(dumped, PAGES * PAGE);
    pager.validate().unwrap();
}
