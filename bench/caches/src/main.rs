//! The command: see `--help`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use lowtide::Size;
use lowtide_caches::error::Error;
use lowtide_caches::layout::RecordLayout;
use lowtide_caches::run::{Plan, Row, Slice, Table, peak_resident, run};
use lowtide_caches::system::Kind;
use lowtide_caches::threads::STOP;
use lowtide_caches::work::Work;
use lowtide_workload::record::{Payload, RECORD_BYTES};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// Compare lowtide with pread + quick_cache, moka and foyer (S3-FIFO), as page caches of the same
/// bytes.
///
/// Each system reads records of 1 KiB of a file that is larger than its budget, and verifies every
/// one. The budget is for pages and everything that leads to them: the heap of a cache is counted
/// by the allocator, and it gets as many pages as fit beside that. Its values are pooled, aligned
/// buffers, which are read with O_DIRECT. All systems take turns, in slices; a ratio is lowtide's
/// rate divided by the other's, the median of the rounds with the extremes.
///
/// Columns: ops/s; ratio of the first system to this one; hits in 100 operations; reads of the
/// device in 100 operations; µs of processor time an operation; pages kept; MiB by our account;
/// MiB by which the process grew.
#[derive(Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  cargo run --release -p lowtide-caches
  cargo run --release -p lowtide-caches -- --full --page 1K,4K
  cargo run --release -p lowtide-caches -- --work uniform --page 1K"
)]
struct Args {
    /// Bytes of the file; each system has one of its own if a workload writes
    #[arg(long, default_value = "256M", value_name = "SIZE")]
    data: Size,
    /// What records are made of: random bytes, or json or text, which compress
    #[arg(long, default_value = "random", value_parser = contents, value_name = "NAME")]
    contents: Payload,
    /// The budget of each system
    #[arg(long, default_value = "64M", value_name = "SIZE")]
    max: Size,
    /// 4 GiB over 1 GiB, 7 rounds of 2 s: takes an hour, and 16 GiB of disk
    #[arg(long, conflicts_with_all = ["data", "max", "rounds", "seconds"])]
    full: bool,
    /// Bytes of a page: powers of two from 1K to 64K
    #[arg(
        long,
        default_value = "4K",
        value_delimiter = ',',
        value_name = "SIZE",
        value_parser = page
    )]
    page: Vec<RecordLayout>,
    /// Numbers of threads
    #[arg(
        long,
        default_value = "1,32",
        value_delimiter = ',',
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1024)
    )]
    threads: Vec<u32>,
    /// Workloads: zipf, uniform, update-5, update-20, scan-zipf [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    work: Vec<Work>,
    /// Systems: lowtide, lowtide:POLICY, lowtide@psync (single reads by pread), lowtide+zcache,
    /// quick_cache, moka, foyer [default: lowtide and the three caches]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    system: Vec<Kind>,
    /// Rounds
    #[arg(
        long,
        default_value_t = 5,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    rounds: u32,
    /// Seconds of a slice
    #[arg(long, default_value_t = 0.25, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
    /// Every update is durable when it returns (O_DSYNC); else they are written through or back,
    /// and flushed at the end of each slice
    #[arg(long)]
    durable: bool,
    /// Where the data files are made, and removed
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

fn page(text: &str) -> Result<RecordLayout, String> {
    let bytes = text.parse::<Size>().map_err(|error| error.to_string())?.bytes();
    match RecordLayout::new(bytes as usize) {
        Ok(layout) if (RECORD_BYTES as u64..=65536).contains(&bytes) => Ok(layout),
        _ => Err("a page is a power of two from 1K to 64K".into()),
    }
}

fn contents(text: &str) -> Result<Payload, String> {
    match text {
        "random" => Ok(Payload::Random),
        "json" => Ok(Payload::Json),
        "text" => Ok(Payload::Text),
        _ => Err("records are `random`, `json` or `text`".into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a slice takes 0.01 to 3600 seconds".into()),
    }
}

/// Results were not written, and a reader that has gone is not the reason.
static UNWRITTEN: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let code = compare();
    if UNWRITTEN.load(Ordering::Relaxed) { ExitCode::FAILURE } else { code }
}

