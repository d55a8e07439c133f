//! Memory that does not keep its bytes: an error for the page, and never other data.

use crate::common::page;
use lowtide_swap::{
    CompressedStore, Corrupt, Fault, Handle, PAGE_BYTES, PageSource, Rejected, StoreLimits,
};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pages that read as something else while they are wrong.
#[derive(Default)]
struct Wrong(Arc<AtomicBool>);

struct Page {
    bytes: Vec<u8>,
    other: Vec<u8>,
    wrong: Arc<AtomicBool>,
}

impl PageSource for Wrong {
    type Page = Page;

    fn take(&self) -> Option<Page> {
        let (bytes, other) = (vec![0; PAGE_BYTES], vec![0x5a; PAGE_BYTES]);
        Some(Page { bytes, other, wrong: Arc::clone(&self.0) })
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.wrong.load(Ordering::Relaxed) { &self.other } else { &self.bytes }
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[test]
fn wrong_memory_is_an_error_for_every_form_and_never_data() {
    let store = CompressedStore::new(Wrong::default(), StoreLimits::default());
    let all: Vec<(Handle, u64)> =
        (0..50).map(|n| (store.store(&page(n)).expect("room"), n)).collect();
    let mut back = vec![0; PAGE_BYTES];
    for cold in [false, true] {
        if cold {
            store.age();
            store.age();
            assert!(store.recompress(50).smaller > 0);
        }
        let stat = store.stat();
        assert!(stat.raw > 0 && stat.lz4 + stat.zstd > 0 && (stat.zstd > 0) == cold, "{stat:?}");
        store.source().0.store(true, Ordering::Relaxed);
        for &(handle, n) in &all {
            match store.load(handle, &mut back) {
                Ok(()) => assert!(n % 5 == 0 && back == page(n), "a page of one word is safe"),
                Err(Corrupt { handle: at, fault: Fault::Checksum { expected, found } }) => {
                    assert!(at == handle && expected != found && n % 5 != 0);
                }
                Err(other) => panic!("{other}"),
            }
        }
        let corrupt = if cold { 80 } else { 40 };
        assert_eq!(store.stat().corrupt, corrupt);
        store.source().0.store(false, Ordering::Relaxed);
        for &(handle, n) in &all {
            store.load(handle, &mut back).expect("its bytes are back");
            assert!(back == page(n), "page {n}");
        }
    }
    all.into_iter().for_each(|(handle, _)| store.free(handle));
    assert_eq!(store.memory(), 0);
}

#[test]
fn what_is_wrong_is_not_compressed_again_as_if_it_were_right() {
    let store = CompressedStore::new(Wrong::default(), StoreLimits::default());
    let all: Vec<Handle> = (0..50).map(|n| store.store(&page(n)).expect("room")).collect();
    store.age();
    store.age();
    store.source().0.store(true, Ordering::Relaxed);
    let done = store.recompress(50);
    assert_eq!((done.tried, done.smaller), (40, 0), "all but pages of one word");
    let mut back = vec![0; PAGE_BYTES];
    assert!(store.load(all[1], &mut back).is_err());
}

#[test]
fn calls_that_make_no_sense_are_refused_and_change_nothing() {
    let store = CompressedStore::new(Wrong::default(), StoreLimits::default());
    let handle = store.store(&page(1)).expect("room");
    assert_eq!(store.store(&[0; 4095]), Err(Rejected::Size { bytes: 4095 }));
    let mut back = vec![0; PAGE_BYTES];
    let short = store.load(handle, &mut back[1..]).expect_err("no page");
    assert_eq!(short.fault, Fault::Buffer(4095));
    for bits in [handle.to_bits() ^ 1, Handle::MAX, u32::MAX] {
        let error = store.load(Handle::from_bits(bits), &mut back).expect_err("nothing is there");
        assert_eq!(error.fault, Fault::Missing);
        assert!(error.to_string().contains("is not stored"), "{error}");
    }
    store.free(handle);
    let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.free(handle)));
    assert!(twice.is_err(), "a handle is freed once");
    let again = store.store(&page(2)).expect("the store works as before");
    store.load(again, &mut back).expect("what was stored");
    assert_eq!((store.stat().stored, back), (1, page(2)));
}
