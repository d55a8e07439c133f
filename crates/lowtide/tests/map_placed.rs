//! Mirrors at addresses that a program chose: put there and taken away while threads read, and one
//! that ends leaves alone what has its addresses by then.

#![expect(unsafe_code, reason = "the program maps by itself")]

use crate::common::mapped::{PAGE, await_cached, file, or_skip, pager, word};
use lowtide::Pager;
use lowtide::map::MapOptions;
use lowtide::map::run::{Cover, Mapped, Placed};
use lowtide_sys::shared::{Rights, SharedMapping, Sharing};
use std::fs::File;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const PAGES: usize = 64;

fn lost() -> ! {
    std::process::abort()
}

/// The program's mapping of a file.
fn map(file: &File, pages: usize) -> SharedMapping {
    SharedMapping::map(file, 0, pages * PAGE, Rights::Read, Sharing::Shared, false).unwrap()
}

fn mapped(file: &File) -> Mapped<'_> {
    Mapped { file: file.as_fd(), offset: 0, is_private: false }
}

/// Puts a mirror of the file over the mapping, where there can be one.
fn cover(pager: &Pager, file: &File, mapping: &SharedMapping) -> Option<(Placed, Cover)> {
    let mut cover = Cover::NONE;
    let options = MapOptions::new();
    let put = |mirror| {
        // SAFETY: the mapping is of this file, which no test changes.
        cover = unsafe { Cover::put(mirror, mapped(file), lost) }?;
        Ok(())
    };
    // SAFETY: as above, and the mapping stays until the mirror has ended.
    let placed = unsafe { options.serve(pager, file.as_fd(), mapping.addresses(), put) };
    or_skip(placed).map(|placed| (placed, cover))
}

/// The program's mapping is back.
fn uncover((placed, cover): (Placed, Cover), file: &File) {
    let back = || {
        // SAFETY: covered by it.
        unsafe { cover.take_off_surely(mapped(file), lost) };
        Ok(())
    };
    placed.end(back).unwrap();
}

/// A word of a page.
fn load(start: usize, page: usize) -> u64 {
    let at = ptr::with_exposed_provenance::<u8>(start + page * PAGE);
    // SAFETY: the page is mapped until the test ends, and its bytes do not change.
    word(unsafe { std::slice::from_raw_parts(at, PAGE) }, 0)
}

/// The same, in a thread that may be left behind if no thread serves it.
fn load_within_a_minute(start: usize, page: usize) -> Option<u64> {
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || says.send(load(start, page)));
    said.recv_timeout(Duration::from_secs(60)).ok()
}

#[test]
fn threads_that_read_see_the_file_while_mirrors_come_and_go() {
    const MANY: usize = 1024;
    let (data, pager) = (file(MANY), pager("2M"));
    let mapping = map(data.as_file(), MANY);
    // Another mirror, whose pages come and go meanwhile: its faults are answered while memory
    // moves.
    let other = file(MANY);
    let others = map(other.as_file(), MANY);
    let Some(second) = cover(&pager, other.as_file(), &others) else { return };
    let (is_over, reads, wrong) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (start, others_start) = (mapping.addresses().start, others.addresses().start);
    std::thread::scope(|scope| {
        for (number, at) in [start, start, others_start, others_start].into_iter().enumerate() {
            let (is_over, reads, wrong) = (&is_over, &reads, &wrong);
            scope.spawn(move || {
                let mut draw = number * 7919 + 1;
                while !is_over.load(Relaxed) {
                    draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let page = (draw >> 33) % MANY;
                    wrong.fetch_add(u64::from(load(at, page) != (page * PAGE) as u64), Relaxed);
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        let began = Instant::now();
        let mut rounds = 0;
        while rounds < 100 || began.elapsed() < Duration::from_secs(2) && rounds < 2000 {
            let placed = cover(&pager, data.as_file(), &mapping);
            let before = reads.load(Relaxed);
            while reads.load(Relaxed) < before + 50 {
                std::thread::yield_now();
            }
            uncover(placed.expect("there was one before"), data.as_file());
            rounds += 1;
        }
        is_over.store(true, Relaxed);
    });
    assert!(reads.load(Relaxed) > 5000);
    assert_eq!(wrong.load(Relaxed), 0, "of {} words", reads.load(Relaxed));
    uncover(second, other.as_file());
    pager.validate().unwrap();
    assert_eq!(pager.stat().memory.file, 0);
}

#[test]
fn what_was_mapped_before_is_not_in_memory_twice() {
    let (data, pager) = (file(PAGES), pager("1M"));
    let mapping = map(data.as_file(), PAGES);
    let start = mapping.addresses().start;
    for page in 0..PAGES {
        assert_eq!(load(start, page), (page * PAGE) as u64);
    }
    let Some(mirror) = cover(&pager, data.as_file(), &mapping) else { return };
    await_cached(data.as_file(), 0);
    for page in 0..PAGES {
        assert_eq!(load(start, page), (page * PAGE) as u64);
    }
    await_cached(data.as_file(), 0);
    assert_eq!(mirror.0.memory_bytes(), (PAGES * PAGE) as u64);
    uncover(mirror, data.as_file());
}

#[test]
fn a_mirror_that_cannot_be_put_leaves_the_mapping_as_it_is() {
    let (data, pager) = (file(PAGES), pager("1M"));
    let mapping = map(data.as_file(), PAGES);
    let start = mapping.addresses().start;
    let refused = |_| {
        let source = std::io::Error::from_raw_os_error(libc::ENOMEM);
        Err(lowtide::map::MapError::Kernel { step: "a test", source })
    };
    // SAFETY: nothing is put there.
    let placed = unsafe {
        MapOptions::new().serve(&pager, data.as_file().as_fd(), mapping.addresses(), refused)
    };
    assert!(placed.is_err());
    for page in 0..PAGES {
        assert_eq!(load_within_a_minute(start, page), Some((page * PAGE) as u64));
    }
    assert_eq!(pager.stat().memory.file, 0);
    let Some(mirror) = cover(&pager, data.as_file(), &mapping) else { return };
    assert_eq!(load_within_a_minute(start, 5), Some(5 * PAGE as u64));
    uncover(mirror, data.as_file());
}

#[test]
fn a_mirror_that_ends_does_not_end_the_serving_of_another_at_its_addresses() {
    let (data, pager) = (file(PAGES), pager("1M"));
    let mapping = map(data.as_file(), PAGES);
    let start = mapping.addresses().start;
    let Some((placed, first)) = cover(&pager, data.as_file(), &mapping) else { return };
    assert_eq!(load_within_a_minute(start, 3), Some(3 * PAGE as u64));
    let mut next = None;
    placed
        .end(|| {
            // SAFETY: covered by it.
            unsafe { first.take_off_surely(mapped(data.as_file()), lost) };
            next = cover(&pager, data.as_file(), &mapping);
            Ok(())
        })
        .unwrap();
    let next = next.expect("the first one was served");
    for page in [3, 9] {
        let loaded = load_within_a_minute(start, page);
        if loaded.is_none() {
            // Dropping it would wait for the thread that is left behind.
            std::mem::forget(next);
            panic!("no thread serves page {page} of the second mirror");
        }
        assert_eq!(loaded, Some((page * PAGE) as u64));
    }
    drop(placed);
    assert_eq!(load_within_a_minute(start, 20), Some(20 * PAGE as u64));
    uncover(next, data.as_file());
    assert_eq!(load_within_a_minute(start, 20), Some(20 * PAGE as u64));
    pager.validate().unwrap();
    assert_eq!(pager.stat().memory.file, 0);
}