fn compare() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = listen() {
        eprintln!("error: cannot listen for Ctrl-C: {error}");
        return ExitCode::FAILURE;
    }
    match run(&plan(args), show) {
        Ok(()) => {
            print(&format!("peak resident memory of the process: {} MiB\n", peak_resident() >> 20));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(match error {
                Error::Usage(_) => 2,
                Error::Interrupted => 130,
                _ => 1,
            })
        }
    }
}

fn plan(args: Args) -> Plan {
    let all = |works: Vec<Work>| if works.is_empty() { Work::ALL.to_vec() } else { works };
    let mut plan = Plan {
        dir: args.dir.unwrap_or_else(std::env::temp_dir),
        contents: args.contents,
        data: args.data.bytes(),
        max: args.max.bytes(),
        pages: args.page,
        threads: args.threads,
        works: all(args.work),
        systems: if args.system.is_empty() { Kind::ALL.to_vec() } else { args.system },
        rounds: args.rounds,
        slice: Duration::from_secs_f64(args.seconds),
        durable: args.durable,
    };
    if args.full {
        (plan.data, plan.max) = (4 << 30, 1 << 30);
        (plan.rounds, plan.slice) = (7, Duration::from_secs(2));
    }
    plan
}

/// The first signal ends the run after the slice, and removes the files; the second one ends it at
/// once. A write beyond `ulimit -f` fails instead of ending the process.
fn listen() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGXFSZ])?;
    std::thread::Builder::new().spawn(move || {
        for signal in signals.forever().filter(|&signal| signal != SIGXFSZ) {
            if STOP.swap(true, Ordering::Relaxed) {
                eprintln!("stopped at once; a folder lowtide-caches-* may be left");
                std::process::exit(128 + signal);
            }
            eprintln!("stopping (interrupt again to stop at once)");
        }
    })?;
    Ok(())
}

/// Prints. If that fails, for instance because the reader has gone, the run ends.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            eprintln!("error: cannot write the results: {error}");
            UNWRITTEN.store(true, Ordering::Relaxed);
        }
        STOP.store(true, Ordering::Relaxed);
    }
}

fn show(table: &Table) {
    let threads = if table.threads == 1 { "thread" } else { "threads" };
    let mut text = format!(
        "{}, {} {threads}, pages of {} KiB\n{:<14}{:>10}{:>22}{:>7}{:>7}{:>8}{:>9}{:>8}{:>8}\n",
        table.work,
        table.threads,
        table.page_bytes >> 10,
        "system",
        "ops/s",
        "ratio",
        "hits",
        "reads",
        "cpu us",
        "pages",
        "MiB",
        "grown"
    );
    for row in &table.rows {
        text.push_str(&line(row, &table.rows[0]));
    }
    text.push('\n');
    print(&text);
}

fn line(row: &Row, first: &Row) -> String {
    let rates = spread(row.slices.iter().map(|slice| slice.rate));
    let pairs = first.slices.iter().zip(&row.slices);
    let ratio = spread(pairs.map(|(first, own)| first.rate / own.rate));
    let ratio = format!("{:.2} ({:.2}..{:.2})", ratio[1], ratio[0], ratio[2]);
    let per_100 = |count: fn(&Slice) -> u64| 100.0 * row.per_op(|slice| count(slice) as f64);
    format!(
        "{:<14}{:>10.0}{ratio:>22}{:>7.1}{:>7.1}{:>8.2}{:>9}{:>8.1}{:>8.1}\n",
        row.system,
        rates[1],
        100.0 - per_100(|slice| slice.misses),
        per_100(|slice| slice.reads),
        1e6 * row.per_op(|slice| slice.cpu),
        row.fit.pages,
        row.bytes as f64 / f64::from(1 << 20),
        row.grown as f64 / f64::from(1 << 20),
    )
}

/// The smallest, the median and the largest value.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    [at(0), f64::midpoint(at(last / 2), at(last.div_ceil(2))), at(last)]
}
