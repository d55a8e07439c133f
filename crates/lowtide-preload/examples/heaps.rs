//! A program with large memory without a file, for the tests of `lowtide run --anon`: each command
//! does one kind of thing to it, checks every byte, and prints what it found.
//!
//! It knows nothing of lowtide. Its output does not depend on how its memory is kept.

#![allow(unsafe_code, clippy::print_stdout, clippy::multiple_unsafe_ops_per_block)]

#[path = "heap_parts/words.rs"]
mod words;

use libc::c_void;
use std::alloc::{Layout, alloc, dealloc};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{env, fs, io, ptr, slice, thread};
use words::{FLAGS, MIB, PAGE, PROT, Words, is_readable, map, noise, plus, wait, word};

/// counts once.
fn memory_kib() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("/proc");
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("0");
        line.split_whitespace().nth(1).unwrap_or("0").parse::<u64>().unwrap_or(0)
    };
    of("Pss_Anon:") + of("Pss_Shmem:")
}

/// Allocates all of it in small pieces, checks them, and lives for some seconds.
fn small(bytes: usize) {
    let pieces: Vec<Vec<u64>> = (0..bytes / 1024).map(|at| vec![word(at, 5); 128]).collect();
    thread::sleep(std::time::Duration::from_secs(4));
    for (at, piece) in pieces.iter().enumerate() {
        assert!(piece.iter().all(|found| *found == word(at, 5)), "piece {at}");
    }
    println!("small {bytes}");
}

/// Fills and checks an allocation. Ends with 9 if it ever took more memory than `most` KiB.
fn fill(bytes: usize, most: u64) {
    // SAFETY: any size.
    let words = Words::of(unsafe { libc::malloc(bytes) }, bytes);
    let mut peak = 0;
    for (at, to) in words.all().iter_mut().enumerate() {
        *to = word(at, 1);
        if at % (4 * MIB / 8) == 0 {
            peak = peak.max(memory_kib());
        }
    }
    for _ in 0..2 {
        words.check("fill", 1);
        peak = peak.max(memory_kib());
    }
    // SAFETY: the allocation.
    unsafe { libc::free(words.0.cast()) };
    println!("{bytes} bytes are as they were stored");
    if peak > most {
        eprintln!("{peak} KiB of memory, more than {most}");
        std::process::exit(9);
    }
}

/// What does not compress.
fn random(bytes: usize) {
    // SAFETY: any size.
    let words = Words::of(unsafe { libc::malloc(bytes) }, bytes);
    words.all().iter_mut().enumerate().for_each(|(at, to)| *to = noise(at, 3));
    let wrong = words.all().iter().enumerate().find(|(at, found)| **found != noise(*at, 3));
    assert_eq!(wrong, None);
    println!("{bytes} bytes of noise are as they were stored");
}

