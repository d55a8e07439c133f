//! One file, opened several times: by one pager its views are coherent; other pagers and processes
//! are kept away.

use crate::common::{Dir, byte_at, make_file};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{Error, OpenError, OpenOptions, Pager, Size, Tenant};
use std::fs::File;
use std::time::Duration;

fn pager() -> Pager {
    Pager::builder().max(Size::kib(256)).background(false).build().unwrap()
}

fn writing() -> OpenOptions {
    OpenOptions::new().write(true)
}

fn pages(tenant: &Tenant) -> u64 {
    tenant.stat().unwrap().file
}

#[test]
fn what_one_view_writes_another_view_of_the_same_file_reads_at_once() {
    let dir = Dir::new();
    let path = make_file(&dir, 1 << 20);
    let link = dir.path().join("another name");
    std::fs::hard_link(&path, &link).unwrap();
    let pager = pager();
    // The reader is first, so the file has to become writable while it is open.
    let reader = pager.open(&path).unwrap();
    assert_eq!(reader.page(7).unwrap()[0], byte_at(7 * 4096));
    let writer = writing().open(&pager, &link).unwrap();
    let late = writing().folio_order(2).open(&pager, &path).unwrap();
    writer.write_at(7 * 4096, b"seven").unwrap();
    late.write_at(8 * 4096, b"eight").unwrap();
    assert_eq!(&reader.page(7).unwrap()[..5], b"seven");
    assert_eq!(&writer.page(8).unwrap()[..5], b"eight");
    writer.write_at((1 << 20) + 5, b"longer").unwrap();
    assert_eq!(reader.len(), (1 << 20) + 11, "and its length is one");
    assert!(
        matches!(reader.write_at(0, b"x"), Err(Error::ReadOnly { .. })),
        "writing is each handle's own"
    );
    reader.flush().unwrap();
    drop(writer);
    assert_eq!(&reader.page(7).unwrap()[..5], b"seven");
    drop((reader, late));
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((&bytes[7 * 4096..][..5], &bytes[8 * 4096..][..5]), (&b"seven"[..], &b"eight"[..]));
    assert_eq!(&bytes[(1 << 20) + 5..], b"longer");
    assert_eq!(pager.stat().memory.current, 0);
    pager.validate().unwrap();
}

#[test]
fn tenants_that_only_read_have_pages_of_their_own_and_keep_writers_out() {
    let dir = Dir::new();
    let path = make_file(&dir, 1 << 20);
    let pager = pager();
    let (a, b) = (pager.tenant("a").create().unwrap(), pager.tenant("b").create().unwrap());
    let (one, two) = (a.open(&path).unwrap(), b.open(&path).unwrap());
    for page in 0..4 {
        drop((one.page(page).unwrap(), two.page(page).unwrap()));
    }
    assert_eq!((pages(&a), pages(&b)), (4, 4));
    let refused = writing().tenant(&a).open(&pager, &path).unwrap_err();
    assert!(matches!(refused, OpenError::Copies { copies: 2, .. }), "{refused}");
    drop(two);
    let writer = writing().tenant(&b).open(&pager, &path).unwrap();
    writer.write_at(0, b"shared").unwrap();
    assert_eq!(&one.page(0).unwrap()[..6], b"shared");
    assert_eq!((pages(&a), pages(&b)), (4, 0), "the first open pays");
}

#[test]
fn a_second_pager_is_refused_until_the_first_lets_go_or_nobody_asks_for_the_lock() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 << 10);
    let (mine, other) = (pager(), pager());
    let reading = || OpenOptions::new().lock_timeout(Duration::ZERO);
    let writing = || reading().write(true);
    let locked = |result: Result<_, OpenError>| {
        let error = result.expect_err("it is locked");
        assert!(matches!(error, OpenError::Locked { .. }), "{error}");
        assert!(error.to_string().contains("lock(false)"), "{error}");
    };
    let reader = mine.open(&path).unwrap();
    let guest = other.open(&path).expect("readers share");
    locked(writing().open(&mine, &path).map(drop));
    assert!(mine.open(&path).is_ok(), "a refused writer leaves the readers alone");
    drop(guest);
    let writer = writing().open(&mine, &path).unwrap();
    locked(reading().open(&other, &path).map(drop));
    locked(writing().open(&other, &path).map(drop));
    assert!(OpenOptions::new().lock(false).open(&other, &path).is_ok());
    drop(writer);
    locked(reading().open(&other, &path).map(drop));
    drop(reader);
    writing().open(&other, &path).expect("all views are closed");
    // Another process is no different: the lock is on the open file.
    let foreign = File::open(&path).unwrap();
    foreign.lock_shared().unwrap();
    locked(writing().open(&mine, &path).map(drop));
    assert!(mine.open(&path).is_ok());
}
