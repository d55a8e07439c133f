//! The budget: what the command line may say, and what is meant where it says nothing.
//!
//! | given | the budget |
//! |---|---|
//! | `--max SIZE` | this size |
//! | `--max auto`, or no `--max` | sets itself, from `--at-least` to `--at-most` |
//! | no `--at-most` | seven eighths of what there is |
//!
//! *What there is* is the memory that the machine has available, or the limit of the container, if
//! that is less. The last eighth is for the memory of the program that is no page of a file. No
//! other place decides what a missing limit means.

use lowtide::Size;
use lowtide_host::{memcg, usage};
use lowtide_run::settings::Auto;
use lowtide_sys::memcg::part_for_pages;

use super::args::RunArgs;
use super::error::RunError;

/// Below this a budget is a mistake: the watcher looks at more at a time.
const LEAST_BUDGET: u64 = 1 << 20;
/// A pager has fewer frames than this has pages of 4 KiB.
const BUDGET_END: u64 = 1 << 40;
/// Lower bound of a budget that sets itself, unless the upper one is less.
const LEAST_AUTO: u64 = 16 << 20;
/// Percent of the time that its threads may wait.
const STALL: f64 = 1.0;

/// What `--max` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    Fixed(u64),
    /// It sets itself.
    Auto,
}

/// What the library gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decided {
    /// The budget, or its upper bound.
    pub(super) max: u64,
    /// How it sets itself below that, if it does.
    pub(super) auto: Option<Auto>,
    /// Where the upper bound is from, in words, if the user has not given it.
    pub(super) bound: Option<String>,
}

/// A number of bytes. One that is not whole, such as `1.2G`, is rounded to whole pages, as the
/// kernel rounds limits of memory.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let exact = text.parse::<Size>().map(Size::bytes);
    exact.or_else(|error| rounded(text).ok_or_else(|| error.to_string()))
}

fn rounded(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let number =
        number.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)?;
    let unit: Size = format!("1{unit}").parse().ok()?;
    Some((number * unit.bytes() as f64 / 4096.0) as u64 * 4096)
}

pub(super) fn budget(text: &str) -> Result<u64, String> {
    let exact = size(text).map_err(|_| "a budget is a number with a unit, such as 64M or 1.5G")?;
    match exact {
        u64::MAX => Err("this is no budget; give a size such as 1G".into()),
        bytes if bytes < LEAST_BUDGET => Err("the smallest budget is 1M".into()),
        bytes if bytes >= BUDGET_END => Err("a budget is below 1T".into()),
        bytes => Ok(bytes),
    }
}

pub(super) fn budget_or_auto(text: &str) -> Result<Budget, String> {
    if text == "auto" { Ok(Budget::Auto) } else { budget(text).map(Budget::Fixed) }
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    let allowed = number.filter(|percent| (0.0001..=100.0).contains(percent));
    allowed.ok_or_else(|| "give a percentage from 0.0001 to 100, such as 1".into())
}

/// What the options mean on this machine.
pub(super) fn decide(args: &RunArgs) -> Result<Decided, RunError> {
    let decided = match args.max {
        Some(Budget::Fixed(max)) => fixed(args, max)?,
        None | Some(Budget::Auto) => {
            auto(args, usage::memory_available(), memcg::own_limit_or_high())?
        }
    };
    let globs = args.map.iter().map(|(_, bytes)| *bytes);
    let together = globs.fold(decided.max, u64::saturating_add);
    if together >= BUDGET_END {
        return Err(RunError::TooMuch { bytes: together });
    }
    Ok(decided)
}

fn fixed(args: &RunArgs, max: u64) -> Result<Decided, RunError> {
    let bounds = [
        (args.at_least.is_some(), "--at-least"),
        (args.at_most.is_some(), "--at-most"),
        (args.stall.is_some(), "--stall"),
    ];
    if let Some((_, option)) = bounds.into_iter().find(|(is_set, _)| *is_set) {
        return Err(RunError::NotAuto { option });
    }
    match args.high {
        Some(high) if high > max => Err(RunError::HighAboveMax { high, max }),
        _ => Ok(Decided { max, auto: None, bound: None }),
    }
}

/// A budget that sets itself, where this much memory is available, and this is the limit of the
/// container.
fn auto(args: &RunArgs, available: u64, limit: Option<u64>) -> Result<Decided, RunError> {
    if args.high.is_some() {
        return Err(RunError::AutoHigh);
    }
    let of_all = || part_of_all(available, limit);
    let (most, bound) = args.at_most.map_or_else(of_all, |most| (most, None));
    if let Some(least) = args.at_least.filter(|least| *least > most) {
        return Err(RunError::LeastAboveMost { least, most });
    }
    let least = args.at_least.unwrap_or(LEAST_AUTO).min(most);
    let stall = (args.stall.unwrap_or(STALL) * 1e4).round() as u32;
    Ok(Decided { max: most, auto: Some(Auto { least, stall }), bound })
}

