//! Many threads on one store and one file: no wrong byte, no leak, no page in two places.

use crate::common::{Bits, Planned, page};
use lowtide_swap::{
    Alone, CompressedStore, Fault, Handle, HeapPages, Neighbours, Outgoing, PAGE_BYTES, ReadAhead,
    ReadError, Rejected, Slot, StoreLimits, SwapFile, WriteError,
};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const THREADS: u64 = 16;

fn load(store: &CompressedStore<HeapPages>, handle: Handle, number: u64, back: &mut [u8]) {
    store.load(handle, back).expect("what was stored");
    assert!(back == page(number), "page {number}");
}

#[test]
fn sixteen_threads_fill_a_store_to_its_last_slot_and_empty_it() {
    let limits = StoreLimits { slots: 1000, ..StoreLimits::default() };
    let store = CompressedStore::new(HeapPages::new(1 << 20), limits);
    let all: Mutex<Vec<(Handle, u64)>> = Mutex::default();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, all) = (&store, &all);
            scope.spawn(move || {
                for number in (0..).map(|n| n * THREADS + thread) {
                    match store.store(&page(number)) {
                        Ok(handle) => all.lock().expect("no panic").push((handle, number)),
                        Err(Rejected::Slots { slots: 1000 }) => return,
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    let all = all.into_inner().expect("no panic");
    let handles: HashSet<Handle> = all.iter().map(|(handle, _)| *handle).collect();
    assert_eq!((all.len(), handles.len(), store.stat().stored), (1000, 1000, 1000));
    thread::scope(|scope| {
        for some in all.chunks(63) {
            let store = &store;
            scope.spawn(move || {
                let mut back = vec![0; PAGE_BYTES];
                for &(handle, number) in some {
                    load(store, handle, number, &mut back);
                    store.free(handle);
                }
            });
        }
    });
    let stat = store.stat();
    assert_eq!((stat.stored, stat.compressed_bytes, stat.memory), (0, 0, 0));
    assert_eq!(store.source().taken(), 0);
}

#[test]
fn memory_never_exceeds_its_limit_and_what_is_rejected_leaves_nothing() {
    let limits = StoreLimits { memory: 50, ..StoreLimits::default() };
    let store = CompressedStore::new(HeapPages::new(60), limits);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut mine = Vec::new();
                let mut back = vec![0; PAGE_BYTES];
                for n in 0..300 {
                    let number = n * THREADS + thread;
                    match store.store(&page(number)) {
                        Ok(handle) => mine.push((handle, number)),
                        Err(Rejected::Limit { limit, .. }) => {
                            assert!(limit == 50 || limit == 10 || limit == 100);
                            mine.drain(..mine.len() / 2).for_each(|(handle, _)| store.free(handle));
                        }
                        Err(Rejected::NoMemory { .. }) => {
                            mine.drain(..mine.len() / 2).for_each(|(handle, _)| store.free(handle));
                        }
                        Err(other) => panic!("{other}"),
                    }
                    assert!(store.source().taken() <= 60);
                    if thread == 0 && n % 50 == 0 {
                        // Below what is in use, and above what there is.
                        store.set_limit([50, 10, 100][(n / 50 % 3) as usize]);
                    }
                }
                for (handle, number) in mine {
                    load(store, handle, number, &mut back);
                    store.free(handle);
                }
            });
        }
    });
    let stat = store.stat();
    // A page that a thread is giving back counts until the source has it.
    assert!(stat.rejected > 0 && stat.memory_peak <= 60 + THREADS, "{stat:?}");
    assert_eq!((stat.stored, stat.memory, store.source().taken()), (0, 0, 0));
}

#[test]
fn pages_are_freed_while_they_are_moved_and_recompressed() {
    let store = CompressedStore::new(HeapPages::new(1 << 20), StoreLimits::default());
    let done = AtomicBool::new(false);
    let moved = AtomicU64::new(0);
    thread::scope(|scope| {
        let (store, done, moved) = (&store, &done, &moved);
        let workers: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    let mut bits = Bits::new(thread);
                    let mut mine: Vec<(Handle, u64)> = Vec::new();
                    let mut back = vec![0; PAGE_BYTES];
                    for n in 0..4000 {
                        let number = n * 8 + thread;
                        if mine.len() < 40 || bits.below(2) == 0 {
                            mine.push((store.store(&page(number)).expect("room"), number));
                        } else {
                            let (handle, number) = mine.swap_remove(bits.below(mine.len()));
                            load(store, handle, number, &mut back);
                            store.free(handle);
                        }
                    }
                    for (handle, number) in mine {
                        load(store, handle, number, &mut back);
                        store.free(handle);
                    }
                })
            })
            .collect();
        for kind in 0..3 {
            scope.spawn(move || {
                let mut back = vec![0; PAGE_BYTES];
                while !done.load(Ordering::Acquire) {
                    match kind {
                        0 => {
                            moved.fetch_add(store.compact(64) as u64, Ordering::Relaxed);
                        }
                        1 => {
                            store.age();
                            store.age();
                            store.recompress(64);
                        }
                        _ => {
                            for cold in store.coldest(16) {
                                // It may be gone, and the handle used again, but it is a page.
                                match store.peek(cold.handle, &mut back) {
                                    Ok(()) => {}
                                    Err(error) => assert_eq!(error.fault, Fault::Missing),
                                }
                            }
                        }
                    }
                    thread::yield_now();
                }
            });
        }
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Release);
        ended.into_iter().for_each(|end| end.expect("no wrong byte"));
    });
    let stat = store.stat();
    assert!(moved.into_inner() > 0 && stat.recompressed > 0, "the background worked: {stat:?}");
    assert_eq!((stat.stored, stat.compressed_bytes, stat.memory), (0, 0, 0));
    assert_eq!(store.source().taken(), 0);
}

