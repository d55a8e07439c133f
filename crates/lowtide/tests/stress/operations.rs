//! What a thread does, one operation at a time.

use super::apart;
use super::ends;
use super::file::{Came, StormFile, Views};
use super::lazy;
use super::mapped;
use super::plan::{Rng, mix};
use super::region::{self, Regions};
use super::scenes;
use super::watch::Post;
use super::{Storm, size};
use lowtide::budget::AutoLimits;
use lowtide::{Error, Page, View};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// How often each operation is drawn, in all of them together; its row in the coverage table.
const WEIGHTS: &[(&str, u64, Operation)] = &[
    ("read through a guard", 200, read),
    ("read through a reader", 60, read_in_turn),
    ("read of any bytes", 120, read_at),
    ("read of many pages", 50, get_many),
    ("the same pages as other threads", 40, chase),
    ("stores in a callback", 20, get_many_and_store),
    ("guards kept over other calls", 60, keep_guards),
    ("store to a part of a page", 120, store_part),
    ("store to whole pages", 70, store_pages),
    ("store to a whole folio", 50, store_folio),
    ("store of any bytes", 60, store_ragged),
    ("store at the border of a hole", 60, store_at_the_border),
    ("growing by a store", 15, grow),
    ("made shorter or longer", 15, set_len),
    ("a hole punched", 20, punch),
    ("flush", 8, flush),
    ("flush of a range and a look at the disk", 40, flush_and_look),
    ("discard", 20, discard),
    ("discard of everything", 4, discard_everything),
    ("prefetch", 20, prefetch),
    ("reclaim on request", 20, reclaim),
    ("budget changed", 6, change_budget),
    ("tenant's budget changed", 6, change_tenant),
    ("closed and opened again", 6, reopen),
    ("another open and a clone", 6, open_again),
    ("file replaced and opened", 3, scenes::replace_and_open),
    ("file cut by another descriptor", 2, scenes::cut_by_another),
    ("file grown by another descriptor", 3, scenes::grown_by_another),
    ("store far past the end", 2, scenes::store_far_away),
    ("folder renamed before the flush", 2, scenes::renamed_folder),
    ("closed while a read hangs", 1, scenes::closed_while_a_read_hangs),
    ("discard of what cannot be written", 3, scenes::discard_unwritable),
    ("a guard that is forgotten", 1, scenes::forgotten_guard),
    ("a file stored to through a map", 4, mapped::stored_through),
    ("region: read through a guard", 90, region::read),
    ("region: read of any bytes", 60, region::read_at),
    ("region: store through a guard or elements", 90, region::store),
    ("region: store of any bytes", 60, region::store_at),
    ("region: discard", 30, region::discard),
    ("region: growing", 6, region::grow),
    ("region: limits of memory and swap changed", 12, region::change_limits),
    ("region: its tenant is removed", 4, region::orphaned),
    ("region: beside a file", 10, region::beside_a_file),
    ("region: behind a pointer", 4, region::behind_a_pointer),
    ("region: freed lazily", 6, lazy::freed_lazily),
    ("region: longer while it is given up", 6, ends::moved),
    ("regions with a pager of their own", 2, apart::regions),
];

/// What an operation has at hand.
pub(crate) struct Hand<'a> {
    pub(crate) storm: &'a Storm<'a>,
    pub(crate) post: &'a Post,
    pub(crate) thread: u64,
    pub(crate) rng: Rng,
}

type Operation = fn(&mut Hand<'_>) -> Came;

/// The names of all operations.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    WEIGHTS.iter().map(|(name, ..)| *name)
}

