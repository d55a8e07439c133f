//! A database on views is what it is on SQLite's own files: for one connection, for several, in
//! each kind of journal, within a budget that is a fraction of it.

use crate::common::{Vfs, check, contents, journal, load, open};
use lowtide::Size;
use rusqlite::{Connection, ErrorCode};
use std::path::Path;

fn locked(done: rusqlite::Result<usize>) -> bool {
    matches!(done.unwrap_err().sqlite_error_code(), Some(ErrorCode::DatabaseBusy))
}

fn count(database: &Connection) -> i64 {
    database.query_row("select count(*) from t", [], |row| row.get(0)).unwrap()
}

#[test]
fn the_same_load_gives_the_same_database() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, mode) in ["delete", "truncate", "persist", "memory", "wal"].into_iter().enumerate() {
        let vfs = Vfs::new(Size::mib(1));
        let files = ["ours", "theirs"].map(|name| folder.path().join(format!("{name}-{mode}")));
        let mut ours = vfs.open(&files[0]);
        let mut theirs = open(&files[1], "unix");
        for database in [&mut ours, &mut theirs] {
            journal(database, mode, "full");
            load(database, seed as u64);
            check(database);
        }
        let expected = contents(&theirs);
        assert!(expected.len() > 100, "{} rows", expected.len());
        assert!(contents(&ours) == expected, "{mode}");
        let stat = vfs.pager.stat();
        assert!(stat.io.reads > 1000, "a budget that reads nothing: {}", stat.io.reads);
        // What SQLite has been promised to be on disk is there, for others to find.
        ours.close().unwrap();
        let found = open(&files[0], "unix");
        check(&found);
        assert!(contents(&found) == expected, "{mode}, on disk");
    }
}

#[test]
fn a_rollback_journal_keeps_a_second_writer_out_until_the_first_has_committed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, vfs) = (folder.path().join("data"), Vfs::new(Size::mib(1)));
    let (one, two) = (vfs.open(&path), vfs.open(&path));
    one.execute_batch("create table t (n int); begin immediate; insert into t values (1)").unwrap();
    two.busy_timeout(std::time::Duration::ZERO).unwrap();
    assert!(locked(two.execute("insert into t values (2)", [])));
    assert_eq!(count(&two), 0, "what is not committed is not seen");
    one.execute_batch("commit").unwrap();
    assert_eq!(count(&two), 1);
    two.execute("insert into t values (2)", []).unwrap();
    assert_eq!(count(&one), 2);
}

#[test]
fn a_write_ahead_log_lets_readers_keep_what_they_saw() {
    let folder = tempfile::tempdir().unwrap();
    let (path, vfs) = (folder.path().join("data"), Vfs::new(Size::mib(1)));
    let (one, two) = (vfs.open(&path), vfs.open(&path));
    journal(&one, "wal", "full");
    one.execute("create table t (n int)", []).unwrap();
    two.execute_batch("begin").unwrap();
    assert_eq!(count(&two), 0);
    one.execute("insert into t values (1)", []).unwrap();
    assert_eq!(count(&two), 0, "its transaction began before");
    assert_eq!(count(&one), 1);
    two.execute_batch("commit").unwrap();
    assert_eq!(count(&two), 1);
    // Threads write in turns.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mine = vfs.open(&path);
                mine.busy_timeout(std::time::Duration::from_secs(600)).unwrap();
                for n in 0..50 {
                    mine.execute("insert into t values (?)", [n]).unwrap();
                }
            });
        }
    });
    assert_eq!(count(&two), 201);
    check(&two);
    drop((one, two));
    assert!(!Path::new(&format!("{}-wal", path.display())).exists(), "the last one removes it");
}

#[test]
fn a_database_is_one_under_all_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let (path, vfs) = (folder.path().join("data"), Vfs::new(Size::mib(1)));
    let one = vfs.open(&path);
    one.execute_batch("create table t (n int)").unwrap();
    let link = folder.path().join("elsewhere");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let two = vfs.open(&link);
    two.busy_timeout(std::time::Duration::ZERO).unwrap();
    one.execute_batch("begin exclusive").unwrap();
    assert!(locked(two.execute("insert into t values (1)", [])));
    one.execute_batch("rollback").unwrap();
    two.execute_batch("begin; insert into t values (1)").unwrap();
    assert!(folder.path().join("data-journal").exists(), "beside the file, not beside the link");
    two.execute_batch("commit").unwrap();
}

#[test]
fn another_process_finds_the_database_locked() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ours) = (folder.path().join("data"), Vfs::new(Size::mib(1)));
    let one = ours.open(&path);
    one.execute_batch("create table t (n int)").unwrap();
    // A pager of its own is to the lock what a process is.
    let other = Vfs::new(Size::mib(1));
    let refused = Connection::open_with_flags_and_vfs(&path, Default::default(), &*other.name);
    let code = refused.unwrap_err().sqlite_error_code();
    assert_eq!(code, Some(ErrorCode::DatabaseBusy));
    drop(one);
    assert_eq!(count(&other.open(&path)), 0);
}

#[test]
fn temporary_tables_and_sorts_are_in_the_budget_too() {
    let folder = tempfile::tempdir().unwrap();
    let vfs = Vfs::new(Size::mib(1));
    let database = vfs.open(&folder.path().join("data"));
    database.pragma_update(None, "temp_store", "file").unwrap();
    database
        .execute_batch(
            "create temp table t (n int, body text);
             with recursive c(n) as (values (0) union all select n + 1 from c where n < 20000)
             insert into t select n * 7919 % 20011, hex(randomblob(100)) from c;",
        )
        .unwrap();
    let mut sorted = database.prepare("select n from t order by body || 'x', n").unwrap();
    let numbers = sorted.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(
        numbers.map(Result::unwrap).sum::<i64>(),
        (0..=20_000).map(|n| n * 7919 % 20_011).sum()
    );
    assert!(vfs.pager.stat().io.writes > 0, "what does not fit is written to a file");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "which has no name");
}
