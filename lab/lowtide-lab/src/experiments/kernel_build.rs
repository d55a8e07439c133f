//! `kernel-build`: compilers that start, fill a heap and exit, 96 at a time, in a group with less
//! than half of the memory that they want. See `lowtide_experiments::programs::heap` for what it
//! exercises.

use std::rc::Rc;

use crate::sim::options::{PUBLISHED_POLICIES, scale};
use clap::Args;
use lowtide::Size;
use lowtide_experiments::programs::heap::{HeapProgram, KernelBuild as Build};
use lowtide_experiments::published::{
    Arm, Criterion, KERNEL_BUILD, MeasuredBuild, build_verdict, published_heap,
};
use lowtide_report::columns::{Columns, label, number, refaults};
use lowtide_report::row::{KernelFigures, Row};
use lowtide_sim::spec::MachineSpec;

use super::heap::{Heap, row_of, seconds_cell, thousands_cell, with_part_of_cpus};

#[derive(Debug, Args)]
pub(crate) struct KernelBuild {
    /// Jobs, CPUs, memory and units relative to the published size
    #[arg(long, value_name = "F", value_parser = scale, default_value = "0.25",
          allow_negative_numbers = true)]
    scale: f64,
}

impl KernelBuild {
    fn build(&self, seed: u64) -> Build {
        Build { seed, ..Build::published(self.scale) }
    }
}

impl Heap for KernelBuild {
    const NAME: &str = "kernel-build";
    const ABOUT: &str = "compilers that start, fill a heap and exit, in half of what they want";
    const HELP: &str = "\
A kernel is built with make -j96 in a group of 3G: 96 compilers at a time, whose heaps grow to 68M
on average, with sources and objects in tmpfs, on compressed memory as swap. What counts is the
processor time of the system: faults, reclaim, compression, waiting for locks. Its sum over all
units is next to the published seconds, which are those of --scale 1. Fewer jobs meet less at a
lock; below --scale 0.125 the group is so small that the classical lists run out of memory.

Examples:
  lowtide-lab sim kernel-build --scale 1
  lowtide-lab sim kernel-build --policy mglru,lru --seed 2";
    const MACHINE: &str = "xeon-96t";
    const POLICIES: &str = PUBLISHED_POLICIES;
    const COLUMNS: Columns = Columns::named(
        1,
        &[
            ("policy", label),
            ("system s", |row| seconds_cell(row.kernel.system_s)),
            ("user s", |row| seconds_cell(row.kernel.user_s)),
            ("seconds", |row| seconds_cell(row.seconds)),
            ("units", |row| number(row.ops.map(|ops| ops as f64))),
            ("k swapped out", |row| thousands_cell(row, "pswpout")),
            ("k swapped in", |row| thousands_cell(row, "pswpin")),
            ("k scanned", |row| thousands_cell(row, "pgscan")),
            (
                "text refaults",
                |row| if row.stat.is_empty() { String::new() } else { refaults(row) },
            ),
            ("list lock s", |row| seconds_cell(row.kernel.lruvec_lock_ms.map(|ms| ms / 1e3))),
            ("slot lock s", |row| seconds_cell(row.kernel.swap_lock_ms.map(|ms| ms / 1e3))),
        ],
    );

    fn program(&self, _variant: usize, seed: u64) -> Rc<dyn HeapProgram> {
        Rc::new(self.build(seed))
    }

    fn machine(&self, machine: MachineSpec) -> MachineSpec {
        with_part_of_cpus(machine, self.scale)
    }

    fn scale(&self) -> Option<f64> {
        Some(self.scale)
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let build = self.build(1);
        let wanted = Size::new(build.heap_bytes() >> 20 << 20);
        let data = format!("{} jobs, which want {wanted}; {} units", build.jobs, build.units);
        vec![("budget", Size::new(build.max).to_string()), ("data", data)]
    }

    fn published(&self, arm: Arm) -> Vec<Row> {
        let postings = published_heap(KERNEL_BUILD, arm).into_iter();
        postings
            .map(|(posting, figures)| Row {
                source: Some(posting),
                kernel: KernelFigures {
                    system_s: figures.first().map(|&(_, seconds)| seconds),
                    ..KernelFigures::default()
                },
                ..Row::default()
            })
            .collect()
    }

    fn verdict(&self, rows: &[Row]) -> Vec<Criterion> {
        let of = |arm| {
            let row = row_of(rows, arm)?;
            Some(MeasuredBuild {
                system_s: row.kernel.system_s?,
                swapped_out: row.count("pswpout") as f64,
                oom: row.oom.unwrap_or(0) as f64,
            })
        };
        let [before, after, lru] = [Arm::Before, Arm::After, Arm::Classical].map(of);
        let criteria = build_verdict(before, after, lru);
        if criteria.len() < 2 { Vec::new() } else { criteria }
    }
}