/// The upper bound where none is given, and where it is from.
fn part_of_all(available: u64, limit: Option<u64>) -> (u64, Option<String>) {
    let (all, what) = match limit.filter(|limit| *limit <= available) {
        Some(limit) => (limit, "that its memory cgroup allows"),
        None => (available, "of memory that were available"),
    };
    // Each budget of `--map` comes in addition.
    let most = part_for_pages(all).clamp(LEAST_BUDGET, BUDGET_END / 2);
    (most, Some(format!("7/8 of {} {what}", Size::new(all).short())))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const GIB: u64 = 1 << 30;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        run: RunArgs,
    }

    fn args(options: &[&str]) -> RunArgs {
        Alone::try_parse_from([&["run"], options, &["true"]].concat()).expect("options").run
    }

    #[test]
    fn a_missing_limit_means_the_same_whatever_is_missing() {
        let of = |options: &[&str]| auto(&args(options), 16 * GIB, None).expect("a budget");
        let nothing = of(&[]);
        assert_eq!(nothing.max, 14 * GIB);
        assert_eq!(nothing.auto, Some(Auto { least: 16 << 20, stall: 10_000 }));
        assert_eq!(nothing.bound.as_deref(), Some("7/8 of 16G of memory that were available"));
        for options in [&["--max", "auto"][..], &["--advise"], &["--advise", "--max", "auto"]] {
            assert_eq!(of(options), nothing, "{options:?}");
        }
        // The command line reaches this rule in all of these cases, and in no other.
        for options in [&[][..], &["--max", "auto"], &["--advise"], &["--stall", "2"]] {
            let decided = decide(&args(options)).expect("a budget");
            assert!(decided.auto.is_some() && decided.bound.is_some(), "{options:?}");
            assert!((LEAST_BUDGET..BUDGET_END).contains(&decided.max), "{options:?}");
        }
        let given = decide(&args(&["--at-most", "8M"])).expect("a budget");
        let least = Auto { least: 8 << 20, stall: 10_000 };
        assert_eq!(given, Decided { max: 8 << 20, auto: Some(least), bound: None });
        let given = decide(&args(&["--max", "2M", "--advise"])).expect("a budget");
        assert_eq!(given, Decided { max: 2 << 20, auto: None, bound: None });
    }

    #[test]
    fn the_smaller_of_what_is_available_and_what_is_allowed_counts() {
        for (available, limit, says) in
            [(16, 8, "7/8 of 8G that its memory cgroup allows"), (8, 16, "7/8 of 8G of memory")]
        {
            let (most, bound) = part_of_all(available * GIB, Some(limit * GIB));
            assert_eq!(most, 7 * GIB);
            assert!(bound.is_some_and(|bound| bound.starts_with(says)), "{says}");
        }
        // Also where there is next to nothing, or more than a pager can have.
        assert_eq!(part_of_all(0, None).0, LEAST_BUDGET);
        assert!(part_of_all(u64::MAX, None).0 < BUDGET_END);
    }

    #[test]
    fn budgets_that_are_too_large_together_are_refused() {
        let together = args(&["--max", "900G", "--map", "*.a=900G"]);
        assert!(matches!(decide(&together), Err(RunError::TooMuch { .. })));
        assert!(decide(&args(&["--max", "900G", "--map", "*.a=90G"])).is_ok());
    }

    #[test]
    fn sizes_are_whole_pages_if_they_are_not_whole_bytes() {
        assert_eq!(size("1.2G"), Ok(314_572 * 4096));
        assert_eq!(size("100"), Ok(100));
        for wrong in ["-1.2G", "1.2X", "G", "1.2.3G", "", "nanG", "infG"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_budget_is_a_size_or_sets_itself() {
        assert_eq!(budget("1.5G"), Ok(3 << 29));
        assert_eq!(budget_or_auto("auto"), Ok(Budget::Auto));
        assert_eq!(budget_or_auto("2M"), Ok(Budget::Fixed(2 << 20)));
        assert!(budget_or_auto("Auto").is_err() && budget_or_auto("1K").is_err());
        assert_eq!((percent("1"), percent("0.5%")), (Ok(1.0), Ok(0.5)));
        for wrong in ["0", "101", "-1", "nan", "x", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
