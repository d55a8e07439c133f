//! A view beside a model: a vector of bytes. Whatever is drawn, both hold the same, in memory, on
//! disk after a flush, and for other views.
//!
//! `LOWTIDE_MODEL_CASES` says how many sequences are played.

use crate::common::Dir;
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{Error, OpenOptions, Pager, Size, View};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Sizes of files, in pages.
const PAGES: f64 = 40.0;

/// What is done. Places are fractions of the largest file.
#[derive(Clone, Debug)]
enum Op {
    Write {
        at: f64,
        len: f64,
        byte: u8,
    },
    Read {
        at: f64,
        len: f64,
    },
    SetLen {
        to: f64,
    },
    Punch {
        from: f64,
        to: f64,
    },
    /// As when a program gives up what it has not written: only after a flush, so that both hold
    /// the same.
    FlushAndDiscard {
        from: f64,
        to: f64,
    },
    Flush,
    Guards {
        at: f64,
    },
    GetMany {
        at: f64,
        step: u64,
    },
    /// Another process appends.
    Appended {
        len: f64,
        byte: u8,
    },
    /// Another process cuts the file, when nothing waits to be written.
    CutOutside {
        to: f64,
    },
    /// All pages go, by way of other pages.
    Evict,
    Reopen {
        order: u8,
    },
}

/// A place, more often than not at the edge of a page.
/// A place a few billionths beside the beginning of a page.
fn near(page: u32, off: i32) -> f64 {
    (f64::from(page) / PAGES + f64::from(off) * 1e-9).max(0.0)
}

fn place() -> impl Strategy<Value = f64> {
    prop_oneof![
        2 => 0.0..1.0_f64,
        2 => (0..PAGES as u32).prop_map(|page| f64::from(page) / PAGES),
        1 => (0..PAGES as u32, -3..4).prop_map(|(page, off)| near(page, off)),
    ]
}

fn length() -> impl Strategy<Value = f64> {
    prop_oneof![3 => 0.0..0.04_f64, 2 => 0.0..0.3_f64, 1 => Just(0.0), 1 => Just(2.0 / PAGES)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (place(), length(), 1..=255_u8)
            .prop_map(|(at, len, byte)| Op::Write { at, len, byte }),
        4 => (place(), length()).prop_map(|(at, len)| Op::Read { at, len }),
        3 => place().prop_map(|to| Op::SetLen { to }),
        2 => (place(), place()).prop_map(|(from, to)| Op::Punch { from, to }),
        1 => (place(), place()).prop_map(|(from, to)| Op::FlushAndDiscard { from, to }),
        2 => Just(Op::Flush),
        2 => place().prop_map(|at| Op::Guards { at }),
        1 => (place(), 1..5_u64).prop_map(|(at, step)| Op::GetMany { at, step }),
        2 => (length(), 1..=255_u8).prop_map(|(len, byte)| Op::Appended { len, byte }),
        1 => place().prop_map(|to| Op::CutOutside { to }),
        2 => Just(Op::Evict),
        1 => (0..10_u8).prop_map(|order| Op::Reopen { order }),
    ]
}

struct World<'d> {
    pager: Pager,
    path: &'d Path,
    /// Two handles of the file: each thing is done through one and looked at through the other.
    views: Option<[View; 2]>,
    other: View,
    model: Vec<u8>,
    page: u64,
    turn: usize,
}

