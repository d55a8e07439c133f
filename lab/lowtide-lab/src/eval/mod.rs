//! `lowtide-lab eval`: every published experiment in one command, each published figure beside
//! ours, and whether it is reproduced by the written rule.
//!
//! ```text
//!   plan ──► command lines ──► perform ──► JSON ──► store: NAME.json, eval.csv, figures.csv
//!            (those of sim and bench)        │
//!                                            └──► findings: a table, and how many came out how
//! ```
//!
//! An experiment is one result: complete, or not there. So an evaluation that was ended, by Ctrl-C
//! or otherwise, goes on with the same command; what failed is tried again. A failure does not end
//! the others.
//!
//! | file | concept |
//! |---|---|
//! | `plan` | which command lines, and how long they take |
//! | `perform` | one command line, within this process |
//! | `store` | the folder of results |
//! | `figures` | published figures beside ours |
//! | `findings` | conditions of the rules: table, CSV, counts |
//! | `error` | why an evaluation is not complete |

mod error;
mod figures;
mod findings;
mod perform;
mod plan;
mod store;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use lowtide_report::verdict::CriterionRow;
use lowtide_report::{interrupt, out};
use serde_json::{Value, json};

pub(crate) use error::EvalError;
use findings::Finding;
use perform::Failed;
use plan::{Experiment, Seeds, World};
use store::Store;

/// Options of `eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// Take a quarter of an hour on two processors: smaller, shorter, fewer seeds
    #[arg(long)]
    quick: bool,
    /// Only these experiments (`--list` names them)
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Only experiments of one world: sim or real
    #[arg(long, value_name = "WORLD", value_enum, hide_possible_values = true)]
    world: Option<World>,
    /// Seeds of each experiment with random choices; the verdict is that of the median
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// More options for an experiment, as in `ycsb-b=--read-ahead 128K`
    #[arg(long, value_name = "NAME=OPTIONS", value_parser = with, allow_hyphen_values = true)]
    with: Vec<(String, String)>,
    /// Folder of the results; those that are complete are not made again
    #[arg(short, long, value_name = "DIR", default_value = "eval")]
    output: PathBuf,
    /// Show what would be played and how long that takes, and play nothing
    #[arg(long)]
    list: bool,
}

fn with(text: &str) -> Result<(String, String), &'static str> {
    let (name, options) = text.split_once('=').ok_or("give a name, =, and options")?;
    Ok((name.to_owned(), options.to_owned()))
}

/// An experiment with its command lines, one for each time that it is played.
struct Task {
    experiment: Experiment,
    lines: Vec<Vec<String>>,
    seconds: f64,
}

/// What was played, or was complete.
struct Performed {
    /// The results, in the order of the tasks.
    results: Vec<Option<Value>>,
    /// Names of those that failed, each with its reason.
    failed: Vec<String>,
}

/// How fast this machine is, compared with the one that estimates are of.
#[derive(Debug, Default)]
struct Pace {
    /// Seconds that were estimated for what is not played yet.
    left: f64,
    /// The same for what has been played, and what it took.
    estimated: f64,
    took: f64,
}

impl Pace {
    /// An estimate, corrected by what others took.
    fn here(&self, seconds: f64) -> f64 {
        if self.estimated > 0.0 { seconds * self.took / self.estimated } else { seconds }
    }

    fn note(&mut self, estimated: f64, took: f64) {
        self.left -= estimated;
        self.estimated += estimated;
        self.took += took;
    }
}

impl EvalArgs {
    /// Performs what is missing, and shows what was found.
    ///
    /// # Errors
    /// [`EvalError`]; after a failure or an interruption, what is complete is kept.
    pub(crate) fn run(&self) -> Result<(), EvalError> {
        let tasks = self.tasks()?;
        if self.list {
            self.show_plan(&tasks);
            return Ok(());
        }
        let store = Store::open(&self.output)?;
        let Performed { results, failed } = self.perform(&tasks, &store)?;
        self.show(&tasks, &results, &store)?;
        if interrupt::requested() && results.iter().any(Option::is_none) {
            return Err(EvalError::Interrupted {
                complete: results.iter().flatten().count(),
                all: tasks.len(),
                path: self.output.clone(),
            });
        }
        if failed.is_empty() { Ok(()) } else { Err(EvalError::Failed { failed, all: tasks.len() }) }
    }

