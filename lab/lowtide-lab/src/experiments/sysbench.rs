//! `sysbench-ro`: a database whose buffer pool is twelve times its memory, read only, with swap on
//! compressed memory. See `lowtide_experiments::programs::heap` for what it exercises.

use std::rc::Rc;
use std::time::Duration;

use crate::sim::options::{PUBLISHED_POLICIES, scale, seconds};
use clap::Args;
use lowtide::Size;
use lowtide_experiments::programs::heap::{HeapProgram, SysbenchRo as Program};
use lowtide_experiments::published::{
    Arm, Criterion, MeasuredSysbench, SYSBENCH, published_heap, sysbench_verdict,
};
use lowtide_report::columns::{Columns, label, number, p99};
use lowtide_report::row::Row;
use lowtide_report::table::us;
use lowtide_sim::spec::MachineSpec;

use super::heap::{Heap, each, each_cell, row_of, seconds_cell, with_part_of_cpus};

#[derive(Debug, Args)]
pub(crate) struct SysbenchRo {
    /// Tables, threads, CPUs and memory relative to the published size
    #[arg(long, value_name = "F", value_parser = scale, default_value = "1",
          allow_negative_numbers = true)]
    scale: f64,
    /// Virtual seconds measured
    #[arg(long, value_name = "N", value_parser = seconds(), default_value = "10")]
    seconds: u64,
}

impl SysbenchRo {
    fn sysbench(&self, seed: u64) -> Program {
        let run = Duration::from_secs(self.seconds);
        Program { run, seed, ..Program::published(self.scale) }
    }
}

impl Heap for SysbenchRo {
    const NAME: &str = "sysbench-ro";
    const ABOUT: &str = "a database whose buffer pool is twelve times its memory, on zram";
    const HELP: &str = "\
MySQL's buffer pool of 24G in a group of 2G: 48 tables of 2M rows, 48 threads of sysbench's
oltp_read_only, on compressed memory as swap. Three quarters of the rows come from a window of .75 %
of each table. The time of a statement is calibrated to the published rate; how policies compare is
not. At a smaller --scale fewer threads meet at a lock, so policies differ less.

Examples:
  lowtide-lab sim sysbench-ro --seconds 60 --compressor zstd
  lowtide-lab sim sysbench-ro --scale 0.125 --policy mglru,lru";
    const MACHINE: &str = "xeon-96t";
    const POLICIES: &str = PUBLISHED_POLICIES;
    const COLUMNS: Columns = Columns::named(
        1,
        &[
            ("policy", label),
            ("tx/s", |row| number(row.ops_per_s)),
            ("mean µs", |row| row.latency_us.map_or_else(String::new, |us_| us(us_.mean()))),
            ("p99", p99),
            ("in/tx", |row| each_cell(row, "pswpin")),
            ("out/tx", |row| each_cell(row, "pswpout")),
            ("scanned/tx", |row| each_cell(row, "pgscan")),
            ("user s", |row| seconds_cell(row.kernel.user_s)),
            ("system s", |row| seconds_cell(row.kernel.system_s)),
            ("list lock s", |row| seconds_cell(row.kernel.lruvec_lock_ms.map(|ms| ms / 1e3))),
            ("slot lock s", |row| seconds_cell(row.kernel.swap_lock_ms.map(|ms| ms / 1e3))),
        ],
    );

    fn program(&self, _variant: usize, seed: u64) -> Rc<dyn HeapProgram> {
        Rc::new(self.sysbench(seed))
    }

    fn machine(&self, machine: MachineSpec) -> MachineSpec {
        with_part_of_cpus(machine, self.scale)
    }

    fn scale(&self) -> Option<f64> {
        Some(self.scale)
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let sysbench = self.sysbench(1);
        let heap = Size::new(sysbench.heap_bytes() >> 20 << 20);
        let data = format!(
            "{} tables of {} rows, {} threads: {heap}",
            sysbench.tables, sysbench.rows, sysbench.threads
        );
        vec![("budget", Size::new(sysbench.max).to_string()), ("data", data)]
    }

    fn published(&self, arm: Arm) -> Vec<Row> {
        let postings = published_heap(SYSBENCH, arm).into_iter();
        postings
            .map(|(posting, figures)| Row {
                source: Some(posting),
                ops_per_s: figures.first().map(|&(_, rate)| rate),
                ..Row::default()
            })
            .collect()
    }

    fn verdict(&self, rows: &[Row]) -> Vec<Criterion> {
        let of = |arm| {
            let row = row_of(rows, arm)?;
            Some(MeasuredSysbench {
                per_s: row.ops_per_s?,
                swapped_in: each(row, "pswpin")?,
                oom: row.oom.unwrap_or(0) as f64,
            })
        };
        let [before, after, lru] = [Arm::Before, Arm::After, Arm::Classical].map(of);
        let criteria = sysbench_verdict(before, after, lru);
        if criteria.len() < 2 { Vec::new() } else { criteria }
    }
}
