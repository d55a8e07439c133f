//! Scripts: experiments in which groups with limits share memory, described once for both worlds.
//!
//! ```text
//!   script ──► max of all groups together, how long it warms up and is measured
//!     └── actor ──► a group with limits, a file of its own, threads that all do the same:
//!                     work ──► choose a page ──► call ──► pause ──► again, forever
//! ```
//!
//! A player makes the groups and files, starts the threads, and looks at what they have done by the
//! end. The runtime's player uses tenants, threads and real time; the simulator's uses groups of a
//! simulated machine, tasks and virtual time. Pages are chosen here, so both play the same ones.

use std::time::Duration;

use lowtide_workload::distribution::{Distribution, Sampler};
use lowtide_workload::prng::SplitMix64;

/// What is played. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// Budget of all groups together. Without one, only the limits of each group hold.
    pub max: Option<u64>,
    /// What its pages take at most. With more memory than that, limits alone cause reclaim.
    pub memory: u64,
    /// Groups and their threads.
    pub actors: Vec<Actor>,
    /// Time before the measurement.
    pub warm: Duration,
    /// Time of the measurement.
    pub run: Duration,
    /// Seed of the choices.
    pub seed: u64,
}

/// A group with a file of its own, and threads that use it.
#[derive(Clone, Debug, PartialEq)]
pub struct Actor {
    /// The group's name.
    pub name: String,
    /// `low` of the group.
    pub low: u64,
    /// `high` of the group.
    pub high: Option<u64>,
    /// `io.max` of the group: bytes it may read from the device in a second. Only simulated.
    pub io_max: Option<u64>,
    /// Size of the file.
    pub file: u64,
    /// Threads.
    pub threads: u32,
    /// Which pages they want.
    pub order: Order,
    /// How they reach a page.
    pub call: Call,
    /// Processor time of a thread for each operation, besides the call.
    pub work: Duration,
    /// How long a thread sleeps after each operation.
    pub pause: Duration,
    /// Whether the time of each call is kept.
    pub timed: bool,
    /// Number of the first thread's stream of choices; the next threads have the next numbers.
    pub stream: u32,
}

/// Which pages a thread wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A few often: the default [`Distribution`].
    Zipf,
    /// All alike.
    Uniform,
    /// From start to end, over and over.
    Sequential,
}

/// How a thread reaches a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It loads a byte of a mapping. With `around`, a miss brings in the window around the page, as
    /// kernels before 7.0 do; else its page alone.
    Load {
        /// Whether a miss reads around.
        around: bool,
    },
    /// It loads a byte of a mapping that was advised to be accessed at random (`MADV_RANDOM`): a
    /// miss brings in its page alone, and a kernel does not learn of loads that hit.
    LoadRandom,
    /// It reads several pages at once.
    Read {
        /// How many.
        pages: u64,
    },
    /// It reads a page and keeps nothing in memory.
    ReadOnce,
}

impl Call {
    /// Pages of a call.
    #[must_use]
    pub const fn pages(self) -> u64 {
        match self {
            Self::Read { pages } => pages,
            Self::Load { .. } | Self::LoadRandom | Self::ReadOnce => 1,
        }
    }
}

/// The pages that a thread wants, one after the other.
#[derive(Clone, Debug)]
pub struct Choices {
    pages: u64,
    step: u64,
    next: u64,
    rng: SplitMix64,
    /// Popularity, if pages differ in it.
    sampler: Option<Sampler>,
}

impl Script {
    /// What a thread of an actor chooses from its file of `pages` pages.
    ///
    /// # Panics
    /// When a file has no page.
    #[must_use]
    pub fn choices(&self, actor: &Actor, thread: u32, pages: u64) -> Choices {
        let stream = u64::from(actor.stream) + u64::from(thread);
        let popular = || Distribution::default().sampler(pages, self.seed ^ stream);
        Choices {
            pages,
            step: if actor.order == Order::Sequential { actor.call.pages() } else { 0 },
            next: 0,
            rng: SplitMix64::new(self.seed).fork(stream),
            sampler: (actor.order == Order::Zipf).then(|| popular().expect("a file has pages")),
        }
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.actors.iter().map(|actor| actor.file).sum()
    }
}

impl Choices {
    /// The next page.
    pub fn choose(&mut self) -> u64 {
        if self.step > 0 {
            let page = self.next;
            self.next = (page + self.step) % self.pages;
            return page;
        }
        match &self.sampler {
            Some(sampler) => sampler.draw(&mut self.rng),
            None => self.rng.below(self.pages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(order: Order, thread: u32) -> Vec<u64> {
        let actor = Actor {
            name: "reader".into(),
            low: 0,
            high: None,
            io_max: None,
            file: 40 << 10,
            threads: 2,
            order,
            call: Call::Read { pages: 4 },
            work: Duration::ZERO,
            pause: Duration::ZERO,
            timed: false,
            stream: 0,
        };
        let script = Script {
            max: None,
            memory: 0,
            actors: vec![],
            warm: Duration::ZERO,
            run: Duration::ZERO,
            seed: 3,
        };
        let mut choices = script.choices(&actor, thread, 10);
        (0..100).map(|_| choices.choose()).collect()
    }

    #[test]
    fn a_thread_wants_the_same_pages_each_time_and_another_thread_wants_others() {
        for order in [Order::Zipf, Order::Uniform] {
            assert_eq!(chosen(order, 0), chosen(order, 0));
            assert_ne!(chosen(order, 0), chosen(order, 1));
            assert!(chosen(order, 0).iter().all(|&page| page < 10));
        }
    }

    #[test]
    fn a_sequential_thread_steps_by_its_calls_and_begins_again() {
        assert_eq!(chosen(Order::Sequential, 0)[..6], [0, 4, 8, 2, 6, 0]);
    }
}
