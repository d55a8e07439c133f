//! Tenants of equal demand: servers with large buffers and their browsers, as Chrome & Node.js in
//! the published evaluation of fairness, described once for both worlds.
//!
//! ```text
//!   64 workers, two for each of 32 tenants; a worker is a server and its client,
//!   one request at a time, without a pause:
//!     server process ── one of 16 chunks, uniformly ──► stores to every page of it, in order
//!                    ── the tenant's file, if it has one ──► loads every page of it, in order
//!     client process ── 1,280 new pages ──► stores to each;
//!                       arrays beyond 64 MiB are freed, oldest first
//! ```
//!
//! A worker sweeps uniformly chosen chunks: inside a chunk, the page used last is used again last;
//! between chunks, recency predicts nothing. With a policy that evicts whole chunks, requests to
//! resident chunks are fast; with one that evicts a part of each, all requests are slow. Published
//! servers store zeros, so compressed memory keeps nothing of them.
//!
//! Each tenant is a group without limits of memory, so the machine runs out of it, and reclaim
//! first chooses between groups. Source: `docs/kernel/workloads.md` §2(b). The published tenants
//! have no file; program text, which they have, is *assumed* there to be 75 to 150 MiB a worker.

use std::ops::Range;

use lowtide_workload::SplitMix64;

/// Bytes of the array that the script of one request allocates: 1,280 pages.
const ARRAY_BYTES: u64 = 1_280 << 12;
/// Bytes of arrays that the garbage collector keeps.
const GARBAGE_BYTES: u64 = 64 << 20;
/// Pages have at least this size in the experiment.
const PAGE_SHIFT: u32 = 12;

/// The tenants. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tenants {
    /// Tenants.
    pub tenants: u32,
    /// Workers of each.
    pub workers: u32,
    /// Chunks of a server.
    pub chunks: u64,
    /// A chunk.
    pub chunk: u64,
    /// New memory that a client stores to for each request.
    pub array: u64,
    /// Arrays beyond which the oldest is freed.
    pub garbage: u64,
    /// The file that the servers of a tenant share, and load for each request; 0 for none.
    pub file: u64,
    /// What servers and clients store.
    pub content: Content,
    /// `swap.high` of each tenant.
    pub swap_high: Option<u64>,
    /// CPU nanoseconds of a request without its page accesses: reloading, reading the answer, the
    /// script's start and end.
    pub request_ns: u64,
    /// Seed of the choices.
    pub seed: u64,
}

/// What is stored to heaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Zeros, as published.
    Zeros,
    /// What compresses as a program's objects do.
    Objects,
}

impl Tenants {
    /// The published experiment, with sizes multiplied by `scale`; numbers and times do not change.
    /// Sizes are whole pages of 4 KiB and at least one.
    #[must_use]
    pub fn published(scale: f64, seed: u64) -> Self {
        Self {
            tenants: 32,
            workers: 2,
            chunks: 16,
            chunk: part(256 << 20, scale),
            array: part(ARRAY_BYTES, scale),
            garbage: part(GARBAGE_BYTES, scale),
            file: 0,
            content: Content::Zeros,
            swap_high: None,
            // Guess: a headless browser that a driver asks to reload a page.
            request_ns: 250_000_000,
            seed,
        }
    }

    /// The same with a file for each tenant and a `swap.high`, both in bytes of the whole size.
    #[must_use]
    pub fn with(self, scale: f64, file: u64, swap_high: Option<u64>) -> Self {
        let file = if file == 0 { 0 } else { part(file, scale) };
        Self { file, swap_high: swap_high.map(|high| part(high, scale)), ..self }
    }

    /// Workers of all tenants.
    #[must_use]
    pub const fn all_workers(&self) -> u32 {
        self.tenants * self.workers
    }

    /// The largest number of live arrays of a client.
    #[must_use]
    pub const fn arrays(&self) -> u64 {
        let arrays = self.garbage.div_ceil(self.array);
        if arrays == 0 { 1 } else { arrays }
    }

    /// Bytes of a server's heap.
    #[must_use]
    pub const fn server(&self) -> u64 {
        self.chunks * self.chunk
    }

    /// Bytes of a client's heap: a ring of arrays, with room for one more than the live ones.
    #[must_use]
    pub const fn client(&self) -> u64 {
        (self.arrays() + 1) * self.array
    }

