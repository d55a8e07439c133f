//! Mappings that a program makes itself and gives to a pager: taken over, given back in parts, and
//! replaced by other memory meanwhile.

#![expect(unsafe_code, reason = "the program maps and unmaps by itself")]

use crate::common::mapped;
use crate::common::mapped::{PAGE, await_cached, cached_bytes, file, pager, random, word};
use crate::common::scene::alone;
use lowtide::Pager;
use lowtide::map::{Adopted, MapError, MapOptions};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::{Duration, Instant};

const PAGES: usize = 2048;

/// A mapping that the program makes.
#[derive(Clone, Copy)]
struct Own {
    start: *mut u8,
    pages: usize,
}

impl Own {
    fn of(file: &File) -> Self {
        let (len, flags) = (PAGES * PAGE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ, flags, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: start.cast(), pages: PAGES }
    }

    fn part(self, first: usize, pages: usize) -> Self {
        assert!(first + pages <= self.pages);
        Self { start: self.start.wrapping_add(first * PAGE), pages }
    }

    fn bytes(self) -> &'static [u8] {
        // SAFETY: it is mapped while the test uses it.
        unsafe { std::slice::from_raw_parts(self.start, self.pages * PAGE) }
    }

    fn addresses(self) -> std::ops::Range<usize> {
        self.start.addr()..self.start.addr() + self.pages * PAGE
    }

    fn unmap(self) {
        // SAFETY: the test does not use it any more.
        assert_eq!(unsafe { libc::munmap(self.start.cast(), self.pages * PAGE) }, 0);
    }

    /// Puts memory of the program's own at these addresses, each byte 7.
    fn replace(self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let (rights, len) = (libc::PROT_READ | libc::PROT_WRITE, self.pages * PAGE);
        // SAFETY: the addresses are the test's.
        let at = unsafe { libc::mmap(self.start.cast(), len, rights, flags, -1, 0) };
        assert_eq!(at, self.start.cast());
        // SAFETY: as above, and writable.
        unsafe { self.start.write_bytes(7, len) };
    }
}

fn adopt(pager: &Pager, file: &File, own: Own) -> Option<Adopted> {
    let len = own.pages * PAGE;
    // SAFETY: a mapping of this file; the test forgets what it takes away.
    match unsafe { MapOptions::new().adopt(pager, file.as_fd(), own.start, len) } {
        Err(error @ MapError::Mode { .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        adopted => Some(adopted.unwrap()),
    }
}

/// Reads pages `first` and on at random, until this number of pages was evicted meanwhile.
fn press(pager: &Pager, part: Own, first: usize, evictions: u64) {
    let (began, before) = (Instant::now(), pager.stat().memory.events.pgsteal);
    let mut state = 11;
    while pager.stat().memory.events.pgsteal < before + evictions {
        for _ in 0..200 {
            let offset = random(&mut state) % (part.pages * PAGE / 8) * 8;
            assert_eq!(word(part.bytes(), offset), (first * PAGE + offset) as u64);
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}", pager.stat());
    }
}

#[test]
fn a_part_that_is_unmapped_can_have_other_memory_and_the_rest_is_kept_within_the_budget() {
    let (file, pager) = (file(PAGES), pager("1M"));
    let own = Own::of(file.as_file());
    let Some(adopted) = adopt(&pager, file.as_file(), own) else { return own.unmap() };
    press(&pager, own, 0, 1000);
    let (left, hole, right) = (own.part(0, 600), own.part(600, 500), own.part(1100, 948));
    adopted.forget(hole.addresses());
    hole.unmap();
    hole.replace();
    for _ in 0..3 {
        press(&pager, left, 0, 500);
        press(&pager, right, 1100, 500);
        assert!(hole.bytes().iter().all(|byte| *byte == 7), "other memory was taken away");
    }
    // What is forgotten twice, or was never taken over, is no matter.
    adopted.forget(hole.addresses());
    adopted.forget(0..own.start.addr());
    adopted.forget(left.addresses());
    press(&pager, right, 1100, 500);
    assert!(adopted.resident_bytes() <= 1 << 20);
    drop(adopted);
    (0..600).for_each(|page| assert_eq!(word(left.bytes(), page * PAGE), (page * PAGE) as u64));
    assert!(hole.bytes().iter().all(|byte| *byte == 7));
    // The thread that watches may have the file's last share, and close it in a moment.
    let began = Instant::now();
    while pager.stat().memory.file > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "charged for what was given back");
        std::thread::yield_now();
    }
    own.unmap();
    pager.validate().unwrap();
}