impl World<'_> {
    fn open(&mut self, order: u8) {
        self.views = None;
        // As large as the budget allows.
        let open = |order| {
            let options = OpenOptions::new().write(true).folio_order(order).growth(Size::mib(64));
            options.open(&self.pager, self.path).ok()
        };
        let first = (0..=order).rev().find_map(open).expect("single pages are always possible");
        let second = open(0).expect("the file is open already");
        self.views = Some([first, second]);
    }

    fn view(&mut self) -> &View {
        self.turn += 1;
        &self.views.as_ref().expect("it is open")[self.turn % 2]
    }

    fn bytes(&self, place: f64) -> u64 {
        // A little beside an edge is a byte, not a fraction of one.
        let edge = (place * PAGES).round();
        let off = ((place * PAGES - edge) / PAGES * 1e9).round();
        if off.abs() <= 4.0 {
            return (edge as u64 * self.page).saturating_add_signed(off as i64);
        }
        (place * PAGES * self.page as f64) as u64
    }

    fn same(&mut self, at: u64, bytes: &[u8]) -> Result<(), TestCaseError> {
        let expected = &self.model[at as usize..at as usize + bytes.len()];
        let wrong = bytes.iter().zip(expected).position(|(a, b)| a != b);
        prop_assert!(
            wrong.is_none(),
            "byte {} of {} is {:?}, not {:?}",
            at + wrong.unwrap_or(0) as u64,
            self.model.len(),
            wrong.map(|w| bytes[w]),
            wrong.map(|w| expected[w])
        );
        Ok(())
    }

    fn play(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let len = self.model.len() as u64;
        match *op {
            Op::Write { at, len: bytes, byte } => {
                let (at, bytes) = (self.bytes(at), self.bytes(bytes) as usize);
                let data: Vec<u8> = (0..bytes).map(|i| byte ^ (i as u8 & 1)).collect();
                self.view().write_at(at, &data).unwrap();
                let end = at as usize + bytes;
                if bytes > 0 && end > self.model.len() {
                    self.model.resize(end, 0);
                }
                if bytes > 0 {
                    self.model[at as usize..end].copy_from_slice(&data);
                }
            }
            Op::Read { at, len: bytes } => {
                let (at, bytes) = (self.bytes(at), self.bytes(bytes));
                let mut buf = vec![0xee; bytes as usize];
                let got = self.view().read_clamped(at, &mut buf).unwrap();
                prop_assert_eq!(got as u64, bytes.min(len.saturating_sub(at)));
                if got > 0 {
                    self.same(at, &buf[..got])?;
                }
                let all = self.view().read_at(at, &mut buf);
                let exists = bytes == 0 || at + bytes <= len;
                prop_assert!(all.is_ok() == exists, "{all:?}");
            }
            Op::SetLen { to } => {
                let to = self.bytes(to);
                self.view().set_len(to).unwrap();
                self.model.resize(to as usize, 0);
                prop_assert_eq!(std::fs::metadata(self.path).unwrap().len(), to);
            }
            Op::Punch { from, to } => {
                let (from, to) = (self.bytes(from), self.bytes(to));
                self.view().punch(from..to).unwrap();
                let (from, to) = (from.min(len) as usize, to.min(len) as usize);
                if from < to {
                    self.model[from..to].fill(0);
                }
            }
            Op::FlushAndDiscard { from, to } => {
                let page = self.page;
                let (from, to) = (self.bytes(from) / page, self.bytes(to) / page);
                self.view().flush().unwrap();
                prop_assert_eq!(self.view().revert(from * page..to * page).unwrap(), 0);
            }
            Op::Flush => self.flush()?,
            Op::Guards { at } => {
                let page = self.bytes(at) / self.page;
                let start = page * self.page;
                match self.view().page(page).map(|guard| guard.to_vec()) {
                    Ok(bytes) => {
                        prop_assert!(start < len);
                        // What others have appended to this page need not be known.
                        let known = self.view().len();
                        let valid = (known - start).min(self.page) as usize;
                        self.same(start, &bytes[..valid])?;
                        let unknown = known < len;
                        prop_assert!(
                            unknown || bytes[valid..].iter().all(|b| *b == 0),
                            "past the end"
                        );
                    }
                    Err(Error::OutOfRange { .. }) => prop_assert!(start >= len),
                    Err(e) => panic!("{e}"),
                }
            }
            Op::GetMany { at, step } => {
                let first = self.bytes(at) / self.page;
                let list: Vec<u64> =
                    (first..len.div_ceil(self.page)).step_by(step as usize).take(20).collect();
                let mut seen = Vec::new();
                self.view()
                    .get_many(&list, |i, bytes| seen.push((list[i], bytes.to_vec())))
                    .unwrap();
                prop_assert_eq!(seen.len(), list.len());
                let known = self.view().len();
                for (page, bytes) in seen {
                    let start = page * self.page;
                    self.same(start, &bytes[..(known - start).min(self.page) as usize])?;
                }
            }
            Op::Appended { len: bytes, byte } => {
                let data = vec![byte; self.bytes(bytes) as usize];
                let file = File::options().write(true).open(self.path).unwrap();
                file.write_all_at(&data, len).unwrap();
                self.model.extend(&data);
                if byte % 2 == 0 {
                    prop_assert_eq!(self.view().refresh_len().unwrap(), self.model.len() as u64);
                }
            }
            Op::CutOutside { to } => {
                let to = self.bytes(to).min(len);
                self.view().flush().unwrap();
                File::options().write(true).open(self.path).unwrap().set_len(to).unwrap();
                prop_assert_eq!(self.view().refresh_len().unwrap(), to);
                self.model.truncate(to as usize);
            }
            Op::Evict => {
                for page in 0..self.other.page_count() {
                    drop(self.other.page(page).unwrap());
                }
            }
            Op::Reopen { order } => {
                let [first, second] = self.views.take().expect("it is open");
                drop(second);
                first.close().unwrap();
                prop_assert!(
                    std::fs::read(self.path).unwrap() == self.model,
                    "on disk after closing"
                );
                self.open(order);
            }
        }
        prop_assert!(self.view().len() <= self.model.len() as u64);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TestCaseError> {
        self.view().flush().unwrap();
        let disk = std::fs::read(self.path).unwrap();
        prop_assert_eq!(disk.len(), self.model.len());
        self.same(0, &disk)
    }

    fn end(&mut self) -> Result<(), TestCaseError> {
        self.view().refresh_len().unwrap();
        let len = self.model.len() as u64;
        let all = self.view().read_to_vec(0..len).unwrap();
        self.same(0, &all)?;
        self.flush()?;
        self.pager.validate().map_err(|broken| TestCaseError::fail(broken.to_string()))
    }
}