/// All functions that allocate.
fn allocations() {
    // SAFETY: each block is used within its size, and freed once.
    unsafe {
        let small = libc::malloc(100);
        small.cast::<u8>().write_bytes(7, 100);
        let mut block = libc::realloc(small, 6 * MIB);
        let head = slice::from_raw_parts(block.cast::<u8>(), 100);
        assert!(head.iter().all(|byte| *byte == 7), "small to large");
        Words::of(block, 6 * MIB).fill(2);
        for (size, kept) in [(24 * MIB, 6 * MIB), (9 * MIB, 6 * MIB), (3 * MIB, 3 * MIB)] {
            block = libc::realloc(block, size);
            Words::of(block, kept).check("realloc", 2);
        }
        block = libc::realloc(block, 50);
        Words::of(block, 48).check("large to small", 2);
        libc::free(block);
        for round in 0..3 {
            let zeroes = libc::calloc(3, 4 * MIB);
            Words::of(zeroes, 12 * MIB).check_zero("calloc");
            Words::of(zeroes, 12 * MIB).fill(round);
            libc::free(zeroes);
        }
        let most = std::hint::black_box(usize::MAX);
        let none = [libc::calloc(most, 16), libc::reallocarray(ptr::null_mut(), most, 16)];
        assert_eq!(std::hint::black_box(none).map(<*mut c_void>::is_null), [true; 2]);
        for align in [16, 4096, 1 << 16, 2 * MIB] {
            let mut got = ptr::null_mut();
            assert_eq!(libc::posix_memalign(&raw mut got, align, 5 * MIB), 0);
            let others = [got, libc::memalign(align, 5 * MIB), libc::aligned_alloc(align, 5 * MIB)];
            for (seed, other) in (1..).zip(others) {
                assert_eq!(other.addr() % align, 0);
                assert!(libc::malloc_usable_size(other) >= 5 * MIB);
                Words::of(other, 5 * MIB).fill(seed);
            }
            for (seed, other) in (1..).zip(others) {
                Words::of(other, 5 * MIB).check("aligned", seed);
                libc::free(other);
            }
        }
        let block = alloc(Layout::from_size_align_unchecked(8 * MIB, 64));
        Words::of(block.cast(), 8 * MIB).fill(4);
        // Another thread frees it.
        let address = block.expose_provenance();
        let free = move || {
            let block = ptr::with_exposed_provenance_mut::<u8>(address);
            Words::of(block.cast(), 8 * MIB).check("another thread", 4);
            dealloc(block, Layout::from_size_align_unchecked(8 * MIB, 64));
        };
        thread::spawn(free).join().expect("it ends");
        libc::free(ptr::null_mut());
    }
    println!("allocations are as they were stored");
}

