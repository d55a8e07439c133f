//! Memory is refused at every point where a store takes some: what is rejected leaves nothing
//! behind, and what is stored stays.

use crate::common::page;
use lowtide_swap::{
    CompressedStore, Handle, HeapPage, HeapPages, PAGE_BYTES, PageSource, Rejected, StoreLimits,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Refuses some takes, by their number.
struct Refusing {
    pages: HeapPages,
    takes: AtomicUsize,
    refused: std::ops::Range<usize>,
}

impl PageSource for Refusing {
    type Page = HeapPage;

    fn take(&self) -> Option<HeapPage> {
        let number = self.takes.fetch_add(1, Ordering::Relaxed);
        (!self.refused.contains(&number)).then(|| self.pages.take()).flatten()
    }
}

/// Stores, frees, recompresses, compacts and stores again. Returns how many pages the store took,
/// and how many of its pages were rejected.
fn play(refused: std::ops::Range<usize>) -> (usize, usize) {
    let source = Refusing { pages: HeapPages::new(1000), takes: AtomicUsize::new(0), refused };
    let store = CompressedStore::new(source, StoreLimits::default());
    let mut model: BTreeMap<Handle, u64> = BTreeMap::new();
    let mut rejected = 0;
    let mut put = |model: &mut BTreeMap<Handle, u64>, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let used = store.memory();
            match store.store(&page(number)) {
                Ok(handle) => assert!(model.insert(handle, number).is_none()),
                Err(error) => {
                    assert_eq!(error, Rejected::NoMemory { used });
                    assert_eq!(store.memory(), used, "what was rejected took nothing");
                    rejected += 1;
                }
            }
        }
    };
    put(&mut model, 0..100);
    store.age();
    store.age();
    let first = store.recompress(1000);
    // Refused once, the rest waits; then all are done.
    let second = store.recompress(1000);
    let cold = model.values().filter(|number| !number.is_multiple_of(5)).count();
    assert_eq!(first.tried + second.tried, cold, "each page was tried");
    let gone: Vec<Handle> = model.keys().copied().step_by(2).collect();
    for handle in gone {
        store.free(handle);
        model.remove(&handle);
    }
    store.compact(usize::MAX);
    put(&mut model, 100..150);
    let mut back = vec![0; PAGE_BYTES];
    for (&handle, &number) in &model {
        store.load(handle, &mut back).expect("what was stored");
        assert!(back == page(number), "page {number}");
    }
    assert_eq!(store.stat().stored, model.len() as u64);
    model.into_keys().for_each(|handle| store.free(handle));
    assert_eq!((store.memory(), store.source().pages.taken()), (0, 0));
    (store.source().takes.load(Ordering::Relaxed), rejected)
}

#[test]
fn memory_may_be_refused_at_every_take() {
    let (takes, rejected) = play(0..0);
    assert!(takes > 40 && rejected == 0, "{takes} takes");
    let mut all = 0;
    for n in 0..takes {
        let (_, rejected) = play(n..n + 1);
        assert!(rejected <= 1, "one refusal rejects one page");
        all += rejected;
    }
    assert!(all > takes / 2 && all < takes, "{all} of {takes}: recompression takes some, too");
    let (_, rejected) = play(0..usize::MAX);
    assert!(rejected > 100, "only pages of one word are stored without memory");
}
