//! A thread that has a guard goes on with whatever it does, also while another thread waits for
//! that guard.
//!
//! Patience and deadline are endless here. So a thread that keeps what the guard's thread wants
//! while it waits for the guard never lets go, and the test hangs until its watch ends it.

use crate::common;
use crate::common::Dir;
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{Error, OpenOptions, Pager, Size, View};
use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const PAGES: u64 = 32;
/// Only a hang takes so long.
const WATCH: Duration = Duration::from_secs(60);

struct Scene {
    view: View,
    path: PathBuf,
    _dir: Dir,
}

impl Scene {
    /// A file of sevens, of which nothing is in memory.
    fn new(order: u8, background: bool) -> Self {
        let dir = Dir::new();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; (PAGES * PAGE) as usize]).unwrap();
        let pager = Pager::builder().max(Size::mib(1)).background(background);
        let pager = pager.memory_timeout(Duration::MAX).io_timeout(Duration::MAX).build().unwrap();
        let options = OpenOptions::new().write(true).read_ahead(Size::new(0));
        let view = options.folio_order(order).open(&pager, &path).unwrap();
        Self { view, path, _dir: dir }
    }

    fn disk(&self) -> File {
        File::options().read(true).write(true).open(&self.path).unwrap()
    }

    /// One thread holds a page, and `own` in another waits for the guard. Then the first thread
    /// does `want`, and drops its guard. Returns what came of `own`.
    fn beside<T: Debug + Send + 'static>(
        &self,
        held: u64,
        own: impl FnOnce(&View) -> Result<T, Error> + Send + 'static,
        want: impl FnOnce(&View) + Send + 'static,
    ) -> T {
        let (holds, owns, done) = (channel(), channel::<()>(), channel());
        let view = self.view.clone();
        std::thread::spawn(move || {
            let guard = view.page(held).unwrap();
            let before = guard.to_vec();
            holds.0.send(()).unwrap();
            owns.1.recv().unwrap();
            want(&view);
            assert!(guard[..] == before[..], "a guard's bytes have changed");
            drop(guard);
            done.0.send(()).unwrap();
        });
        wait_for(&holds.1, "the guard");
        let (view, owned) = (self.view.clone(), channel());
        std::thread::spawn(move || owned.0.send(own(&view)).unwrap());
        self.await_owner(held);
        owns.0.send(()).unwrap();
        wait_for(&done.1, "the thread that has the guard");
        wait_for(&owned.1, "the thread that waits for it").unwrap()
    }

    /// Waits until a thread owns a page: a callback, which must not wait, does not get it then.
    fn await_owner(&self, page: u64) {
        let (view, owned) = (self.view.clone(), channel());
        std::thread::spawn(move || {
            let (began, mut found) = (Instant::now(), false);
            while !found && began.elapsed() < WATCH {
                let look = |_: usize, _: &[u8]| {
                    found = matches!(view.page(page), Err(Error::Nested { .. }));
                };
                view.get_many(&[0], look).unwrap();
            }
            owned.0.send(found).unwrap();
        });
        assert!(wait_for(&owned.1, "a look at a page"), "no thread owns page {page}");
    }
}

fn wait_for<T>(from: &Receiver<T>, what: &str) -> T {
    from.recv_timeout(WATCH).unwrap_or_else(|e| panic!("{what}: {e}"))
}

#[test]
fn a_thread_flushes_while_a_store_waits_for_its_guard() {
    for background in [true, false] {
        let scene = Scene::new(0, background);
        scene.view.write_at(5 * PAGE, &[1; 100]).unwrap();
        let disk = scene.disk();
        scene.beside(
            5,
            |view| view.write_at(5 * PAGE, &[2; 100]),
            move |view| {
                view.flush().unwrap();
                let mut bytes = [0; 100];
                disk.read_exact_at(&mut bytes, 5 * PAGE).unwrap();
                assert_eq!(bytes, [1; 100], "the page was dirty before the store waited");
            },
        );
        scene.view.flush().unwrap();
        assert_eq!(
            std::fs::read(&scene.path).unwrap()[5 * PAGE as usize..][..101],
            [&[2; 100][..], &[7]].concat()
        );
    }
}