impl Hand<'_> {
    /// Does something.
    pub(crate) fn step(&mut self) {
        let total = WEIGHTS.iter().map(|(_, weight, _)| weight).sum();
        let mut drawn = self.rng.below(total);
        for (name, weight, operation) in WEIGHTS {
            if drawn < *weight {
                if self.storm.without.contains(name) {
                    return;
                }
                self.post.doing((*name).to_owned());
                let came = operation(self);
                match came {
                    Came::Done => self.storm.coverage.count(name),
                    Came::NotNow => {}
                    Came::Refused => self.storm.coverage.count("refused because of the device"),
                }
                return;
            }
            drawn -= weight;
        }
    }

    fn file(&mut self) -> &'_ StormFile {
        // The first has the large folios.
        let files = &self.storm.files;
        let which = if self.rng.one_in(2) { 0 } else { self.rng.below(files.len() as u64) };
        &files[which as usize]
    }

    fn says(&self, file: &StormFile, page: u64) {
        self.post.also(&format!(", file {} page {page} of {}", file.number, file.pages()));
    }

    /// Calls `act` with a file, a page of it, and its views.
    fn with(&mut self, act: impl FnOnce(&mut Rng, &StormFile, u64, &Views, &Post) -> Came) -> Came {
        let files = &self.storm.files;
        let which = if self.rng.one_in(2) { 0 } else { self.rng.below(files.len() as u64) };
        let file = &files[which as usize];
        let Ok(views) = file.views.try_read() else { return Came::NotNow };
        let Some(views) = &*views else { return Came::NotNow };
        if file.len() == 0 {
            return Came::NotNow;
        }
        let page = file.some_page(&mut self.rng);
        self.says(file, page);
        act(&mut self.rng, file, page, views, self.post)
    }
}

/// Any view of a file.
fn any<'v>(rng: &mut Rng, views: &'v Views) -> &'v View {
    if rng.one_in(4) { &views.reader } else { &views.writers[rng.below(3) as usize] }
}

fn writer<'v>(rng: &mut Rng, views: &'v Views) -> &'v View {
    &views.writers[rng.below(3) as usize]
}

/// A page that was refused: because of the device, or because the file has become shorter.
fn read_refused(file: &StormFile, error: &Error) -> Came {
    match error {
        Error::OutOfRange { offset, bytes, .. } if file.was_shorter(offset + bytes) => Came::NotNow,
        error => file.refused(error, "a read"),
    }
}

/// Reads a page and checks it. The guard comes back, and what it showed.
fn hold<'v>(file: &StormFile, view: &'v View, page: u64) -> Result<(Page<'v>, Vec<u8>), Came> {
    let range = page * file.page..(page + 1) * file.page;
    let least = file.least(range.clone());
    let guard = view.page(page).map_err(|error| read_refused(file, &error))?;
    file.check(range.start, &guard, &least, "a guard");
    let seen = guard.to_vec();
    Ok((guard, seen))
}

fn read(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| match hold(file, any(rng, views), page) {
        Ok((guard, seen)) => {
            assert!(guard[..] == seen[..], "the bytes of a guard have changed");
            Came::Done
        }
        Err(came) => came,
    })
}

/// Pages one after the other, each of which stays as it is until the next.
fn read_in_turn(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let pages = list(rng, file, page);
        let mut reader = any(rng, views).page_cursor();
        for page in pages {
            let range = page * file.page..(page + 1) * file.page;
            let least = file.least(range.clone());
            let bytes = match reader.page(page) {
                Ok(bytes) => bytes,
                Err(error) => return read_refused(file, &error),
            };
            file.check(range.start, bytes, &least, "a reader");
            let seen = bytes.to_vec();
            if rng.one_in(4) {
                std::thread::yield_now();
            }
            assert!(bytes == seen, "the bytes of a reader have changed");
        }
        Came::Done
    })
}

fn copy(rng: &mut Rng, file: &StormFile, view: &View, at: u64, bytes: u64) -> Came {
    let end = (at + bytes).min(file.len());
    if at >= end {
        return Came::NotNow;
    }
    let least = file.least(at..end);
    let mut copy = vec![rng.next() as u8; (end - at) as usize];
    match view.read_at(at, &mut copy) {
        Ok(()) => {
            file.check(at, &copy, &least, "a copy");
            Came::Done
        }
        Err(error) => read_refused(file, &error),
    }
}

