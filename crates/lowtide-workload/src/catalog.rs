//! The workloads by name, as the command line takes them.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

use crate::nearest;
use crate::ycsb::Letter;

/// A workload with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Workload {
    /// Half reads, half updates of 1 KiB records.
    YcsbA,
    /// 95 % reads, 5 % updates of 1 KiB records.
    YcsbB,
    /// Reads of 1 KiB records.
    YcsbC,
    /// As `YcsbB`, with checkpoints that make all dirty data durable.
    Mixed,
    /// Uniform reads of single pages.
    RandomRead,
    /// Random rows, smaller than a page, in batches.
    Gather,
    /// The whole file from start to end, repeated.
    Scan,
    /// A recorded trace.
    Replay,
}

impl Workload {
    /// All workloads, in the order in which they are listed to users.
    pub const ALL: [Self; 8] = [
        Self::YcsbA,
        Self::YcsbB,
        Self::YcsbC,
        Self::Mixed,
        Self::RandomRead,
        Self::Gather,
        Self::Scan,
        Self::Replay,
    ];

    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::YcsbA => "ycsb-a",
            Self::YcsbB => "ycsb-b",
            Self::YcsbC => "ycsb-c",
            Self::Mixed => "mixed",
            Self::RandomRead => "random-read",
            Self::Gather => "gather",
            Self::Scan => "scan",
            Self::Replay => "replay",
        }
    }

    /// One line for a listing.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::YcsbA => "1 KiB records with zipf popularity: 50 % reads, 50 % updates",
            Self::YcsbB => "1 KiB records with zipf popularity: 95 % reads, 5 % updates",
            Self::YcsbC => "1 KiB records with zipf popularity: reads only",
            Self::Mixed => {
                "zipf reads and a few updates: what a checkpoint every ten seconds does to reads"
            }
            Self::RandomRead => {
                "uniform reads of single pages: the cost of a miss, whatever the policy"
            }
            Self::Gather => {
                "random rows of 64 B to 4 KiB in batches, against mmap, pread and direct pread"
            }
            Self::Scan => "the whole file from start to end, repeated: the worst case for LRU",
            Self::Replay => "a recorded trace, as fast as possible",
        }
    }

    /// The YCSB letter whose mix of operations it has, for workloads on records.
    #[must_use]
    pub const fn ycsb_letter(self) -> Option<Letter> {
        match self {
            Self::YcsbA => Some(Letter::A),
            Self::YcsbB | Self::Mixed => Some(Letter::B),
            Self::YcsbC => Some(Letter::C),
            Self::RandomRead | Self::Gather | Self::Scan | Self::Replay => None,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown workload name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown workload `{given}`{hint}; workloads are {known}",
    hint = nearest.map(|workload| format!(", did you mean `{workload}`?")).unwrap_or_default(),
    known = Workload::ALL.map(Workload::name).join(", ")
)]
pub struct UnknownWorkload {
    /// The unknown name.
    pub given: String,
    /// The workload with the nearest name, if one is near.
    pub nearest: Option<Workload>,
}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    /// Names are compared without regard to case, and `_` counts as `-`.
    fn from_str(given: &str) -> Result<Self, UnknownWorkload> {
        let name = given.to_ascii_lowercase().replace('_', "-");
        if let Some(workload) = Self::ALL.into_iter().find(|workload| workload.name() == name) {
            return Ok(workload);
        }
        let nearest = nearest(&name, Self::ALL.map(Self::name))
            .and_then(|near| Self::ALL.into_iter().find(|workload| workload.name() == near));
        Err(UnknownWorkload { given: given.to_owned(), nearest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
            assert_eq!(workload.name().to_uppercase().replace('-', "_").parse(), Ok(workload));
            assert!(!workload.description().contains('\n'));
        }
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest_and_the_list() {
        for (given, nearest) in [
            ("ycsb", Some(Workload::YcsbA)),
            ("ycbs-c", Some(Workload::YcsbC)),
            ("randomread", Some(Workload::RandomRead)),
            ("gahter", Some(Workload::Gather)),
            ("scna", Some(Workload::Scan)),
            ("repaly", Some(Workload::Replay)),
            ("postgresql", None),
            ("", None),
        ] {
            let error = given.parse::<Workload>().unwrap_err();
            assert_eq!(error.nearest, nearest, "{given}");
            let text = error.to_string();
            assert!(text.contains("ycsb-b") && text.contains("replay"), "{text}");
            assert_eq!(text.contains("did you mean"), nearest.is_some(), "{text}");
        }
    }
}