/// Parts of mappings: unmapped, moved, grown, cut, protected, given up.
fn parts() {
    // SAFETY: the addresses are of mappings of this function.
    unsafe {
        let start = map(16 * MIB, PROT, FLAGS);
        Words::of(start, 16 * MIB).fill(1);
        assert_eq!(libc::munmap(plus(start, 4 * MIB), MIB), 0);
        assert!(!is_readable(plus(start, 4 * MIB)), "what was unmapped is there");
        assert!(is_readable(plus(start, 5 * MIB)));
        Words::of(start, 4 * MIB).check("before what was unmapped", 1);
        let again = map(MIB, PROT, FLAGS);
        Words::of(again, MIB).check_zero("a new mapping");
        assert_eq!(libc::munmap(start, 16 * MIB), 0, "a hole is unmapped, too");
        assert_eq!(libc::munmap(again, MIB), 0);

        let start = map(4 * MIB, PROT, FLAGS);
        Words::of(start, 4 * MIB).fill(2);
        let next = map(2 * MIB, PROT, FLAGS);
        let moved = libc::mremap(start, 4 * MIB, 12 * MIB, libc::MREMAP_MAYMOVE);
        assert_ne!(moved, libc::MAP_FAILED);
        Words::of(moved, 4 * MIB).check("moved", 2);
        Words::of(plus(moved, 4 * MIB), 8 * MIB).check_zero("grown");
        let cut = libc::mremap(moved, 12 * MIB, 2 * MIB, 0);
        assert_eq!(cut, moved);
        assert!(!is_readable(plus(moved, 2 * MIB)), "what was cut is there");
        let longer = libc::mremap(moved, 2 * MIB, 4 * MIB, libc::MREMAP_MAYMOVE);
        Words::of(longer, 2 * MIB).check("longer", 2);
        Words::of(plus(longer, 2 * MIB), 2 * MIB).check_zero("longer");
        assert_eq!(libc::munmap(longer, 4 * MIB), 0);
        assert_eq!(libc::munmap(next, 2 * MIB), 0);

        let start = map(12 * MIB, PROT, FLAGS);
        let words = Words::of(start, 12 * MIB);
        words.fill(3);
        assert_eq!(libc::mprotect(plus(start, MIB), MIB, libc::PROT_NONE), 0);
        assert!(!is_readable(plus(start, MIB)));
        assert_eq!(libc::mprotect(start, MIB, libc::PROT_READ), 0);
        let mut zeroes = fs::File::open("/dev/zero").expect("a device");
        let read = libc::read(zeroes.as_raw_fd(), start, 1);
        assert_eq!((read, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
        // Other memory makes it go.
        let other = map(24 * MIB, PROT, FLAGS);
        Words::of(other, 24 * MIB).fill(4);
        assert_eq!(libc::mprotect(start, 2 * MIB, PROT), 0);
        words.check("protected for a while", 3);
        Words::of(other, 24 * MIB).check("other", 4);
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_WILLNEED, libc::MADV_RANDOM] {
            let _ = libc::madvise(start, 12 * MIB, advice);
        }
        words.check("advised", 3);
        assert_eq!(libc::madvise(plus(start, MIB), 3 * MIB, libc::MADV_DONTNEED), 0);
        Words::of(plus(start, MIB), 3 * MIB).check_zero("not needed");
        assert_eq!(libc::madvise(plus(start, 8 * MIB), MIB, libc::MADV_FREE), 0);
        Words::of(plus(start, 8 * MIB), MIB).fill(5);
        Words::of(plus(start, 8 * MIB), MIB).check("free, and stored to", 5);
        Words::of(start, MIB).check("beside", 3);
        // System calls read and store.
        let bytes = slice::from_raw_parts_mut(plus(start, 2 * MIB).cast::<u8>(), 5 * MIB);
        zeroes.read_exact(bytes).expect("zeroes");
        Words::of(plus(start, 2 * MIB), 5 * MIB).check_zero("read");
        assert_eq!(libc::munmap(start, 12 * MIB), 0);
        assert_eq!(libc::munmap(other, 24 * MIB), 0);
    }
    println!("parts are as they should be");
}

/// Children have copies of one moment, and the parent its own.
fn forks() {
    // SAFETY: the addresses are of blocks of this function.
    unsafe {
        let words = Words::of(libc::malloc(24 * MIB), 24 * MIB);
        words.fill(1);
        let part = map(4 * MIB, PROT, FLAGS);
        Words::of(part, 4 * MIB).fill(2);
        assert_eq!(libc::mprotect(part, MIB, libc::PROT_NONE), 0);
        for round in 0..2 {
            let child = libc::fork();
            assert!(child >= 0, "{}", io::Error::last_os_error());
            if child == 0 {
                words.check("a child", 1);
                assert!(!is_readable(part), "protected");
                Words::of(plus(part, MIB), MIB).all()[7] = 8;
                words.fill(9);
                let grown = Words::of(libc::realloc(words.0.cast(), 32 * MIB), 24 * MIB);
                grown.check("a child's own", 9);
                let grandchild = libc::fork();
                if grandchild == 0 {
                    grown.check("a grandchild", 9);
                    libc::free(grown.0.cast());
                    libc::_exit(0);
                }
                wait(grandchild);
                libc::free(grown.0.cast());
                assert_eq!(libc::munmap(part, 4 * MIB), 0);
                let own = Words::of(libc::calloc(1, 12 * MIB), 12 * MIB);
                own.check_zero("new");
                own.fill(round);
                own.check("new", round);
                libc::_exit(0);
            }
            wait(child);
            words.check("the parent", 1);
        }
        assert_eq!(libc::mprotect(part, MIB, PROT), 0);
        Words::of(part, 4 * MIB).check("the parent", 2);
        let status = std::process::Command::new("true").status().expect("it starts");
        assert!(status.success());
        moments(&words);
    }
    println!("children have copies of one moment");
}

/// A thread counts in many places, in order, while children look: a later count that they see has
/// all earlier ones.
fn moments(words: &Words) {
    let places: Vec<_> = (0..64).map(|at| at * words.1 / 64).collect();
    let (all, stop) = (words.all(), AtomicBool::new(false));
    let cells: Vec<&AtomicU64> = places
        .iter()
        // SAFETY: words of ours, of which others use none meanwhile.
        .map(|at| unsafe { AtomicU64::from_ptr(all.as_mut_ptr().add(*at)) })
        .collect();
    cells.iter().for_each(|cell| cell.store(0, Ordering::Release));
    thread::scope(|scope| {
        scope.spawn(|| {
            for count in 1.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                cells.iter().for_each(|cell| cell.store(count, Ordering::Release));
            }
        });
        let mut torn = 0;
        for _ in 0..20 {
            // SAFETY: the child looks at memory, and ends.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "{}", io::Error::last_os_error());
            if child == 0 {
                let found: Vec<u64> =
                    cells.iter().map(|cell| cell.load(Ordering::Acquire)).collect();
                let is_one =
                    found.windows(2).all(|two| two[0] >= two[1]) && found[0] - found[63] <= 1;
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!is_one)) };
            }
            let mut status = 0;
            // SAFETY: the child is ours.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            torn += i32::from(status != 0);
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(torn, 0, "children that saw a later store and not an earlier one");
    });
}

