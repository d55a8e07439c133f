//! The cost of a piece of work to this process: processor time, and bytes from and to devices.
//!
//! Every reading is a snapshot of a counter that only grows; take one before and one after, and
//! subtract (`since`). The reading of a thread covers one worker; that of the process includes the
//! threads that have ended.
//!
//! # Safety
//!
//! The one unsafe call is `getrusage(2)`, which fills a structure of plain integers that this file
//! owns.

#![allow(unsafe_code)]

use crate::probe::meminfo_bytes;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Processor time, to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time spent in the program's own code.
    pub user: Duration,
    /// Time spent in the kernel on its behalf.
    pub system: Duration,
}

impl CpuTime {
    /// Of the whole process, ended threads included. One system call.
    #[must_use]
    pub fn now_self() -> CpuTime {
        CpuTime::of(&usage(libc::RUSAGE_SELF))
    }

    /// Of all children that have ended and were waited for. One system call.
    #[must_use]
    pub fn now_children() -> CpuTime {
        CpuTime::of(&usage(libc::RUSAGE_CHILDREN))
    }

    /// Of the calling thread. One system call.
    #[must_use]
    pub fn now_thread() -> CpuTime {
        CpuTime::of(&usage(libc::RUSAGE_THREAD))
    }

    fn of(usage: &libc::rusage) -> CpuTime {
        CpuTime { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
    }

    /// User and system time together.
    #[must_use]
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// User and system time together, in seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.total().as_secs_f64()
    }

    /// The time that went by since an earlier reading. The kernel's split into user and system is
    /// an estimate and can step back by a tick; that counts as nothing.
    #[must_use]
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// Bytes moved by devices for a process (`/proc/PID/io`). Reads served by the page cache are not
/// in it; writes count when a page becomes dirty, or at once when they are direct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcIo {
    /// Bytes fetched from devices.
    pub read_bytes: u64,
    /// Bytes sent to devices, or promised to be.
    pub write_bytes: u64,
}

impl ProcIo {
    /// Of this process, or `None` where the kernel keeps no such account.
    #[must_use]
    pub fn read_self() -> Option<ProcIo> {
        ProcIo::parse(&std::fs::read_to_string("/proc/self/io").ok()?)
    }

    /// Of a process, or `None` when it has ended, is another user's, or no account is kept.
    #[must_use]
    pub fn read(pid: u32) -> Option<ProcIo> {
        ProcIo::parse(&std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
    }

    fn parse(text: &str) -> Option<ProcIo> {
        let field = |name: &str| {
            text.lines().find_map(|line| {
                line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u64>().ok()
            })
        };
        Some(ProcIo { read_bytes: field("read_bytes")?, write_bytes: field("write_bytes")? })
    }

    /// The bytes since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: ProcIo) -> ProcIo {
        ProcIo {
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
        }
    }
}

/// `getrusage(2)`, which cannot fail for the two targets used here.
fn usage(who: libc::c_int) -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: The pointer is to memory of the right type and size, writable and owned here.
    let rc = unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
    debug_assert_eq!(rc, 0, "getrusage({who}) failed");
    // SAFETY: The structure was zeroed, which is a valid value for its integers, and at most
    // overwritten by the call.
    unsafe { usage.assume_init() }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(count(time.tv_sec)) + Duration::from_micros(count(time.tv_usec))
}

/// Counters are signed in the C structures, as wide as a register, and never negative.
fn count(value: impl Into<i64>) -> u64 {
    u64::try_from(value.into()).unwrap_or(0)
}

/// Bytes of memory that programs can have without swapping, as the kernel estimates; without
/// `/proc` those that nothing uses (`sysinfo(2)`).
#[must_use]
pub fn memory_available() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match meminfo_bytes(&meminfo, "MemAvailable") {
        0 => {
            let info = rustix::system::sysinfo();
            (info.freeram + info.bufferram) * u64::from(info.mem_unit)
        }
        bytes => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work_and_a_thread_counts_only_itself() {
        let before = (CpuTime::now_self(), CpuTime::now_thread());
        let mut sum = 0u64;
        while CpuTime::now_thread().since(before.1).total() < Duration::from_millis(20) {
            sum = (0..100_000u64).fold(sum, |a, b| std::hint::black_box(a.wrapping_mul(31) + b));
        }
        let spent = CpuTime::now_self().since(before.0);
        assert!(spent.total() >= Duration::from_millis(10), "{spent:?} ({sum})");
        assert!((spent.seconds() - spent.total().as_secs_f64()).abs() < 1e-9);

        let fresh = std::thread::spawn(CpuTime::now_thread).join().unwrap();
        assert!(fresh.total() < CpuTime::now_self().total());
        assert_eq!(before.0.since(CpuTime::now_self()), CpuTime::default());
    }

    #[test]
    fn device_bytes_of_a_process_are_read_and_nonsense_is_none() {
        match ProcIo::read_self() {
            Some(io) => {
                assert!(ProcIo::read(std::process::id()).unwrap().read_bytes >= io.read_bytes);
            }
            None => eprintln!("SKIPPED in part: this kernel keeps no account of I/O"),
        }
        assert_eq!(ProcIo::read(u32::MAX), None);
        let text = "rchar: 9\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 7\n";
        let io = ProcIo::parse(text).unwrap();
        assert_eq!(io, ProcIo { read_bytes: 4096, write_bytes: 512 });
        assert_eq!(
            io.since(ProcIo { read_bytes: 96, write_bytes: 512 }),
            ProcIo { read_bytes: 4000, write_bytes: 0 }
        );
        assert_eq!(ProcIo::parse("read_bytes: many\nwrite_bytes: 1"), None);
        assert_eq!(ProcIo::parse(""), None);
    }
}
