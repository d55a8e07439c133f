//! `lowtide bench noisy-neighbour`: what a scanner costs tenants with working sets, and what `low`
//! spares them.
//!
//! ```text
//!   parent (max)
//!    ├── tenant 1..4   loads of its own file, zipf popularity; with protection: low
//!    └── scanner       reads a file larger than everything from start to end, over and over
//! ```
//!
//! Three rows: the tenants alone, with the scanner, and with the scanner and `low`. What is
//! compared is the share of loads that found their page. Sizes have the proportions of the
//! simulator's workload of this name (`client/noisy.rs` there). Nobody runs at full speed, or the
//! fastest would decide by its speed alone who has how much.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lowtide::{OpenOptions, Policy};
use lowtide_workload::{Distribution, SplitMix64};

use super::crowd::{Count, Crowd, load};
use super::host::{Common, head, tail, whole_windows};
use super::row::{Column, TenancyRow, number, size};
use crate::bench::content::{Content, UNIT_BYTES};
use crate::bench::datafile::{DataFile, Purpose};
use crate::bench::error::BenchError;
use crate::bench::options::values::{budget, seconds};
use crate::bench::options::{FewPolicies, Seed};
use crate::interrupt::Cut;
use crate::progress;

/// The name.
pub(crate) const NAME: &str = "noisy-neighbour";
/// One line about it, for listings.
pub(crate) const ABOUT: &str =
    "four tenants with working sets beside a scanner, with and without low";

/// Tenants with working sets.
const TENANTS: u64 = 4;
/// Loads of a tenant between two pauses of a millisecond: fifty thousand a second at most.
const BURST: u32 = 50;
const BURST_PAUSE: Duration = Duration::from_millis(1);
/// Pages that the scanner reads at once, and its pause after each: at most eighty thousand pages a
/// second.
const SCAN_PAGES: u64 = 8;
const SCAN_PAUSE: Duration = Duration::from_micros(100);
/// By how much a protected hit ratio may differ.
const TOLERANCE: f64 = 0.02;

/// Who is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    Alone,
    Scanner,
    ScannerAndLow,
}

impl Company {
    const ALL: [Self; 3] = [Self::Alone, Self::Scanner, Self::ScannerAndLow];

    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Scanner => "scanner",
            Self::ScannerAndLow => "scanner, low",
        }
    }
}

/// Options of `noisy-neighbour`.
#[derive(Debug, Args)]
pub(crate) struct NoisyArgs {
    /// Memory budget of all tenants together
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "72M",
          allow_hyphen_values = true)]
    max: u64,
    /// Measured seconds of each row; as long again goes before them
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "4",
          allow_negative_numbers = true)]
    seconds: f64,
    #[command(flatten)]
    policies: FewPolicies,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    common: Common,
}

/// What is run, decided.
#[derive(Debug)]
struct Noisy<'a> {
    common: &'a Common,
    page: u64,
    max: u64,
    low: u64,
    file: u64,
    scan: u64,
    time: Duration,
    seed: u64,
    policies: Vec<Policy>,
}

impl<'a> Noisy<'a> {
    fn new(args: &'a NoisyArgs) -> Self {
        let (page, max) = (args.common.page, args.max);
        Self {
            common: &args.common,
            page,
            max,
            // Together a little less than everything: the rest is the scanner's.
            low: max / 144 * 34,
            file: whole_windows(max / 3 * 2, page),
            scan: whole_windows(max.saturating_mul(4), page),
            time: Duration::from_secs_f64(args.seconds),
            seed: args.seed.seed,
            policies: args.policies.rows(),
        }
    }

    const fn budget(&self) -> u64 {
        self.max + self.max / 4 + (8 << 20)
    }

    fn row(
        &self,
        policy: Policy,
        company: Company,
        files: &[DataFile],
        scan: &DataFile,
    ) -> Result<TenancyRow, BenchError> {
        let pager = self.common.pager(policy, self.budget())?;
        let parent = pager.tenant("all").max(size(self.max)).create()?;
        let units = self.page / UNIT_BYTES as u64;
        let mut players = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let low = if company == Company::ScannerAndLow { self.low } else { 0 };
            let tenant = parent.child(&format!("tenant-{}", number + 1)).low(size(low)).create()?;
            let view = OpenOptions::new().tenant(&tenant).lock(false).open(&pager, file.path())?;
            let seed = self.seed.wrapping_add(number as u64);
            let sampler = Distribution::default().sampler(view.pages(), seed)?;
            players.push((view, sampler, SplitMix64::new(seed)));
        }
        let scanner = parent.child("scanner").create()?;
        let scanned = OpenOptions::new().tenant(&scanner).lock(false).open(&pager, scan.path())?;