/// Reads that bypass the page cache, while the memory comes and goes.
fn direct(path: &str) {
    let bytes = 8 * MIB;
    let contents: Vec<u8> = (0..bytes / 8).flat_map(|at| word(at, 6).to_ne_bytes()).collect();
    let mut file = fs::File::create(path).expect("a file");
    file.write_all(&contents).and_then(|()| file.sync_all()).expect("its bytes");
    let mut flags = fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(flags.read(true), libc::O_DIRECT);
    let mut file = flags.open(path).expect("without the page cache");
    let to = Words::of(map(bytes, PROT, FLAGS), bytes);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let other = Words::of(map(24 * MIB, PROT, FLAGS), 24 * MIB);
            while !stop.load(Ordering::Relaxed) {
                other.fill(1);
            }
        });
        for round in 0..12 {
            to.fill(0);
            // SAFETY: the mapping, as bytes.
            let whole = unsafe { slice::from_raw_parts_mut(to.0.cast::<u8>(), bytes) };
            match round % 3 {
                0 => {
                    file.rewind().expect("it is a file");
                    file.read_exact(whole).expect("all bytes");
                }
                1 => {
                    let at = |file, to, at| std::os::unix::fs::FileExt::read_exact_at(file, to, at);
                    whole
                        .chunks_mut(MIB)
                        .enumerate()
                        .for_each(|(n, to)| at(&file, to, (n * MIB) as u64).expect("all bytes"));
                }
                _ => {
                    file.rewind().expect("it is a file");
                    let (one, two) = whole.split_at_mut(3 * MIB);
                    let parts = &mut [io::IoSliceMut::new(one), io::IoSliceMut::new(two)];
                    assert_eq!(file.read_vectored(parts).expect("bytes"), bytes);
                }
            }
            to.check("read directly", 6);
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("what was read directly is there");
}

