//! Promise: a program that starts again has the pages that it had, without a miss, within its
//! budget, and of files that are what they were. A list that is damaged, or of other files, costs a
//! cold start and nothing else.
//!
//! A test runs another one in a process of its own.

#![allow(unsafe_code, reason = "maps of files that only the test has")]

use crate::common::mapped::{PAGE, file, or_skip, word};
use crate::common::{Dir, eventually};
use lowtide::map::{MapMode, MapOptions};
use lowtide::{OpenOptions, Pager, Policy, Size, View};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Pages of a budget, and of a file.
const BUDGET: u64 = 256;
const PAGES: u64 = 1024;
const MINUTE: Duration = Duration::from_secs(60);
/// The file and the list of the process that is to be killed.
const KILLED: &str = "LOWTIDE_WARM_KILLED";

fn pager_of(pages: u64, list: &Path, policy: Policy) -> Pager {
    let builder = Pager::builder().max(Size::new(pages * PAGE as u64)).policy(policy);
    builder.warm(list).build().unwrap()
}

fn policy(name: &str) -> Policy {
    name.parse().unwrap()
}

fn pager(list: &Path) -> Pager {
    pager_of(BUDGET, list, policy("mglru"))
}

/// Pages without an order.
fn hot() -> Vec<u64> {
    (0..BUDGET / 2).map(|n| n * 617 % PAGES).collect()
}

fn read(view: &View, pages: &[u64]) {
    view.get_many(pages, |index, bytes| {
        assert_eq!(word(bytes, 0), pages[index] * PAGE as u64);
    })
    .unwrap();
}

/// A pager that has some pages in memory, and ends.
fn leave(list: &Path, data: &Path, pages: &[u64]) {
    let pager = pager(list);
    let view = pager.open(data).unwrap();
    (0..3).for_each(|_| read(&view, pages));
}

#[test]
fn a_program_that_starts_again_has_its_pages_without_a_miss() {
    for policy in ["mglru", "lru", "tide"].map(policy) {
        let (dir, data) = (Dir::new(), file(PAGES as usize));
        let list = dir.path().join("list");
        for start in 0..3 {
            let pager = pager_of(BUDGET, &list, policy);
            let view = pager.open(data.path()).unwrap();
            assert!(pager.wait_warm(MINUTE), "{policy}");
            let (warm, before) = (pager.warm_stat(), pager.stat().misses);
            assert_eq!((warm.error, warm.changed_files), (None, 0));
            assert_eq!(warm.read_pages, if start == 0 { 0 } else { BUDGET / 2 }, "{policy}");
            read(&view, &hot());
            let missed = pager.stat().misses - before;
            assert_eq!(missed, if start == 0 { BUDGET / 2 } else { 0 }, "{policy}, start {start}");
            // A second time: they are in use.
            read(&view, &hot());
            pager.validate().unwrap();
        }
    }
}

#[test]
fn maps_are_warm_in_both_ways() {
    for way in [MapMode::Userfault, MapMode::PageCache] {
        let (dir, data) = (Dir::new(), file(PAGES as usize));
        let list = dir.path().join("list");
        for start in 0..2 {
            let pager = pager_of(2 * BUDGET, &list, policy("mglru"));
            let options = MapOptions::new().mode(way);
            // SAFETY: the file is the test's.
            let map = unsafe { options.map(&pager, data.as_file()) };
            let Some(map) = or_skip(map) else { break };
            assert!(pager.wait_warm(MINUTE));
            assert!(start == 0 || pager.warm_stat().read_pages >= BUDGET / 2, "{way:?}");
            // Pages that the kernel has read are noticed a little later.
            eventually("all are counted", || {
                for page in hot() {
                    let at = page as usize * PAGE;
                    assert_eq!(word(&map, at), at as u64);
                }
                map.report().resident_bytes >= BUDGET / 2 * PAGE as u64
            });
            if start == 1 && way == MapMode::Userfault {
                assert_eq!(map.report().faults, 0, "{way:?}: no page was absent");
            }
        }
    }
}

