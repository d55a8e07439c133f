//! `lowtide advise`: how large a budget should be, from a running process, the summary of one that
//! has ended, or a trace.
//!
//! | given | the curve is |
//! |---|---|
//! | the number of a process under lowtide | on its status page: strict LRU, from its sample |
//! | a summary of `lowtide run --json` | in it: the same |
//! | a trace, as of `lowtide run --record` | played: each policy at each size |

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use clap::{Args, Parser};
use lowtide::budget::{Advice, Curve};
use lowtide_report::{interrupt, out};
use lowtide_status::printable;
use serde::{Deserialize, Serialize};

use crate::sim::trace;
use lowtide_bench::sim::error::SimError;
use lowtide_report::exit::Failure;

/// Options of `lowtide advise`.
#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    /// The number of a process under lowtide, a summary of `lowtide run --json`, or a trace
    what: PathBuf,
    /// The share of accesses that may miss, besides the first of each page
    #[arg(long, value_name = "RATIO", value_parser = trace::curves::share, default_value = "0.02")]
    target: f64,
    /// Policies to play a trace with [default: mglru,tide,lru]
    #[arg(long, value_name = "P,P")]
    policy: Option<String>,
    /// Draw the curves of a trace into FILE: .svg or .html
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdviseError {
    /// See the message.
    #[error("{0}")]
    Process(#[from] lowtide_status::Error),
    /// It was looked at too early.
    #[error(
        "process {pid} has no curve yet: it has not accessed pages that lowtide keeps; try again \
         when it has"
    )]
    NoCurve { pid: u32 },
    /// It cannot be read.
    #[error("cannot read {}: {source}; give a process, a summary, or a trace", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is no summary.
    #[error(
        "line {line} of {} is no summary of `lowtide run --json`: {source}",
        path.display()
    )]
    Summary { path: PathBuf, line: usize, source: serde_json::Error },
    /// No process of a summary has a curve.
    #[error(
        "{} has no curves: no process in it had files or heaps within the budget",
        path.display()
    )]
    Empty { path: PathBuf },
    /// An option without effect.
    #[error("{option} is for traces, and {} is {what}", path.display())]
    NotForThis { option: &'static str, path: PathBuf, what: &'static str },
    /// Those of a trace.
    #[error("{0}")]
    Trace(#[from] SimError),
    /// Ctrl-C cannot be handled.
    #[error("{0}")]
    Handler(#[from] interrupt::HandlerError),
}

impl Failure for AdviseError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Trace(error) => error.exit_code(),
            Self::NotForThis { .. } => 2,
            _ => 1,
        }
    }
}

/// Of whom a curve is.
#[derive(Debug, Serialize)]
struct Row {
    pid: u32,
    program: String,
    /// Path of a tenant, or glob of a budget.
    of: String,
    target: f64,
    bytes: u64,
    ratio: f64,
    first: f64,
    error: f64,
    thrashes_below_bytes: Option<u64>,
    curve: lowtide_status::Curve,
}

/// A line of a summary, as far as it is needed.
#[derive(Debug, Deserialize)]
struct Summary {
    pid: u32,
    program: String,
    #[serde(default)]
    curves: Vec<Published>,
}

#[derive(Debug, Deserialize)]
struct Published {
    glob: Option<String>,
    #[serde(flatten)]
    curve: lowtide_status::Curve,
}

/// What was given.
enum Given {
    Process(u32),
    Summary(PathBuf),
    Trace(PathBuf),
}

/// Gives the advice.
///
/// # Errors
/// See [`AdviseError`].
pub(crate) fn run(args: &AdviseArgs) -> Result<(), AdviseError> {
    let rows = match given(&args.what)? {
        Given::Trace(path) => return of_trace(args, &path).map_err(Into::into),
        Given::Process(pid) => {
            args.refuse_options("a process")?;
            of_process(pid, args.target)?
        }
        Given::Summary(path) => {
            args.refuse_options("a summary")?;
            of_summary(&path, args.target)?
        }
    };
    if args.json {
        out::line(serde_json::to_string(&rows).unwrap_or_default());
    } else {
        rows.iter().for_each(|row| out::line(row.text()));
    }
    Ok(())
}

