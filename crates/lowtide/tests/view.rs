//! What a user of one view relies on: the right bytes, at every edge of a file, under every I/O
//! engine.

use crate::common::{Dir, byte_at, make_file};
use lowtide::advanced::{OpenAdvanced as _, PagerAdvanced as _};
use lowtide::{Error, IoEngine, IoMode, OpenError, OpenOptions, Pager, Size};

const KIB: u64 = 1024;

fn pager(max: &str) -> Pager {
    Pager::builder().max(max.parse::<Size>().unwrap()).build().unwrap()
}

#[test]
fn a_file_larger_than_the_budget_reads_back_right() {
    for (engine, mode) in [
        (IoEngine::Auto, IoMode::Auto),
        (IoEngine::Psync, IoMode::Auto),
        (IoEngine::Auto, IoMode::Buffered),
        (IoEngine::Psync, IoMode::Buffered),
    ] {
        let dir = Dir::new();
        let path = make_file(&dir, 4096 * KIB);
        let pager =
            Pager::builder().max(Size::kib(512)).io_engine(engine).direct(mode).build().unwrap();
        let view = pager.open(&path).unwrap();
        for round in 0..3 {
            for i in 0..view.page_count() {
                let page = (i * 7919 + round) % view.page_count();
                let bytes = view.page(page).unwrap();
                assert!(
                    bytes.iter().zip(page * 4096..).all(|(b, at)| *b == byte_at(at)),
                    "page {page}"
                );
            }
        }
        let stat = pager.stat();
        assert!(
            stat.memory.events.workingset_refault_file > 0,
            "{engine} {mode:?}: nothing was ever evicted"
        );
        assert!(stat.memory.current <= stat.memory.max);
        pager.validate().unwrap();
    }
}

#[test]
fn a_thread_that_must_not_wait_gets_what_is_in_memory_and_nothing_is_read_for_it() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * KIB);
    let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
    let view = OpenOptions::new().write(true).open(&pager, path).unwrap();
    for page in 0..view.page_count() {
        assert!(view.try_page(page).unwrap().is_none(), "page {page}");
    }
    let stat = pager.stat();
    assert_eq!((stat.io.reads, stat.misses, stat.hits), (0, 0, 0));
    drop(view.page(3).unwrap());
    let guard = view.try_page(3).unwrap().expect("it is in memory");
    assert!(guard.iter().zip(3 * 4096..).all(|(b, at)| *b == byte_at(at)));
    // It is a guard like others.
    let refused = view.write_at(3 * 4096, b"x").unwrap_err();
    assert!(matches!(refused, Error::HeldHere { page: 3, .. }), "{refused}");
    drop(guard);
    view.write_at(3 * 4096, b"x").unwrap();
    let seen = view.try_page(3).unwrap().map(|page| page[0]);
    assert_eq!(seen, Some(b'x'));
    assert!(matches!(view.try_page(16), Err(Error::OutOfRange { .. })));
    assert_eq!(pager.stat().io.reads, 1);
}

#[test]
fn every_page_size_reads_the_same_bytes() {
    let dir = Dir::new();
    let path = make_file(&dir, 1024 * KIB + 777);
    for page_bytes in [512, 1024, 4096, 16384, 65536] {
        let max = (64 * page_bytes as u64).to_string();
        let pager = Pager::builder()
            .max(max.parse::<Size>().unwrap())
            .base_page(page_bytes)
            .build()
            .unwrap();
        let view = pager.open(&path).unwrap();
        assert_eq!(view.page_count(), (1024 * KIB + 777).div_ceil(page_bytes as u64));
        let mut all = vec![0; view.len() as usize];
        view.read_at(0, &mut all).unwrap();
        assert!(all.iter().zip(0..).all(|(b, at)| *b == byte_at(at)), "{page_bytes}");
        let last = view.page(view.page_count() - 1).unwrap();
        let valid = (view.len() - (view.page_count() - 1) * page_bytes as u64) as usize;
        assert!(last[valid..].iter().all(|b| *b == 0), "past the end there are zeroes");
        drop(last);
        pager.validate().unwrap();
    }
}

