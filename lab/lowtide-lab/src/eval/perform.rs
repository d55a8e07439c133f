//! One command line, performed within this process: its table is not shown, and its result is read
//! from the JSON that it writes, as any other reader of it would.
//!
//! A panic is a failure of that experiment, like any error of it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use clap::{Parser, Subcommand};
use lowtide_bench::error::BenchError;
use lowtide_bench::sim::error::SimError;
use lowtide_report::{command, interrupt, out};
use serde_json::Value;

use crate::bench::Bench;
use crate::sim::Simulation;

/// The commands that are performed.
#[derive(Debug, Parser)]
#[command(name = "lowtide-lab", disable_help_flag = true)]
struct Line {
    #[command(subcommand)]
    world: Worlds,
}

#[derive(Debug, Subcommand)]
enum Worlds {
    #[command(subcommand, args_override_self = true)]
    Bench(Bench),
    #[command(subcommand, args_override_self = true)]
    Sim(Box<Simulation>),
}

/// Why an experiment has no result.
#[derive(Debug)]
pub(super) enum Failed {
    /// Ctrl-C.
    Interrupted,
    /// Anything else, in words.
    Because(String),
}

/// Whether a command line is one that can be performed.
///
/// # Errors
/// The parser's message.
#[cfg(test)]
pub(super) fn understood(words: &[String]) -> Result<(), String> {
    parsed(words).map(drop)
}

fn parsed(words: &[String]) -> Result<Line, String> {
    Line::try_parse_from(words).map_err(|error| {
        let text = error.render().to_string();
        let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage"));
        let text: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        text.join(" ").trim_start_matches("error: ").to_owned()
    })
}

/// Performs a command line, whose result is written to `json`, and returns that.
///
/// # Errors
/// [`Failed`].
pub(super) fn perform(words: &[String], json: &Path) -> Result<Value, Failed> {
    let place = ["--json".to_owned(), json.to_string_lossy().into_owned()];
    let line = parsed(&[words, &place].concat()).map_err(Failed::Because)?;
    command::act_as(Some(words));
    out::be_quiet(true);
    let ended = catch_unwind(AssertUnwindSafe(|| match &line.world {
        Worlds::Bench(bench) => bench.run().map_err(of_bench),
        Worlds::Sim(simulation) => simulation.run().map_err(of_sim),
    }));
    out::be_quiet(false);
    command::act_as(None);
    match ended {
        Ok(result) => result?,
        Err(_) => return Err(Failed::Because("it panicked; please report the lines above".into())),
    }
    if interrupt::requested() {
        return Err(Failed::Interrupted);
    }
    let text = fs::read(json).map_err(|error| Failed::Because(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| Failed::Because(error.to_string()))
}

fn of_bench(error: BenchError) -> Failed {
    match error {
        BenchError::Interrupted(_) | BenchError::CutShort(_) => Failed::Interrupted,
        error => Failed::Because(error.to_string()),
    }
}

fn of_sim(error: SimError) -> Failed {
    match error {
        SimError::Interrupted(_) | SimError::CutShort(_) => Failed::Interrupted,
        error => Failed::Because(error.to_string()),
    }
}
