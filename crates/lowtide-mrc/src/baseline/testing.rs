//! Random streams, and the comparison of a cache with a naive model.

use super::{Cache, NEVER};
use proptest::prelude::*;

/// One step of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) page: u32,
    pub(super) remove: bool,
}

impl Step {
    /// Plays the step and returns whether it was an access that hit.
    pub(super) fn play(self, cache: &mut (impl Cache + ?Sized), next: u64) -> bool {
        if self.remove {
            cache.remove(self.page);
            false
        } else {
            cache.access(self.page, next)
        }
    }
}

/// Steps over the pages `0..pages`.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) pages: u32,
    pub(super) steps: Vec<Step>,
}

impl Stream {
    /// Steps as page and "is it removed?".
    pub(super) fn new(pages: u32, steps: Vec<(u32, bool)>) -> Self {
        Self {
            pages,
            steps: steps.into_iter().map(|(page, remove)| Step { page, remove }).collect(),
        }
    }

    /// For each step, the position of the next access of its page, or `NEVER` if it is removed
    /// before.
    fn next_accesses(&self) -> Vec<u64> {
        let mut upcoming = vec![NEVER; self.pages as usize];
        let mut next = vec![NEVER; self.steps.len()];
        for (position, step) in self.steps.iter().enumerate().rev() {
            let mine = if step.remove { NEVER } else { position as u64 };
            next[position] = std::mem::replace(&mut upcoming[step.page as usize], mine);
        }
        next
    }

    /// Plays the whole stream and returns the misses.
    pub(super) fn misses(&self, cache: &mut (impl Cache + ?Sized)) -> u64 {
        let accesses = self.steps.iter().zip(self.next_accesses());
        accesses.map(|(step, next)| u64::from(!step.play(cache, next) && !step.remove)).sum()
    }

    /// Accesses that miss in any cache: the first to each page, and the first after each removal.
    pub(super) fn cold(&self) -> u64 {
        let mut known = vec![false; self.pages as usize];
        let first = |step: &Step| {
            let was_known = std::mem::replace(&mut known[step.page as usize], !step.remove);
            u64::from(!was_known && !step.remove)
        };
        self.steps.iter().map(first).sum()
    }
}

/// Streams of up to 400 steps over up to 40 pages, some of them skewed, some with removals.
pub(super) fn streams() -> impl Strategy<Value = Stream> {
    let pages = (1_u32..40, 0_u32..3, prop::sample::select(vec![0.0, 0.05, 0.3]));
    pages.prop_flat_map(|(pages, skew, removals)| {
        let page = (0.0_f64..1.0)
            .prop_map(move |unit| (unit.powi(1 + skew as i32) * f64::from(pages)) as u32);
        let step = (page, prop::bool::weighted(removals));
        prop::collection::vec(step, 0..400).prop_map(move |steps| Stream::new(pages, steps))
    })
}

/// A policy written for reading, not for speed.
pub(super) trait Model {
    fn access(&mut self, page: u32) -> bool;
    /// Returns whether the page was resident.
    fn remove(&mut self, page: u32) -> bool;
    fn resident(&self) -> usize;
}

/// Plays the stream on both and checks that hits and numbers of pages are equal, and that the
/// capacity is never exceeded.
pub(super) fn agree(
    stream: &Stream,
    mut cache: impl Cache,
    mut model: impl Model,
    capacity: u32,
) -> Result<(), TestCaseError> {
    for (position, step) in stream.steps.iter().enumerate() {
        let hit = step.play(&mut cache, 0);
        if step.remove {
            model.remove(step.page);
        } else {
            prop_assert_eq!(hit, model.access(step.page), "step {}", position);
        }
        prop_assert_eq!(cache.resident(), model.resident() as u64, "step {}", position);
        prop_assert!(cache.resident() <= u64::from(capacity));
    }
    Ok(())
}