#[test]
fn what_is_taken_over_twice_is_kept_until_both_are_forgotten() {
    let (file, pager) = (file(PAGES), pager("1M"));
    let own = Own::of(file.as_file());
    let twice = (adopt(&pager, file.as_file(), own), adopt(&pager, file.as_file(), own));
    let (Some(one), Some(other)) = twice else { return own.unmap() };
    press(&pager, own, 0, 1000);
    drop(one);
    // Its pages are still noticed, and go.
    press(&pager, own, 0, 1000);
    await_cached(file.as_file(), 1 << 20);
    assert!(other.resident_bytes() <= 1 << 20);
    drop(other);
    own.unmap();
    pager.validate().unwrap();
}

#[test]
fn a_mapping_that_is_taken_over_begins_with_a_page_and_has_bytes() {
    let (file, pager) = (file(PAGES), pager("1M"));
    let own = Own::of(file.as_file());
    let refused = |start: usize, len: usize, offset: u64| {
        let options = MapOptions::new().offset(offset);
        let at = own.start.wrapping_add(start);
        // SAFETY: it is refused.
        let error = unsafe { options.adopt(&pager, file.as_file().as_fd(), at, len) };
        matches!(error, Err(MapError::Range { .. }))
    };
    assert!(refused(8, PAGE, 0) && refused(0, 0, 0) && refused(0, PAGE, 12));
    assert!(refused(0, usize::MAX, 0), "no address space is as large");
    own.unmap();
}

#[test]
fn what_is_soon_needed_is_read_within_the_budget() {
    let (data, pager) = (file(PAGES), pager("2M"));
    let file = File::open(data.path()).unwrap();
    let own = Own::of(&file);
    let Some(adopted) = adopt(&pager, &file, own) else { return };
    if !adopted.will_need(own.part(0, 32).addresses()) {
        return eprintln!("SKIPPED: the kernel reads ahead here");
    }
    let begun = Instant::now();
    while cached_bytes(&file) < 32 * PAGE as u64 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was read");
        std::thread::sleep(Duration::from_millis(1));
    }
    // All of the file, which is four times the budget, again and again.
    for at in (0..200).map(|n| n * 37 % 16 * (PAGES / 16)) {
        adopted.will_need(own.part(at, PAGES / 16).addresses());
        std::thread::sleep(Duration::from_millis(1));
        // What leaves while a slow device still reads it is dropped later.
        let cached = cached_bytes(&file);
        assert!(cached <= 5 << 20, "{cached} bytes are cached");
    }
    await_cached(&file, 2 << 20);
    assert!((0..PAGES).all(|page| word(own.bytes(), page * PAGE) == (page * PAGE) as u64));
    adopted.forget(own.addresses());
    drop(adopted);
    own.unmap();
    pager.validate().unwrap();
}

/// Bytes of addresses that this process has.
fn addresses() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').next().unwrap().parse::<usize>().unwrap() * PAGE
}

#[test]
fn a_file_takes_few_addresses_besides_those_of_its_mapping_and_may_grow_all_the_same() {
    alone(|| {
        let (file, pager) = (file(PAGES), pager("1M"));
        let own = Own::of(file.as_file());
        // The first mapping starts threads, whose stacks and heaps have addresses.
        let Some(first) = adopt(&pager, file.as_file(), own) else { return own.unmap() };
        let before = addresses();
        let files: Vec<_> = (0..8).map(|_| mapped::file(PAGES)).collect();
        let maps: Vec<_> = files.iter().map(|file| Own::of(file.as_file())).collect();
        let kept: Vec<_> = files
            .iter()
            .zip(&maps)
            .map(|(file, own)| adopt(&pager, file.as_file(), *own).expect("as the first"))
            .collect();
        let each = (addresses() - before) / files.len();
        assert!(each <= 256 << 20, "{each} bytes of addresses for each file");
        drop(kept);
        maps.into_iter().for_each(Own::unmap);
        // A mapping of what the file has become: 60 GiB, nearly all of it a hole.
        let long = 60_u64 << 30;
        file.as_file().set_len(long).unwrap();
        let end = long - (PAGES * PAGE) as u64;
        let (len, flags) = (PAGES * PAGE, libc::MAP_SHARED);
        let fd = file.as_file().as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ, flags, fd, end as libc::off_t)
        };
        assert_ne!(start, libc::MAP_FAILED);
        let last = Own { start: start.cast(), pages: PAGES };
        let options = MapOptions::new().offset(end);
        // SAFETY: a mapping of this file, which is forgotten before it is unmapped.
        let more =
            unsafe { options.adopt(&pager, file.as_file().as_fd(), last.start, len) }.unwrap();
        assert_eq!(word(last.bytes(), 5 * PAGE), 0);
        drop((more, first));
        last.unmap();
        own.unmap();
        pager.validate().unwrap();
    });
}
