//! A database bigger than its memory.
//!
//! ```text
//! cargo run --release -- [FILE] [DATA_MIB] [BUDGET_MIB]
//! ```
//!
//! Fills a table, reads rows of which few are read often, changes some, and goes through the
//! whole table. Then it says how often the device was asked, and how often it need not be. Without
//! FILE the database is a temporary one.

use lowtide::{OpenOptions, Pager, Size, Stat};
use lowtide_redb::ViewBackend;
use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
const ROW_BYTES: u64 = 400;
const READS: u64 = 200_000;
/// Memory for redb's own cache: what it has changed since the last commit.
const REDB_CACHE: usize = 4 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next();
    let mut mib = |default: u64| args.next().map_or(Ok(default), |arg| arg.parse());
    let (data, budget) = (mib(256)? << 20, mib(32)? << 20);
    let folder = tempfile::tempdir()?;
    let path = file.map_or_else(|| folder.path().join("example.redb"), Into::into);
    run(&path, data / ROW_BYTES, budget)
}

fn run(path: &Path, rows: u64, budget: u64) -> Result<(), Box<dyn Error>> {
    let pager = Pager::builder().max(Size::new(budget)).build()?;
    let view = OpenOptions::new().create_with_len(0).open(&pager, path)?;
    let mut builder = Database::builder();
    let database =
        builder.set_cache_size(REDB_CACHE).create_with_backend(ViewBackend::new(view.clone()))?;

    step("filled", || fill(&database, rows))?;
    let before = pager.stat();
    step("read", || read(&database, rows))?;
    let after = pager.stat();
    step("changed", || change(&database, rows))?;
    step("iterated", || iterate(&database, rows))?;

    println!("file {} MiB, budget {} MiB", view.len() >> 20, budget >> 20);
    println!("{}", misses(&before, &after, READS));
    Ok(())
}

/// Says what was done, to how many rows, and how long it took.
fn step(what: &str, work: impl FnOnce() -> Result<u64, redb::Error>) -> Result<(), redb::Error> {
    let began = Instant::now();
    let rows = work()?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{what}: {rows} rows in {seconds:.1} s, {:.0} a second", rows as f64 / seconds);
    Ok(())
}

fn row(key: u64, version: u8) -> [u8; ROW_BYTES as usize] {
    let mut row = [version; ROW_BYTES as usize];
    row[..8].copy_from_slice(&key.to_le_bytes());
    row
}

fn fill(database: &Database, rows: u64) -> Result<u64, redb::Error> {
    for first in (0..rows).step_by(20_000) {
        let write = database.begin_write()?;
        {
            let mut table = write.open_table(ROWS)?;
            for key in first..rows.min(first + 20_000) {
                table.insert(key, row(key, 0).as_slice())?;
            }
        }
        write.commit()?;
    }
    Ok(rows)
}

/// Reads rows at random, low keys often: four of five reads go to a tenth of the rows.
fn read(database: &Database, rows: u64) -> Result<u64, redb::Error> {
    let table = database.begin_read()?.open_table(ROWS)?;
    let mut random = 1_u64;
    for _ in 0..READS {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let among = if (random >> 32).is_multiple_of(5) { rows } else { rows.div_ceil(10) };
        let key = (random >> 33) % among;
        let found = table.get(key)?.expect("every row was written");
        assert_eq!(found.value()[..8], key.to_le_bytes());
    }
    Ok(READS)
}

fn change(database: &Database, rows: u64) -> Result<u64, redb::Error> {
    let mut changed = 0;
    let write = database.begin_write()?;
    {
        let mut table = write.open_table(ROWS)?;
        for key in (0..rows).step_by(100) {
            table.insert(key, row(key, 1).as_slice())?;
            changed += 1;
        }
    }
    write.commit()?;
    Ok(changed)
}

fn iterate(database: &Database, rows: u64) -> Result<u64, redb::Error> {
    let table = database.begin_read()?.open_table(ROWS)?;
    assert_eq!(table.len()?, rows);
    let mut expected = 0;
    for entry in table.range::<u64>(..)? {
        let (key, value) = entry?;
        assert_eq!(key.value(), expected);
        assert_eq!(value.value()[8..], row(0, u8::from(expected % 100 == 0))[8..]);
        expected += 1;
    }
    Ok(expected)
}

/// What reading rows at random asked of the device.
fn misses(before: &Stat, after: &Stat, reads: u64) -> String {
    let (missed, bytes) =
        (after.io.reads - before.io.reads, (after.io.read_bytes - before.io.read_bytes) >> 20);
    let share = 100.0 * missed as f64 / reads as f64;
    let hits = 100.0 * after.hit_ratio_since(before).unwrap_or_default();
    format!(
        "{reads} rows read at random took {missed} reads of the device ({bytes} MiB), {share:.0} \
         for 100 rows; \
         {hits:.1} % of the pages were in memory"
    )
}