fn read_at(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let at = page * file.page + rng.below(file.page);
        let pages = rng.pick(&[1, 1, 2, 5, 40]);
        let bytes = 1 + rng.below(file.page * pages);
        let view = any(rng, views);
        copy(rng, file, view, at, bytes)
    })
}

/// Pages, some of them neighbours, some twice.
fn list(rng: &mut Rng, file: &StormFile, page: u64) -> Vec<u64> {
    let pages = file.pages();
    let mut list: Vec<u64> = (0..rng.below(12)).map(|i| (page + i) % pages).collect();
    for _ in 0..1 + rng.below(8) {
        list.push(file.some_page(rng));
    }
    list
}

fn get_many(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let list = list(rng, file, page);
        let bytes = |page: u64| page * file.page..(page + 1) * file.page;
        let least: Vec<_> = list.iter().map(|page| file.least(bytes(*page))).collect();
        let each = |i: usize, shown: &[u8]| {
            file.check(list[i] * file.page, shown, &least[i], "one of many");
        };
        match any(rng, views).get_many(&list, each) {
            Ok(()) => Came::Done,
            Err(error) => read_refused(file, &error),
        }
    })
}

/// Reads pages that other threads want at the same time, in folios of which one page is in memory
/// alone.
fn chase(hand: &mut Hand<'_>) -> Came {
    let storm = hand.storm;
    let file = &storm.files[0];
    let Ok(views) = file.views.try_read() else { return Came::NotNow };
    let Some(views) = &*views else { return Came::NotNow };
    let mut came = Came::NotNow;
    for _ in 0..12 {
        let turn = storm.chased.fetch_add(1, SeqCst);
        let folio = 1_u64 << file.order;
        let drawn = mix(turn / storm.plan.threads.min(3));
        let first = drawn % (file.pages() / folio).max(1) * folio;
        if turn.is_multiple_of(4) {
            let last = (first + folio - 1) * per_page(file);
            let _ = file.store(&views.writers[0], last..last + per_page(file), [0, 0], false);
        }
        let page = first + (drawn >> 32) % folio;
        if page < file.pages() {
            came = match hold(file, &views.reader, page) {
                Ok(_) => Came::Done,
                Err(came) => came,
            };
        }
    }
    came
}

fn get_many_and_store(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let list = list(rng, file, page);
        let view = writer(rng, views);
        let mut stored = Came::NotNow;
        let each = |_: usize, _: &[u8]| {
            if rng.one_in(16) {
                let _ = file.flush(view);
            }
            let record = file.some_page(rng) * (file.page / file.size);
            // It may be done, or be refused as nested. It may not wait.
            if file.store(view, record..record + 1, [0, 0], false) == Came::Done {
                stored = Came::Done;
            }
        };
        match view.get_many(&list, each) {
            Ok(()) => stored,
            Err(error) => read_refused(file, &error),
        }
    })
}

