//! `lowtide-lab bench in-order`: a whole file read in order, by each API of lowtide, beside `pread`
//! and fio.
//!
//! One thread reads the file from beginning to end, repeatedly, in requests of one size: lowtide
//! with guards (whose requests are pages), `read_at` or `get_many`; the peers with buffered
//! `pread`, direct `pread`, and fio with direct reads, one request at a time. The page cache is
//! dropped before each slice and at each beginning of the file, so that all systems read the
//! device. The result is the rate of bytes read.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::rc::Rc;
use std::time::Instant;

use crate::bench::options::open_view;
use clap::{Args, ValueEnum};
use lowtide::advanced::PagerAdvanced as _;
use lowtide::{Pager, PagerBuilder, Size, View};
use lowtide_bench::datafile::DataFile;
use lowtide_bench::error::BenchError;
use lowtide_bench::machine::Machine;
use lowtide_bench::options::memory::check_memory;
use lowtide_bench::rounds::{take_turns, verdict};
use lowtide_bench::system::{System, count};
use lowtide_bench::thread_pool::Until;
use lowtide_host::probe::Probe;
use lowtide_host::usage::CpuTime;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::Report;
use lowtide_report::measured::Common;
use lowtide_report::rounds::ratio;
use lowtide_report::row::Row;
use lowtide_report::tally::Slice;
use lowtide_report::values::{budget, scale, scaled, size};
use lowtide_report::{out, progress::Patient, table};

use super::cold::Cold;
use super::peer::fio::Fio;

/// The largest alignment of memory and offsets that `O_DIRECT` requires.
const GRID: usize = 4096;

/// The name of the workload.
pub(crate) const NAME: &str = "in-order";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "a file read from start to end, cold, by each API, beside pread and fio";

#[derive(Debug, Args)]
pub(crate) struct InOrderArgs {
    /// APIs to read with, one row each
    #[arg(
        long,
        value_name = "OP,OP",
        value_enum,
        value_delimiter = ',',
        default_value = "read,read_at,get_many"
    )]
    op: Vec<Op>,
    /// Bytes per request, one group of rows each
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',', value_parser = size,
          default_value = "64K,1M")]
    io_size: Vec<u64>,
    /// Memory budget
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "64M",
          allow_hyphen_values = true)]
    max: u64,
    /// Size of the data as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "8",
          allow_negative_numbers = true)]
    scale: f64,
    #[command(flatten)]
    cold: Cold,
}

/// An API to read a file in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Op {
    // Page by page, by guards.
    Read,
    // Copies of ranges.
    ReadAt,
    // Lists of neighbouring pages.
    GetMany,
}

/// The API with which a row reads.
#[derive(Debug)]
enum Way {
    Lowtide(Op, Pager, Box<View>),
    Pread(File),
    Direct(File),
}

/// One reader of the file, and its position.
#[derive(Debug)]
struct Scan {
    file: Rc<DataFile>,
    way: Way,
    request: u64,
    bytes: u64,
    next: u64,
    buffer: Vec<u8>,
}

impl Scan {
    /// Reads one request and returns the number of its bytes.
    fn step(&mut self) -> Result<u64, BenchError> {
        if self.next >= self.bytes {
            self.next = 0;
            self.file.drop_page_cache()?;
        }
        let at = self.next;
        let failed = |source| BenchError::file("read", self.file.path(), source);
        let len = match &self.way {
            Way::Lowtide(Op::Read, pager, view) => {
                let page = pager.page_size() as u64;
                black_box(view.page(at / page).map_err(|e| failed(e.into()))?[0]);
                page
            }
            Way::Lowtide(Op::ReadAt, _, view) => {
                view.read_at(at, &mut self.buffer[..self.request as usize])
                    .map_err(|e| failed(e.into()))?;
                self.request
            }
            Way::Lowtide(Op::GetMany, pager, view) => {
                let page = pager.page_size() as u64;
                let pages: Vec<u64> = (at / page..(at + self.request) / page).collect();
                view.get_many(&pages, |_, bytes| _ = black_box(bytes[0]))
                    .map_err(|e| failed(e.into()))?;
                self.request
            }
            Way::Pread(file) | Way::Direct(file) => {
                let start = self.buffer.as_ptr().align_offset(GRID);
                let buffer = &mut self.buffer[start..start + self.request as usize];
                file.read_exact_at(buffer, at).map_err(failed)?;
                self.request
            }
        };
        self.next += len;
        Ok(len)
    }
}

impl System for Scan {
    fn name(&self) -> &'static str {
        match &self.way {
            Way::Lowtide(Op::Read, ..) => "lowtide read",
            Way::Lowtide(Op::ReadAt, ..) => "lowtide read_at",
            Way::Lowtide(Op::GetMany, ..) => "lowtide get_many",
            Way::Pread(_) => "pread",
            Way::Direct(_) => "pread, direct",
        }
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        self.file.drop_page_cache()?;
        let stat = |way: &Way| match way {
            Way::Lowtide(_, pager, _) => Some(pager.stat()),
            _ => None,
        };
        let (before, cpu, begin) = (stat(&self.way), CpuTime::now_self(), Instant::now());
        let mut slice = Slice::default();
        let more = |ops| match until {
            Until::Seconds(seconds) => begin.elapsed().as_secs_f64() < seconds,
            Until::Ops(most) => ops < most,
        };
        while more(slice.ops) {
            interrupt::check(|| "scanning".to_owned())?;
            slice.asked_bytes += self.step()?;
            slice.ops += 1;
        }
        slice.seconds = begin.elapsed().as_secs_f64();
        slice.cpu_seconds = CpuTime::now_self().since(cpu).seconds();
        slice.read_bytes = slice.asked_bytes;
        if let (Some(before), Some(after)) = (before, stat(&self.way)) {
            count(&mut slice, &before, &after);
        }
        Ok(slice)
    }
}

