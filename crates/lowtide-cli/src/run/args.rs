//! The options of `lowtide run`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{self, Path, PathBuf};

use clap::{Args, ValueEnum};
use lowtide::{Policy, Size};

use lowtide_run::settings::SwapTo;

/// Below this a budget is a mistake: the watcher looks at more at a time.
const LEAST_BUDGET: u64 = 1 << 20;

/// How mappings are kept within the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// userfault where the machine has it and the file cannot change, pagecache otherwise
    Auto,
    /// The kernel's own mappings, watched and trimmed
    Pagecache,
    /// Memory of lowtide's own in the place of mappings of files that do not change: exact
    Userfault,
}

/// How files share a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShareName {
    /// The policy chooses among all their pages
    Common,
    /// Each has the part with which the fewest accesses of all of them miss
    ByBenefit,
}

/// The budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    Fixed(u64),
    /// It sets itself.
    Auto,
}

/// Lower bound of a budget that sets itself, unless the upper one is less.
pub(crate) const LEAST_AUTO: u64 = 16 << 20;
/// Percent of the time that its threads may wait.
pub(crate) const STALL: f64 = 1.0;

/// The options of `lowtide run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Budget for the file mappings of the program and of all that it starts; `auto`: as little as
    /// it needs [default: 7/8 of the container's limit]
    #[arg(long, value_name = "SIZE|auto", value_parser = budget_or_auto)]
    pub(crate) max: Option<Budget>,
    /// With --max auto: lower bound of the budget [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = budget)]
    pub(crate) at_least: Option<u64>,
    /// With --max auto: upper bound of the budget [default: 7/8 of the container's limit]
    #[arg(long, value_name = "SIZE", value_parser = budget)]
    pub(crate) at_most: Option<u64>,
    /// With --max auto: percent of the time that threads may wait for dropped pages [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) stall: Option<f64>,
    /// Size from which on pages are dropped early [default: a little below --max]
    #[arg(long, value_name = "SIZE", value_parser = budget)]
    pub(crate) high: Option<u64>,
    /// Also keep large memory without a file (heap) within the budget
    #[arg(long)]
    pub(crate) anon: bool,
    /// Also keep the page cache of large files that the program reads within the budget
    #[arg(long)]
    pub(crate) read: bool,
    /// Where memory without a file goes: 0 (nowhere), a size, a directory [default: compressed]
    #[arg(long, value_name = "SIZE|DIR", value_parser = swap)]
    pub(crate) swap: Option<SwapTo>,
    /// Allow the program to use io_uring(7), provided that no read of it bypasses the page cache
    #[arg(long, requires = "anon")]
    pub(crate) allow_io_uring: bool,
    /// Reclaim policy (see `lowtide list policies`)
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<Policy>,
    /// How mappings of files are kept within the budget [default: auto]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeName>,
    /// Separate budget for files whose name or path matches GLOB (repeatable; first match wins)
    #[arg(long, value_name = "GLOB=SIZE", value_parser = map, action = clap::ArgAction::Append)]
    pub(crate) map: Vec<(OsString, u64)>,
    /// How the files of one budget share it [default: common]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) share: Option<ShareName>,
    /// Leave smaller mappings to the kernel [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) threshold: Option<u64>,
    /// Keep the kernel's read-ahead as it is, instead of reading ahead within the budget
    #[arg(long)]
    pub(crate) keep_read_ahead: bool,
    /// Write the summary to this file instead of standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,
    /// Write the summary as JSON, a line for each process
    #[arg(long)]
    pub(crate) json: bool,
    /// Say in the summary how large the budget should be [without --max: that of the container, or
    /// 7/8 of the machine's memory]
    #[arg(long)]
    pub(crate) advise: bool,
    /// Record a sample of the accesses in this file, for `lowtide advise`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Serve metrics of Prometheus at this address; a port alone means this machine only
    #[arg(long, value_name = "ADDR", value_parser = lowtide_watch::address::parse)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Write metrics to this file, for the textfile collector of node_exporter
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// Seconds between two writes of --metrics-file [default: 15]
    #[arg(long, value_name = "S", requires = "metrics_file",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) metrics_interval: Option<u64>,
    /// Do not apply to programs that the program starts
    #[arg(long)]
    pub(crate) no_follow: bool,
    /// Give each process its own budget, as --anon does
    #[arg(long)]
    pub(crate) per_process: bool,
    /// Start the program even if some or all of its memory cannot be kept within the budget
    #[arg(long)]
    pub(crate) force: bool,
    /// The program and its arguments
    // No `allow_hyphen_values`: what begins with a hyphen before the program is an option.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

fn size(text: &str) -> Result<u64, String> {
    let exact = text.parse::<Size>().map(Size::bytes);
    exact.or_else(|error| rounded(text).ok_or_else(|| error.to_string()))
}