    /// What is to be played.
    ///
    /// # Errors
    /// [`EvalError::Usage`] for a name that no experiment has.
    fn tasks(&self) -> Result<Vec<Task>, EvalError> {
        let names = self.only.iter().chain(self.with.iter().map(|(name, _)| name));
        for name in names {
            if !plan::ALL.iter().any(|experiment| experiment.name == name) {
                let known = plan::ALL.map(|experiment| experiment.name);
                return Err(EvalError::Usage {
                    what: format!("there is no experiment `{name}`"),
                    advice: format!("give one of {}", known.join(", ")),
                });
            }
        }
        let wanted = |experiment: &Experiment| {
            (self.only.is_empty() || self.only.iter().any(|name| name == experiment.name))
                && self.world.is_none_or(|world| world == experiment.world)
        };
        let tasks: Vec<Task> =
            plan::ALL.into_iter().filter(wanted).map(|experiment| self.task(experiment)).collect();
        if tasks.is_empty() {
            return Err(EvalError::Usage {
                what: "no experiment is left to play".into(),
                advice: "leave --only or --world out; --list shows what there is".into(),
            });
        }
        Ok(tasks)
    }

    fn task(&self, experiment: Experiment) -> Task {
        let mut words = experiment.words(self.quick);
        for (_, options) in self.with.iter().filter(|(name, _)| name == experiment.name) {
            words.extend(options.split_whitespace().map(Into::into));
        }
        let with = |more: [String; 2]| [&words[..], &more].concat();
        let lines = match (experiment.seeds, self.seeds) {
            (Seeds::Own { quick, full }, seeds) => {
                let usual = if self.quick { quick } else { full };
                vec![with(["--seeds".into(), seeds.unwrap_or(usual).to_string()])]
            }
            (Seeds::Again, Some(seeds)) => {
                (1..=seeds).map(|seed| with(["--seed".into(), seed.to_string()])).collect()
            }
            (Seeds::Again | Seeds::None, _) => vec![words.clone()],
        };
        Task { lines, seconds: experiment.seconds(self.quick, self.seeds), experiment }
    }

    fn show_plan(&self, tasks: &[Task]) {
        let (mut all, mut left) = (0.0, 0.0);
        for task in tasks {
            let name = task.experiment.name;
            let done = store::complete(&self.output, name, &task.lines).is_some();
            all += task.seconds;
            left += if done { 0.0 } else { task.seconds };
            let state = if done { "complete".into() } else { time(task.seconds) };
            out::line(format_args!("{name:<18} {state:<10} {}", task.lines[0].join(" ")));
            if task.lines.len() > 1 {
                out::line(format_args!("{:29} and {} more seeds", "", task.lines.len() - 1));
            }
        }
        out::line(format_args!(
            "\nabout {} on two processors, of which {} are left",
            time(all),
            time(left)
        ));
    }

    /// Plays what is not complete.
    ///
    /// # Errors
    /// [`EvalError::Write`] for a result that cannot be kept.
    fn perform(&self, tasks: &[Task], store: &Store) -> Result<Performed, EvalError> {
        let known = |task: &Task| store.complete(task.experiment.name, &task.lines);
        let mut results: Vec<Option<Value>> = tasks.iter().map(known).collect();
        let missing = tasks.iter().zip(&results).filter(|(_, result)| result.is_none());
        let mut pace =
            Pace { left: missing.map(|(task, _)| task.seconds).sum(), ..Pace::default() };
        let mut failed = Vec::new();
        for (number, task) in tasks.iter().enumerate() {
            let name = task.experiment.name;
            if results[number].is_some() {
                out::line(format_args!("{name:<18} was complete"));
                continue;
            }
            if interrupt::requested() {
                break;
            }
            if std::io::stderr().is_terminal() {
                let (this, all) = (pace.here(task.seconds), pace.here(pace.left));
                out::note(format_args!(
                    "{} of {}: {name}, about {}; about {} for all that is left",
                    number + 1,
                    tasks.len(),
                    time(this),
                    time(all)
                ));
            }
            let began = Instant::now();
            let played = self.play(task, store);
            store.forget_part(name);
            let seconds = began.elapsed().as_secs_f64();
            pace.note(task.seconds, seconds);
            match played {
                Ok(mut result) => {
                    result["eval"]["seconds"] = json!(seconds);
                    store.keep(name, &result)?;
                    let said = said(&findings::of(name, &result));
                    out::line(format_args!("{name:<18} {said:<22} {}", time(seconds)));
                    results[number] = Some(result);
                }
                Err(Failed::Interrupted) => break,
                Err(Failed::Because(why)) => {
                    out::line(format_args!("{name:<18} failed: {why}"));
                    failed.push(format!("{name} ({why})"));
                }
            }
        }
        Ok(Performed { results, failed })
    }

