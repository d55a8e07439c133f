//! A ground-truth case: one line of parameters for the sequence and its memory.
//!
//! The line is `kind=NAME` and further `key=value` pairs, separated by spaces, for example
//! `kind=zipf s=0.99 F=65536 N=600000 mem=16384 seed=1`:
//!
//! | key | means | needed by | default |
//! |---|---|---|---|
//! | `kind` | `zipf`, `uniform`, `loop`, `mix`, `twotouch`, `anonfile` | all | |
//! | `F`, `N` | pages of the file, accesses | all | |
//! | `seed` | state of the generator before the first draw | | 1 |
//! | `s`, `as` | Zipf exponent of the file, of the heap | | 0.99 |
//! | `wf`, `awf` | percent of writes to the file, to the heap | | 0 |
//! | `phases` | phases of `zipf` | | 1 |
//! | `H` | pages of the hot part | `mix`, `twotouch` | |
//! | `scan` | percent of scan steps | `mix` | |
//! | `D` | distance of the second touch, in steps of four accesses | `twotouch` | |
//! | `A`, `anonpct` | pages of the heap, percent of accesses to it | `anonfile` | |
//! | `io` | `mmap` (loads and stores) or `prw` (whole pages through the descriptor) | | `mmap` |
//! | `mem`, `high` | `memory.max`, `memory.high`, in pages | | none |
//! | `low_a` | the first worker's `memory.low`, in pages | | none |
//! | `swap` | `nvme` or `zram` | | none |
//! | `swappiness` | 0 to 200 | | 60 |

use std::collections::BTreeMap;
use std::str::FromStr;

use lowtide_workload::op::{Access, PageOp, Space, SpaceId};
use thiserror::Error;

use super::sequence::{ANON_BIT, Ops, PAGE_MASK, Sequence, WRITE_BIT};

/// The file region's space.
pub const FILE: SpaceId = SpaceId(0);
/// The heap's space.
pub const ANON: SpaceId = SpaceId(1);

/// The keys that may stand in a line of parameters.
const KEYS: [&str; 20] = [
    "kind",
    "F",
    "N",
    "seed",
    "s",
    "as",
    "wf",
    "awf",
    "phases",
    "H",
    "scan",
    "D",
    "A",
    "anonpct",
    "io",
    "mem",
    "high",
    "low_a",
    "swap",
    "swappiness",
];

/// What swap the guest had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// An asynchronous disk, 512 MiB, through the swap cache.
    Nvme,
    /// Compressed memory, 512 MiB, synchronous.
    Zram,
}

/// Why a line of parameters is not a case.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CaseError {
    /// A word without an equals sign.
    #[error("`{word}` is not of the form key=value")]
    NotAPair {
        /// The word.
        word: String,
    },
    /// A key that no kind knows.
    #[error("unknown key `{key}`; keys are {known}", known = KEYS.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A key given twice.
    #[error("key `{key}` is given twice; give it once")]
    Twice {
        /// The key.
        key: String,
    },
    /// A key that this kind needs is absent.
    #[error("key `{key}` is missing; add {key}=VALUE")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A value that does not parse or is out of its range.
    #[error("`{key}={value}` is not possible: {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would be possible.
        expected: &'static str,
    },
}

/// A sequence with everything else that one measured run needs.
///
/// ```
/// use lowtide_workload::OpKind;
/// use lowtide_experiments::groundtruth::Case;
///
/// let case: Case = "kind=loop F=3 N=5 mem=2 seed=4".parse()?;
/// assert_eq!(case.ops().collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
/// assert!(case.page_ops().all(|op| op.kind == OpKind::Load));
/// # Ok::<(), lowtide_experiments::groundtruth::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What is accessed, in which order.
    pub sequence: Sequence,
    /// The seed of the sequence.
    pub seed: u64,
    /// How the file is accessed; the heap is always mapped.
    pub access: Access,
    /// `memory.max` in pages; `None` is no limit.
    pub mem: Option<u64>,
    /// `memory.high` in pages; `None` is no limit.
    pub high: Option<u64>,
    /// `memory.low` of the first of two workers, in pages.
    pub low_a: Option<u64>,
    /// The swap device; `None` is no swap.
    pub swap: Option<Swap>,
    /// `vm.swappiness`.
    pub swappiness: u32,
}

impl Case {
    /// The ops in the ground truth's own encoding.
    #[must_use]
    pub fn ops(&self) -> Ops {
        self.sequence.ops(self.seed)
    }