/// Measures every requested operation and size.
pub(crate) fn run(args: &InOrderArgs) -> Result<(), BenchError> {
    let probe = Probe::ask();
    let fio = Fio::find();
    if fio.is_none() {
        out::note("fio left out: it is not installed (the package is called fio)");
    }
    let (rounds, sizes) = (args.cold.rounds, &args.io_size);
    let file = Rc::new(data(args, &probe)?);

    let mut printed = table::new(&["request", "system", "MiB/s", "reads", "cpu s", "ratio"], 2);
    let (mut json, mut all_rows) = (Vec::new(), Vec::new());
    let mut progress = Patient::steps((sizes.len() * (args.op.len() + 3) * rounds as usize) as u64);
    let (mut cut, mut machine) = (Cut::default(), None);
    for &request in sizes {
        let (mut systems, pager) = systems(args, &file, request, fio.as_ref())?;
        if let (None, Some(pager)) = (&machine, pager) {
            machine = Some(Machine::ask(&probe, &file, &pager)?);
        }
        let slice = Until::Seconds(args.cold.seconds / f64::from(rounds));
        let taken = take_turns(&mut systems, rounds, |_| slice, &mut progress, &mut cut);
        let Some(rows) = cut.take(taken)? else { break };
        let rate = |slice: &Slice| slice.asked_bytes as f64 / slice.seconds;
        for row in &rows {
            let (sum, ratio) = (row.sum(), ratio(row, &rows[0], rate));
            printed.add_row(vec![
                Size::new(request).to_string(),
                row.label.clone(),
                table::thousands(rate(&sum) / f64::from(1 << 20)),
                Size::new(sum.read_bytes).to_string(),
                format!("{:.2}", sum.cpu_seconds),
                ratio.text(),
            ]);
            json.push(Row::compared(&common(args, &file, request), row, &rows[0]));
        }
        all_rows.extend(rows);
        if cut.is_cut() {
            break;
        }
    }
    cut.refuse_nothing(all_rows.is_empty())?;
    drop(progress);
    if let Some(machine) = &machine {
        out::line("in-order: a file read from start to end, cold, by one thread");
        machine.lines(&file).into_iter().for_each(out::line);
        out::line("");
    }
    out::line(printed);
    if let Some(machine) = &machine {
        Report::new(machine, json)
            .cut_short(cut.is_cut())
            .write(args.cold.output.json.as_deref())?;
    }
    all_rows.iter().try_for_each(verdict)?;
    cut.verdict()
}

/// The file that is read, if it suits every size of a request.
fn data(args: &InOrderArgs, probe: &Probe) -> Result<DataFile, BenchError> {
    let (page_bytes, sizes) = (args.cold.page, &args.io_size);
    if let Some(size) = sizes.iter().find(|&&size| size % page_bytes != 0) {
        return Err(BenchError::usage(
            format!("--io-size {} is not a multiple of a page", Size::new(*size)),
            "give sizes such as --io-size 64K,1M",
        ));
    }
    check_memory(0, 1, args.max, probe.memory_available)?;
    let (file, _) = args.cold.data(scaled(args.max, args.scale))?;
    if let Some(size) = sizes.iter().find(|&&size| size > file.bytes()) {
        return Err(BenchError::usage(
            format!("--io-size {} is more than the file has", Size::new(*size)),
            "give smaller sizes, or raise --scale",
        ));
    }
    Ok(file)
}

/// Those that are compared, and a pager of lowtide's among them.
type Systems = (Vec<Box<dyn System>>, Option<Pager>);

/// The readers of requests of one size.
fn systems(
    args: &InOrderArgs,
    file: &Rc<DataFile>,
    request: u64,
    fio: Option<&Fio>,
) -> Result<Systems, BenchError> {
    let bytes = file.bytes() - file.bytes() % request;
    let scan = |way| -> Box<dyn System> {
        let buffer = vec![0; request as usize + GRID];
        Box::new(Scan { file: Rc::clone(file), way, request, bytes, next: 0, buffer })
    };
    let (mut systems, mut first): (Vec<Box<dyn System>>, _) = (Vec::new(), None);
    for &op in &args.op {
        let young = args.cold.young.young_faults;
        let adjust = |builder: PagerBuilder| builder.young_faults(young);
        let policy = args.cold.policy.policy;
        let pager = args.cold.io.pager(policy, args.max, args.cold.page, adjust)?;
        first.get_or_insert_with(|| pager.clone());
        let view = Box::new(open_view(&pager, file, false)?);
        systems.push(scan(Way::Lowtide(op, pager, view)));
    }
    let open = |flags: rustix::fs::OFlags| {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(file.path());
        opened.map_err(|source| BenchError::file("open", file.path(), source))
    };
    systems.push(scan(Way::Pread(open(rustix::fs::OFlags::empty())?)));
    match open(rustix::fs::OFlags::DIRECT) {
        Ok(direct) => systems.push(scan(Way::Direct(direct))),
        Err(error) => out::note(error),
    }
    if let Some(fio) = fio {
        systems.push(Box::new(fio.in_order(file.path(), bytes, request)));
    }
    Ok((systems, first))
}

fn common(args: &InOrderArgs, file: &DataFile, request: u64) -> Common {
    Common {
        workload: NAME,
        max_bytes: args.max,
        data_bytes: file.bytes(),
        page_bytes: args.cold.page,
        threads: 1,
        batch: (request / args.cold.page) as u32,
        seed: args.cold.seed.seed,
        slowed: None,
        stride: None,
    }
}