impl AdviseArgs {
    fn refuse_options(&self, what: &'static str) -> Result<(), AdviseError> {
        let given = [(self.policy.is_some(), "--policy"), (self.plot.is_some(), "--plot")];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => {
                Err(AdviseError::NotForThis { option, path: self.what.clone(), what })
            }
            None => Ok(()),
        }
    }
}

/// A number is a process, unless a file has that name. A file that begins with `{` is a summary.
fn given(what: &Path) -> Result<Given, AdviseError> {
    let number = what.to_str().and_then(|text| text.parse().ok());
    if let Some(pid) = number.filter(|_| !what.exists()) {
        return Ok(Given::Process(pid));
    }
    let mut first = [0];
    let read = File::open(what).and_then(|mut file| file.read(&mut first));
    read.map_err(|source| AdviseError::Read { path: what.to_owned(), source })?;
    let path = what.to_owned();
    Ok(if first == *b"{" { Given::Summary(path) } else { Given::Trace(path) })
}

fn of_process(pid: u32, target: f64) -> Result<Vec<Row>, AdviseError> {
    let status = lowtide_status::read(pid)?;
    let tenants = status.pagers.iter().flat_map(|pager| &pager.tenants);
    let row = |tenant: &lowtide_status::TenantStatus| {
        let curve = tenant.curve.clone()?;
        Some(Row::new((pid, &status.program, &tenant.path), target, curve))
    };
    let rows: Vec<Row> = tenants.filter_map(row).collect();
    if rows.is_empty() { Err(AdviseError::NoCurve { pid }) } else { Ok(rows) }
}

fn of_summary(path: &Path, target: f64) -> Result<Vec<Row>, AdviseError> {
    let unreadable = |source| AdviseError::Read { path: path.to_owned(), source };
    let file = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(file.lines()) {
        let summary: Summary = serde_json::from_str(&text.map_err(unreadable)?)
            .map_err(|source| AdviseError::Summary { path: path.to_owned(), line, source })?;
        for Published { glob, curve } in summary.curves {
            let of = glob.unwrap_or_default();
            rows.push(Row::new((summary.pid, &summary.program, &of), target, curve));
        }
    }
    if rows.is_empty() { Err(AdviseError::Empty { path: path.to_owned() }) } else { Ok(rows) }
}

/// As `lowtide sim trace --mrc --advise`, with the policies that one chooses among.
fn of_trace(args: &AdviseArgs, path: &Path) -> Result<(), SimError> {
    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        options: trace::Options,
    }
    let mut words: Vec<std::ffi::OsString> =
        ["trace", "--baseline", "none", "--mrc"].map(Into::into).into();
    let target = args.target.to_string();
    let policy = args.policy.as_deref().unwrap_or("mglru,tide,lru");
    words.extend(["--advise", &target, "--besides-first", "--policy", policy].map(Into::into));
    if let Some(plot) = &args.plot {
        words.extend(["--plot".into(), plot.into()]);
    }
    if args.json {
        words.extend(["--json", "-"].map(Into::into));
    }
    words.extend(["--".into(), path.into()]);
    let alone = Alone::try_parse_from(words).map_err(|error| {
        SimError::usage(error.kind().to_string(), "`lowtide list policies` has the policies")
    })?;
    trace::run(&alone.options)
}

impl Row {
    fn new(
        (pid, program, of): (u32, &str, &str),
        target: f64,
        curve: lowtide_status::Curve,
    ) -> Self {
        let Advice { bytes, ratio, first, error, thrashes_below, .. } =
            Curve::from(&curve).advice(target);
        Self {
            pid,
            program: program.to_owned(),
            of: of.to_owned(),
            target,
            bytes,
            ratio,
            first,
            error,
            thrashes_below_bytes: thrashes_below,
            curve,
        }
    }

    fn text(&self) -> impl fmt::Display {
        let curve = Curve::from(&self.curve);
        let program = printable(&self.program);
        let of = printable(&self.of);
        let of = if of.is_empty() { of } else { format!(", {of}") };
        let mut text = format!("{program} ({}){of}: {}\n", self.pid, curve.advice(self.target));
        for line in curve.to_string().lines() {
            let _ = writeln!(text, "  {line}");
        }
        text.truncate(text.trim_end().len());
        text
    }
}
