//! A program as data, and as a line of text.
//!
//! ```text
//! max=1M threshold=64K: map 0 300 rw plain; store 0 10 200 77; fork 1 2; end exit 3 / check 0 0 30
//! ```
//!
//! Before the colon are the options of `lowtide run`, and `shm=full` where there is no room in
//! `/dev/shm`; then scripts, separated by `/`. The first is played by `main`, the others by the
//! threads and children that operations begin. The text is complete: a plan is played again from it
//! alone.

use crate::catalogue;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Before the colon, of a plan without room in `/dev/shm`.
const FULL: &str = " shm=full";

/// A word of an operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// A number.
    Number(u64),
    /// A name.
    Name(String),
}

/// An operation: its name, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// What the player does.
    pub name: String,
    /// To what, and how.
    pub args: Vec<Word>,
}

impl Op {
    /// Whether an argument is this word.
    #[must_use]
    pub fn says(&self, word: &str) -> bool {
        self.args.iter().any(|arg| matches!(arg, Word::Name(name) if name == word))
    }
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The budget, in MiB.
    pub max: u64,
    /// Smaller blocks are left alone, in KiB.
    pub threshold: u64,
    /// There is no room in `/dev/shm`.
    pub is_shm_full: bool,
    /// What its threads and processes do. The first is that of `main`.
    pub scripts: Vec<Vec<Op>>,
}

/// Why a text is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// There is no colon, or what is before it is something else.
    #[error("a plan begins with `max=1M threshold=64K:`, in whole MiB and KiB")]
    Head,
    /// The player does not know it.
    #[error("`{0}` is not an operation: see the catalogue of this crate")]
    Operation(String),
}

impl Plan {
    /// All operations.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.scripts.iter().flatten()
    }

    /// Whether there is an operation of this name that has this word, if there must be one.
    #[must_use]
    pub fn has(&self, name: &str, word: Option<&str>) -> bool {
        self.ops().any(|op| op.name == name && word.is_none_or(|word| op.says(word)))
    }

    /// Whether the process may end while threads and children of it go on. What those say depends
    /// on time.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        let begins = |op: &Op| ["thread", "start"].contains(&op.name.as_str());
        self.scripts.iter().any(|script| {
            let Some(end) = script.iter().position(|op| op.name == "end") else { return false };
            let begun = script[..end].iter().rposition(begins);
            let joined = script[..end].iter().rposition(|op| op.name == "join");
            let waits = script[end].says("last");
            begun.is_some() && begun > joined && !waits
        }) || self.ops_of_threads().any(|op| op.name == "end")
    }

    /// Operations of threads that are not the first of their process.
    fn ops_of_threads(&self) -> impl Iterator<Item = &Op> {
        let numbers = self.ops().filter(|op| op.name == "thread").filter_map(|op| op.args.first());
        let scripts = numbers.filter_map(|arg| match arg {
            Word::Number(number) => self.scripts.get(usize::try_from(*number).ok()?),
            Word::Name(_) => None,
        });
        scripts.flatten()
    }

    /// What the player is given.
    #[must_use]
    pub fn scripts_text(&self) -> String {
        let script =
            |ops: &Vec<Op>| ops.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        // An empty script has a place, too.
        self.scripts
            .iter()
            .map(script)
            .map(|text| format!(" {text} "))
            .collect::<Vec<_>>()
            .join("/")
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for arg in &self.args {
            match arg {
                Word::Number(number) => write!(f, " {number}")?,
                Word::Name(name) => write!(f, " {name}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max, threshold, .. } = self;
        let shm = if self.is_shm_full { FULL } else { "" };
        write!(f, "max={max}M threshold={threshold}K{shm}:{}", self.scripts_text().trim_end())
    }
}

impl FromStr for Op {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        if !catalogue::is_known(&name) {
            return Err(PlanError::Operation(name));
        }
        let word = |text: &str| text.parse().map_or_else(|_| Word::Name(text.into()), Word::Number);
        Ok(Self { name, args: words.map(word).collect() })
    }
}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let (head, scripts) = text.split_once(':').ok_or(PlanError::Head)?;
        let value = |name: &str, unit: char| {
            let mut words = head.split_whitespace();
            let found = words.find_map(|word| word.strip_prefix(name)).ok_or(PlanError::Head)?;
            found.trim_end_matches(unit).parse().map_err(|_| PlanError::Head)
        };
        let script = |text: &str| {
            let ops = text.split(';').map(str::trim).filter(|op| !op.is_empty());
            ops.map(Op::from_str).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            max: value("max=", 'M')?,
            threshold: value("threshold=", 'K')?,
            is_shm_full: head.contains(FULL),
            scripts: scripts.split('/').map(script).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        for seed in 0..500 {
            let plan = Plan::draw(seed);
            let text = plan.to_string();
            assert_eq!(text.parse().as_ref(), Ok(&plan), "{text}");
        }
    }

    #[test]
    fn what_is_no_plan_is_refused_with_the_reason() {
        assert_eq!("map 0 1".parse::<Plan>(), Err(PlanError::Head));
        assert_eq!("max=x threshold=1K: map 0".parse::<Plan>(), Err(PlanError::Head));
        let unknown = "max=1M threshold=1K: dance 3".parse::<Plan>();
        assert_eq!(unknown, Err(PlanError::Operation("dance".into())));
    }

    #[test]
    fn a_process_that_ends_before_what_it_began_is_cut_short() {
        let is_cut = |text: &str| {
            let text = format!("max=1M threshold=64K: {text}");
            text.parse::<Plan>().expect("a plan").is_cut_short()
        };
        assert!(is_cut("thread 1; end exit 0 / check 0 0 1"));
        assert!(is_cut("thread 1 / end exit 0"));
        assert!(!is_cut("thread 1; join; end exit 0 / check 0 0 1"));
        assert!(!is_cut("fork 1; end abort 0 / check 0 0 1"));
    }
}