fn play(
    page: usize,
    order: u8,
    frames: u64,
    background: bool,
    zcache: Option<u64>,
    ops: &[Op],
) -> Result<(), TestCaseError> {
    let dir = Dir::new();
    let path = dir.path().join("data");
    let max = (frames * page as u64).to_string();
    let pager =
        Pager::builder().max(max.parse::<Size>().unwrap()).base_page(page).background(background);
    let pager = match zcache {
        Some(part) => pager.zcache_sixteenths(part),
        None => pager,
    };
    let pager = pager.memory_timeout(Duration::from_secs(20)).build().unwrap();
    let other = OpenOptions::new().create_with_len(2 * frames * page as u64);
    let other = other.open(&pager, dir.path().join("other")).unwrap();
    File::create(&path).unwrap();
    let (model, page) = (Vec::new(), page as u64);
    let mut world = World { pager, path: &path, views: None, other, model, page, turn: 0 };
    // Large folios are not compressed.
    world.open(if zcache.is_some() { 0 } else { order });
    for op in ops {
        world.play(op)?;
    }
    world.end()?;
    LOADED.fetch_add(world.pager.root().zcache_stat().unwrap().loaded, Relaxed);
    Ok(())
}

/// Pages that came back from compressed memory.
static LOADED: AtomicU64 = AtomicU64::new(0);

#[test]
fn whatever_is_done_to_a_file_a_view_holds_what_a_vector_would() {
    let cases =
        std::env::var("LOWTIDE_MODEL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let config =
        Config { cases, failure_persistence: None, max_shrink_time: 30_000, ..Config::default() };
    let strategy = (
        prop::sample::select(vec![512_usize, 1024, 4096, 4096, 16384, 65536]),
        0..10_u8,
        prop::sample::select(vec![64_u64, 128, 300]),
        any::<bool>(),
        prop::option::of(1..=12_u64),
        prop::collection::vec(op(), 1..60),
    );
    TestRunner::new(config)
        .run(&strategy, |(page, order, frames, background, zcache, ops)| {
            play(page, order, frames, background, zcache, &ops)
        })
        .unwrap();
    // A few sequences may have drawn none.
    let came_back = LOADED.load(Relaxed) > 0;
    assert!(came_back || cases < 1000, "no page came back from compressed memory");
}

/// What another process appended past the known end is not part of what is punched.
#[test]
fn a_punch_up_to_the_known_end_leaves_what_was_appended() {
    let ops = [
        Op::SetLen { to: 0.95 },
        Op::Appended { len: 0.0255, byte: 105 },
        Op::Punch { from: 0.0, to: 0.95 },
        Op::Evict,
    ];
    play(512, 2, 64, false, None, &ops).unwrap();
}
