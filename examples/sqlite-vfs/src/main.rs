//! A table that is larger than its memory, by lowtide's VFS and by SQLite's own.
//!
//! ```sh
//! cargo run --release -- [MIB of rows, 256] [MIB of budget, 32] [FOLDER] [VFS, both]
//! ```
//!
//! SQLite's own files are in the kernel's page cache, which has no limit unless the program runs in
//! a memory cgroup. So the seconds of both are for two different amounts of memory: for a
//! comparison, run `unix` alone in a cgroup.

use lowtide::{Pager, Size};
use rusqlite::{Connection, OpenFlags, params};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const ROW: usize = 2000;
/// Rows that are read, and rows that are changed.
const READS: u64 = 100_000;
const CHANGES: u64 = 20_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    let (rows, budget) = (number(0, 256)? * (1 << 20) / ROW as u64, number(1, 32)?);
    let folder = args.get(2).map_or_else(std::env::temp_dir, Into::into);
    let folder = tempfile::tempdir_in(folder)?;

    let pager = Pager::builder().max(Size::mib(budget)).build()?;
    lowtide_sqlite_vfs::register("lowtide", &pager)?;
    println!("{rows} rows of about {ROW} bytes, {budget} MiB of budget");
    println!("{:>8} {:>9} {:>9} {:>9} {:>9} {:>9}", "", "fill", "index", "read", "change", "scan");
    let mut sums = Vec::new();
    for vfs in ["lowtide", "unix"] {
        if args.get(3).is_some_and(|only| only != vfs) {
            continue;
        }
        let path = folder.path().join(vfs);
        let (sum, took) = load(&path, vfs, rows)?;
        let took: Vec<String> = took.iter().map(|t| format!("{:>8.2}s", t.as_secs_f64())).collect();
        println!("{vfs:>8} {}", took.join(" "));
        sums.push(sum);
    }
    if sums.is_empty() {
        return Err("the VFS is lowtide or unix".into());
    }
    if sums.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err("the two databases differ".into());
    }
    let stat = pager.stat();
    println!(
        "sum {sums:?}; lowtide read {} and wrote {} MiB, and had {} MiB in memory at the end",
        stat.io.read_bytes >> 20,
        stat.io.write_bytes >> 20,
        stat.resident_bytes >> 20,
    );
    Ok(())
}

/// Seconds of each part, and a sum of all rows.
fn load(path: &Path, vfs: &str, rows: u64) -> Result<(i64, Vec<Duration>)> {
    let mut database = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs)?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.execute_batch("create table rows (id integer primary key, key int, body blob)")?;
    let mut took = Vec::new();
    let mut begun = Instant::now();
    let mut lap = |took: &mut Vec<Duration>| {
        took.push(begun.elapsed());
        begun = Instant::now();
    };

    for from in (0..rows).step_by(10_000) {
        let fill = database.transaction()?;
        let mut insert = fill.prepare("insert into rows values (?, ?, ?)")?;
        for id in from..rows.min(from + 10_000) {
            let body = vec![id as u8; ROW - (id % 64) as usize];
            insert.execute(params![id, hash(id) % rows, body])?;
        }
        drop(insert);
        fill.commit()?;
    }
    lap(&mut took);
    database.execute_batch("create index keys on rows (key)")?;
    lap(&mut took);
    let mut sum = 0;
    let mut find = database.prepare("select sum(length(body)) from rows where key = ?")?;
    for n in 0..READS {
        // Nine of ten read a tenth of the keys.
        let key = if n % 10 == 0 { hash(n) % rows } else { hash(n) % (rows / 10).max(1) };
        sum += find.query_row([key], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0);
    }
    drop(find);
    lap(&mut took);
    for from in (0..CHANGES).step_by(100) {
        let change = database.transaction()?;
        for n in from..from + 100 {
            let id = hash(n + READS) % rows;
            change.execute(
                "update rows set key = key + 1, body = zeroblob(900) where id = ?",
                [id],
            )?;
        }
        change.commit()?;
    }
    lap(&mut took);
    let all = "select sum(key + length(body)) from rows";
    sum += database.query_row(all, [], |row| row.get::<_, i64>(0))?;
    lap(&mut took);
    let said: String = database.query_row("pragma integrity_check", [], |row| row.get(0))?;
    if said != "ok" {
        return Err(format!("{vfs}: {said}").into());
    }
    Ok((sum, took))
}

/// Spreads numbers.
fn hash(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 17
}
