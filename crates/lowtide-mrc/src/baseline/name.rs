//! The policies by name.

use lowtide_workload::nearest;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A textbook policy.
///
/// The names are those of the command line. Strict LRU is called `strict-lru`, because `lru` is the
/// engine's policy of that name: the kernel's active and inactive lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Baseline {
    /// [`Lru`](super::Lru), `strict-lru`.
    Lru,
    /// [`Clock`](super::Clock), `clock`.
    Clock,
    /// [`Sieve`](super::Sieve), `sieve`.
    Sieve,
    /// [`S3Fifo`](super::S3Fifo), `s3-fifo`.
    S3Fifo,
    /// [`ArcCache`](super::ArcCache), `arc`.
    Arc,
    /// [`Opt`](super::Opt), `opt`.
    Opt,
}

impl Baseline {
    /// All of them, the bound last.
    pub const ALL: [Self; 6] =
        [Self::Lru, Self::Clock, Self::Sieve, Self::S3Fifo, Self::Arc, Self::Opt];

    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "strict-lru",
            Self::Clock => "clock",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3-fifo",
            Self::Arc => "arc",
            Self::Opt => "opt",
        }
    }

    /// One line for lists of policies.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Lru => "strict least recently used (not the kernel's lists, which are `lru`)",
            Self::Clock => "a queue with second chances",
            Self::Sieve => "a hand that sifts a queue in place (NSDI 2024)",
            Self::S3Fifo => "a small queue as filter before the main one (SOSP 2023)",
            Self::Arc => "recency against frequency, balanced by ghosts (FAST 2003)",
            Self::Opt => "Belady's bound: knows the future, so only for recorded streams",
        }
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is not that of a textbook policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown baseline `{0}`{hint}; baselines are {names}", hint = hint(.0), names = names())]
pub struct UnknownBaseline(pub String);

fn names() -> String {
    Baseline::ALL.map(Baseline::name).join(", ")
}

fn hint(name: &str) -> String {
    let near = nearest(&name.to_ascii_lowercase(), Baseline::ALL.map(Baseline::name));
    near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"))
}

impl FromStr for Baseline {
    type Err = UnknownBaseline;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|baseline| baseline.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownBaseline(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::streams;
    use crate::baseline::{ArcCache, Cache, Clock, Lru, Opt, S3Fifo, Sieve};
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    impl Baseline {
        /// An empty cache of `capacity` pages for the pages `0..pages`.
        pub(in crate::baseline) fn cache(self, pages: u32, capacity: NonZeroU32) -> Box<dyn Cache> {
            match self {
                Self::Lru => Box::new(Lru::new(pages, capacity)),
                Self::Clock => Box::new(Clock::new(pages, capacity)),
                Self::Sieve => Box::new(Sieve::new(pages, capacity)),
                Self::S3Fifo => Box::new(S3Fifo::new(pages, capacity)),
                Self::Arc => Box::new(ArcCache::new(pages, capacity)),
                Self::Opt => Box::new(Opt::new(pages, capacity)),
            }
        }
    }

    #[test]
    fn names_are_read_as_they_are_printed() {
        for baseline in Baseline::ALL {
            assert_eq!(baseline.to_string().parse(), Ok(baseline));
        }
        assert_eq!("SIEVE".parse(), Ok(Baseline::Sieve));
        assert!(
            "s3fifo"
                .parse::<Baseline>()
                .unwrap_err()
                .to_string()
                .contains("did you mean `s3-fifo`?")
        );
        let error = "lru".parse::<Baseline>().unwrap_err().to_string();
        assert!(error.contains("`lru`") && error.contains("strict-lru, clock"), "{error}");
    }

    proptest! {
        #[test]
        fn with_room_for_all_pages_only_first_accesses_miss(stream in streams(), more in 0_u32..5) {
            let room = NonZeroU32::new(stream.pages + more).unwrap();
            for baseline in Baseline::ALL {
                let misses = stream.misses(&mut *baseline.cache(stream.pages, room));
                prop_assert_eq!(misses, stream.cold(), "{}", baseline);
            }
        }
    }
}
