//! The features of this machine, probed once and printable as one report.
//!
//! Features are tried, not guessed from version numbers: a kernel may be built without one, an
//! administrator may have switched it off, a sandbox may forbid the call. So the probe makes an
//! io_uring and a userfaultfd and closes them again, and for each missing feature it reports the
//! reason and the remedy.
//!
//! # Safety
//!
//! Two system calls that make a descriptor: both take arguments that this file owns, and the
//! descriptor they return is new and goes straight into an owner that closes it.

#![allow(unsafe_code)]

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use lowtide_core::Size;
use lowtide_sys::membarrier::{self, Mode};
use lowtide_sys::memory::page_size;
use lowtide_sys::userfault::{Features, Scope, UserFault};
use rustix::mm::UserfaultfdFlags;
use rustix::process::Resource;

use crate::maps::Maps;
use crate::{memcg, reach};

/// Whether a feature can be used, with details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It can; the text has details.
    Yes(String),
    /// It cannot; the text has the reason, and what to do.
    No(String),
}

impl Availability {
    /// Whether it can be used.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        matches!(self, Availability::Yes(_))
    }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match self {
            Availability::Yes(text) => ("yes", text),
            Availability::No(text) => ("no", text),
        };
        if text.is_empty() { f.write_str(word) } else { write!(f, "{word} ({text})") }
    }
}

/// The features that this machine offers to this process.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Release and architecture, as `uname(2)` says.
    pub kernel: String,
    /// Processors that this process may use: affinity and cgroup quota count.
    pub cpus: usize,
    /// The processor's name, or `unknown`.
    pub cpu_model: String,
    /// Memory of the machine, in bytes; 0 when unknown.
    pub memory_total: u64,
    /// Memory available without swapping, in bytes, as the kernel estimates; 0 when unknown.
    pub memory_available: u64,
    /// The page size in bytes.
    pub page_size: usize,
    /// When the kernel hands out transparent huge pages: `always`, `madvise`, `never`, or `absent`.
    pub thp: String,
    /// Asynchronous I/O.
    pub io_uring: Availability,
    /// Faults served in user space.
    pub userfaultfd: Availability,
    /// The way that lowtide's maps take.
    pub maps: Maps,
    /// What `lowtide run` keeps: files, files in `userfault` mode, files that are read.
    pub run: [Availability; 3],
    /// Whether this process may make a memory cgroup, and where.
    pub memcg: Availability,
    /// Whether barriers are asymmetric (see [`lowtide_sys::membarrier`]).
    pub membarrier: bool,
    /// How many bytes this process may lock (`RLIMIT_MEMLOCK`); `None` is no limit.
    pub memlock_limit: Option<u64>,
    /// Whether this kernel's own reclaim uses generations.
    pub mglru: Availability,
}

