//! How long threads had a processor.
//!
//! # Safety
//!
//! One call of the C library, which writes a structure of this file. It takes no lock: a library
//! that asks the dynamic loader for the kernel's function first (`dlsym(3)`) would wait for a
//! thread that loads another one, and that thread may wait for the caller.

#![allow(unsafe_code)]

use std::time::Duration;

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is this function's own.
    if unsafe { libc::clock_gettime(id, &raw mut time) } != 0 {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// The calling thread, so far (`CLOCK_THREAD_CPUTIME_ID` of `clock_gettime(2)`).
#[must_use]
pub fn of_thread() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// All threads of this process, so far (`CLOCK_PROCESS_CPUTIME_ID`).
#[must_use]
pub fn of_process() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_has_a_processor_and_one_that_sleeps_does_not() {
        let begin = of_thread();
        std::thread::sleep(Duration::from_millis(30));
        assert!(of_thread() - begin < Duration::from_millis(20));
        while of_thread() - begin < Duration::from_millis(20) {}
        assert!(of_process() >= Duration::from_millis(20));
    }
}
