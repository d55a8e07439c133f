//! The arguments of the public reproducer, as its author writes them:
//!
//! ```text
//! file_anon_mix_pressure FILE 14g 8g 96 96 120000 1
//!                             │   │  │  │  │      └─ pause between rounds in seconds [1]
//!                             │   │  │  │  └─ pause of a reader between two passes, in µs
//!                             │   │  │  └─ processes that read the file
//!                             │   │  └─ threads that fill the memory
//!                             │   └─ size of the file
//!                             └─ size of the memory
//! ```
//!
//! The simulated file has no name, so `FILE` is left out. Two sets of arguments were published with
//! their outcomes and have names. Source: `docs/kernel/workloads.md` §3(b).

use std::str::FromStr;

use lowtide::{Size, SizeError};
use lowtide_experiments::client::mix::{MixConfig, Posting};
use thiserror::Error;

/// The largest number of threads or processes.
const TASKS_MAX: u32 = 4096;
/// The longest pause: an hour.
const PAUSE_MAX_US: u64 = 3_600_000_000;

/// The reproducer's arguments, and the budget that belongs to it, at full size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reproducer {
    /// What they mean.
    pub(crate) config: MixConfig,
    /// Bytes of the budget, if none is given.
    pub(crate) max: u64,
}

/// Arguments that the reproducer would not accept.
#[derive(Debug, Error, PartialEq)]
pub(crate) enum ArgumentsError {
    /// Too few or too many words.
    #[error(
        "there are {found} arguments; give ANON FILE THREADS READERS PAUSE_US [ROUND_PAUSE_S] \
         without the file's name, such as \"14g 8g 96 96 120000\", or a name: v2, v3"
    )]
    Count {
        /// How many there are.
        found: usize,
    },
    /// A size that cannot be read.
    #[error("the size of the {what}: {source}; the name of the file is left out")]
    Size {
        /// `memory` or `file`.
        what: &'static str,
        source: SizeError,
    },
    /// Nothing, or everything.
    #[error("the size of the {what} is `{word}`; give a number of bytes, such as 8g")]
    Bounds {
        /// `memory` or `file`.
        what: &'static str,
        word: String,
    },
    /// A number that cannot be read, or outside its range.
    #[error("{what} is `{word}`; give a whole number from {least} to {most}")]
    Number {
        /// What it counts.
        what: &'static str,
        word: String,
        /// The smallest number.
        least: u64,
        /// The largest number.
        most: u64,
    },
}

impl From<Posting> for Reproducer {
    fn from(posting: Posting) -> Self {
        Self { config: posting.config(), max: posting.max() }
    }
}

impl FromStr for Reproducer {
    type Err = ArgumentsError;

    fn from_str(text: &str) -> Result<Self, ArgumentsError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (&[anon, file, threads, readers, pause], between) = (match words[..] {
            ["v2"] => return Ok(Posting::V2.into()),
            ["v3"] => return Ok(Posting::V3.into()),
            [ref five @ .., between] if five.len() == 5 => (five, between),
            ref five => (five, "1"),
        }) else {
            return Err(ArgumentsError::Count { found: words.len() });
        };
        let tasks = |what, word| number(what, word, 1, TASKS_MAX.into()).map(|tasks| tasks as u32);
        let config = MixConfig {
            anon: size("memory", anon)?,
            file: size("file", file)?,
            threads: tasks("the number of threads", threads)?,
            readers: tasks("the number of readers", readers)?,
            pause_ns: number("the readers' pause in µs", pause, 0, PAUSE_MAX_US)? * 1_000,
            between_ns: number("the pause between rounds in s", between, 0, 3_600)? * 1_000_000_000,
            ..MixConfig::published()
        };
        Ok(Self { config, max: MixConfig::MAX })
    }
}

fn size(what: &'static str, word: &str) -> Result<u64, ArgumentsError> {
    let size: Size = word.parse().map_err(|source| ArgumentsError::Size { what, source })?;
    if size.is_max() || size.bytes() == 0 {
        return Err(ArgumentsError::Bounds { what, word: word.to_owned() });
    }
    Ok(size.bytes())
}

fn number(what: &'static str, word: &str, least: u64, most: u64) -> Result<u64, ArgumentsError> {
    let value = word.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| ArgumentsError::Number { what, word: word.to_owned(), least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_the_public_reproducer() {
        let read = |text: &str| text.parse::<Reproducer>();
        assert_eq!(read("14g 8g 96 96 120000"), Ok(Posting::V3.into()));
        assert_eq!(read(" 14G 8G 96 96 120000  1 "), read("v3"));
        let older = read("44g 8g 96 96 120000").unwrap();
        assert_eq!((older.config, older.max), (read("v2").unwrap().config, MixConfig::MAX));
        let other = read("512m 1g 2 3 0 5").unwrap().config;
        assert_eq!((other.anon, other.file), (512 << 20, 1 << 30));
        assert_eq!((other.threads, other.readers), (2, 3));
        assert_eq!((other.pause_ns, other.between_ns), (0, 5_000_000_000));
    }

    #[test]
    fn a_wrong_argument_is_named() {
        for (text, says) in [
            ("", "0 arguments"),
            ("14g 8g 96 96", "4 arguments"),
            ("/mnt/file 14g 8g 96 96 120000 1", "without the file's name"),
            ("v1", "1 arguments"),
            ("14q 8g 96 96 120000", "the memory"),
            ("14g max 96 96 120000", "the file is `max`"),
            ("0k 8g 96 96 120000", "the memory is `0k`"),
            ("14g 8g 0 96 120000", "threads is `0`"),
            ("14g 8g 96 4097 120000", "readers is `4097`"),
            ("14g 8g 96 96 -1", "µs is `-1`"),
            ("14g 8g 96 96 120000 1.5", "in s is `1.5`"),
        ] {
            let error = text.parse::<Reproducer>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