impl Probe {
    /// Probes the machine. Takes about a millisecond, leaves nothing behind, and cannot fail: an
    /// unknown feature is reported as absent. Decides the process's barrier mode, as
    /// [`membarrier::register`] does.
    #[must_use]
    pub fn ask() -> Probe {
        let uname = rustix::system::uname();
        let meminfo = read("/proc/meminfo");
        let files = reach::files();
        type Reach = Result<String, String>;
        let all = |(): ()| String::new();
        let exact = files.clone().and_then(|()| reach::exact()).map(all);
        let reads: Reach = files.clone().and_then(|()| reach::reads());
        let run = [files.map(all), exact, reads];
        Probe {
            kernel: format!(
                "{} {}",
                uname.release().to_string_lossy(),
                uname.machine().to_string_lossy()
            ),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            memory_total: meminfo_bytes(&meminfo, "MemTotal"),
            memory_available: meminfo_bytes(&meminfo, "MemAvailable"),
            page_size: page_size(),
            thp: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            io_uring: io_uring(),
            userfaultfd: userfaultfd(),
            maps: Maps::ask(),
            run: run.map(|reach| reach.map_or_else(Availability::No, Availability::Yes)),
            memcg: match memcg::offered() {
                Ok(offer) => {
                    Availability::Yes(format!("{} at {}", offer.version, offer.parent.display()))
                }
                Err(error) => Availability::No(error.to_string()),
            },
            membarrier: membarrier::register() == Mode::Asymmetric,
            memlock_limit: rustix::process::getrlimit(Resource::Memlock).current,
            mglru: mglru(fs::read_to_string("/sys/kernel/mm/lru_gen/enabled").ok().as_deref()),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory =
            format!("{}, {} available", short(self.memory_total), short(self.memory_available));
        let memlock =
            self.memlock_limit.map_or("unlimited".to_owned(), |bytes| short(bytes).to_string());
        let membarrier = if self.membarrier { "yes" } else { "no" };
        // With what each is for: a user wants to know what a "no" means.
        let scan = match &self.maps.scan {
            Ok(()) => Availability::Yes(String::new()),
            Err(why) => Availability::No(why.clone()),
        };
        let features = self.maps.features();
        let served = match (&self.maps.scan, &self.maps.served) {
            (Ok(()), Ok(_)) => "; for maps with an exact budget",
            _ => "; maps with an exact budget need more, see below",
        };
        let [files, exact, reads] = &self.run;
        let rows: [(&str, &dyn fmt::Display, &str); 17] = [
            ("kernel", &self.kernel, ""),
            ("processors", &format_args!("{} x {}", self.cpus, self.cpu_model), ""),
            ("memory", &memory, ""),
            ("page size", &short(self.page_size as u64), ""),
            ("huge pages", &self.thp, "; for the budget's memory, where they are allowed"),
            ("io_uring", &self.io_uring, "; for reads and writes, else pread and pwrite"),
            ("userfaultfd", &self.userfaultfd, served),
            ("fault features", &features, ""),
            ("page table scan", &scan, "; for all maps: it shows which pages were touched"),
            ("way of maps", &self.maps, ""),
            ("lowtide run", files, "; for what programs map of files"),
            ("run --mode userfault", exact, "; the same with an exact budget"),
            ("run --files", reads, "; for files that programs read or write and do not map"),
            ("memory cgroup", &self.memcg, "; only `lowtide bench` needs one, to limit mmap"),
            ("membarrier", &membarrier, "; for readers without fences, else they have fences"),
            ("lockable memory", &memlock, "; only a populated pager locks memory"),
            ("kernel MGLRU", &self.mglru, "; not needed: lowtide has its own"),
        ];
        for (index, (name, value, what_for)) in rows.iter().enumerate() {
            let end = if index + 1 == rows.len() { "" } else { "\n" };
            write!(f, "{name:<19}  {value}{what_for}{end}")?;
        }
        Ok(())
    }
}

/// Makes the smallest io_uring and closes it (`io_uring_setup(2)`).
fn io_uring() -> Availability {
    /// `struct io_uring_params` is 120 bytes; the kernel fills in the features as the sixth word.
    const WORDS: usize = 30;
    const FEATURES: usize = 5;
    let mut params = [0u32; WORDS];
    // SAFETY: The second argument points to a zeroed io_uring_params, writable for the length of
    // the call. The call maps nothing into this process; it only makes a descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: The descriptor is open, was made by the call above, and has no other owner.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Availability::Yes(format!("features {:#x}", params[FEATURES]))
        }
        _ => Availability::No(why_no_io_uring(
            &io::Error::last_os_error(),
            &read("/proc/sys/kernel/io_uring_disabled"),
        )),
    }
}

fn why_no_io_uring(error: &io::Error, disabled: &str) -> String {
    match (error.raw_os_error(), disabled.trim()) {
        (Some(libc::ENOSYS), _) => "the kernel is built without it, or a sandbox hides it".into(),
        (Some(libc::EPERM), "1" | "2") => {
            format!(
                "switched off: `sysctl kernel.io_uring_disabled` is {}; set it to 0",
                disabled.trim()
            )
        }
        (Some(libc::EPERM), _) => {
            "a sandbox forbids it; allow io_uring_setup in its seccomp profile".into()
        }
        (Some(libc::ENOMEM), _) => "not enough lockable memory; raise `ulimit -l`".into(),
        _ => error.to_string(),
    }
}

/// Makes a userfaultfd that serves faults of user code only, which needs no privilege, and closes
/// it.
fn userfaultfd() -> Availability {
    /// `UFFD_USER_MODE_ONLY` (since Linux 5.11).
    const USER_MODE_ONLY: u32 = 1;
    let make = |bits: u32| {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::from_bits_retain(bits);
        // SAFETY: A userfaultfd affects no memory until a range is registered with it, and none
        // will be: the descriptor is closed before this function returns.
        unsafe { rustix::mm::userfaultfd(flags) }.map(drop)
    };
    match (make(USER_MODE_ONLY), make(0)) {
        (Ok(()), Ok(())) => Availability::Yes("faults of user code and of system calls".into()),
        (Ok(()), Err(_)) => Availability::Yes(
            "faults of user code only; `sysctl vm.unprivileged_userfaultfd=1` adds those of \
             system calls"
                .into(),
        ),
        // A kernel older than the flag.
        (Err(_), Ok(())) => {
            Availability::Yes("faults of user code and of system calls; kernel before 5.11".into())
        }
        // A sandbox refuses the call, and leaves the device.
        (Err(_), Err(_)) if UserFault::open(Scope::Any, Features::empty()).is_ok() => {
            Availability::Yes("by /dev/userfaultfd".into())
        }
        (Err(error), Err(_)) => Availability::No(match error {
            rustix::io::Errno::NOSYS => "the kernel is built without it, or a sandbox hides \
                it"
            .into(),
            rustix::io::Errno::PERM => {
                "a sandbox forbids it; allow userfaultfd in its seccomp profile".into()
            }
            other => io::Error::from(other).to_string(),
        }),
    }
}