#[test]
fn of_more_than_there_is_room_for_the_active_ones_come_and_nothing_leaves() {
    let (dir, data) = (Dir::new(), file(PAGES as usize));
    let list = dir.path().join("list");
    {
        let pager = pager_of(4 * BUDGET, &list, policy("mglru"));
        let view = pager.open(data.path()).unwrap();
        read(&view, &(0..PAGES - BUDGET / 2).collect::<Vec<_>>());
    }
    let pager = pager(&list);
    let view = pager.open(data.path()).unwrap();
    assert!(pager.wait_warm(MINUTE));
    let (warm, stat) = (pager.warm_stat(), pager.stat());
    assert_eq!(warm.wanted_pages, PAGES - BUDGET / 2);
    assert!((BUDGET / 8..=BUDGET).contains(&warm.read_pages), "{warm:?}");
    assert_eq!(stat.memory.events.iter().find(|(name, _)| *name == "pgsteal").unwrap().1, 0);
    read(&view, &hot());
    pager.validate().unwrap();
}

#[test]
fn of_a_file_that_is_not_what_it_was_nothing_is_read() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("written", |path| fs::write(path, vec![1; PAGES as usize * PAGE]).unwrap()),
        ("touched", |path| File::open(path).unwrap().set_modified(MODIFIED).unwrap()),
        ("cut", |path| File::options().write(true).open(path).unwrap().set_len(9).unwrap()),
        ("replaced", |path| {
            let other = path.with_extension("other");
            fs::copy(path, &other).unwrap();
            fs::rename(other, path).unwrap();
        }),
    ];
    const MODIFIED: std::time::SystemTime = std::time::UNIX_EPOCH;
    for (what, change) in changes {
        let (dir, data) = (Dir::new(), file(PAGES as usize));
        let list = dir.path().join("list");
        leave(&list, data.path(), &hot());
        change(data.path());
        let pager = pager(&list);
        let _view = pager.open(data.path()).unwrap();
        let warm = pager.warm_stat();
        // Another file has another inode, and no list.
        let changed = u64::from(what != "replaced");
        assert_eq!((warm.changed_files, warm.wanted_pages), (changed, 0), "{what}");
        assert!(warm.is_ready && pager.wait_warm(Duration::ZERO), "{what}");
    }
}

#[test]
fn a_list_that_is_damaged_or_foreign_is_a_cold_start_with_a_reason() {
    let (dir, data) = (Dir::new(), file(PAGES as usize));
    let list = dir.path().join("list");
    leave(&list, data.path(), &hot());
    let whole = fs::read(&list).unwrap();
    let starts = |bytes: &[u8], words: &str| {
        fs::write(&list, bytes).unwrap();
        let pager = pager(&list);
        let view = pager.open(data.path()).unwrap();
        read(&view, &hot());
        let error = pager.warm_stat().error.unwrap_or_default();
        assert!(error.contains(words) && error.contains("list"), "{error}");
    };
    starts(&whole[..whole.len() / 2], "damaged");
    starts(&[&whole[..40], &[whole[40] ^ 1], &whole[41..]].concat(), "damaged");
    starts(b"something else", "not saved by this version");
    starts(b"", "not saved by this version");
    // Pages of another size.
    fs::write(&list, &whole).unwrap();
    let other = Pager::builder().max(Size::mib(1)).base_page(1024).warm(&list).build().unwrap();
    assert!(other.warm_stat().error.unwrap().contains("1024"));
    drop(other);
    // It is a folder, for reading and for saving.
    let folder = Pager::builder().max(Size::mib(1)).warm(dir.path()).build().unwrap();
    assert!(folder.warm_stat().error.is_some());
    assert!(folder.save_warm(dir.path()).unwrap_err().to_string().contains("cannot be saved"));
}