/// Holds up to three pages and does other things meanwhile: reads the same pages again, and any
/// others; flushes; stores behind them. It does not store before them: two threads that each hold a
/// page and store to the other's would wait in a circle.
fn keep_guards(hand: &mut Hand<'_>) -> Came {
    let storm = hand.storm;
    // Frames that are held cannot be evicted; few threads do this at a time.
    if storm.keepers.fetch_add(1, SeqCst) >= storm.most_keepers {
        storm.keepers.fetch_sub(1, SeqCst);
        return Came::NotNow;
    }
    let came = hand.with(|rng, file, page, views, post| {
        let view = any(rng, views);
        let mut held = match hold(file, view, page) {
            Ok((guard, seen)) => vec![(page, guard, seen)],
            Err(came) => return came,
        };
        for _ in 0..1 + rng.below(6) {
            let last = held.iter().map(|(page, ..)| *page).max().unwrap_or(page);
            let what = rng.below(11);
            post.also(&format!(", holds up to {last} and does {what}"));
            match what {
                0..3 => {
                    // The same page again, while a writer may be waiting for this very guard.
                    storm.coverage.count("a held page read again");
                    let again = held[rng.below(held.len() as u64) as usize].0;
                    match rng.below(3) {
                        0 => drop(hold(file, view, again)),
                        1 => drop(copy(rng, file, view, again * file.page, 1)),
                        _ => drop(view.get_many(&[again, again], |_, _| ())),
                    }
                }
                3 if held.len() < 3 => {
                    let other = match rng.below(3) {
                        0 => (last >> file.order << file.order) + rng.below(1 << file.order),
                        1 => last + 1 + rng.below(4),
                        _ => file.some_page(rng),
                    };
                    let other = other.min(file.pages().max(1) - 1);
                    if let Ok((guard, seen)) = hold(file, view, other) {
                        storm.coverage.count("another page while one is held");
                        held.push((other, guard, seen));
                    }
                }
                4 => {
                    let record = (last + 1 + rng.below(4)) * (file.page / file.size);
                    let _ = file.store(&views.writers[0], record..record + 1, [0, 0], false);
                }
                5 => {
                    let record = last * (file.page / file.size);
                    if file.store(&views.writers[1], record..record + 1, [0, 0], false)
                        == Came::Done
                    {
                        panic!("a store to a page that this thread holds was done");
                    }
                }
                6 => storm.pager.validate().unwrap_or_else(|e| panic!("{e}")),
                7 => std::thread::sleep(Duration::from_micros(rng.below(1500))),
                8 => {
                    storm.coverage.count("flush while a page is held");
                    let _ = file.flush(&views.writers[0]);
                }
                9 => drop(copy(rng, file, view, page * file.page, 40 * file.page)),
                _ => std::thread::yield_now(),
            }
        }
        for (page, guard, seen) in &held {
            assert!(guard[..] == seen[..], "the bytes of a guard on page {page} have changed");
        }
        Came::Done
    });
    storm.keepers.fetch_sub(1, SeqCst);
    came
}

fn per_page(file: &StormFile) -> u64 {
    file.page / file.size
}

fn store_part(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let first = page * per_page(file) + rng.below(per_page(file));
        file.store(writer(rng, views), first..first + 1, [0, 0], true)
    })
}

fn store_pages(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let pages = rng.pick(&[1, 1, 1, 2, 3, 9, 70]).min(file.pages() - page);
        let records = page * per_page(file)..(page + pages) * per_page(file);
        file.store(writer(rng, views), records, [0, 0], true)
    })
}

fn store_folio(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let first = page >> file.order << file.order;
        let records = first * per_page(file)..(first + (1 << file.order)) * per_page(file);
        file.store(writer(rng, views), records, [0, 0], true)
    })
}

fn store_ragged(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let first = page * per_page(file) + rng.below(per_page(file));
        let count = 1 + rng.below(3 * per_page(file));
        let around = [rng.below(file.size), rng.below(file.size)];
        file.store(writer(rng, views), first..first + count, around, true)
    })
}

/// Whole folios at the end of what was stored, and parts of their pages when these have left
/// memory.
fn store_at_the_border(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, _, views, _| {
        let view = writer(rng, views);
        let Some(border) = file.border() else { return Came::NotNow };
        let folio = 1 << file.order;
        if rng.one_in(2) && border > 0 {
            let page = border - 1 - rng.below(folio.min(border));
            if !file.fair || rng.one_in(2) {
                let _ = file.flush(view);
            }
            let _ = file.discard(view, page / folio * folio..page / folio * folio + folio, false);
            let first = page * per_page(file) + rng.below(per_page(file));
            return file.store(view, first..first + 1, [0, 0], true);
        }
        let first = (border + rng.below(2)).next_multiple_of(folio);
        file.store(view, first * per_page(file)..(first + folio) * per_page(file), [0, 0], true)
    })
}

fn grow(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, _, views, _| file.grow(writer(rng, views), rng))
}

fn set_len(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, _, views, _| file.set_len(writer(rng, views), rng))
}