#[test]
fn get_many_shows_every_page_once_in_any_order_duplicates_too() {
    let dir = Dir::new();
    let path = make_file(&dir, 2048 * KIB);
    for engine in [IoEngine::Auto, IoEngine::Psync] {
        let pager =
            Pager::builder().max(Size::kib(256)).io_engine(engine).depth(16).build().unwrap();
        let view = pager.open(&path).unwrap();
        let list: Vec<u64> = (0..view.page_count())
            .chain([5, 5, 5, 0])
            .map(|p| p * 31 % view.page_count())
            .collect();
        let mut seen = vec![0; list.len()];
        view.get_many(&list, |i, bytes| {
            seen[i] += 1;
            assert!(bytes.iter().zip(list[i] * 4096..).all(|(b, at)| *b == byte_at(at)));
        })
        .unwrap();
        assert!(seen.iter().all(|n| *n == 1));
        pager.validate().unwrap();
    }
}

#[test]
fn writes_are_read_back_before_and_after_eviction_and_by_others_after_flush() {
    let dir = Dir::new();
    let path = dir.path().join("new");
    let pager = pager("256K");
    let view = OpenOptions::new().create_with_len(4096 * KIB).open(&pager, &path).unwrap();
    for i in 0..1024_u64 {
        view.write_at(i * 4096 + i % 1000, &i.to_le_bytes()).unwrap();
    }
    view.flush().unwrap();
    let check = |bytes: &[u8], i: u64| {
        let at = (i % 1000) as usize;
        assert_eq!(bytes[at..at + 8], i.to_le_bytes(), "page {i}");
    };
    for i in 0..1024 {
        check(&view.page(i).unwrap(), i);
    }
    let on_disk = std::fs::read(&path).unwrap();
    for i in 0..1024 {
        check(&on_disk[i as usize * 4096..][..4096], i);
    }
    pager.validate().unwrap();
}

#[test]
fn pages_with_the_highest_numbers_are_out_of_range_and_nothing_overflows() {
    let dir = Dir::new();
    let view = pager("256K").open(make_file(&dir, 64 * KIB)).unwrap();
    for page in [16, u64::MAX >> 12, u64::MAX - 1, u64::MAX] {
        assert!(matches!(view.page(page), Err(Error::OutOfRange { .. })), "page {page}");
        let two = view.get_many(&[page - 1, page], |at, _| assert_eq!((at, page), (0, 16)));
        assert!(matches!(two, Err(Error::OutOfRange { .. })), "page {page}");
    }
}

#[test]
fn a_write_behind_the_end_makes_the_file_longer_by_that_much() {
    let dir = Dir::new();
    let path = dir.path().join("grows");
    let pager = pager("256K");
    let view = OpenOptions::new().create_with_len(0).open(&pager, &path).unwrap();
    assert!(view.is_empty());
    assert!(matches!(view.page(0), Err(Error::OutOfRange { offset: 0, bytes: 4096, len: 0, .. })));
    view.write_at(10_000, b"end").unwrap();
    assert_eq!(view.len(), 10_003);
    view.flush().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[10_000..]), (10_003, &b"end"[..]));
    assert!(bytes[..10_000].iter().all(|b| *b == 0));
}

#[test]
fn a_file_that_shrinks_gives_an_error_and_one_that_grows_is_followed() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * KIB);
    let pager = pager("256K");
    let view = pager.open(&path).unwrap();
    drop(view.page(0).unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(6000).unwrap();
    assert!(view.page(0).is_ok(), "a resident page stays readable");
    let half = view.page(1).unwrap();
    assert_eq!(half[..6000 - 4096], (4096..6000).map(byte_at).collect::<Vec<_>>());
    assert!(half[6000 - 4096..].iter().all(|b| *b == 0));
    drop(half);
    let Err(Error::OutOfRange { offset: 36864, len: 6000, .. }) = view.page(9) else {
        panic!("page 9 is gone")
    };
    file.set_len(128 * KIB).unwrap();
    assert!(view.page(31).unwrap().iter().all(|b| *b == 0));
    assert_eq!(view.len(), 128 * KIB);
    pager.validate().unwrap();
}

