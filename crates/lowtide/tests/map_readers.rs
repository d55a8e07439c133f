//! Promise: whatever reads all memory of the process (a debugger, a scanner, a crash handler)
//! changes no byte of a map that is stored to, and makes no memory: of a file and without one.

use crate::common::mapped::smaps;
use crate::common::scene::alone;
use lowtide::map::{MapError, MapMode, MapMut, MapOptions};
use lowtide::{Pager, Size, SwapOptions};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const PAGE: usize = 4096;
const PAGES: usize = 1024;
const BUDGET: u64 = 1 << 20;

/// Mappings of this process whose name says lowtide, and their flags.
fn mappings() -> Vec<(std::ops::Range<usize>, String)> {
    let ours = smaps().into_iter().filter(|(_, name, _)| name.contains("memfd:lowtide"));
    ours.map(|(range, _, flags)| (range, flags)).collect()
}

/// Reads a page of the process's memory in each way that there is, and says whether one did:
/// `/proc/self/mem` waits for no page that is not in memory.
fn read(memory: &File, address: usize) -> bool {
    let mut page = [0; PAGE];
    let here = memory.read_exact_at(&mut page, address as u64).is_ok();
    let to =
        libc::iovec { iov_base: IoSliceMut::new(&mut page).as_mut_ptr().cast(), iov_len: PAGE };
    let from = libc::iovec { iov_base: address as *mut _, iov_len: PAGE };
    let me = std::process::id().cast_signed();
    // SAFETY: the place for the bytes is this function's; the other may be any.
    #[allow(unsafe_code)]
    let copied = unsafe { libc::process_vm_readv(me, &raw const to, 1, &raw const from, 1, 0) };
    here || copied == PAGE.cast_signed()
}

/// Reads all of the process's memory that is lowtide's. Returns the pages that could be read.
fn read_all() -> usize {
    let memory = File::open("/proc/self/mem").unwrap();
    let mappings = mappings();
    assert!(!mappings.is_empty());
    let addresses = mappings.iter().flat_map(|(range, _)| range.clone().step_by(PAGE));
    addresses.filter(|&address| read(&memory, address)).count()
}

/// Where mappings of lowtide's begin, without their flags, which take the kernel long.
fn beginnings() -> Vec<usize> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lines = text.lines().filter(|line| line.contains("memfd:lowtide"));
    let begin = |line: &str| usize::from_str_radix(line.split_once('-')?.0, 16).ok();
    lines.filter_map(begin).collect()
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
        Err(MapError::Mode { why, .. }) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        made => Some(made.unwrap()),
    }
}

#[test]
fn a_file_that_is_stored_to_keeps_its_bytes_and_every_store() {
    alone(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, (0..PAGES).flat_map(|page| [value(page); PAGE]).collect::<Vec<_>>())
            .unwrap();
        let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        // SAFETY: the file is this test's.
        #[allow(unsafe_code)]
        let made = unsafe { MapOptions::new().mode(MapMode::Userfault).map_mut(&pager, &file) };
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
    });
}

/// Between mapping memory and registering it with `userfaultfd(2)` the kernel makes zeroes.
#[test]
fn what_is_read_while_a_map_is_made_is_not_kept() {
    alone(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 64 * PAGE]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let memory = File::open("/proc/self/mem").unwrap();
                while !ended.load(Relaxed) {
                    for address in beginnings() {
                        read(&memory, address);
                    }
                }
            });
            for round in 0..3000_u32 {
                let stored = 2 + (round % 200) as u8;
                // SAFETY: the file is this test's.
                #[allow(unsafe_code)]
                let made =
                    unsafe { MapOptions::new().mode(MapMode::Userfault).map_mut(&pager, &file) };
                let Some(mut map) = skip(made) else { break };
                let was = map[0];
                map[0] = stored;
                map.flush().unwrap();
                drop(map);
                let mut now = [0];
                file.read_exact_at(&mut now, 0).unwrap();
                if was == 0 || now[0] != stored {
                    ended.store(true, Relaxed);
                    panic!("round {round}: {was} was loaded, and {now:?} is in the file");
                }
            }
            ended.store(true, Relaxed);
        });
    });
}

#[test]
fn memory_without_a_file_keeps_its_bytes_and_its_budget() {
    alone(|| {
        let swap = SwapOptions::compressed(Size::mib(4));
        let pager = Pager::builder().max(Size::mib(1)).swap(swap).build().unwrap();
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
    });
}