/// A size that is not a whole number of bytes, such as `1.2G`: the whole pages in it. Limits of
/// memory are rounded so by the kernel too.
fn rounded(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let number =
        number.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)?;
    let unit: Size = format!("1{unit}").parse().ok()?;
    Some((number * unit.bytes() as f64 / 4096.0) as u64 * 4096)
}

fn budget(text: &str) -> Result<u64, String> {
    match size(text)? {
        u64::MAX => Err("this is no budget; give a size such as 1G".into()),
        bytes if bytes < LEAST_BUDGET => Err("the smallest budget is 1M".into()),
        bytes => Ok(bytes),
    }
}

fn budget_or_auto(text: &str) -> Result<Budget, String> {
    if text == "auto" { Ok(Budget::Auto) } else { budget(text).map(Budget::Fixed) }
}

fn percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    let allowed = number.filter(|percent| (0.0001..=100.0).contains(percent));
    allowed.ok_or_else(|| "give a percentage from 0.0001 to 100, such as 1".into())
}

/// A size, or a directory; what is both is a size.
fn swap(text: &str) -> Result<SwapTo, String> {
    match size(text) {
        Ok(0) => Ok(SwapTo::Nowhere),
        Ok(u64::MAX) => Ok(SwapTo::Compressed),
        Ok(bytes) => Ok(SwapTo::Bytes(bytes)),
        Err(_) if Path::new(text).is_dir() => {
            let whole = path::absolute(text).map_err(|error| error.to_string())?;
            Ok(SwapTo::Directory(whole))
        }
        Err(_) => Err("give 0, a size such as 1G, or an existing directory for a swap file".into()),
    }
}

/// `GLOB=SIZE`. A glob may contain `=`: the last one counts.
fn map(text: &str) -> Result<(OsString, u64), String> {
    let (glob, bytes) = text.rsplit_once('=').ok_or("give GLOB=SIZE, such as '*.idx=256M'")?;
    if glob.is_empty() || glob.contains('\n') {
        return Err("give GLOB=SIZE with a glob of one line, such as '*.idx=256M'".into());
    }
    Ok((glob.into(), budget(bytes)?))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        run: RunArgs,
    }

    fn parsed(args: &[&str]) -> Result<Vec<OsString>, ErrorKind> {
        let parsed = Alone::try_parse_from([&["run"], args].concat());
        parsed.map(|alone| alone.run.command).map_err(|error| error.kind())
    }

    #[test]
    fn what_begins_with_a_hyphen_before_the_program_is_an_option() {
        for wrong in [&["--wat", "--", "true"][..], &["--wat"], &["-w", "true"]] {
            assert_eq!(parsed(wrong), Err(ErrorKind::UnknownArgument), "{wrong:?}");
        }
        let words = |all: &[&str]| Ok(all.iter().map(OsString::from).collect());
        for (given, program) in [
            (
                &["--max", "1G", "ls", "--wat", "-x", "--max=1"][..],
                &["ls", "--wat", "-x", "--max=1"][..],
            ),
            (&["--", "ls", "--", "-x"], &["ls", "--", "-x"]),
            (&["ls", "--", "-x"], &["ls", "--", "-x"]),
            (&["--", "--wat", "x"], &["--wat", "x"]),
            (&["-", "-x"], &["-", "-x"]),
        ] {
            assert_eq!(parsed(given), words(program), "{given:?}");
        }
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
        assert_eq!(budget_or_auto("auto"), Ok(Budget::Auto));
        assert_eq!(budget_or_auto("2M"), Ok(Budget::Fixed(2 << 20)));
        assert!(budget_or_auto("Auto").is_err() && budget_or_auto("1K").is_err());
        assert_eq!((percent("1"), percent("0.5%")), (Ok(1.0), Ok(0.5)));
        for wrong in ["0", "101", "-1", "nan", "x", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn swap_is_a_size_or_a_directory() {
        assert_eq!(swap("0"), Ok(SwapTo::Nowhere));
        assert_eq!(swap("1G"), Ok(SwapTo::Bytes(1 << 30)));
        assert_eq!(swap("/"), Ok(SwapTo::Directory("/".into())));
        assert!(swap("/no/such/directory").is_err_and(|why| why.contains("directory")));
    }

    #[test]
    fn a_map_is_a_glob_and_a_size() {
        assert_eq!(map("*.idx=256M"), Ok(("*.idx".into(), 256 << 20)));
        assert_eq!(map("/a=b/*=1G"), Ok(("/a=b/*".into(), 1 << 30)));
        for wrong in ["*.idx", "=1G", "x=", "x=1K", "x=max", "a\nb=1G"] {
            assert!(map(wrong).is_err(), "{wrong}");
        }
    }
}
