//! The options of `lowtide run`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lowtide::Policy;

use super::budget::{Budget, budget, budget_or_auto, percent, size};

/// How mappings are kept within the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// userfault where the machine has it and the file cannot change, unless that is read in order
    /// for long; pagecache otherwise
    Auto,
    /// The kernel's own mappings, watched and trimmed
    Pagecache,
    /// Memory of lowtide's own in the place of mappings of files that do not change: exact
    Userfault,
    /// auto, but each mapping changes its mode all the time: for proofs
    #[value(hide = true)]
    Restless,
}

/// How files share a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShareName {
    /// The policy chooses among all their pages
    Common,
    /// Each has the part with which the fewest accesses of all of them miss
    ByBenefit,
}

/// The options of `lowtide run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Budget for the file mappings of the program and of all that it starts; `auto`: as little as
    /// it needs [default: auto]
    // A sign is for the parser of sizes to refuse, not for that of options.
    #[arg(
        long,
        value_name = "SIZE|auto",
        value_parser = budget_or_auto,
        allow_hyphen_values = true
    )]
    pub(crate) max: Option<Budget>,
    /// With --max auto: lower bound of the budget [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = budget, allow_hyphen_values = true)]
    pub(crate) at_least: Option<u64>,
    /// With --max auto: upper bound of the budget [default: 7/8 of the memory that is available, or
    /// of the container's limit, if that is less]
    #[arg(long, value_name = "SIZE", value_parser = budget, allow_hyphen_values = true)]
    pub(crate) at_most: Option<u64>,
    /// With --max auto: percent of the time that threads may wait for dropped pages [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    pub(crate) stall: Option<f64>,
    /// Size from which on pages are dropped early [default: a little below --max]
    #[arg(long, value_name = "SIZE", value_parser = budget, allow_hyphen_values = true)]
    pub(crate) high: Option<u64>,
    /// Gone: the error says what keeps a heap within a budget
    #[arg(long, hide = true)]
    pub(crate) anon: bool,
    /// Also keep the page cache of large files that the program reads or writes within the budget
    #[arg(long, alias = "read")]
    pub(crate) files: bool,
    /// Gone with --anon
    #[arg(long, hide = true, value_name = "SIZE|DIR")]
    pub(crate) swap: Option<OsString>,
    /// Gone with --anon
    #[arg(long, hide = true)]
    pub(crate) allow_io_uring: bool,
    /// Reclaim policy (see `lowtide list policies`)
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<Policy>,
    /// How mappings of files are kept within the budget [default: auto]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeName>,
    /// Separate budget for files whose name or path matches GLOB (repeatable; first match wins)
    #[arg(long, value_name = "GLOB=SIZE", value_parser = map, action = clap::ArgAction::Append,
        allow_hyphen_values = true)]
    pub(crate) map: Vec<(OsString, u64)>,
    /// How the files of one budget share it [default: common]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) share: Option<ShareName>,
    /// Leave smaller mappings to the kernel [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
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
    /// Say in the summary how large the budget should be
    #[arg(long)]
    pub(crate) advise: bool,
    /// Record a sample of the accesses in this file, for `lowtide advise`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Begin with the pages that the program had when it ended; this file has the list of them
    #[arg(long, value_name = "FILE")]
    pub(crate) warm: Option<PathBuf>,
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
    /// Give each process its own budget
    #[arg(long)]
    pub(crate) per_process: bool,
    /// Start the program even if some or all of its memory cannot be kept within the budget
    #[arg(long)]
    pub(crate) force: bool,
    /// The program and its arguments; `--` before it may be left out
    // No `allow_hyphen_values`: what begins with a hyphen before the program is an option.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", num_args = 1..)]
    pub(crate) command: Vec<OsString>,
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
    fn a_size_that_makes_no_sense_is_refused_before_the_program_starts() {
        for option in ["--max", "--at-least", "--at-most", "--high", "--threshold", "--stall"] {
            for wrong in ["lots", "-5", "-5M", "-1.5G", ""] {
                let refused = parsed(&[option, wrong, "true"]);
                assert_eq!(refused, Err(ErrorKind::ValueValidation), "{option} {wrong}");
            }
        }
        for wrong in ["50%", "max", "4096", "1T", "100T"] {
            let refused = parsed(&["--max", wrong, "true"]);
            assert_eq!(refused, Err(ErrorKind::ValueValidation), "{wrong}");
        }
    }

    #[test]
    fn what_a_message_suggests_is_accepted() {
        type Parse = fn(&str) -> Result<(), String>;
        let parsers: [(&str, Parse); 4] = [
            ("--max", |text| budget_or_auto(text).map(drop)),
            ("--threshold", |text| size(text).map(drop)),
            ("--stall", |text| percent(text).map(drop)),
            ("--map", |text| map(text).map(drop)),
        ];
        for (option, parse) in parsers {
            for wrong in ["x", "", "-5", "0", "max", "1K", "*=1K", "*=max", "9999T", "*=9999T"] {
                let Err(message) = parse(wrong) else { continue };
                // Values in it have digits, and follow these words.
                let suggested = message.rsplit_once("such as ").map_or("", |(_, values)| values);
                for value in suggested.split([',', ' ']).filter(|value| !value.is_empty()) {
                    let value = value.trim_matches(['`', '\'']);
                    let is_word = ["or"].contains(&value);
                    // Of `--map` it may be the part behind the glob.
                    let is_accepted =
                        parse(value).or_else(|_| parse(&format!("*={value}"))).is_ok();
                    assert!(is_word || is_accepted, "{option}: {value} of: {message}");
                }
            }
        }
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
    fn a_map_is_a_glob_and_a_size() {
        assert_eq!(map("*.idx=256M"), Ok(("*.idx".into(), 256 << 20)));
        assert_eq!(map("/a=b/*=1G"), Ok(("/a=b/*".into(), 1 << 30)));
        for wrong in ["*.idx", "=1G", "x=", "x=1K", "x=max", "a\nb=1G"] {
            assert!(map(wrong).is_err(), "{wrong}");
        }
    }
}