/// Records in the middle of pages, and folios between them.
fn punch(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let first = page * per_page(file) + rng.below(per_page(file));
        let pages = rng.pick(&[0, 1, 2, 1 << file.order, 3 << file.order, 70]);
        let end = first + 1 + pages * per_page(file) + rng.below(per_page(file));
        file.punch(writer(rng, views), first..end)
    })
}

fn flush(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, _, views, _| file.flush(writer(rng, views)))
}

fn flush_and_look(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let end = (page + 1 + rng.below(16)).min(file.pages());
        file.flush_and_look(writer(rng, views), page..end)
    })
}

fn discard(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, page, views, _| {
        let folio = 1 << file.order;
        let pages = if rng.one_in(3) {
            page..(page + 1 + rng.below(6)).min(file.pages())
        } else {
            page / folio * folio..(page / folio + 1) * folio
        };
        file.discard(writer(rng, views), pages, false)
    })
}

fn discard_everything(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, file, _, views, _| file.discard(writer(rng, views), 0..0, true))
}

fn prefetch(hand: &mut Hand<'_>) -> Came {
    hand.with(|rng, _, page, views, _| {
        let view = any(rng, views);
        let bytes = view.page_size() as u64;
        view.prefetch(page * bytes..(page + 1 + rng.below(64)) * bytes);
        Came::Done
    })
}

fn reclaim(hand: &mut Hand<'_>) -> Came {
    let pages = 1 + hand.rng.below(hand.storm.plan.budget);
    let bytes = size(pages * hand.storm.plan.page as u64);
    hand.storm.pager.root().reclaim(bytes).expect("the root is there");
    Came::Done
}

fn change_budget(hand: &mut Hand<'_>) -> Came {
    let budget = hand.storm.plan.budget;
    let pages = if hand.rng.one_in(2) { budget } else { budget / 2 + hand.rng.below(budget / 2) };
    let pages = pages + Regions::frames(hand.storm.plan);
    let set = hand.storm.pager.root().set_max(size(pages * hand.storm.plan.page as u64));
    let _ = set.expect("a budget between a half and all is possible");
    Came::Done
}

fn change_tenant(hand: &mut Hand<'_>) -> Came {
    let (budget, tenant) = (hand.storm.plan.budget, &hand.storm.tenant);
    let pages = budget / 2 + hand.rng.below(budget);
    let most = size(pages * hand.storm.plan.page as u64);
    match pages % 4 {
        // It may move down to a page: no operation fails because of that.
        0 if hand.storm.plan.background => {
            let least = size(hand.storm.plan.page as u64);
            tenant.set_auto(AutoLimits::new(least, most)).expect("the bounds are possible");
        }
        1 => tenant.set_auto(None).expect("the tenant is there"),
        _ => drop(tenant.set_max(most).expect("the tenant is there")),
    }
    Came::Done
}

fn reopen(hand: &mut Hand<'_>) -> Came {
    let storm = hand.storm;
    let which = hand.rng.below(storm.files.len() as u64) as usize;
    let order = hand.rng.below(u64::from(storm.files[which].order) + 1) as u8;
    hand.says(hand.storm.files.get(which).expect("it is one of them"), 0);
    storm.files[which].reopen(&storm.pager, storm.payer(which), order)
}

fn open_again(hand: &mut Hand<'_>) -> Came {
    let storm = hand.storm;
    let file = hand.file();
    let Ok(mut views) = file.views.try_write() else { return Came::NotNow };
    let Some(open) = &mut *views else { return Came::NotNow };
    let fresh = file.open(&storm.pager, None, 0).expect("a file that is open can be opened again");
    open.writers[2] = fresh.writers[0].clone();
    open.reader = fresh.reader;
    Came::Done
}

/// Keeps doing things until it is over.
pub(crate) fn work(hand: &mut Hand<'_>, more: impl Fn() -> bool) {
    while more() {
        hand.step();
    }
    hand.post.doing("has ended".into());
    drop(hand.storm.files[0].views.read().unwrap_or_else(PoisonError::into_inner));
}
