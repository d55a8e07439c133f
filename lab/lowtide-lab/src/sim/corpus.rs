//! `lowtide-lab sim corpus`: every policy on every trace of the corpus at every budget, against the
//! best of eight.
//!
//! The table has a row for each trace: the mean excess of each policy over the fewest misses of the
//! eight. Below are the mean, the largest, the number of cases above 2 %, and the distance to OPT;
//! a verdict ends it. The traces and the halves are described in `lowtide_experiments::corpus`.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::thread;

use crate::sim::options::{Output, Results};
use clap::{Args, ValueEnum};
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::show::{self, PlainMachine};
use lowtide_core::Policy;
use lowtide_experiments::corpus::{
    BEST_OF, Case, Comparison, Half, JudgeError, Judgement, Score, Subject, TOLERANCE, TRACES,
    Trace, judge,
};
use lowtide_mrc::Progress;
use lowtide_mrc::baseline::Baseline;
use lowtide_report::json::Report;
use lowtide_report::names::once;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::{interrupt, out, table};
use serde::Serialize;

/// The name on the command line.
pub(crate) const NAME: &str = "corpus";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "judge policies: their misses on a corpus of traces, against the best of eight";

const HELP: &str = "\
Half of the traces is for tuning, half is set aside; figures to report are those of the latter.

Examples: lowtide-lab sim corpus
          lowtide-lab sim corpus --half tuning --policy tide,sieve
          lowtide-lab sim corpus --scale 0.1 --points 6";

/// Progress within a trace, in parts.
const PARTS: u64 = 1000;

/// Options of `sim corpus`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Which traces: those for tuning, those set aside, or all
    #[arg(long, value_enum, value_name = "HALF", default_value = "aside")]
    half: Halves,
    /// Policies and baselines to show; eight and opt are always played [default: the eight, tide]
    #[arg(long, value_name = "P,P", value_delimiter = ',')]
    policy: Vec<Subject>,
    /// Only traces with this in their name or family
    #[arg(long, value_name = "TEXT")]
    trace: Option<String>,
    /// Size of the traces: 0.1 has a tenth of the pages and accesses
    #[arg(long, value_name = "FACTOR", value_parser = scale, default_value = "1")]
    scale: f64,
    /// Budgets of each trace, from 0.1 % of its pages (32 at least) to 80 %
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(2..=1000),
        default_value_t = 24
    )]
    points: u16,
    /// The destination of results.
    #[command(flatten)]
    results: Results,
}

/// A part of the corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Halves {
    Tuning,
    Aside,
    All,
}

impl Halves {
    fn has(self, trace: &Trace) -> bool {
        match self {
            Self::Tuning => trace.half() == Half::Tuning,
            Self::Aside => trace.half() == Half::Aside,
            Self::All => true,
        }
    }
}

fn scale(text: &str) -> Result<f64, &'static str> {
    let scale = text.parse().ok().filter(|scale| (0.001..=1.0).contains(scale));
    scale.ok_or("give a factor from 0.001 to 1, as in 0.1")
}

/// A policy on a trace at a budget.
#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    world: &'static str,
    trace: &'static str,
    family: &'static str,
    half: &'static str,
    policy: String,
    max_bytes: u64,
    accesses: u64,
    misses: Option<u64>,
    /// Misses over the fewest of the eight, less one.
    excess: Option<f64>,
    /// The fewest misses of the eight.
    best_misses: u64,
    opt_misses: u64,
}

/// The JSON beside the rows.
#[derive(Debug, Serialize)]
struct Extra {
    #[serde(flatten)]
    machine: PlainMachine,
    verdict: String,
}

/// Judges, and shows the judgement.
///
/// # Errors
/// [`SimError::Usage`] without a trace, [`SimError::Tape`], [`SimError::Interrupted`],
/// [`SimError::Output`], [`SimError::Results`].
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    options.results.check()?;
    let named = |trace: &Trace| {
        let text = options.trace.as_deref().unwrap_or("");
        trace.name.contains(text) || trace.family.contains(text)
    };
    let traces: Vec<&'static Trace> =
        TRACES.iter().filter(|trace| options.half.has(trace) && named(trace)).collect();
    if traces.is_empty() {
        return Err(SimError::usage(
            "no trace of the corpus has this name in this half",
            "choose another --trace, or --half all",
        ));
    }
    let mut subjects = once(&options.policy, ToString::to_string, out::note);
    let by_default = subjects.is_empty();
    if by_default {
        subjects.push(Subject::Engine(Policy::TIDE));
    }
    if options.results.output() != Output::Json {
        out::line(format_args!(
            "corpus    {} traces, {} budgets each; excess over the fewest misses of {}\nmachine   \
             {}\n",
            traces.len(),
            options.points,
            BEST_OF.join(", "),
            show::plain_machine()
        ));
    }
    let bar = Mutex::new(Patient::new("traces", Unit::Steps, traces.len() as u64 * PARTS));
    let progress = |done: usize, p: Progress| {
        if let Ok(mut bar) = bar.try_lock() {
            bar.set(done as u64 * PARTS + p.done * PARTS / p.total.max(1));
        }
    };
    let judgement = judge(
        &traces,
        &subjects,
        &Comparison {
            scale: options.scale,
            points: options.points.into(),
            threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            stop: interrupt::flag(),
            progress: &progress,
        },
    );
    drop(bar);
    let judgement = judgement.map_err(|error| match error {
        JudgeError::Cancelled => {
            interrupt::Interrupted { during: "while playing the corpus".into() }.into()
        }
        error => SimError::Tape(error.to_string()),
    })?;
    let shown: Vec<usize> = (0..judgement.subjects.len())
        .filter(|&i| {
            let name = &judgement.subjects[i];
            by_default && name != Baseline::Opt.name()
                || subjects.iter().any(|subject| subject.to_string() == *name)
        })
        .collect();
    show(options, &judgement, &shown, &traces)
}