/// `enabled` is a mask in hexadecimal; its lowest bit is the main switch.
fn mglru(enabled: Option<&str>) -> Availability {
    let Some(text) = enabled.map(str::trim) else {
        return Availability::No("this kernel is built without it".into());
    };
    match u32::from_str_radix(text.trim_start_matches("0x"), 16) {
        Ok(mask) if mask & 1 == 1 => Availability::Yes(format!("enabled {text}")),
        _ => Availability::No(format!(
            "switched off: /sys/kernel/mm/lru_gen/enabled is {text}; write y to it"
        )),
    }
}

/// The processor's name: x86 gives one, most others give an implementer or a board.
fn cpu_model(cpuinfo: &str) -> String {
    ["model name", "cpu model", "Processor", "uarch", "Model", "Hardware"]
        .iter()
        .find_map(|wanted| {
            cpuinfo.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == *wanted).then(|| value.trim().to_owned())
            })
        })
        .unwrap_or_else(|| "unknown".into())
}

/// A field of `/proc/meminfo`, which are in kibibytes.
pub(crate) fn meminfo_bytes(meminfo: &str, wanted: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| {
            let value = line.strip_prefix(wanted)?.strip_prefix(':')?;
            value.split_whitespace().next()?.parse::<u64>().ok()
        })
        .map_or(0, |kib| kib << 10)
}

/// The choice in brackets of a sysfs file such as `always [madvise] never`.
fn chosen(text: &str) -> String {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("absent", |(word, _)| word)
        .to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn short(bytes: u64) -> impl fmt::Display {
    Size::new(bytes).short()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_every_feature_and_agrees_with_itself() {
        let probe = Probe::ask();
        assert!(probe.cpus >= 1 && probe.page_size.is_power_of_two());
        assert!(probe.memory_total >= probe.memory_available && probe.memory_total > 0);
        let report = probe.to_string();
        for name in [
            "kernel",
            "memory",
            "io_uring",
            "userfaultfd",
            "fault features",
            "page table scan",
            "way of maps",
            "lowtide run",
            "run --mode userfault",
            "run --files",
            "memory cgroup",
            "membarrier",
            "lockable memory",
        ] {
            assert!(
                report.lines().any(|line| line.starts_with(name)),
                "{name} is missing from\n{report}"
            );
        }
        assert!(!report.ends_with('\n'));
        assert_eq!(probe.membarrier, membarrier::register() == Mode::Asymmetric);
    }

    #[test]
    fn asking_leaves_no_descriptor_behind() {
        const ASKED: usize = 64;
        for _ in 0..ASKED {
            io_uring();
            userfaultfd();
        }
        let left = fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .filter(|target| {
                let target = target.to_string_lossy();
                target.contains("io_uring") || target.contains("userfaultfd")
            })
            .count();
        // Another test may be inside its own probe at this very moment; a leak would have left one
        // for each call.
        assert!(left < ASKED, "{left} descriptors are left");
    }

    #[test]
    fn a_memory_cgroup_is_promised_only_if_it_can_be_made() {
        let made = memcg::Memcg::create("probe", 1 << 20);
        match &Probe::ask().memcg {
            Availability::Yes(_) => assert!(made.is_ok(), "{:?}", made.err()),
            Availability::No(why) => {
                eprintln!("SKIPPED in part: {why}");
                assert!(!why.is_empty());
            }
        }
    }

    #[test]
    fn reasons_say_what_to_do() {
        let eperm = io::Error::from_raw_os_error(libc::EPERM);
        assert!(why_no_io_uring(&eperm, "2\n").contains("set it to 0"));
        assert!(why_no_io_uring(&eperm, "").contains("seccomp"));
        assert!(
            why_no_io_uring(&io::Error::from_raw_os_error(libc::ENOMEM), "0").contains("ulimit -l")
        );
        assert!(mglru(Some("0x0007\n")).is_yes());
        assert!(!mglru(Some("0x0000\n")).is_yes());
        assert!(!mglru(Some("nonsense")).is_yes());
        assert!(!mglru(None).is_yes());
    }

    #[test]
    fn system_files_are_read_as_they_are_written() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast 9000: X\n"), "Fast 9000: X");
        assert_eq!(cpu_model(""), "unknown");
        assert_eq!(
            meminfo_bytes("MemTotal:       24683520 kB\nMemFree: 1 kB\n", "MemTotal"),
            24_683_520 << 10
        );
        assert_eq!(meminfo_bytes("", "MemTotal"), 0);
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen(""), "absent");
    }
}