    /// The ops in the vocabulary of this crate. File ops are in [`FILE`], heap ops in [`ANON`].
    pub fn page_ops(&self) -> impl Iterator<Item = PageOp> + use<> {
        let access = self.access;
        self.ops().map(move |op| decode(op, access))
    }

    /// The table of spaces: the file, and the heap where there is one.
    #[must_use]
    pub fn spaces(&self) -> Vec<Space> {
        let mut spaces = vec![Space::file("file")];
        if self.sequence.anon_pages() > 0 {
            spaces.push(Space::anon("heap"));
        }
        spaces
    }
}

/// One encoded op as a page operation; `access` is the way to the file.
fn decode(op: u32, access: Access) -> PageOp {
    let write = op & WRITE_BIT != 0;
    let page = u64::from(op & PAGE_MASK);
    if op & ANON_BIT == 0 {
        PageOp::one(access.kind(write), FILE, page)
    } else {
        PageOp::one(Access::Mapped.kind(write), ANON, page)
    }
}

/// The pairs of a line, with typed look-ups.
struct Pairs<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Pairs<'a> {
    fn parse(line: &'a str) -> Result<Self, CaseError> {
        let mut pairs = BTreeMap::new();
        for word in line.split_whitespace() {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| CaseError::NotAPair { word: word.to_owned() })?;
            if !KEYS.contains(&key) {
                return Err(CaseError::UnknownKey { key: key.to_owned() });
            }
            if pairs.insert(key, value).is_some() {
                return Err(CaseError::Twice { key: key.to_owned() });
            }
        }
        Ok(Self(pairs))
    }

    /// The value of `key` if it is there, as accepted by `accept`.
    fn optional<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        accept: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, CaseError> {
        let Some(&value) = self.0.get(key) else { return Ok(None) };
        match accept(value) {
            Some(accepted) => Ok(Some(accepted)),
            None => Err(CaseError::Value { key, value: value.to_owned(), expected }),
        }
    }

    fn count(&self, key: &'static str) -> Result<Option<u64>, CaseError> {
        self.optional(key, "a whole number is needed", |text| text.parse().ok())
    }

    fn pages(&self, key: &'static str) -> Result<u32, CaseError> {
        self.optional(key, "1 to 2^30 pages are needed", |text| {
            text.parse().ok().filter(|pages| (1..=PAGE_MASK + 1).contains(pages))
        })?
        .ok_or(CaseError::Missing { key })
    }

    fn percent(&self, key: &'static str) -> Result<Option<u32>, CaseError> {
        self.optional(key, "0 to 100 percent are needed", |text| {
            text.parse().ok().filter(|&p| p <= 100)
        })
    }

    fn exponent(&self, key: &'static str) -> Result<f64, CaseError> {
        let exponent = self.optional(key, "an exponent of 0 or more is needed", |text| {
            text.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0)
        })?;
        Ok(exponent.unwrap_or(0.99))
    }

    fn hot_pages(&self, file_pages: u32) -> Result<u32, CaseError> {
        self.optional("H", "1 or more pages, and fewer than F, are needed", |text| {
            text.parse().ok().filter(|hot| (1..file_pages).contains(hot))
        })?
        .ok_or(CaseError::Missing { key: "H" })
    }
}

impl FromStr for Case {
    type Err = CaseError;

