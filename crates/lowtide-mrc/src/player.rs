//! The interface for other policies, above all the engine's.

use crate::baseline::Baseline;
use lowtide_workload::{OpKind, SpaceId};
use std::fmt;

/// The reason why a player cannot be created for a size, or cannot continue. It is displayed in
/// [`Gap::reason`](super::Gap).
pub type PlayerError = Box<dyn std::error::Error + Send + Sync>;

/// A memory of a fixed size on which operations are played, one page at a time.
pub trait Player {
    /// Plays one operation on one page and returns whether the page was resident before. The answer
    /// counts for accesses only, not for `sync` and `free`; those come only for pages with
    /// content, see [`Tape`](super::Tape).
    ///
    /// # Errors
    /// The size or the machine is too small: this size becomes a gap in the curve.
    fn play(&mut self, kind: OpKind, space: SpaceId, page: u64) -> Result<bool, PlayerError>;
}

/// Creates a player with a budget of the given pages, on the thread that will play it.
pub type MakePlayer<'a> = dyn Fn(u64) -> Result<Box<dyn Player>, PlayerError> + Sync + 'a;

/// A policy to measure.
#[derive(Clone)]
pub enum System<'a> {
    /// A textbook policy.
    Baseline(Baseline),
    /// Any other policy.
    Player {
        /// The policy's name in results.
        name: String,
        /// Creates a player for each size.
        make: &'a MakePlayer<'a>,
    },
}

impl System<'_> {
    /// The policy's name in results.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Baseline(baseline) => baseline.name(),
            Self::Player { name, .. } => name,
        }
    }
}

impl fmt::Debug for System<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("System").field(&self.name()).finish()
    }
}