/// What is not kept, and what makes all of it the kernel's.
fn special(what: &str, path: &str) {
    // SAFETY: the addresses are of mappings of this function.
    unsafe {
        let start = map(12 * MIB, PROT, FLAGS);
        let words = Words::of(start, 12 * MIB);
        words.fill(1);
        match what {
            "kinds" => {
                for (prot, flags) in [
                    (PROT, FLAGS | libc::MAP_STACK),
                    (PROT, FLAGS | libc::MAP_GROWSDOWN),
                    (PROT | libc::PROT_EXEC, FLAGS),
                    (libc::PROT_NONE, FLAGS),
                    (PROT, libc::MAP_SHARED | libc::MAP_ANONYMOUS),
                    (PROT, FLAGS | libc::MAP_NORESERVE | libc::MAP_POPULATE),
                ] {
                    let other = map(2 * MIB, prot, flags);
                    if prot & libc::PROT_WRITE != 0 {
                        Words::of(other, 2 * MIB).fill(2);
                        Words::of(other, 2 * MIB).check("another kind", 2);
                    }
                    assert_eq!(libc::munmap(other, 2 * MIB), 0);
                }
            }
            "locked" => {
                let locked = libc::mlock(plus(start, MIB), 64 << 10);
                assert_eq!(locked, 0, "{}", io::Error::last_os_error());
            }
            "fixed" => {
                let at = plus(start, 2 * MIB);
                let fixed = libc::mmap(at, MIB, PROT, FLAGS | libc::MAP_FIXED, -1, 0);
                assert_eq!(fixed, at);
                Words::of(at, MIB).check_zero("in the place of a part");
                Words::of(at, MIB).all().iter_mut().enumerate().for_each(|(n, to)| {
                    *to = word(n + 2 * MIB / 8, 1);
                });
            }
            "file" => {
                fs::write(path, vec![5; 2 * MIB]).expect("a file");
                let file = fs::File::open(path).expect("the file");
                let at = plus(start, 4 * MIB);
                let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
                assert_eq!(libc::mmap(at, MIB, PROT, flags, file.as_raw_fd(), 0), at);
                let bytes = slice::from_raw_parts(at.cast::<u8>(), MIB);
                assert!(bytes.iter().all(|byte| *byte == 5), "the file's");
                Words::of(at, MIB).all().iter_mut().enumerate().for_each(|(n, to)| {
                    *to = word(n + 4 * MIB / 8, 1);
                });
            }
            "moved" => {
                let to = map(2 * MIB, libc::PROT_NONE, FLAGS);
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let from = plus(start, 10 * MIB);
                assert_eq!(libc::mremap(from, 2 * MIB, 2 * MIB, flags, to), to);
                let back = libc::mremap(to, 2 * MIB, 2 * MIB, flags, from);
                assert_eq!(back, from);
            }
            _ => {
                let wipe = libc::madvise(plus(start, 8 * MIB), MIB, libc::MADV_WIPEONFORK);
                assert_eq!(wipe, 0, "{}", io::Error::last_os_error());
                let child = libc::fork();
                if child == 0 {
                    Words::of(plus(start, 8 * MIB), MIB).check_zero("wiped");
                    libc::_exit(0);
                }
                wait(child);
            }
        }
        words.check(what, 1);
        let more = Words::of(libc::calloc(1, 4 * MIB), 4 * MIB);
        more.check_zero("more");
        more.fill(2);
        more.check("more", 2);
        words.check(what, 1);
        libc::free(more.0.cast());
        assert_eq!(libc::munmap(start, 12 * MIB), 0);
    }
    println!("{what}: as it should be");
}

/// Threads that allocate, store, check, resize and free, all at once.
fn threads() {
    let total = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..6_u64 {
            let total = &total;
            scope.spawn(move || {
                let mut draw = seed + 1;
                for round in 0..12 {
                    draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let len = MIB + (draw >> 40) as usize % (3 * MIB) / PAGE * PAGE;
                    // SAFETY: blocks of this thread, used within their sizes.
                    unsafe {
                        let words = Words::of(libc::malloc(len), len);
                        words.fill(seed * 100 + round);
                        let longer = libc::realloc(words.0.cast(), len + MIB);
                        Words::of(longer, len).check("threads", seed * 100 + round);
                        libc::free(longer);
                    }
                    total.fetch_add(len as u64, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} bytes of six threads are as they were stored", total.into_inner());
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let text = |at: usize| args.get(at).map_or("", String::as_str);
    let number = |at: usize| text(at).parse::<usize>().ok();
    match text(0) {
        "fill" => fill(number(1).expect("bytes"), number(2).map_or(u64::MAX, |kib| kib as u64)),
        "random" => random(number(1).expect("bytes")),
        "small" => small(number(1).expect("bytes")),
        "allocations" => allocations(),
        "parts" => parts(),
        "forks" => forks(),
        "direct" => direct(text(1)),
        "threads" => threads(),
        "kinds" | "locked" | "fixed" | "file" | "moved" | "wiped" => special(text(0), text(1)),
        other => panic!("{other}: no such command"),
    }
}