    fn from_str(line: &str) -> Result<Self, CaseError> {
        let pairs = Pairs::parse(line)?;
        let file_pages = pairs.pages("F")?;
        let accesses = pairs.count("N")?.ok_or(CaseError::Missing { key: "N" })?;
        let exponent = pairs.exponent("s")?;
        let write_percent = pairs.percent("wf")?.unwrap_or(0);
        let kind = pairs.0.get("kind").copied().ok_or(CaseError::Missing { key: "kind" })?;
        let sequence = match kind {
            "zipf" => {
                let phases = pairs.optional("phases", "1 or more are needed", |t| {
                    t.parse().ok().filter(|&p| p > 0)
                })?;
                Sequence::Zipf {
                    exponent,
                    file_pages,
                    accesses,
                    phases: phases.unwrap_or(1),
                    write_percent,
                }
            }
            "uniform" => Sequence::Uniform { file_pages, accesses, write_percent },
            "loop" => Sequence::Loop { file_pages, accesses },
            "mix" => Sequence::Mix {
                exponent,
                hot_pages: pairs.hot_pages(file_pages)?,
                file_pages,
                accesses,
                scan_percent: pairs.percent("scan")?.ok_or(CaseError::Missing { key: "scan" })?,
            },
            "twotouch" => Sequence::TwoTouch {
                exponent,
                hot_pages: pairs.hot_pages(file_pages)?,
                file_pages,
                accesses,
                distance: pairs.count("D")?.ok_or(CaseError::Missing { key: "D" })?,
            },
            "anonfile" => Sequence::AnonFile {
                anon_exponent: pairs.exponent("as")?,
                anon_pages: pairs.pages("A")?,
                exponent,
                file_pages,
                accesses,
                anon_percent: pairs
                    .percent("anonpct")?
                    .ok_or(CaseError::Missing { key: "anonpct" })?,
                anon_write_percent: pairs.percent("awf")?.unwrap_or(0),
                write_percent,
            },
            other => {
                return Err(CaseError::Value {
                    key: "kind",
                    value: other.to_owned(),
                    expected: "zipf, uniform, loop, mix, twotouch or anonfile is needed",
                });
            }
        };
        let access = pairs.optional("io", "mmap or prw is needed", |text| match text {
            "mmap" => Some(Access::Mapped),
            "prw" => Some(Access::Descriptor),
            _ => None,
        })?;
        let swap = pairs.optional("swap", "nvme or zram is needed", |text| match text {
            "nvme" => Some(Swap::Nvme),
            "zram" => Some(Swap::Zram),
            _ => None,
        })?;
        let swappiness = pairs.optional("swappiness", "0 to 200 is needed", |text| {
            text.parse().ok().filter(|&swappiness| swappiness <= 200)
        })?;
        Ok(Self {
            sequence,
            seed: pairs.count("seed")?.unwrap_or(1),
            access: access.unwrap_or(Access::Mapped),
            mem: pairs.count("mem")?,
            high: pairs.count("high")?,
            low_a: pairs.count("low_a")?,
            swap,
            swappiness: swappiness.unwrap_or(60),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_workload::op::OpKind;

    #[test]
    fn descriptor_cases_read_and_write_and_the_heap_stays_mapped() {
        let case: Case =
            "kind=anonfile io=prw A=2 F=8 N=4000 anonpct=50 awf=50 wf=50".parse().unwrap();
        let ops: Vec<PageOp> = case.page_ops().collect();
        assert_eq!(ops[0], PageOp::one(OpKind::Store, ANON, 0));
        assert_eq!(ops[1], PageOp::one(OpKind::Store, ANON, 1));
        for kind in [OpKind::Read, OpKind::Write] {
            assert!(ops.iter().any(|op| op.kind == kind && op.space == FILE), "{kind} of the file");
        }
        for kind in [OpKind::Load, OpKind::Store] {
            assert!(
                ops[2..].iter().any(|op| op.kind == kind && op.space == ANON),
                "{kind} of the heap"
            );
        }
        assert_eq!(case.spaces(), [Space::file("file"), Space::anon("heap")]);
    }

    #[test]
    fn limits_and_devices_are_read() {
        let case: Case = "kind=loop F=8 N=9 mem=5 high=4 low_a=3 swap=zram swappiness=200 seed=7"
            .parse()
            .unwrap();
        assert_eq!((case.mem, case.high, case.low_a), (Some(5), Some(4), Some(3)));
        assert_eq!((case.swap, case.swappiness, case.seed), (Some(Swap::Zram), 200, 7));
    }

    #[test]
    fn impossible_lines_say_which_word_is_wrong() {
        for (line, part) in [
            ("kind=zipf F=10", "key `N` is missing"),
            ("kind=mix F=10 N=1 H=10 scan=5", "`H=10`"),
            ("kind=mix F=10 N=1 H=5", "key `scan` is missing"),
            ("kind=zipf F=10 N=1 wf=101", "`wf=101`"),
            ("kind=zipf F=0 N=1", "`F=0`"),
            ("kind=zipf F=1073741825 N=1", "`F=1073741825`"),
            ("kind=zipf F=10 N=1 s=NaN", "`s=NaN`"),
            ("kind=zipf F=10 N=1 phases=0", "`phases=0`"),
            ("kind=zip F=10 N=1", "`kind=zip`"),
            ("kind=zipf F=10 N=1 F=11", "`F` is given twice"),
            ("kind=zipf F=10 N=1 colour=red", "unknown key `colour`"),
            ("kind=zipf F=10 N=1 fast", "`fast`"),
        ] {
            let error = line.parse::<Case>().expect_err(line).to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
