//! How the kernel gives this thread its turns.
//!
//! # Theory
//!
//! A fair scheduler gives each thread the same share of a processor, in turns. A thread that does a
//! little work very often does not need more than its share: it needs to begin soon after it was
//! woken, while others compute. Since Linux 6.12 a thread may want *shorter turns*
//! (`sched_setattr(2)`, `sched_runtime` of an ordinary thread). It gets the same share in smaller
//! pieces, and a thread whose turn is short is let in earlier.
//!
//! It needs no privilege. Older kernels ignore it.
//!
//! # Safety
//!
//! One call, which reads a structure of this file and changes the calling thread's own attributes.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// The structure of `sched_setattr(2)`, in its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Gives the calling thread turns of this length, where it is an ordinary thread: the kernel keeps
/// it between 0.1 and 100 ms. Its share of the processor stays as it is.
///
/// # Errors
///
/// `EPERM` or `EINVAL` where a sandbox or another policy of scheduling does not allow it; `ENOSYS`
/// before Linux 3.14.
pub fn take_turns_of(length: Duration) -> io::Result<()> {
    let size = size_of::<Attributes>() as u32;
    let mut now = Attributes::default();
    // SAFETY: The call writes at most `size` bytes to the structure, which has as many.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    if now.policy != libc::SCHED_OTHER as u32 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let runtime = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let wanted = Attributes { size, runtime, ..now };
    // SAFETY: The call reads the structure, whose size it names.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_short_turns_and_keeps_its_policy_and_priority() {
        let attributes = || {
            let mut now = Attributes::default();
            let size = size_of::<Attributes>() as u32;
            // SAFETY: As above.
            let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) };
            assert_eq!(got, 0);
            now
        };
        let before = attributes();
        match take_turns_of(Duration::from_micros(500)) {
            Err(error) => eprintln!("SKIPPED: {error}"),
            Ok(()) => {
                let after = attributes();
                assert_eq!((after.policy, after.nice), (before.policy, before.nice));
                // Before Linux 6.12 nothing is reported.
                assert!([0, 500_000].contains(&after.runtime), "{}", after.runtime);
            }
        }
    }
}