#[test]
fn a_file_that_the_pager_has_written_is_warm() {
    let (dir, data) = (Dir::new(), file(PAGES as usize));
    let list = dir.path().join("list");
    for start in 0..3 {
        let pager = pager(&list);
        let view = OpenOptions::new().write(true).open(&pager, data.path()).unwrap();
        assert!(pager.wait_warm(MINUTE));
        let warm = pager.warm_stat();
        assert_eq!((warm.changed_files, warm.read_pages), (0, if start == 0 { 0 } else { 128 }));
        read(&view, &hot());
        // Written when the view is dropped.
        let page = hot()[start] * PAGE as u64;
        view.write_at(page, &page.to_le_bytes()).unwrap();
    }
}

#[test]
fn lists_of_files_that_are_not_opened_stay_and_those_of_files_that_are_gone_do_not() {
    let (dir, one, other) = (Dir::new(), file(PAGES as usize), file(PAGES as usize));
    let list = dir.path().join("list");
    leave(&list, one.path(), &hot());
    leave(&list, other.path(), &[1, 2, 3]);
    let both = fs::metadata(&list).unwrap().len();
    let wanted = |data: &Path| {
        let pager = pager(&list);
        let _view = pager.open(data).unwrap();
        assert!(pager.wait_warm(MINUTE));
        pager.warm_stat().wanted_pages
    };
    assert_eq!([wanted(one.path()), wanted(other.path())], [BUDGET / 2, 3]);
    drop(one);
    drop(pager(&list));
    assert!(fs::metadata(&list).unwrap().len() < both / 2);
    assert_eq!(wanted(other.path()), 3);
}

#[test]
fn files_are_opened_closed_and_written_while_their_lists_are_read() {
    let (dir, data) = (Dir::new(), file(PAGES as usize));
    let list = dir.path().join("list");
    leave(&list, data.path(), &(0..BUDGET).collect::<Vec<_>>());
    let saved = fs::read(&list).unwrap();
    for round in 0..100 {
        fs::write(&list, &saved).unwrap();
        let pager = pager(&list);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (pager, data) = (&pager, data.path());
                scope.spawn(move || {
                    for _ in 0..round % 4 {
                        let view = pager.open(data).unwrap();
                        read(&view, &hot()[thread * 20..thread * 20 + 10]);
                    }
                });
            }
            scope.spawn(|| pager.save_warm(&list).unwrap());
        });
        if round % 2 == 0 {
            let view = OpenOptions::new().write(true).open(&pager, data.path()).unwrap();
            let page = PAGES - 1;
            view.write_at(page * PAGE as u64, &(page * PAGE as u64).to_le_bytes()).unwrap();
        }
        pager.validate().unwrap();
    }
}

#[test]
#[ignore = "it is the process that is killed, and runs only with files"]
fn saves_until_it_is_killed() {
    let files = std::env::var(KILLED).expect("the other test starts this one");
    let (data, list) = files.split_once('\n').expect("two files");
    let pager = pager(Path::new(list));
    let view = pager.open(data).unwrap();
    read(&view, &hot());
    loop {
        pager.save_warm(list).unwrap();
    }
}

#[test]
fn a_list_is_whole_whenever_the_process_that_saves_it_is_killed() {
    let (dir, data) = (Dir::new(), file(PAGES as usize));
    let list = dir.path().join("list");
    for moment in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "warm::saves_until_it_is_killed"])
            .env(KILLED, format!("{}\n{}", data.path().display(), list.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("a list is saved", || list.exists());
        std::thread::sleep(Duration::from_micros(700 * moment));
        child.kill().unwrap();
        child.wait().unwrap();
        let pager = pager(&list);
        let _view = pager.open(data.path()).unwrap();
        let warm = pager.warm_stat();
        assert_eq!((warm.error, warm.wanted_pages), (None, BUDGET / 2), "kill {moment}");
    }
}
