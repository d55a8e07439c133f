//! How other policies join in: the engine's, above all.

use crate::baseline::Baseline;
use lowtide_workload::{OpKind, SpaceId};
use std::fmt;

/// Why a player cannot be made for a size, or cannot go on. What it displays ends up in
/// [`Gap::reason`](super::Gap).
pub type PlayerError = Box<dyn std::error::Error + Send + Sync>;

/// A memory of a fixed size that operations are played on, one page at a time.
pub trait Player {
    /// Plays one operation on one page and returns whether the page was resident before. The answer
    /// counts for accesses only, not for `sync` and `free`; those come only for pages with
    /// content, see [`Tape`](super::Tape).
    ///
    /// # Errors
    /// The size turned out to be too small or the machine too small: this size becomes a gap in the
    /// curve.
    fn play(&mut self, kind: OpKind, space: SpaceId, page: u64) -> Result<bool, PlayerError>;
}

/// Makes a player with a budget of the given pages, on the thread that will play it.
pub type MakePlayer<'a> = dyn Fn(u64) -> Result<Box<dyn Player>, PlayerError> + Sync + 'a;

/// A policy to measure.
#[derive(Clone)]
pub enum Contender<'a> {
    /// A textbook policy.
    Baseline(Baseline),
    /// Anything else.
    Player {
        /// The policy's name in results.
        name: String,
        /// Makes one for each size.
        make: &'a MakePlayer<'a>,
    },
}

impl Contender<'_> {
    /// The policy's name in results.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Baseline(baseline) => baseline.name(),
            Self::Player { name, .. } => name,
        }
    }
}

impl fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Contender").field(&self.name()).finish()
    }
}