    /// Total bytes that the processes touch.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.all_workers()) * (self.server() + self.garbage + self.array)
            + u64::from(self.tenants) * self.file
    }

    /// The requests of a worker, in pages of `page` bytes; they never end.
    ///
    /// # Panics
    /// When a size is smaller than a page.
    #[must_use]
    pub fn requests(&self, worker: u32, page: u64) -> Requests {
        let pages = |bytes: u64| bytes / page;
        assert!(pages(self.chunk) > 0 && pages(self.array) > 0, "sizes are whole pages");
        Requests {
            rng: SplitMix64::new(self.seed).fork(u64::from(worker)),
            next: 0,
            chunks: self.chunks,
            chunk: pages(self.chunk),
            array: pages(self.array),
            arrays: self.arrays(),
            file: self.file.div_ceil(page),
        }
    }
}

/// A part of a size, in whole pages of 4 KiB and at least one.
fn part(bytes: u64, scale: f64) -> u64 {
    (((bytes >> PAGE_SHIFT) as f64 * scale).round() as u64).max(1) << PAGE_SHIFT
}

/// What a request touches, in pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The chunk in the server's heap, which is stored to.
    pub chunk: Range<u64>,
    /// What is loaded of the tenant's file.
    pub file: Range<u64>,
    /// The new array in the client's heap, which is stored to.
    pub array: Range<u64>,
    /// The array that is freed after that.
    pub freed: Option<Range<u64>>,
}

/// The requests of a worker. See [`Tenants::requests`].
#[derive(Clone, Debug)]
pub struct Requests {
    rng: SplitMix64,
    next: u64,
    chunks: u64,
    chunk: u64,
    array: u64,
    arrays: u64,
    file: u64,
}

impl Requests {
    /// The next request.
    pub fn choose(&mut self) -> Request {
        let number = self.next;
        self.next += 1;
        let first = self.rng.below(self.chunks) * self.chunk;
        let place = |array: u64| {
            let first = array % (self.arrays + 1) * self.array;
            first..first + self.array
        };
        Request {
            chunk: first..first + self.chunk,
            file: 0..self.file,
            array: place(number),
            freed: number.checked_sub(self.arrays).map(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_experiment_has_its_sizes_at_any_scale() {
        let full = Tenants::published(1.0, 1);
        assert_eq!((full.all_workers(), full.server()), (64, 4 << 30));
        assert_eq!((full.array, full.garbage), (1280 * 4096, 64 << 20));
        let half = Tenants::published(1.0 / 16.0, 1).with(1.0 / 16.0, 128 << 20, Some(1 << 30));
        assert_eq!((half.chunk, half.array, half.garbage), (16 << 20, 80 * 4096, 4 << 20));
        assert_eq!((half.file, half.swap_high), (8 << 20, Some(64 << 20)));
        assert_eq!(half.bytes() - 32 * half.file, Tenants::published(1.0 / 16.0, 1).bytes());
        assert_eq!(Tenants::published(0.000_001, 1).array, 4096, "at least a page");
    }

    /// What a client frees is what it stored to longest ago, and it never stores to a live array.
    #[test]
    fn arrays_are_freed_in_order_before_their_place_is_used_again() {
        let tenants = Tenants::published(1.0 / 64.0, 3);
        let mut requests = tenants.requests(5, 4096);
        let mut live = std::collections::VecDeque::new();
        for _ in 0..1_000 {
            let request = requests.choose();
            assert!(request.array.end <= tenants.client() / 4096);
            assert!(live.iter().all(|array: &Range<u64>| array.start != request.array.start));
            live.push_back(request.array);
            if let Some(freed) = request.freed {
                assert_eq!(live.pop_front(), Some(freed));
            }
            assert!(live.len() as u64 <= tenants.arrays() && request.file.is_empty());
        }
        assert_eq!(live.len() as u64, tenants.arrays());
    }

    #[test]
    fn chunks_are_chosen_alike_and_each_worker_chooses_its_own() {
        let tenants = Tenants::published(1.0 / 256.0, 1).with(1.0 / 256.0, 1 << 20, None);
        let chosen = |worker| {
            let mut requests = tenants.requests(worker, 4096);
            (0..16_000).map(|_| requests.choose().chunk.start).collect::<Vec<_>>()
        };
        assert_eq!(chosen(0), chosen(0));
        assert_ne!(chosen(0), chosen(1));
        let pages = tenants.chunk / 4096;
        for chunk in 0..16 {
            let count = chosen(0).iter().filter(|&&first| first == chunk * pages).count();
            assert!((850..1150).contains(&count), "{chunk}: {count}");
        }
        assert_eq!(tenants.requests(0, 4096).choose().file, 0..1);
    }
}
