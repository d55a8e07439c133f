//! The CPU time of a simulation, measured on its thread, so that other work on the machine does not
//! make the simulator look slower. This is the only clock that `lowtide sim` reads for a result.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of a thread since a start.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Duration);

impl Stopwatch {
    /// Starts now, for the calling thread.
    pub fn start() -> Self {
        Self(now())
    }

    /// The CPU time since the start, on the same thread. Costs a system call, some hundred
    /// nanoseconds.
    pub fn elapsed(self) -> Duration {
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