#[test]
fn a_thread_reads_and_flushes_a_second_page_of_its_folio_while_a_discard_waits_for_its_guard() {
    let scene = Scene::new(2, true);
    let disk = scene.disk();
    drop(scene.view.page(4).unwrap());
    scene.view.write_at(5 * PAGE, &[1]).unwrap();
    scene.view.write_at(6 * PAGE, &[1]).unwrap();
    let dropped = scene.beside(
        4,
        |view| view.revert(4 * PAGE..8 * PAGE),
        move |view| {
            assert_eq!(view.page(5).unwrap()[..2], [1, 7]);
            view.flush_range(5 * PAGE..6 * PAGE).unwrap();
            let mut byte = [0];
            disk.read_exact_at(&mut byte, 5 * PAGE).unwrap();
            assert_eq!(byte, [1]);
            view.write_at(7 * PAGE, &[3]).unwrap();
        },
    );
    // Page 6 goes with the write of page 5, unless the discard has it at that moment.
    assert!((1..=2).contains(&dropped), "{dropped} dirty pages were dropped");
    assert_eq!(scene.view.page(7).unwrap()[0], 7);
}

/// What a thread may want of a file while it has a guard on page 12.
fn wants_everything(view: &View) {
    assert_eq!(view.page(13).unwrap()[0], 7, "a page in memory");
    assert_eq!(view.page(20).unwrap()[0], 7, "an absent page");
    assert_eq!(view.read_to_vec(10 * PAGE..16 * PAGE).unwrap().len() as u64, 6 * PAGE);
    view.write_at(2 * PAGE, &[3]).unwrap();
    view.write_at(14 * PAGE, &[3]).unwrap();
    view.flush().unwrap();
    assert_eq!(view.len(), PAGES * PAGE, "nothing has been cut while a guard is there");
}

#[test]
fn a_thread_wants_other_pages_while_a_cut_waits_for_its_guard() {
    for (order, to) in [(0, 10 * PAGE), (2, 13 * PAGE + 100), (0, 12 * PAGE + 100)] {
        let scene = Scene::new(order, true);
        drop(scene.view.page(13).unwrap());
        scene.view.write_at(15 * PAGE, &[3]).unwrap();
        let path = scene.path.clone();
        scene.beside(
            12,
            move |view| view.set_len(to),
            move |view| {
                wants_everything(view);
                assert_eq!(std::fs::metadata(path).unwrap().len(), PAGES * PAGE);
                // The length's lock is free, too.
                view.write_at(PAGES * PAGE, &[4]).unwrap();
            },
        );
        scene.view.flush().unwrap();
        assert_eq!((scene.view.len(), std::fs::metadata(&scene.path).unwrap().len()), (to, to));
        scene.view.set_len(PAGES * PAGE).unwrap();
        let left = scene.view.read_to_vec(to..PAGES * PAGE).unwrap();
        assert!(left.iter().all(|byte| *byte == 0), "what was cut off is gone");
    }
}

#[test]
fn a_thread_wants_other_pages_while_a_hole_waits_for_its_guard() {
    for order in [0, 2] {
        let scene = Scene::new(order, true);
        drop(scene.view.page(13).unwrap());
        scene.view.write_at(15 * PAGE, &[3]).unwrap();
        scene.beside(12, |view| view.punch(8 * PAGE..24 * PAGE), wants_everything);
        let hole = scene.view.read_to_vec(8 * PAGE..24 * PAGE).unwrap();
        assert!(hole.iter().all(|byte| *byte == 0), "it is a hole in the end");
    }
}

#[test]
fn a_thread_wants_other_pages_while_a_look_at_a_shorter_file_waits_for_its_guard() {
    let scene = Scene::new(0, true);
    drop(scene.view.page(13).unwrap());
    let disk = scene.disk();
    let cut_and_look = move |view: &View| {
        disk.set_len(10 * PAGE).unwrap();
        view.refresh_len()
    };
    let len = scene.beside(12, cut_and_look, |view| {
        assert_eq!(view.page(13).unwrap()[0], 7);
        view.write_at(2 * PAGE, &[3]).unwrap();
        view.flush().unwrap();
    });
    assert_eq!(len, 10 * PAGE);
}