fn show(
    options: &Options,
    judgement: &Judgement,
    shown: &[usize],
    traces: &[&'static Trace],
) -> Result<(), SimError> {
    let verdict = verdict(judgement, shown);
    let rows = judgement.cases.iter().flat_map(|case| shown.iter().map(move |&i| (case, i)));
    let rows = rows.map(|(case, i)| row(case, i, &judgement.subjects[i])).collect();
    let extra = Extra { machine: PlainMachine::of(show::PLAIN.page()), verdict };
    let report = Report::new(&extra, rows);
    if options.results.output() == Output::Json {
        return report.text().and_then(|text| out::all(&text)).map_err(SimError::Output);
    }
    out::line(table(judgement, shown, traces));
    out::line(&extra.verdict);
    if let Output::Both(path) = options.results.output() {
        report.write(Some(path))?;
    }
    Ok(())
}

fn row(case: &Case, subject: usize, policy: &str) -> Row {
    Row {
        workload: NAME,
        world: "sim",
        trace: case.trace.name,
        family: case.trace.family,
        half: case.trace.half().name(),
        policy: policy.to_owned(),
        max_bytes: case.pages * show::PLAIN.page(),
        accesses: case.accesses,
        misses: case.misses[subject],
        excess: case.excess(subject),
        best_misses: case.best,
        opt_misses: case.opt,
    }
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

fn table(judgement: &Judgement, shown: &[usize], traces: &[&'static Trace]) -> table::Table {
    let names = shown.iter().map(|&i| judgement.subjects[i].as_str());
    let headers: Vec<&str> = ["trace"].into_iter().chain(names).collect();
    let mut table = table::new(&headers, 1);
    let mut line = |name: &str, of: &dyn Fn(&Case) -> bool, what: &dyn Fn(&Score) -> String| {
        let case = |&i: &usize| judgement.score(i, of).map_or("-".into(), |s| what(&s));
        table.add_row([name.to_owned()].into_iter().chain(shown.iter().map(case)));
    };
    for trace in traces {
        line(trace.name, &|case| case.trace.name == trace.name, &|s| percent(s.mean));
    }
    line("all: mean", &|_| true, &|s| percent(s.mean));
    line("all: worst", &|_| true, &|s| percent(s.worst.0));
    line("all: cases above 2 %", &|_| true, &|s| format!("{} of {}", s.over, s.cases));
    line("all: misses over opt", &|_| true, &|s| percent(s.to_opt));
    table
}

/// What the corpus says about `tide` where it is played, otherwise about the policy with the least
/// mean.
fn verdict(judgement: &Judgement, shown: &[usize]) -> String {
    let score = |i: usize| judgement.score(i, |_| true);
    let name = |i: usize| judgement.subjects[i].as_str();
    let least = shown
        .iter()
        .filter(|&&i| name(i) != Baseline::Opt.name())
        .filter_map(|&i| Some((i, score(i)?)))
        .min_by(|(a, x), (b, y)| {
            (name(*a) != "tide").cmp(&(name(*b) != "tide")).then(x.mean.total_cmp(&y.mean))
        });
    let Some((subject, s)) = least else { return "verdict   no policy was played".to_owned() };
    let ahead = BEST_OF.iter().filter(|other| **other != name(subject)).all(|other| {
        let at = judgement.subjects.iter().position(|name| name == other);
        at.and_then(score).is_none_or(|other| other.mean > s.mean)
    });
    let (worst, trace, pages) = s.worst;
    format!(
        "verdict   {}: {} on average, {} than each other of the eight; above {:.0} % in {} of {} \
         cases, at worst {} ({trace}, {pages} pages)",
        name(subject),
        percent(s.mean),
        if ahead { "better" } else { "not better" },
        TOLERANCE * 100.0,
        s.over,
        s.cases,
        percent(worst),
    )
}
