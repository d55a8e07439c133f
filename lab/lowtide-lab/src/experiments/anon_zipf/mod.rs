//! `anon-zipf`: loads and stores of one heap that is larger than its budget, by zipf popularity.
//!
//! Here are the options and the simulation; `real.rs` plays it on real memory.

mod real;

pub(crate) use real::RealAnonZipf;

use std::rc::Rc;
use std::time::Duration;

use crate::sim::options::{seconds, threads};
use clap::Args;
use lowtide::Size;
use lowtide_experiments::programs::heap::{AnonZipf as Program, HeapProgram};
use lowtide_report::columns::{Columns, label, number, p99};
use lowtide_report::row::RowLatency;
use lowtide_report::table::us;
use lowtide_report::values::{budget, scale};

use crate::experiments::heap::{Heap, each_cell, seconds_cell};

#[derive(Debug, Args)]
pub(crate) struct AnonZipf {
    /// Memory budget
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "256M",
          allow_hyphen_values = true)]
    max: u64,
    /// Size of the heap as a multiple of the budget, a row for each
    #[arg(long, value_name = "F,F", value_parser = scale, value_delimiter = ',',
          default_value = "2,4,8", allow_negative_numbers = true)]
    ratio: Vec<f64>,
    /// Threads
    #[arg(long, value_name = "N", value_parser = threads(), default_value = "4")]
    threads: u32,
    /// Operations that store, in percent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100),
          default_value_t = 20)]
    write: u32,
    /// Seconds measured; virtual ones in a simulation
    #[arg(long, value_name = "N", value_parser = seconds(), default_value = "5")]
    seconds: u64,
}

impl AnonZipf {
    /// The program with one of the sizes.
    fn of(&self, variant: usize, seed: u64) -> Program {
        Program {
            threads: self.threads,
            stores: self.write,
            run: Duration::from_secs(self.seconds),
            seed,
            ..Program::new(self.max, self.ratio[variant])
        }
    }
}

impl Heap for AnonZipf {
    const NAME: &str = "anon-zipf";
    const ABOUT: &str = "loads and stores of a heap of 2, 4 and 8 budgets, zipf popularity";
    const HELP: &str = "\
Threads load and store pages of one heap, some pages much more often than others. A row for each
size of the heap and policy shows what a budget costs: operations, latencies, pages from swap.

Examples:
  lowtide-lab sim anon-zipf --ratio 2,4 --policy mglru,lru
  lowtide-lab sim anon-zipf --max 1G --threads 8 --write 50 --machine phone";
    const MACHINE: &str = "laptop";
    const POLICIES: &str = "mglru,mglru-7.1,lru";
    const COLUMNS: Columns = Columns::named(
        2,
        &[
            ("data/budget", |row| {
                let ratio = row.data_bytes.zip(row.max_bytes);
                ratio
                    .map_or_else(String::new, |(data, max)| format!("{}", data as f64 / max as f64))
            }),
            ("policy", label),
            ("ops/s", |row| number(row.ops_per_s)),
            ("mean µs", |row| row.latency_us.map_or_else(String::new, |us_| us(us_.mean()))),
            ("p99", p99),
            ("p99.9", |row| row.latency_us.and_then(RowLatency::p999).map_or_else(String::new, us)),
            ("miss %", |row| {
                row.miss_ratio.map_or_else(String::new, |ratio| format!("{:.2}", 100.0 * ratio))
            }),
            ("in/op", |row| each_cell(row, "pswpin")),
            ("out/op", |row| each_cell(row, "pswpout")),
            ("user s", |row| seconds_cell(row.kernel.user_s)),
            ("system s", |row| seconds_cell(row.kernel.system_s)),
        ],
    );

    fn variants(&self) -> usize {
        self.ratio.len()
    }

    fn program(&self, variant: usize, seed: u64) -> Rc<dyn HeapProgram> {
        Rc::new(self.of(variant, seed))
    }

    fn scale(&self) -> Option<f64> {
        None
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let (threads, write) = (self.threads, self.write);
        let data = format!("one heap, {threads} threads, {write} % stores, zipf 0.99");
        vec![("budget", Size::new(self.max).to_string()), ("data", data)]
    }
}
