//! What programs rely on that use memmap2, tested on memmap2 itself, on this crate without a
//! budget, and within one that is smaller than the files: the results are the same.

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the files that are mapped are known to these tests alone"
)]

use std::env;
use std::process::Command;

/// All tests, for a crate.
macro_rules! suite {
    ($name:ident, $memmap:ident) => {
        mod $name {
            use std::fs::{self, File};
            use std::io::{ErrorKind, Write};
            use std::os::fd::{AsRawFd, FromRawFd};
            use std::path::PathBuf;
            use tempfile::TempDir;
            use $memmap::{
                Advice, Mmap, MmapMut, MmapOptions, MmapRaw, RemapOptions, UncheckedAdvice,
            };

            const LONG: usize = 2 << 20;

            fn byte(at: usize) -> u8 {
                (at * 31 + (at >> 12)) as u8
            }

            /// A file that is longer than the budget of the second run.
            fn long() -> (TempDir, PathBuf) {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("long");
                fs::write(&path, (0..LONG).map(byte).collect::<Vec<u8>>()).unwrap();
                (dir, path)
            }

            fn writable(path: &PathBuf) -> File {
                File::options()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(path)
                    .unwrap()
            }

            #[test]
            fn the_bytes_of_a_file_are_those_of_its_map() {
                let (_dir, path) = long();
                let file = File::open(&path).unwrap();
                let map = unsafe { Mmap::map(&file) }.unwrap();
                drop(file);
                assert_eq!(map.len(), LONG);
                for _ in 0..2 {
                    assert!(map.iter().enumerate().all(|(at, b)| *b == byte(at)));
                }
                assert_eq!(map.as_ref()[..16], map[..16]);
                let text = format!("{map:?}");
                assert!(text.contains("Mmap") && text.contains(&LONG.to_string()), "{text}");
            }

            #[test]
            fn a_part_begins_and_ends_anywhere() {
                let (_dir, path) = long();
                let file = File::open(&path).unwrap();
                for (offset, len) in [(0, 1), (1, 4095), (4096, 4096), (70_001, 99_999)] {
                    let map = unsafe { MmapOptions::new().offset(offset).len(len).map(&file) };
                    let map = map.unwrap();
                    assert_eq!(map.len(), len);
                    let at = offset as usize;
                    assert!(map.iter().zip(at..).all(|(b, at)| *b == byte(at)));
                }
                let rest = unsafe { MmapOptions::new().offset(70_000).map(file.as_raw_fd()) };
                assert_eq!(rest.unwrap().len(), LONG - 70_000);
                let past = unsafe { MmapOptions::new().offset(LONG as u64 + 1).map(&file) };
                assert_eq!(past.unwrap_err().kind(), ErrorKind::InvalidData);
                let long = unsafe { MmapOptions::new().len(usize::MAX).map(&file) };
                assert_eq!(long.unwrap_err().kind(), ErrorKind::InvalidData);
                assert!(unsafe { Mmap::map(100_000) }.is_err());
            }

            #[test]
            fn what_has_no_bytes_is_an_empty_map() {
                let dir = tempfile::tempdir().unwrap();
                let file = writable(&dir.path().join("empty"));
                assert!(unsafe { Mmap::map(&file) }.unwrap().is_empty());
                assert!(unsafe { MmapMut::map_mut(&file) }.unwrap().is_empty());
                assert!(unsafe { MmapOptions::new().map_copy(&file) }.unwrap().is_empty());
                let raw = MmapRaw::map_raw(&file).unwrap();
                assert_eq!(raw.len(), 0);
                raw.flush().unwrap();
                assert!(MmapOptions::new().map_anon().unwrap().is_empty());
            }

            #[test]
            fn stores_reach_the_file() {
                let (_dir, path) = long();
                let file = writable(&path);
                let mut map = unsafe { MmapMut::map_mut(&file) }.unwrap();
                for at in (0..LONG).step_by(4096) {
                    map[at] = !byte(at);
                }
                map.flush_range(0, 4096).unwrap();
                map.flush_async_range(5000, 100).unwrap();
                map.flush_async().unwrap();
                map.flush().unwrap();
                let bytes = fs::read(&path).unwrap();
                for at in 0..LONG {
                    let expected = if at % 4096 == 0 { !byte(at) } else { byte(at) };
                    assert_eq!((bytes[at], map[at]), (expected, expected), "{at}");
                }
                // What another part of the program writes is seen at once.
                file.write_at_all(b"seen", 9000);
                assert_eq!(&map[9000..9004], b"seen");
                let read_only = map.make_read_only().unwrap();
                assert_eq!(read_only[1], byte(1));
                let mut again = read_only.make_mut().unwrap();
                again.as_mut()[1] = 77;
                assert_eq!(again[1], 77);
            }

            trait WriteAtAll {
                fn write_at_all(&self, bytes: &[u8], at: u64);
            }

            impl WriteAtAll for File {
                fn write_at_all(&self, bytes: &[u8], at: u64) {
                    std::os::unix::fs::FileExt::write_all_at(self, bytes, at).unwrap();
                }
            }

            #[test]
            fn a_file_that_may_not_be_written_cannot_be_mapped_for_stores() {
                let (_dir, path) = long();
                let file = File::open(&path).unwrap();
                let refused = unsafe { MmapMut::map_mut(&file) }.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
                assert!(MmapOptions::new().map_raw(&file).is_err());
                let map = unsafe { Mmap::map(&file) }.unwrap();
                assert_eq!(map.make_mut().unwrap_err().kind(), ErrorKind::PermissionDenied);
            }

            #[test]
            fn stores_to_a_copy_are_its_own_and_stay() {
                let (_dir, path) = long();
                let file = File::open(&path).unwrap();
                let mut copy = unsafe { MmapOptions::new().map_copy(&file) }.unwrap();
                let later = unsafe { MmapOptions::new().map_copy_read_only(&file) }.unwrap();
                assert!(later.iter().enumerate().all(|(at, b)| *b == byte(at)));
                let mut later = later.make_mut().unwrap();
                copy.fill(1);
                later.fill(2);
                copy.flush().unwrap();
                assert!(copy.iter().all(|b| *b == 1) && later.iter().all(|b| *b == 2));
                let kept = later.make_read_only().unwrap();
                assert!(kept.iter().all(|b| *b == 2));
                assert!(fs::read(&path).unwrap().iter().enumerate().all(|(at, b)| *b == byte(at)));
            }

            #[test]
            fn memory_without_a_file_is_zeroes_and_keeps_what_is_stored() {
                let mut map = MmapMut::map_anon(LONG).unwrap();
                assert!(map.iter().all(|b| *b == 0));
                map.iter_mut().enumerate().for_each(|(at, b)| *b = byte(at));
                assert!(map.iter().enumerate().all(|(at, b)| *b == byte(at)));
                map.flush().unwrap();
                let stack = MmapOptions::new()
                    .len(8192)
                    .stack()
                    .populate()
                    .no_reserve_swap()
                    .map_anon()
                    .unwrap();
                assert_eq!(stack.len(), 8192);
                assert!(MmapOptions::new().len(usize::MAX).map_anon().is_err());
            }

            #[test]
            #[cfg(target_arch = "x86_64")]
            fn code_can_be_executed() {
                // mov eax, 42; ret
                let code = [0xb8, 42, 0, 0, 0, 0xc3];
                let mut map = MmapMut::map_anon(4096).unwrap();
                map[..6].copy_from_slice(&code);
                let map = map.make_exec().unwrap();
                let run: extern "C" fn() -> i32 = unsafe { std::mem::transmute(map.as_ptr()) };
                assert_eq!(run(), 42);
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("code");
                fs::write(&path, code).unwrap();
                let map = unsafe { MmapOptions::new().map_exec(&File::open(&path).unwrap()) };
                let map = map.unwrap();
                let run: extern "C" fn() -> i32 = unsafe { std::mem::transmute(map.as_ptr()) };
                assert_eq!(run(), 42);
            }

            #[test]
            fn a_raw_map_is_reached_by_pointers() {
                let (_dir, path) = long();
                let file = writable(&path);
                let raw = MmapRaw::map_raw(&file).unwrap();
                unsafe { raw.as_mut_ptr().add(6000).write(200) };
                raw.flush_range(4096, 4096).unwrap();
                raw.flush_async().unwrap();
                assert_eq!(fs::read(&path).unwrap()[6000], 200);
                let read_only = MmapOptions::new().map_raw_read_only(&file).unwrap();
                assert_eq!(unsafe { read_only.as_ptr().add(6000).read() }, 200);
                let from: MmapRaw = unsafe { Mmap::map(&file) }.unwrap().into();
                let from_mut: MmapRaw = unsafe { MmapMut::map_mut(&file) }.unwrap().into();
                assert_eq!((from.len(), from_mut.len()), (LONG, LONG));
            }

            #[test]
            fn advice_and_locks_change_no_byte() {
                let (_dir, path) = long();
                let file = writable(&path);
                let map = unsafe { MmapOptions::new().populate().map(&file) }.unwrap();
                assert!(Advice::Random.is_supported() && UncheckedAdvice::DontNeed.is_supported());
                for advice in [
                    Advice::Random,
                    Advice::Sequential,
                    Advice::Normal,
                    Advice::WillNeed,
                    Advice::DontFork,
                    Advice::DoFork,
                    Advice::DontDump,
                    Advice::DoDump,
                    Advice::PopulateRead,
                ] {
                    map.advise(advice).unwrap();
                    map.advise_range(advice, 8192, 10_000).unwrap();
                }
                unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, 0, 8192) }.unwrap();
                assert!(map.iter().enumerate().all(|(at, b)| *b == byte(at)));
                let small = unsafe { MmapOptions::new().len(8192).map(&file) }.unwrap();
                small.lock().unwrap();
                assert_eq!(small[0], byte(0));
                small.unlock().unwrap();
                assert_eq!(small[8191], byte(8191));
            }

            #[test]
            fn a_map_grows_and_shrinks() {
                let dir = tempfile::tempdir().unwrap();
                let file = writable(&dir.path().join("growing"));
                (&file).write_all(&[1; 4096]).unwrap();
                let mut map = unsafe { MmapOptions::new().map_mut(&file) }.unwrap();
                file.set_len(LONG as u64).unwrap();
                let may_move = RemapOptions::new().may_move(true);
                unsafe { map.remap(LONG, may_move) }.unwrap();
                assert_eq!((map.len(), map[0], map[LONG - 1]), (LONG, 1, 0));
                map.fill(5);
                unsafe { map.remap(100, RemapOptions::new()) }.unwrap();
                assert_eq!((map.len(), map[99]), (100, 5));
                let mut read = unsafe { MmapOptions::new().offset(10).len(50).map(&file) }.unwrap();
                unsafe { read.remap(LONG - 10, may_move) }.unwrap();
                assert!(read.len() == LONG - 10 && read.iter().all(|b| *b == 5));
            }

            #[test]
            fn only_what_no_process_can_change_is_safe() {
                let (_dir, path) = long();
                let error = Mmap::map_if_safe(&File::open(&path).unwrap()).unwrap_err();
                assert!(error.not_safe() && !error.map_failed() && !error.not_supported());
                let fd = unsafe { libc::memfd_create(c"sealed".as_ptr(), libc::MFD_ALLOW_SEALING) };
                let file = unsafe { File::from_raw_fd(fd) };
                (&file).write_all(b"sealed bytes").unwrap();
                let error = MmapOptions::new().map_if_safe(&file).unwrap_err();
                assert!(error.not_safe(), "{error:?}");
                let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE;
                assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) }, 0);
                assert_eq!(&MmapOptions::new().map_if_safe(&file).unwrap()[..], b"sealed bytes");
                let error = MmapOptions::new().len(13).map_if_safe(&file).unwrap_err();
                let error: std::io::Error = error.into();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
            }

            #[test]
            fn threads_share_a_map() {
                let (_dir, path) = long();
                let map = unsafe { Mmap::map(&File::open(&path).unwrap()) }.unwrap();
                std::thread::scope(|scope| {
                    for first in 0..4 {
                        let map = &map;
                        scope.spawn(move || {
                            for at in (first * 1000..LONG).step_by(4096) {
                                assert_eq!(map[at], byte(at));
                            }
                        });
                    }
                });
            }

            #[test]
            fn a_child_of_fork_has_the_maps_of_its_parent() {
                let (_dir, path) = long();
                let map = unsafe { Mmap::map(&File::open(&path).unwrap()) }.unwrap();
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // No test of the harness goes on here.
                    let right = map.iter().enumerate().all(|(at, b)| *b == byte(at));
                    drop(map);
                    let own = File::open(&path).and_then(|file| unsafe { Mmap::map(&file) });
                    let right = right && own.is_ok_and(|map| map[5000] == byte(5000));
                    unsafe { libc::_exit(if right { 0 } else { 1 }) };
                }
                let mut status = -1;
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
                assert_eq!(map[LONG - 1], byte(LONG - 1));
            }
        }
    };
}

suite!(memmap2_itself, memmap2);
suite!(ours, lowtide_memmap2);

/// The budget of the second run: half of the long file.
const BUDGET: &str = "1M";

#[test]
fn within_a_budget_all_is_the_same() {
    if env::var_os("LOWTIDE_MAX").is_some() {
        return;
    }
    let run = Command::new(env::current_exe().unwrap())
        // Of a child of `fork` the harness has other threads otherwise, which may hold its locks.
        .args(["behaviour::ours", "--test-threads", "1"])
        .env("LOWTIDE_MAX", BUDGET)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{text}{}", String::from_utf8_lossy(&run.stderr));
    assert!(text.contains("14 passed"), "{text}");
}
