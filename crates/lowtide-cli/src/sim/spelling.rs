//! Older spellings of `lowtide sim`, without subcommands, for scripts that use them.
//!
//! | written | means |
//! |---|---|
//! | `sim --trace FILE ...` | `sim trace FILE ...` |
//! | `sim --swarm N ...` | `sim swarm N ...` |
//! | `sim --swarm-plan PLAN` | `sim swarm --plan PLAN` |
//! | `sim --swarm-canary BUG ...` | `sim swarm --canary BUG ...` |
//! | `sim --corpus ...` | `sim corpus ...` |
//! | `sim --seed 1 zipf` | `sim zipf --seed 1` |
//! | `sim YCSB_B` | `sim ycsb-b` |
//!
//! `random-read`, `scan` and `replay` are aliases of subcommands, which clap knows.

use std::ffi::OsString;

use super::Simulation;

/// Options that have become subcommands: the option, and its current spelling.
const MODES: [(&str, &[&str]); 3] =
    [("--trace", &["trace"]), ("--swarm", &["swarm"]), ("--swarm-plan", &["swarm", "--plan"])];

/// The command line in its current spelling.
pub(crate) fn current(mut line: Vec<OsString>) -> Vec<OsString> {
    if line.get(1).is_some_and(|command| command == "sim") && line.len() > 2 {
        let rest = line.split_off(2);
        line.extend(of_sim(rest));
    }
    line
}

fn of_sim(mut rest: Vec<OsString>) -> Vec<OsString> {
    if !rest[0].as_encoded_bytes().starts_with(b"-") {
        if let Some(name) = rest[0].to_str() {
            rest[0] = name.to_ascii_lowercase().replace('_', "-").into();
        }
        return rest;
    }
    // Before the modes, because a corpus has a --trace of its own.
    if let Some(at) = rest.iter().position(|option| option == "--corpus") {
        rest[at] = "corpus".into();
        rest[..=at].rotate_right(1);
        return rest;
    }
    for (option, now) in MODES {
        if let Some(value) = take(&mut rest, option) {
            for argument in &mut rest {
                if argument == "--swarm-canary" {
                    *argument = "--canary".into();
                }
            }
            let start = now.iter().map(|&word| OsString::from(word)).chain(value);
            return start.chain(rest).collect();
        }
    }
    let names = Simulation::commands();
    if let Some(at) = rest.iter().position(|name| names.find_subcommand(name).is_some()) {
        rest[..=at].rotate_right(1);
    }
    rest
}

/// Removes an option and its value from the line: `Some(None)` for an option at the end.
fn take(rest: &mut Vec<OsString>, option: &str) -> Option<Option<OsString>> {
    for at in 0..rest.len() {
        if rest[at] == option {
            rest.remove(at);
            return Some((at < rest.len()).then(|| rest.remove(at)));
        }
        let joined = rest[at].to_str().and_then(|text| text.strip_prefix(option));
        if let Some(value) = joined.and_then(|value| value.strip_prefix('=')) {
            let value = OsString::from(value);
            rest.remove(at);
            return Some(Some(value));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_spellings_are_what_they_were() {
        for (written, meant) in [
            ("sim --trace t.csv --max 1M", "sim trace t.csv --max 1M"),
            ("sim --max 1M --trace=t.csv", "sim trace t.csv --max 1M"),
            ("sim --trace", "sim trace"),
            ("sim --swarm 9 --swarm-canary x --seed 1", "sim swarm 9 --canary x --seed 1"),
            ("sim --swarm-plan seed=7;cpus=2", "sim swarm --plan seed=7;cpus=2"),
            ("sim --corpus --half all", "sim corpus --half all"),
            ("sim --trace x --corpus", "sim corpus --trace x"),
            ("sim --seed 1 zipf --ops 5", "sim zipf --seed 1 --ops 5"),
            ("sim YCSB_B --json", "sim ycsb-b --json"),
            ("sim zipf --trace t.csv", "sim zipf --trace t.csv"),
            ("sim --help", "sim --help"),
            ("bench replay --trace t.csv", "bench replay --trace t.csv"),
            ("sim", "sim"),
        ] {
            let line = |text: &str| -> Vec<OsString> {
                format!("lowtide {text}").split(' ').map(OsString::from).collect()
            };
            assert_eq!(current(line(written)), line(meant), "{written}");
        }
    }
}
