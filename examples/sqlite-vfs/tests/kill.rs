//! A process that commits is killed at any moment. The next one finds a whole database, with each
//! commit that was acknowledged, through lowtide or through SQLite's own files.
//!
//! Where SQLite syncs less (`synchronous=normal`, with a write-ahead log), the last
//! commits may be missing, as after a power cut: bytes that are not synced are in the process that
//! was killed. Those before them are there, without a gap.
//!
//! `LOWTIDE_KILLS` says how often (20).

use crate::common::{Vfs, check, journal, open};
use lowtide::Size;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Kinds of journals, and whether an acknowledged commit may be lost.
const KINDS: [(&str, &str, bool); 5] = [
    ("delete", "full", false),
    ("wal", "full", false),
    ("truncate", "full", false),
    ("wal", "normal", true),
    ("persist", "full", false),
];
const KEYS: u64 = 3000;

fn body(key: u64, commit: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(commit * KEYS + key);
    let mut bytes = vec![0; random.usize(0..3000)];
    random.fill(&mut bytes);
    bytes
}

/// Rows that a commit writes and removes, which only its number decides.
fn changes(commit: u64) -> Vec<(u64, bool)> {
    let mut random = fastrand::Rng::with_seed(commit);
    let many = if random.u8(..) < 16 { 800 } else { 80 };
    (0..random.u64(1..many)).map(|_| (random.u64(0..KEYS), random.u8(..) < 200)).collect()
}

/// The rows after a commit, each with the commit that wrote it.
fn rows_after(commit: u64) -> BTreeMap<u64, u64> {
    let mut rows = BTreeMap::new();
    for commit in 1..=commit {
        for (key, is_written) in changes(commit) {
            if is_written {
                rows.insert(key, commit);
            } else {
                rows.remove(&key);
            }
        }
    }
    rows
}

/// The last commit that is there, whose rows are there and no others.
fn examine(database: &Connection) -> u64 {
    check(database);
    let tables = "select count(*) from sqlite_schema where name = 'last'";
    if database.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap() == 0 {
        return 0;
    }
    let last = database.query_row("select n from last", [], |row| row.get(0)).optional().unwrap();
    let last = last.unwrap_or(0);
    let mut found = database.prepare("select key, body from rows order by key").unwrap();
    let mut found = found.query([]).unwrap();
    for (key, commit) in rows_after(last) {
        let row = found.next().unwrap().expect("a row is missing");
        assert_eq!(row.get::<_, u64>(0).unwrap(), key);
        let bytes: Vec<u8> = row.get(1).unwrap();
        assert!(bytes == body(key, commit), "row {key} is not what commit {commit} wrote");
    }
    assert!(found.next().unwrap().is_none(), "a row is left over");
    last
}

fn child(path: &Path, mode: &str, synchronous: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::commits_until_it_is_killed", "--ignored", "--nocapture"])
        .env("LOWTIDE_CHILD_FILE", path)
        .env("LOWTIDE_CHILD_JOURNAL", mode)
        .env("LOWTIDE_CHILD_SYNCHRONOUS", synchronous)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Opens a database through SQLite's own files, once the last write of a dead process has ended:
/// the kernel keeps its lock until then. A view waits for that by itself.
fn after_its_writes(path: &Path) -> Connection {
    if let Ok(file) = std::fs::File::open(path) {
        file.lock().unwrap();
    }
    open(path, "unix")
}

/// The commits that a process acknowledges, until it is no more.
fn commits_of(process: &mut Child) -> impl Iterator<Item = u64> + Send + use<> {
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter_map(|line| line.split_once("committed ")?.1.parse().ok())
}

#[test]
#[ignore = "the process that the other test kills"]
fn commits_until_it_is_killed() {
    let setting = |name: &str| std::env::var(format!("LOWTIDE_CHILD_{name}")).ok();
    let Some(path) = setting("FILE") else { return };
    let vfs = Vfs::new(Size::mib(1));
    let mut database = vfs.open(path.as_ref());
    journal(&database, &setting("JOURNAL").unwrap(), &setting("SYNCHRONOUS").unwrap());
    // Checkpoints are what a log can go wrong with: many.
    database.pragma_update(None, "wal_autocheckpoint", 100).unwrap();
    database
        .execute_batch(
            "create table if not exists rows (key integer primary key, body blob);
             create table if not exists last (n int);",
        )
        .unwrap();
    let mut out = std::io::stdout();
    loop {
        let change = database.transaction().unwrap();
        let last = change.query_row("select n from last", [], |row| row.get(0)).optional();
        let commit = last.unwrap().unwrap_or(0) + 1;
        change.execute("delete from last", []).unwrap();
        change.execute("insert into last values (?)", [commit]).unwrap();
        for (key, is_written) in changes(commit) {
            if is_written {
                let row = params![key, body(key, commit)];
                change.execute("insert or replace into rows values (?, ?)", row).unwrap();
            } else {
                change.execute("delete from rows where key = ?", [key]).unwrap();
            }
        }
        change.commit().unwrap();
        // One write: a line is there or not.
        out.write_all(format!("committed {commit}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn committed_transactions_survive_kills_at_any_moment() {
    let kills: usize = std::env::var("LOWTIDE_KILLS").map_or(20, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut there = [0; KINDS.len()];
    let mut lost = 0;
    for kill in 0..kills {
        let which = kill % KINDS.len();
        let (mode, synchronous, may_lose) = KINDS[which];
        let path = folder.path().join(format!("{mode}-{synchronous}"));

        let mut process = child(&path, mode, synchronous);
        let mut commits = commits_of(&mut process);
        let mut acknowledged = there[which];
        // Every other time it is killed while it commits, else perhaps while it opens the database.
        if kill % 2 == 1 {
            acknowledged = commits.next().expect("no commit came");
        }
        let rest = std::thread::spawn(move || commits.last());
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..300_000)));
        process.kill().unwrap();
        process.wait().unwrap();
        let acknowledged = rest.join().unwrap().unwrap_or(acknowledged);

        let vfs = Vfs::new(Size::mib(2));
        let by_lowtide = (kill / KINDS.len()).is_multiple_of(2);
        let database = if by_lowtide { vfs.open(&path) } else { after_its_writes(&path) };
        let last = examine(&database);
        let least = if may_lose { 0 } else { acknowledged };
        // One more than was acknowledged: it was killed between the two.
        assert!(
            (least..=acknowledged + 1).contains(&last),
            "{mode}, {synchronous}: {acknowledged} acknowledged, {last} there"
        );
        lost += acknowledged.saturating_sub(last);
        there[which] = last;
    }
    let commits: u64 = there.iter().sum();
    println!("{kills} kills, {commits} commits there; {lost} were lost that were not synced");
    assert!(commits > 0, "no process lived long enough to commit");
}
