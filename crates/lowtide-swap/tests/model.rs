//! Random sequences of operations, against a map of what must be stored.

use crate::common::{Planned, page};
use lowtide_swap::{
    CompressedStore, Dictionary, Handle, HeapPages, Neighbours, Outgoing, PAGE_BYTES, Packing,
    PageSource, ReadAhead, Rejected, Slot, StoreLimits, SwapFile, WriteError,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Pages of memory of the tiers under test: few, so that they are full now and then.
const MEMORY: usize = 24;
const SLOTS: u32 = 64;

#[derive(Debug, Clone)]
enum Op {
    Store(u64),
    /// Of the stored pages, the one at this position.
    Load(usize),
    Free(usize),
    Age,
    Recompress(usize),
    Compact(usize),
    Limit(usize),
    /// This many of the coldest.
    Evict(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..1000_u64).prop_map(Op::Store),
        4 => any::<usize>().prop_map(Op::Load),
        4 => any::<usize>().prop_map(Op::Free),
        1 => Just(Op::Age),
        1 => (0..20_usize).prop_map(Op::Recompress),
        1 => (0..20_usize).prop_map(Op::Compact),
        1 => (0..2 * MEMORY).prop_map(Op::Limit),
        1 => (0..8_usize).prop_map(Op::Evict),
    ]
}

/// What must be true of a store at every moment without other threads.
fn check(store: &CompressedStore<HeapPages>, model: &BTreeMap<Handle, u64>) {
    let stat = store.stat();
    assert_eq!(stat.stored, model.len() as u64);
    assert_eq!(stat.stored, stat.same + stat.lz4 + stat.zstd + stat.raw);
    let same = model.values().filter(|number| *number % 5 == 0).count();
    assert_eq!(stat.same, same as u64);
    assert_eq!(store.memory(), store.source().taken(), "each page is counted once");
    assert!(stat.memory * PAGE_BYTES as u64 >= stat.compressed_bytes, "what is kept has room");
    if stat.stored == stat.same {
        assert_eq!(stat.memory, 0, "pages of one word take no memory");
    }
}

fn load(store: &CompressedStore<HeapPages>, handle: Handle, number: u64) {
    let mut back = vec![0; PAGE_BYTES];
    store.load(handle, &mut back).expect("what was stored");
    assert!(back == page(number), "page {number}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_store_has_what_was_stored_and_nothing_else(
        ops in vec(op(), 1..200),
        raw in any::<bool>(),
    ) {
        let limits = StoreLimits { memory: MEMORY, slots: SLOTS, raw, ..StoreLimits::default() };
        let store = CompressedStore::new(HeapPages::new(2 * MEMORY), limits);
        let mut model: BTreeMap<Handle, u64> = BTreeMap::new();
        let mut limit = MEMORY;
        for op in ops {
            let at = |n: usize| model.iter().nth(n % model.len().max(1)).map(|(h, n)| (*h, *n));
            let before = store.memory();
            match op {
                Op::Store(number) => match store.store_tagged(&page(number), number) {
                    Ok(handle) => {
                        prop_assert!(store.memory() <= before.max(limit));
                        prop_assert!(raw || number % 5 != 3, "random bytes");
                        let fresh = model.insert(handle, number).is_none();
                        prop_assert!(fresh, "{handle} is in use");
                    }
                    Err(Rejected::Slots { slots }) => {
                        prop_assert_eq!((slots, model.len()), (SLOTS, SLOTS as usize));
                    }
                    Err(Rejected::Incompressible) => prop_assert!(!raw && number % 5 == 3),
                    Err(Rejected::Limit { used, limit: most }) => {
                        prop_assert!(most == limit && used >= limit);
                    }
                    Err(Rejected::NoMemory { used }) => prop_assert_eq!(used, 2 * MEMORY),
                    Err(other) => panic!("{other}"),
                },
                Op::Load(n) => if let Some((handle, number)) = at(n) {
                    load(&store, handle, number);
                },
                Op::Free(n) => if let Some((handle, _)) = at(n) {
                    store.free(handle);
                    model.remove(&handle);
                },
                Op::Age => store.age(),
                Op::Recompress(budget) => {
                    let done = store.recompress(budget);
                    prop_assert!(done.smaller <= done.tried && done.tried <= budget);
                }
                Op::Compact(budget) => {
                    let freed = store.compact(budget);
                    prop_assert_eq!(before - store.memory(), freed);
                }
                Op::Limit(pages) => {
                    limit = pages;
                    store.set_limit(pages);
                }
                Op::Evict(n) => for cold in store.coldest(n) {
                    prop_assert_eq!(model.get(&cold.handle), Some(&cold.tag));
                    let mut back = vec![0; PAGE_BYTES];
                    store.peek(cold.handle, &mut back).expect("what was stored");
                    prop_assert!(back == page(cold.tag));
                    store.free(cold.handle);
                    model.remove(&cold.handle);
                },
            }
            check(&store, &model);
        }
        for (handle, number) in std::mem::take(&mut model) {
            load(&store, handle, number);
            store.free(handle);
        }
        check(&store, &model);
        prop_assert_eq!(store.stat().corrupt, 0);
        // Whatever was rejected, every slot is there.
        prop_assert!((0..SLOTS).all(|_| store.store(&page(0)).is_ok()));
        prop_assert!(store.store(&page(0)).is_err());
    }

    #[test]
    fn a_swap_file_has_what_was_written_and_nothing_else(
        ops in vec((0..4_u8, 0..1000_u64, 0..90_usize), 1..100),
        slots in 1..200_u32,
    ) {
        let file = SwapFile::on(Planned::default(), slots).expect("a swap file");
        let mut model: BTreeMap<Slot, u64> = BTreeMap::new();
        let ahead = ReadAhead::new(16);
        for (kind, number, n) in ops {
            match kind {
                0 => {
                    let pages: Vec<Vec<u8>> = (number..number + n as u64).map(page).collect();
                    let out: Vec<Outgoing> = (number..)
                        .zip(&pages)
                        .map(|(tag, bytes)| Outgoing { bytes, tag })
                        .collect();
                    match file.write(&out) {
                        Ok(written) => {
                            prop_assert_eq!(written.len(), n);
                            for (tag, slot) in (number..).zip(written) {
                                prop_assert!(slot.to_bits() < slots);
                                prop_assert!(model.insert(slot, tag).is_none(), "{slot} is in use");
                            }
                        }
                        Err(WriteError::Full { free, wanted, .. }) => {
                            let left = slots as usize - model.len();
                            prop_assert_eq!((free as usize, wanted), (left, n));
                            prop_assert!(n > free as usize);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                1 => {
                    let gone: Vec<Slot> = model.keys().copied().step_by(n.max(1)).collect();
                    for slot in gone {
                        model.remove(&slot);
                        file.free(slot);
                    }
                }
                2 => {
                    file.discard(n);
                }
                _ => if let Some((&slot, &tag)) = model.iter().nth(n % model.len().max(1)) {
                    let mut back = vec![0; PAGE_BYTES];
                    let mut around = Around(&model, 0);
                    file.read(slot, &mut back, &ahead, &mut around).expect("what was written");
                    prop_assert!(back == page(tag));
                    prop_assert!(around.1 < 16);
                },
            }
            prop_assert_eq!(file.stat().used as usize, model.len());
        }
        model.into_keys().for_each(|slot| file.free(slot));
        let stat = file.stat();
        prop_assert_eq!((stat.used, stat.corrupt), (0, 0));
        prop_assert_eq!(stat.ahead, stat.ahead_hits + stat.ahead_unused);
    }
}

/// Neighbours must be what the model says.
struct Around<'a>(&'a BTreeMap<Slot, u64>, usize);

impl Neighbours for Around<'_> {
    fn wants(&mut self, slot: Slot, tag: u64) -> bool {
        assert_eq!(self.0.get(&slot), Some(&tag));
        !tag.is_multiple_of(3)
    }

    fn take(&mut self, slot: Slot, tag: u64, bytes: &[u8]) -> bool {
        assert!(self.0.get(&slot) == Some(&tag) && bytes == page(tag) && !tag.is_multiple_of(3));
        self.1 += 1;
        tag.is_multiple_of(2)
    }
}

/// Text of a length, which repeats itself.
fn text(number: u64, bytes: usize) -> Vec<u8> {
    format!("what page {number} holds, {}; ", number * 7919).bytes().cycle().take(bytes).collect()
}

/// Pages of some length on the heap.
struct Sized(HeapPages, usize);

struct SizedPage(lowtide_swap::HeapPage, usize);

impl std::ops::Deref for SizedPage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl std::ops::DerefMut for SizedPage {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0[..self.1]
    }
}