#[test]
fn a_thread_wants_other_pages_while_a_look_at_a_longer_file_waits_for_its_guard() {
    let scene = Scene::new(2, true);
    scene.view.set_len(13 * PAGE + 100).unwrap();
    scene.view.flush().unwrap();
    let disk = scene.disk();
    let append_and_look = move |view: &View| {
        disk.write_all_at(&[9; 3 * PAGE as usize], 13 * PAGE + 100).unwrap();
        view.refresh_len()
    };
    let len = scene.beside(13, append_and_look, |view| {
        assert_eq!(view.read_to_vec(12 * PAGE..12 * PAGE + 1).unwrap(), [7]);
        assert_eq!(view.len(), 13 * PAGE + 100, "what was appended is read first");
        let behind = view.page(14).map(drop);
        assert!(matches!(behind, Err(Error::HeldHere { page: 13, .. })), "{behind:?}");
    });
    assert_eq!(len, 16 * PAGE + 100);
    assert_eq!(scene.view.page(13).unwrap()[99..102], [7, 9, 9]);
}

/// Keeps a page held until the sender is dropped.
fn hold(view: &View, page: u64) -> Sender<()> {
    let (held, release) = (channel(), channel());
    let view = view.clone();
    std::thread::spawn(move || {
        let _guard = view.page(page).unwrap();
        held.0.send(()).unwrap();
        let _ = release.1.recv();
    });
    wait_for(&held.1, "the guard");
    release.0
}

#[test]
fn callbacks_that_pin_all_pages_together_are_refused_and_do_not_wait_for_each_other() {
    let dir = Dir::new();
    let path = common::make_file(&dir, 96 * PAGE);
    let pager = Pager::builder()
        .max(Size::kib(256))
        .memory_timeout(Duration::MAX)
        .io_timeout(Duration::MAX)
        .build()
        .unwrap();
    let view = OpenOptions::new().write(true).folio_order(3).open(&pager, path).unwrap();
    let (both, results) = (Arc::new(Barrier::new(8)), channel());
    for page in (0..64).step_by(8) {
        let (view, both, results) = (view.clone(), Arc::clone(&both), results.0.clone());
        std::thread::spawn(move || {
            view.get_many(&[page], |_, _| {
                // Now each pins an eighth of the budget.
                both.wait();
                results.send(view.page(64).map(drop)).unwrap();
                results.send(view.write_at(65 * PAGE, b"x")).unwrap();
                both.wait();
            })
            .unwrap();
        });
    }
    for _ in 0..16 {
        let result = wait_for(&results.1, "a callback for whose page there is no room");
        assert!(matches!(result, Err(Error::Nested { .. })), "{result:?}");
    }
    drop(view.page(64).unwrap());
}

#[test]
fn a_store_in_any_callback_to_a_page_that_others_hold_is_refused_at_once() {
    let scene = Scene::new(0, true);
    let _held = hold(&scene.view, 1);
    for page in 2..5 {
        drop(scene.view.page(page).unwrap());
    }
    let also_held = hold(&scene.view, 3);
    let (view, stored) = (scene.view.clone(), channel());
    std::thread::spawn(move || stored.0.send(view.write_at(3 * PAGE, b"x")).unwrap());
    scene.await_owner(3);
    // In memory; deferred, because a store owns it; absent.
    for page in [2, 3, 9] {
        let (view, (sender, ended)) = (scene.view.clone(), channel());
        std::thread::spawn(move || {
            let mut results = Vec::new();
            let each = |_: usize, _: &[u8]| {
                results.push(view.write_at(PAGE, b"x"));
                results.push(view.revert(PAGE..2 * PAGE).map(drop));
                results.push(view.set_len(PAGE));
            };
            view.get_many(&[page], each).unwrap();
            sender.send(results).unwrap();
        });
        let results = wait_for(&ended, "a store in a callback");
        let nested = |result: &Result<(), Error>| matches!(result, Err(Error::Nested { .. }));
        assert!(results.len() == 3 && results.iter().all(nested), "page {page}: {results:?}");
    }
    drop(also_held);
    wait_for(&stored.1, "the store outside").unwrap();
}
