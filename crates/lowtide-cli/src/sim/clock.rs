//! How long a simulation took: processor time of the thread that simulates, so that a machine with
//! other work does not make the simulator look slower than one core is. This is the only clock that
//! `lowtide sim` reads for a result.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of a thread since a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Duration);

impl Stopwatch {
    /// Begins now, for the calling thread.
    pub(crate) fn start() -> Self {
        Self(now())
    }

    /// The time since then, on the same thread. Cost: a system call, some hundred nanoseconds.
    pub(crate) fn elapsed(self) -> Duration {
        now().saturating_sub(self.0)
    }
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_while_a_thread_works() {
        let watch = Stopwatch::start();
        let mut sum = 0_u64;
        while watch.elapsed().is_zero() {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(watch.elapsed() < Duration::from_secs(3600));
    }
}
