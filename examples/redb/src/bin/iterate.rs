//! A whole table, from its first row to its last: a view beside redb's own file backend, in as much
//! memory.
//!
//! ```text
//! cargo run --release --bin iterate -- [DIR] [ROUNDS] [DATA_MIB] [BUDGET_MIB] [shuffled]
//! ```
//!
//! Each API is a process of its own in a memory cgroup of the same size, which holds all it has:
//! for lowtide the budget and the heap, for the file backend the page cache and the heap. Each
//! begins with nothing of the file in memory. Rows are stored in the order of their keys, or
//! `shuffled`. The APIs take turns, and a ratio is of two runs of one round.

use lowtide::{OpenOptions, Pager, Size};
use lowtide_host::memcg::Memcg;
use lowtide_host::usage::{CpuTime, ProcIo};
use lowtide_redb::ViewBackend;
use redb::{Database, ReadableDatabase, TableDefinition};
use std::error::Error;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
const ROW_BYTES: u64 = 350;
/// Beside the budget: redb's cache, the heap, what a process has anyway.
const HEAP: u64 = 26 << 20;
/// APIs, and mebibytes of redb's own cache behind each.
const APIS: [(&str, usize); 3] = [("lowtide", 4), ("file", 4), ("file", 16)];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [api, path, budget, cache] = &args[..]
        && api.starts_with("--")
    {
        return child(&api[2..], Path::new(path), budget.parse()?, cache.parse()?);
    }
    let mut args = args.into_iter();
    let dir = args.next().map_or_else(std::env::temp_dir, Into::into);
    let mut number = |default: u64| args.next().map_or(Ok(default), |arg| arg.parse());
    let (rounds, data, budget) = (number(5)?, number(1024)? << 20, number(64)? << 20);
    let shuffled = args.next().is_some_and(|arg| arg == "shuffled");
    let folder = tempfile::tempdir_in(dir)?;
    let path = folder.path().join("iterate.redb");
    fill(&path, data / ROW_BYTES, shuffled)?;
    println!(
        "file {} MiB, {} MiB for each",
        std::fs::metadata(&path)?.len() >> 20,
        (budget + HEAP) >> 20
    );

    let mut seconds = [const { Vec::new() }; APIS.len()];
    for round in 0..rounds as usize {
        for turn in 0..APIS.len() {
            let api = (round + turn) % APIS.len();
            let (name, cache) = APIS[api];
            let (took, line) = run(name, cache, &path, budget)?;
            println!("round {round}: {name}, cache of {cache} MiB: {line}");
            seconds[api].push(took);
        }
    }
    for api in 1..APIS.len() {
        let ratios = seconds[api].iter().zip(&seconds[0]).map(|(file, view)| file / view);
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let (name, cache) = APIS[api];
        println!(
            "rows a second, lowtide / {name} with a cache of {cache} MiB: {:.2} ({:.2} to {:.2})",
            ratios[ratios.len() / 2],
            ratios[0],
            ratios[ratios.len() - 1]
        );
    }
    Ok(())
}

/// The number that a row holds, of its key: rows that are stored in the order of numbers have
/// shuffled keys.
const fn number_of(key: u64) -> u64 {
    key.wrapping_mul(0xf1de_83e1_9937_733d)
}

/// Writes the table.
fn fill(path: &Path, rows: u64, shuffled: bool) -> Result<(), Box<dyn Error>> {
    let database = Database::builder().set_cache_size(512 << 20).create(path)?;
    for first in (0..rows).step_by(200_000) {
        let write = database.begin_write()?;
        {
            let mut table = write.open_table(ROWS)?;
            for n in first..rows.min(first + 200_000) {
                // The inverse of the factor in `number_of`.
                let key = if shuffled { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { n };
                table.insert(key, [number_of(key) as u8; ROW_BYTES as usize].as_slice())?;
            }
        }
        write.commit()?;
    }
    Ok(())
}

/// One run of one API, in a group of its own; its seconds, and what it says.
fn run(api: &str, cache: usize, path: &Path, budget: u64) -> Result<(f64, String), Box<dyn Error>> {
    let file = std::fs::File::open(path)?;
    file.sync_all()?;
    lowtide_host::file::drop_page_cache(&file)?;
    let group = Memcg::create("redb", budget + HEAP)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(format!("--{api}"))
        .arg(path)
        .args([budget.to_string(), cache.to_string()])
        .env("MALLOC_ARENA_MAX", "2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    group.add(child.id())?;
    child.stdin.take().ok_or("no way to the child")?.write_all(b"!")?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    let (seconds, line) =
        text.trim().split_once(' ').ok_or_else(|| format!("{api}: {}", output.status))?;
    Ok((seconds.parse()?, format!("{seconds} s, {line}")))
}

fn child(api: &str, path: &Path, budget: u64, cache: usize) -> Result<(), Box<dyn Error>> {
    // Until the group is ready.
    std::io::stdin().read_exact(&mut [0])?;
    let mut builder = Database::builder();
    builder.set_cache_size(cache << 20);
    let database = if api == "lowtide" {
        let pager = Pager::builder().max(Size::new(budget)).build()?;
        let view = OpenOptions::new().write(true).open(&pager, path)?;
        builder.create_with_backend(ViewBackend::new(view))?
    } else {
        builder.open(path)?
    };
    let (began, cpu, io) = (Instant::now(), CpuTime::now_self(), ProcIo::read_self());
    let mut rows = 0_u64;
    for entry in database.begin_read()?.open_table(ROWS)?.range::<u64>(..)? {
        let (key, value) = entry?;
        assert!(value.value().iter().all(|&byte| byte == number_of(key.value()) as u8));
        rows += 1;
    }
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), CpuTime::now_self().since(cpu));
    let read =
        io.zip(ProcIo::read_self()).map_or(0, |(before, after)| after.since(before).read_bytes);
    println!(
        "{seconds:.3} {rows} rows, {:.0} a second, {:.2} s of processor, {} MiB read",
        rows as f64 / seconds,
        cpu.seconds(),
        read >> 20
    );
    Ok(())
}
