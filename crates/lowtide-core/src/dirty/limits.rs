//! Settings: how much may be dirty, and for how long.
//!
//! A share is a part of the memory that could become dirty (file pages, and what they may still
//! grow by), or a number of bytes. A group without settings of its own uses those of the root, as
//! shares of its own memory: a number of bytes for the whole pool becomes the same *part* of the
//! group's memory. A group's own settings are taken literally, and hold for it and all groups below
//! it. Source: B1, B3.

/// A part of the memory that could become dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirtyShare {
    /// Hundredths of it, 0 to 100.
    Percent(u32),
    /// Bytes, rounded up to pages.
    Bytes(u64),
}

/// How much may be dirty in a group and below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DirtyLimits {
    /// Above this much (without what is being written already) the flusher writes in the
    /// background. Where it turns out not to be below `hard`, half of that is used.
    pub background: DirtyShare,
    /// At this much, pages under writeback included, writers wait. They are slowed down from
    /// half-way between `background` and here.
    pub hard: DirtyShare,
}

impl Default for DirtyLimits {
    /// 10 % in the background, 20 % at most.
    fn default() -> Self {
        Self { background: DirtyShare::Percent(10), hard: DirtyShare::Percent(20) }
    }
}

/// Limits, or timers, that make no sense. They were not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirtyLimitsError {
    /// More than everything.
    #[error("{percent} % is not a share of memory: choose 0 to 100")]
    AboveAll {
        /// What was given.
        percent: u32,
    },
    /// Writers could never write.
    #[error(
        "a hard limit of {given} would stop every writer: give at least 1 % or {at_least} bytes"
    )]
    Nothing {
        /// What was given, with its unit.
        given: Given,
        /// Two pages.
        at_least: u64,
    },
    /// The flusher would never begin by itself.
    #[error(
        "the background limit, {background}, is above the hard limit, {hard}: it must be lower"
    )]
    BackgroundAboveHard {
        /// What was given, with its unit.
        background: Given,
        /// What was given, with its unit.
        hard: Given,
    },
    /// The flusher would do nothing but look.
    #[error(
        "looking for old data every {interval_ns} ns is too often: choose at least {} ns, or 0 for \
         never",
        DirtyTimers::SHORTEST_NS
    )]
    TooOften {
        /// What was given.
        interval_ns: u64,
    },
    /// There is no such group.
    #[error("the group has been removed")]
    Gone,
}

/// A share with its unit, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given(pub DirtyShare);

impl std::fmt::Display for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            DirtyShare::Percent(percent) => write!(f, "{percent} %"),
            DirtyShare::Bytes(bytes) => write!(f, "{bytes} bytes"),
        }
    }
}

impl DirtyLimits {
    /// These two, for those that differ from the [default](Self::default).
    #[must_use]
    pub const fn new(background: DirtyShare, hard: DirtyShare) -> Self {
        Self { background, hard }
    }

    /// Checks the limits against each other as far as they can be compared. `page_bytes` is the
    /// size of a page.
    ///
    /// # Errors
    /// [`DirtyLimitsError`] but `Gone` and `TooOften`.
    pub fn check(&self, page_bytes: u64) -> Result<(), DirtyLimitsError> {
        for share in [self.background, self.hard] {
            if let DirtyShare::Percent(percent) = share
                && percent > 100
            {
                return Err(DirtyLimitsError::AboveAll { percent });
            }
        }
        let nothing = match self.hard {
            DirtyShare::Percent(percent) => percent == 0,
            DirtyShare::Bytes(bytes) => bytes < 2 * page_bytes,
        };
        if nothing {
            return Err(DirtyLimitsError::Nothing {
                given: Given(self.hard),
                at_least: 2 * page_bytes,
            });
        }
        let above = match (self.background, self.hard) {
            (DirtyShare::Percent(background), DirtyShare::Percent(hard)) => background > hard,
            (DirtyShare::Bytes(background), DirtyShare::Bytes(hard)) => background > hard,
            _ => false,
        };
        if above {
            let (background, hard) = (Given(self.background), Given(self.hard));
            return Err(DirtyLimitsError::BackgroundAboveHard { background, hard });
        }
        Ok(())
    }
}

/// When old dirty data is written. One setting for all devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirtyTimers {
    /// Nanoseconds after which dirty data is old.
    pub expire_ns: u64,
    /// Nanoseconds between two searches for old data; 0: never.
    pub interval_ns: u64,
}

impl Default for DirtyTimers {
    /// 30 s, looked at every 5 s.
    fn default() -> Self {
        Self { expire_ns: 30_000_000_000, interval_ns: 5_000_000_000 }
    }
}

impl DirtyTimers {
    /// Shortest interval, in nanoseconds: 10 ms.
    pub const SHORTEST_NS: u64 = 10_000_000;

    /// Checks the timers.
    ///
    /// # Errors
    /// [`DirtyLimitsError::TooOften`].
    pub const fn check(&self) -> Result<(), DirtyLimitsError> {
        match self.interval_ns {
            interval_ns @ 1..Self::SHORTEST_NS => Err(DirtyLimitsError::TooOften { interval_ns }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_make_no_sense_are_named() {
        let check = |background, hard| DirtyLimits { background, hard }.check(4096);
        use DirtyShare::{Bytes, Percent};
        assert_eq!(DirtyLimits::default().check(4096), Ok(()));
        assert_eq!(
            check(Percent(0), Percent(1)),
            Ok(()),
            "background 0: everything is written at once"
        );
        assert_eq!(check(Percent(20), Percent(20)), Ok(()));
        assert_eq!(
            check(Bytes(1 << 40), Percent(20)),
            Ok(()),
            "different units cannot be compared"
        );
        assert_eq!(
            check(Percent(101), Percent(20)),
            Err(DirtyLimitsError::AboveAll { percent: 101 })
        );
        let error = check(Percent(0), Bytes(8191)).unwrap_err();
        assert!(
            error.to_string().contains("8191 bytes") && error.to_string().contains("8192"),
            "{error}"
        );
        assert!(matches!(check(Percent(0), Percent(0)), Err(DirtyLimitsError::Nothing { .. })));
        let error = check(Bytes(9000), Bytes(8192)).unwrap_err();
        assert!(error.to_string().contains("9000 bytes"), "{error}");
        assert!(matches!(
            check(Percent(30), Percent(20)),
            Err(DirtyLimitsError::BackgroundAboveHard { .. })
        ));
    }

    #[test]
    fn an_interval_is_long_enough_or_never() {
        let check = |interval_ns| DirtyTimers { expire_ns: 0, interval_ns }.check();
        assert_eq!((check(0), check(DirtyTimers::SHORTEST_NS)), (Ok(()), Ok(())));
        assert!(check(1).unwrap_err().to_string().contains("10000000"));
    }
}