        let crowd = Crowd::default();
        let counts: Vec<Count> = files.iter().map(|_| Count::default()).collect();
        let pages_scanned = Count::default();
        let (each, scans, seconds, before, after) = thread::scope(|scope| {
            for ((view, sampler, mut rng), count) in players.into_iter().zip(&counts) {
                crowd.spawn(scope, move || {
                    for _ in 0..BURST {
                        let page = sampler.draw(&mut rng);
                        let missed = !view.is_resident(page);
                        load(&view, page, page % units)?;
                        count.done(missed);
                    }
                    thread::sleep(BURST_PAUSE);
                    Ok::<(), String>(())
                });
            }
            if company != Company::Alone {
                let (mut next, pages_scanned) = (0, &pages_scanned);
                crowd.spawn(scope, move || {
                    for page in next..(next + SCAN_PAGES).min(scanned.pages()) {
                        load(&scanned, page, 0)?;
                        pages_scanned.done(true);
                    }
                    next = (next + SCAN_PAGES) % scanned.pages();
                    thread::sleep(SCAN_PAUSE);
                    Ok::<(), String>(())
                });
            }
            crowd.watch(self.time, || ());
            let look =
                || counts.iter().map(|count| (count.ops(), count.misses())).collect::<Vec<_>>();
            let (began, scans, before, begin) =
                (look(), pages_scanned.ops(), pager.stat(), Instant::now());
            crowd.watch(self.time, || ());
            let (ended, seconds, after) = (look(), begin.elapsed().as_secs_f64(), pager.stat());
            let scans = pages_scanned.ops() - scans;
            crowd.stop();
            let each: Vec<(u64, u64)> = ended
                .iter()
                .zip(began)
                .map(|(now, then)| (now.0 - then.0, now.1 - then.1))
                .collect();
            (each, scans, seconds, before, after)
        });
        crowd.verdict(company.name())?;

        let accesses = each.iter().map(|(accesses, _)| accesses).sum();
        let misses = each.iter().map(|(_, misses)| misses).sum();
        let threads = TENANTS as u32 + u32::from(company != Company::Alone);
        let row = TenancyRow::lowtide(NAME, &pager, &policy.to_string(), threads, self.seed);
        let row = row.counted(&before, &after, seconds).loads(accesses, misses);
        Ok(TenancyRow {
            max_bytes: Some(self.max),
            data_bytes: Some(self.file * TENANTS),
            company: Some(company.name()),
            ops: Some(accesses),
            ops_per_s: Some(accesses as f64 / seconds),
            scanned_per_s: Some(scans as f64 / seconds),
            ..row
        })
    }
}

const COLUMNS: &[Column] = &[
    ("policy", |row| row.policy.clone()),
    ("company", |row| row.company.unwrap_or_default().into()),
    ("loads/s", |row| number(row.ops_per_s)),
    ("hit %", |row| {
        row.miss_ratio.map_or_else(String::new, |miss| format!("{:.2}", 100.0 * (1.0 - miss)))
    }),
    ("to alone", |row| {
        row.hit_ratio_to_alone.map_or_else(String::new, |ratio| format!("{ratio:.4}"))
    }),
    ("scanned/s", |row| number(row.scanned_per_s)),
    ("own KiB/s", |row| number(row.own_read_kib_per_s)),
];

/// Measures all companies under every policy.
///
/// # Errors
/// Any [`BenchError`].
pub(crate) fn run(args: &NoisyArgs) -> Result<(), BenchError> {
    let plan = Noisy::new(args);
    let pager = plan.common.pager(plan.policies[0], plan.budget())?;
    let depot = args.common.files.depot()?;
    let files = depot.prepare(Content::Blocks, plan.file, TENANTS as usize, Purpose::Lasting)?;
    let scan = depot.prepare(Content::Blocks, plan.scan, 1, Purpose::Lasting)?.remove(0);
    for file in files.iter().chain([&scan]) {
        file.drop_page_cache()?;
    }
    let lines = [
        (
            "tenants",
            format!(
                "{TENANTS} with a file of {} each and a scanner with one of {}, all in {}; low {} \
                 each",
                size(plan.file),
                size(plan.scan),
                size(plan.max),
                size(plan.low)
            ),
        ),
        (
            "run",
            format!(
                "{:.1} s for each row, after as long to warm; seed {}",
                plan.time.as_secs_f64(),
                plan.seed
            ),
        ),
    ];
    let machine = head((NAME, ABOUT), &pager, &files[0], &lines)?;
    drop(pager);
    let progress = progress::steps("", 3 * plan.policies.len() as u64);
    let (mut rows, mut closing) = (Vec::new(), Vec::new());
    let mut cut = Cut::default();
    'rows: for &policy in &plan.policies {
        let mut alone = None;
        for company in Company::ALL {
            progress.set_message(format!("{policy} {}", company.name()));
            let Some(row) = cut.take(plan.row(policy, company, &files, &scan))? else {
                break 'rows;
            };
            let hits = 1.0 - row.miss_ratio.unwrap_or_default();
            let ratio = hits / *alone.get_or_insert(hits);
            if company == Company::ScannerAndLow {
                let kept = if (ratio - 1.0).abs() <= TOLERANCE { "kept" } else { "not kept" };
                closing.push(format!(
                    "{policy}: low changes the hit ratio by {:+.2} % beside a scanner (at most \
                     {:.0} % promised: {kept})",
                    100.0 * (ratio - 1.0),
                    100.0 * TOLERANCE
                ));
            }
            rows.push(TenancyRow { hit_ratio_to_alone: Some(ratio), ..row });
            progress.inc(1);
        }
    }
    cut.refuse_nothing(rows.is_empty())?;
    progress.finish_and_clear();
    tail(&args.common.output, &machine, COLUMNS, rows, &closing, cut)
}