fn write(file: &SwapFile<Planned>, numbers: &[u64]) -> Result<Vec<Slot>, WriteError> {
    let pages: Vec<Vec<u8>> = numbers.iter().map(|&number| page(number)).collect();
    let out: Vec<Outgoing> =
        numbers.iter().zip(&pages).map(|(&tag, bytes)| Outgoing { bytes, tag }).collect();
    file.write(&out)
}

#[test]
fn sixteen_threads_fill_a_file_to_its_last_slot_and_empty_it() {
    let file = SwapFile::on(Planned::default(), 1000).expect("a swap file");
    let all: Mutex<HashMap<Slot, u64>> = Mutex::default();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (file, all) = (&file, &all);
            scope.spawn(move || {
                let mut batch = 1 + thread;
                let mut next = thread * 1_000_000;
                while batch > 0 {
                    let numbers: Vec<u64> = (next..next + batch).collect();
                    match write(file, &numbers) {
                        Ok(slots) => {
                            let mut all = all.lock().expect("no panic");
                            for (slot, number) in slots.into_iter().zip(numbers) {
                                assert!(all.insert(slot, number).is_none(), "{slot} is in use");
                            }
                            next += batch;
                        }
                        Err(WriteError::Full { slots: 1000, .. }) => batch /= 2,
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    let all: Vec<(Slot, u64)> = all.into_inner().expect("no panic").into_iter().collect();
    assert_eq!((all.len(), file.stat().used), (1000, 1000));
    thread::scope(|scope| {
        for some in all.chunks(63) {
            let file = &file;
            scope.spawn(move || {
                let mut back = vec![0; PAGE_BYTES];
                for &(slot, number) in some {
                    file.read_alone(slot, &mut back).expect("what was written");
                    assert!(back == page(number));
                    file.free(slot);
                    file.discard(1);
                }
            });
        }
    });
    assert_eq!(file.stat().used, 0);
    let whole: Vec<u64> = (0..1000).collect();
    assert_eq!(write(&file, &whole).expect("all slots are free").len(), 1000);
}

/// Checks that each neighbour is the page that its tag says.
struct Checked(u64);

impl Neighbours for Checked {
    fn wants(&mut self, _: Slot, _: u64) -> bool {
        true
    }

    fn take(&mut self, _: Slot, tag: u64, bytes: &[u8]) -> bool {
        assert!(bytes == page(tag), "neighbour {tag}");
        self.0 += 1;
        true
    }
}

#[test]
fn slots_are_used_again_while_their_neighbours_are_read() {
    let file = SwapFile::on(Planned::default(), 256).expect("a swap file");
    let ahead = ReadAhead::new(16);
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (file, ahead) = (&file, &ahead);
            scope.spawn(move || {
                let mut bits = Bits::new(thread + 100);
                let mut mine: Vec<(Slot, u64)> = Vec::new();
                let mut back = vec![0; PAGE_BYTES];
                let mut around = Checked(0);
                for n in 0..400 {
                    let numbers: Vec<u64> = (0..1 + bits.below(6) as u64)
                        .map(|k| thread * 1_000_000 + n * 8 + k)
                        .collect();
                    match write(file, &numbers) {
                        Ok(slots) => mine.extend(slots.into_iter().zip(numbers)),
                        Err(WriteError::Full { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                    while mine.len() > 20 {
                        let (slot, number) = mine.swap_remove(bits.below(mine.len()));
                        match bits.below(3) {
                            0 => file.read(slot, &mut back, ahead, &mut Alone),
                            _ => file.read(slot, &mut back, ahead, &mut around),
                        }
                        .expect("a page that no other thread frees");
                        assert!(back == page(number), "page {number}");
                        file.touched(Slot::from_bits(slot.to_bits() ^ 1), ahead);
                        file.free(slot);
                        let error = file.read_alone(slot, &mut back);
                        if let Err(error) = error {
                            let gone =
                                matches!(error, ReadError::Corrupt { fault: Fault::Missing, .. });
                            assert!(gone, "{error}");
                        }
                    }
                    file.discard(1);
                }
                mine.into_iter().for_each(|(slot, _)| file.free(slot));
                assert!(around.0 > 0, "neighbours were read");
            });
        }
    });
    let stat = file.stat();
    assert_eq!((stat.used, stat.corrupt), (0, 0));
    assert_eq!(stat.ahead, stat.ahead_hits + stat.ahead_unused, "{stat:?}");
}