#[test]
fn large_folios_bring_neighbours_and_fall_back_where_there_is_no_room() {
    let dir = Dir::new();
    let path = make_file(&dir, 8192 * KIB);
    let pager = Pager::builder().max(Size::mib(1)).background(false).build().unwrap();
    let small = pager.open(&path).unwrap();
    let large = OpenOptions::new().folio_order(4).open(&pager, &path).unwrap();
    let before = pager.stat().io.reads;
    drop(large.page(16).unwrap());
    for page in 16..32 {
        drop(large.page(page).unwrap());
    }
    assert_eq!(pager.stat().io.reads - before, 1, "sixteen pages came with one read");
    for i in 0..4000 {
        let (view, page) =
            if i % 3 == 0 { (&large, i * 37 % 2048) } else { (&small, i * 101 % 2048) };
        let bytes = view.page(page).unwrap();
        assert!(bytes.iter().zip(page * 4096..).all(|(b, at)| *b == byte_at(at)), "page {page}");
    }
    pager.validate().unwrap();
    drop(large);
    pager.validate().unwrap();
    drop(small);
    assert_eq!(pager.stat().memory.current, 0, "closing gives every frame back");
}

#[test]
fn guards_keep_their_pages_and_a_budget_full_of_them_is_a_typed_error() {
    let dir = Dir::new();
    let path = make_file(&dir, 1024 * KIB);
    let pager = Pager::builder()
        .max(Size::kib(128))
        .memory_timeout(std::time::Duration::from_millis(50))
        .build()
        .unwrap();
    let view = pager.open(&path).unwrap();
    let guards: Vec<_> = (0..32).map(|page| view.page(page).unwrap()).collect();
    let Err(Error::OutOfBudget { report }) = view.page(40) else { panic!("all frames are held") };
    assert_eq!((report.limit_bytes, report.stat.file_dirty, &*report.tenant), (128 * KIB, 0, "/"));
    for (guard, page) in guards.iter().zip(0..) {
        assert!(guard.iter().zip(page * 4096..).all(|(b, at)| *b == byte_at(at)));
    }
    drop(guards);
    drop(view.page(40).unwrap());
    pager.validate().unwrap();
}

#[test]
fn writing_to_a_page_that_one_holds_is_refused_not_a_deadlock() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * KIB);
    let pager = pager("256K");
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    let guard = view.page(3).unwrap();
    assert!(matches!(view.write_at(3 * 4096, b"x"), Err(Error::HeldHere { page: 3, .. })));
    drop(guard);
    view.write_at(3 * 4096, b"x").unwrap();
    let read_only = pager.open(&path).unwrap();
    assert!(matches!(read_only.write_at(0, b"x"), Err(Error::ReadOnly { .. })));
}