    /// Plays an experiment with all of its seeds, and makes one result of them.
    fn play(&self, task: &Task, store: &Store) -> Result<Value, Failed> {
        let experiment = &task.experiment;
        let part = store.part(experiment.name);
        let each: Vec<Value> = task
            .lines
            .iter()
            .map(|words| perform::perform(words, &part))
            .collect::<Result<_, _>>()?;
        let mut verdict = findings::over_seeds(&each);
        let open = |row: &&mut CriterionRow| !experiment.decides(&row.what, self.quick);
        verdict.iter_mut().filter(open).for_each(findings::leave_open);
        let mut rows: Vec<Value> = Vec::new();
        for (number, of_seed) in each.iter().enumerate() {
            let rows_of_seed = of_seed["rows"].as_array().into_iter().flatten();
            // What was published is the same for each seed.
            let own = |row: &&Value| number == 0 || row["system"] != "published";
            rows.extend(rows_of_seed.filter(own).cloned());
        }
        // Options of the user's may change the size.
        let is_own = self.with.iter().any(|(name, _)| name == experiment.name);
        let beside = (experiment.is_absolute(self.quick) && !is_own).then_some(&rows[..]);
        let figures = figures::beside(experiment, beside);
        let mut result = each.into_iter().next().unwrap_or_default();
        let note = match task.experiment.note(self.quick) {
            "" => String::new(),
            note => format!("Quick: {note}."),
        };
        result["rows"] = json!(rows);
        result["verdict"] = json!(verdict);
        result["figures"] = json!(figures);
        result["eval"] = json!({
            "name": experiment.name,
            "run": self.run_name(),
            "note": note,
            "of": store::fingerprint(&task.lines),
        });
        Ok(result)
    }

    const fn run_name(&self) -> &'static str {
        if self.quick { "quick" } else { "full" }
    }

    /// The table, the counts, and the files of all results together.
    fn show(
        &self,
        tasks: &[Task],
        results: &[Option<Value>],
        store: &Store,
    ) -> Result<(), EvalError> {
        let mut all: Vec<Finding> = Vec::new();
        let mut beside: Vec<(&str, Value)> = Vec::new();
        for (task, result) in tasks.iter().zip(results) {
            let name = task.experiment.name;
            match result {
                Some(result) => {
                    all.extend(findings::of(name, result));
                    let figures = result["figures"].as_array().into_iter().flatten();
                    beside.extend(figures.map(|figure| (name, figure.clone())));
                }
                None => all.push(findings::failed(name)),
            }
        }
        store.write("eval.csv", &findings::csv(&all, self.run_name()))?;
        store.write("figures.csv", &findings::figures_csv(&beside))?;
        if !all.is_empty() {
            out::line(format_args!("\n{}", findings::lines(&all)));
        }
        out::line(findings::counts(&all));
        let ours = beside.iter().filter(|(_, figure)| !figure["ours"].is_null()).count();
        let played: Vec<Experiment> = tasks.iter().map(|task| task.experiment).collect();
        out::line(format_args!(
            "{ours} of {} published figures have ours beside them; {} more were not played",
            beside.len(),
            figures::of_others(&played)
        ));
        out::line(format_args!(
            "results: {}/*.json, {}, {}\n`lowtide report {} -o report.html` draws them",
            self.output.display(),
            store.path("eval.csv").display(),
            store.path("figures.csv").display(),
            self.output.display()
        ));
        Ok(())
    }
}

/// How an experiment came out, in a few words.
fn said(found: &[Finding]) -> String {
    match found.len() {
        0 => "no rule in this world".into(),
        _ => {
            let met = found.iter().filter(|finding| finding.criterion.is_met()).count();
            let counts = |one: &&Finding| one.criterion.outcome != "not published";
            format!("{met} of {} reproduced", found.iter().filter(counts).count())
        }
    }
}

/// A time in words.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_corrected_by_what_was_played() {
        let mut pace = Pace { left: 100.0, ..Pace::default() };
        assert_eq!(pace.here(40.0), 40.0, "nothing is known yet");
        pace.note(20.0, 60.0);
        assert_eq!((pace.left, pace.here(pace.left)), (80.0, 240.0));
        assert_eq!([time(59.6), time(240.0), time(7200.0)], ["60 s", "4 min", "2.0 h"]);
    }
}
