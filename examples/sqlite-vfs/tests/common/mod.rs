//! Connections through a pager, and a load that only its seed decides.

#![allow(dead_code, reason = "each test uses a part")]

use lowtide::{Pager, Size};
use rusqlite::{Connection, OpenFlags, params};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// A pager that is smaller than the databases, and the name of its VFS.
pub struct Vfs {
    pub pager: Pager,
    pub name: String,
}

impl Vfs {
    pub fn new(budget: Size) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("lowtide-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let pager = Pager::builder().max(budget).build().unwrap();
        lowtide_sqlite_vfs::register(&name, &pager).unwrap();
        Self { pager, name }
    }

    pub fn open(&self, path: &Path) -> Connection {
        open(path, &self.name)
    }
}

/// Opens a database through a VFS: `unix` is SQLite's own.
pub fn open(path: &Path, vfs: &str) -> Connection {
    let database = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs).unwrap();
    // SQLite's own cache is small, so that reads come to the VFS.
    database.pragma_update(None, "cache_size", 50).unwrap();
    database
}

/// Chooses the journal, and how much is synced.
pub fn journal(database: &Connection, mode: &str, synchronous: &str) {
    let chosen: String =
        database.query_row(&format!("pragma journal_mode={mode}"), [], |row| row.get(0)).unwrap();
    assert_eq!(chosen, mode);
    database.pragma_update(None, "synchronous", synchronous).unwrap();
}

pub fn check(database: &Connection) {
    let mut said = database.prepare("pragma integrity_check").unwrap();
    let said: Vec<String> =
        said.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(said, ["ok"]);
}

/// Inserts, updates, deletes, transactions that are rolled back, an index, joins, large values.
pub fn load(database: &mut Connection, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    database
        .execute_batch(
            "create table rows (id integer primary key, word text, body blob);
             create table sums (word text primary key, n int) without rowid;
             create index words on rows (word, id);",
        )
        .unwrap();
    for round in 0..6 {
        let change = database.transaction().unwrap();
        for _ in 0..700 {
            let (id, word) = (random.u32(..4000), random.u32(..300));
            // Some have pages of their own.
            let longest = if random.u8(..) < 8 { 40_000 } else { 1500 };
            let mut body = vec![0; random.usize(..longest)];
            random.fill(&mut body);
            match random.u8(..10) {
                0..7 => change.execute(
                    "insert or replace into rows values (?, ?, ?)",
                    params![id, format!("word {word}"), body],
                ),
                7..9 => change.execute(
                    "update rows set word = ?, body = substr(body, 1, length(body) / 2)
                     where id between ? and ?",
                    params![format!("word {word}"), id, id + 20],
                ),
                _ => change.execute("delete from rows where id between ? and ?", [id, id + 5]),
            }
            .unwrap();
        }
        change
            .execute_batch(
                "delete from sums;
                 insert into sums select word, sum(length(body)) from rows group by word;",
            )
            .unwrap();
        // One in four is not meant.
        if round % 4 == 3 { change.rollback().unwrap() } else { change.commit().unwrap() }
    }
    database.execute_batch("delete from rows where id % 3 = 0; vacuum;").unwrap();
}

/// A row, and the sum of its word.
pub type Row = (i64, String, Option<Vec<u8>>, Option<i64>);

/// All that is in a database after [`load`], in one order.
pub fn contents(database: &Connection) -> Vec<Row> {
    let mut rows = database
        .prepare("select id, rows.word, body, n from rows left join sums using (word) order by id")
        .unwrap();
    let row = |row: &rusqlite::Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    rows.query_map([], row).unwrap().map(Result::unwrap).collect()
}