#[test]
fn impossible_files_and_options_are_refused_with_a_reason() {
    let dir = Dir::new();
    let pager = pager("256K");
    assert!(matches!(pager.open(dir.path()), Err(OpenError::Kind { .. })));
    let missing = pager.open(dir.path().join("missing")).unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
    let path = make_file(&dir, 4 * KIB);
    let huge = OpenOptions::new().folio_order(9).open(&pager, &path).unwrap_err();
    assert!(matches!(huge, OpenError::FolioOrder { .. }), "{huge}");
    for (max, page, what) in
        [("0", 4096, "too small"), ("64K", 4096, "too small"), ("1M", 1000, "power of two")]
    {
        let error =
            Pager::builder().max(max.parse::<Size>().unwrap()).base_page(page).build().unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn descriptor_reads_and_prefetch_see_the_same_bytes() {
    let dir = Dir::new();
    let path = make_file(&dir, 512 * KIB);
    for policy in ["mglru", "mglru-7.1", "lru", "tide"] {
        let pager = Pager::builder()
            .max(Size::kib(128))
            .policy(policy.parse().unwrap())
            .background(false)
            .build()
            .unwrap();
        let view = pager.open(&path).unwrap();
        view.prefetch(0..16 << 12);
        let before = pager.stat().io.reads;
        let mut buf = [0; 5000];
        for i in 0..400_u64 {
            let offset = i * 7919 % (512 * KIB - 5000);
            view.read_at(offset, &mut buf).unwrap();
            assert!(buf.iter().zip(offset..).all(|(b, at)| *b == byte_at(at)));
            if i == 0 {
                assert_eq!(
                    pager.stat().io.reads,
                    before,
                    "{policy}: pages 0 and 1 were read ahead"
                );
            }
        }
        assert!(view.read_at(512 * KIB - 10, &mut buf).is_err());
        pager.validate().unwrap();
    }
}

/// A loop device over a file, detached on drop. `None`, and a line that says so, where none can be
/// made.
struct LoopDevice(String);

impl LoopDevice {
    fn over(path: &std::path::Path) -> Option<Self> {
        let made =
            std::process::Command::new("losetup").args(["--find", "--show"]).arg(path).output();
        match made {
            Ok(out) if out.status.success() => {
                Some(Self(String::from_utf8(out.stdout).ok()?.trim().to_owned()))
            }
            Ok(out) => {
                eprintln!("SKIPPED: no loop device: {}", String::from_utf8_lossy(&out.stderr));
                None
            }
            Err(e) => {
                eprintln!("SKIPPED: losetup cannot be run: {e}");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_read_and_written_like_a_file_of_its_size() {
    let dir = Dir::new();
    let path = make_file(&dir, 1 << 20);
    let Some(device) = LoopDevice::over(&path) else { return };
    let pager = pager("256K");
    let view = OpenOptions::new().write(true).open(&pager, &device.0).unwrap();
    assert_eq!((view.len(), view.page_count()), (1 << 20, 256));
    for page in 0..256 {
        assert_eq!(view.page(page).unwrap()[9], byte_at(page * 4096 + 9));
    }
    view.write_at(700_000, b"block").unwrap();
    view.flush().unwrap();
    assert!(view.write_at(1 << 20, b"x").is_err(), "a device does not grow");
    drop(view);
    drop(device);
    assert_eq!(&std::fs::read(&path).unwrap()[700_000..700_005], b"block");
    pager.validate().unwrap();
}

/// Reclaim that meets nothing but dirty pages has them written; without background threads, by the
/// thread that needs memory.
#[test]
fn more_is_written_than_the_budget_holds_without_background_threads() {
    for policy in ["mglru", "mglru-7.1", "lru", "tide"] {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(512 * 4096).unwrap();
        let pager = Pager::builder()
            .max(Size::new(64 * 4096))
            .policy(policy.parse().unwrap())
            .background(false)
            .build()
            .unwrap();
        let view = OpenOptions::new().write(true).open(&pager, file.path()).unwrap();
        for page in 0..512_u64 {
            view.write_at(page * 4096, &page.to_le_bytes()).unwrap();
        }
        view.flush().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        let written =
            bytes.chunks(4096).map(|page| u64::from_le_bytes(page[..8].try_into().unwrap()));
        assert!(written.eq(0..512), "{policy}");
    }
}

#[test]
fn a_file_that_is_closed_while_it_is_read_ahead_leaves_nothing_behind() {
    let dir = Dir::new();
    let path = make_file(&dir, 2048 * KIB);
    let pager = pager("1M");
    for round in 0..200 {
        let view = pager.open(&path).unwrap();
        for _ in 0..4 {
            view.prefetch((round % 7) << 12..512 << 12);
        }
        drop(view.page(round).unwrap());
        drop(view);
        assert_eq!(
            pager.stat().memory.current,
            0,
            "round {round}: pages of a closed file are in memory"
        );
    }
    pager.validate().unwrap();
}

#[test]
fn asking_whether_a_page_is_there_brings_nothing_in() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * KIB);
    let pager = pager("1M");
    let view = pager.open(&path).unwrap();
    assert!((0..20).all(|page| !view.is_resident(page)), "16 pages, and some past the end");
    drop(view.page(3).unwrap());
    assert!(view.is_resident(3));
    assert!(!view.is_resident(4));
    assert_eq!(pager.stat().io.read_bytes, 4 * KIB);
}