impl PageSource for Sized {
    type Page = SizedPage;

    fn page_bytes(&self) -> usize {
        self.1
    }

    fn take(&self) -> Option<SizedPage> {
        self.0.take().map(|page| SizedPage(page, self.1))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_found_by_its_tag_is_what_was_stored_with_it(
        ops in vec((0..5_u8, 0..100_u64), 1..300),
        page_bytes in prop_oneof![Just(512_usize), Just(1024), Just(4096)],
        common in any::<bool>(),
    ) {
        let samples: Vec<u8> = (0..256).flat_map(|n| text(n, page_bytes)).collect();
        let common = if common { Dictionary::of(&samples, page_bytes) } else { None };
        let with = common.as_ref();
        let limits = StoreLimits {
            memory: MEMORY,
            raw: false,
            packing: Packing::Tight,
            by_tag: true,
            ..StoreLimits::default()
        };
        let store = CompressedStore::new(Sized(HeapPages::new(2 * MEMORY), page_bytes), limits);
        // Of each tag, which version is stored.
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut back = vec![0; page_bytes];
        for (turn, (kind, tag)) in (0..).zip(ops) {
            match kind {
                0 | 1 if !model.contains_key(&tag) => {
                    let page = text(tag << 20 | turn, page_bytes);
                    match store.store_with(&page, tag, with) {
                        Ok(handle) => {
                            prop_assert!(store.len_of(handle).is_some_and(|len| len < page_bytes));
                            model.insert(tag, turn);
                        }
                        Err(Rejected::Limit { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
                2 => {
                    let found = store.take(tag, &mut back, with);
                    prop_assert_eq!(found.is_some(), model.contains_key(&tag));
                    if let Some(version) = model.remove(&tag) {
                        prop_assert!(found == Some(Ok(())));
                        prop_assert!(back == text(tag << 20 | version, page_bytes));
                    }
                }
                3 => prop_assert_eq!(store.forget(tag), model.remove(&tag).is_some()),
                4 if tag % 10 == 0 => {
                    store.forget_all(|other| other < tag);
                    model.retain(|&other, _| other >= tag);
                }
                _ => for cold in store.coldest(2) {
                    prop_assert!(store.forget(cold.tag) && model.remove(&cold.tag).is_some());
                },
            }
            prop_assert_eq!(store.len(), model.len());
        }
        for (tag, version) in model {
            prop_assert!(store.take(tag, &mut back, with) == Some(Ok(())));
            prop_assert!(back == text(tag << 20 | version, page_bytes));
        }
        prop_assert!(store.is_empty() && store.memory() == 0 && store.stat().corrupt == 0);
        store.shrink_tables();
        prop_assert!(!store.has_tables() && store.stat().table_pages == 0);
    }
}
