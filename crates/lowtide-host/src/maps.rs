//! How lowtide's maps work on this machine: which way a map takes, and why.
//!
//! | way | what it takes |
//! |---|---|
//! | `userfault` | page faults of a memfd that threads serve, an eventfd; a scan of page tables |
//! | `pagecache` | a scan of page tables; to see single pages, asynchronous write protection |
//!
//! Without a scan `pagecache` works by `mincore(2)`, for files that the user owns or may write, and
//! sees no touches. A map for which no way was named takes `userfault` where system calls may use
//! the memory, else `pagecache`. Each step is tried on a page of a memfd, as the runtime does it.
//!
//! # Safety
//!
//! The one unsafe call registers a mapping that was made for it. Nothing touches its memory, and it
//! is unmapped before its descriptor is closed.

#![allow(unsafe_code)]

use std::fmt;
use std::io;

use lowtide_sys::memory::page_size;
use lowtide_sys::pagemap::Pagemap;
use lowtide_sys::shared::{Rights, SharedMapping, Sharing, memfd};
use lowtide_sys::userfault::{Features, Modes, Scope, UserFault};
use rustix::event::{EventfdFlags, eventfd};

/// What `userfault` mode needs of `userfaultfd(2)`.
const SERVED: Features = Features::MISSING_SHMEM.union(Features::WP_SHMEM).union(Features::POISON);
/// What makes touches of single pages visible in `pagecache` mode.
const EXACT: Features = Features::WP.union(Features::WP_ASYNC);

/// Features of `userfaultfd(2)`, and what lowtide does with each: what it is used for, or why not.
const FEATURES: [(Features, &str, Result<&str, &str>); 8] = [
    (Features::MISSING_SHMEM, "missing pages", Ok("`userfault`")),
    (Features::WP_SHMEM, "write protection", Ok("stores in `userfault`")),
    (Features::POISON, "poison", Ok("pages that cannot be read")),
    (Features::WP, "protection of anonymous memory", Ok("`pagecache`")),
    (Features::WP_ASYNC, "asynchronous protection", Ok("touches of single pages in `pagecache`")),
    (Features::MINOR_SHMEM, "minor faults", Err("a copy fills a page and maps it in one call")),
    (Features::MOVE, "move", Err("it is for anonymous memory, and a mirror is a memfd")),
    (Features::SIGBUS, "signals", Err("a program's handler of SIGBUS is its own")),
];

/// What maps can do here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maps {
    /// Whether page tables can be scanned (`PAGEMAP_SCAN`); the text has the reason if not.
    pub scan: Result<(), String>,
    /// `userfault` mode: whether system calls may use the memory; the text has the reason if
    /// page faults cannot be served.
    pub served: Result<bool, String>,
    /// `pagecache` mode: whether touches of single pages can be seen; the text has the reason if
    /// only those of neighbours together can.
    pub exact: Result<(), String>,
    /// The features of `userfaultfd(2)` that the kernel offers.
    pub offered: Features,
}

impl Maps {
    /// Tries the steps. Leaves nothing behind.
    #[must_use]
    pub fn ask() -> Self {
        let scan = if Pagemap::available() {
            Ok(())
        } else if let Err(error) = Pagemap::open() {
            Err(format!("/proc/self/pagemap cannot be opened: {error}"))
        } else {
            Err("the kernel has no PAGEMAP_SCAN (Linux 6.7), or a sandbox forbids it".to_owned())
        };
        let registered = |wanted, modes| {
            register(wanted, modes).map_err(|(step, error)| format!("{step}: {error}"))
        };
        Self {
            scan,
            served: registered(SERVED, Modes::MISSING | Modes::WRITE_PROTECT).and_then(|faults| {
                let woken = eventfd(0, EventfdFlags::CLOEXEC);
                woken.map_err(|error| format!("eventfd(2): {error}"))?;
                Ok(!faults.user_mode_only())
            }),
            exact: registered(EXACT, Modes::WRITE_PROTECT).map(drop),
            offered: UserFault::open(Scope::Any, Features::empty())
                .map_or(Features::empty(), |faults| faults.offered()),
        }
    }

    /// The way that a map takes, if none was named.
    #[must_use]
    pub fn way(&self) -> &'static str {
        match (&self.scan, &self.served) {
            (Ok(()), Ok(true)) => "userfault",
            _ => "pagecache",
        }
    }

    /// Which features of page faults are used, lacking, and offered but not used, and why not.
    #[must_use]
    pub fn features(&self) -> String {
        let offered = |of: &Features| self.offered.contains(*of);
        let mut used = Vec::new();
        let mut rest = Vec::new();
        for (of, name, what_for) in &FEATURES {
            match what_for {
                Ok(what_for) if offered(of) => used.push(format!("{name} ({what_for})")),
                Ok(what_for) => rest.push(format!("lacks {name} ({what_for})")),
                Err(why) if offered(of) => rest.push(format!("no use of {name} ({why})")),
                // Not missed.
                Err(_) => {}
            }
        }
        let used = if used.is_empty() { "none".to_owned() } else { used.join(", ") };
        // Protection of reads has no bit that is known yet.
        rest.push("no read-write protection known: touches are seen by zaps".to_owned());
        format!("{used}; {}", rest.join("; "))
    }

    /// How touches are seen in `pagecache` mode.
    fn touches(&self) -> String {
        match &self.exact {
            Ok(()) => "touches of single pages are seen in files that may be written".to_owned(),
            Err(why) => format!("a page looks touched when a neighbour was: {why}"),
        }
    }
}

/// `userfault`, or `pagecache` and why; then what follows.
impl fmt::Display for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.scan, &self.served) {
            (Err(why), _) => write!(
                f,
                "pagecache (no `userfault`; for files that this user owns or may write; touches \
                 are not seen, and `map_copy` is refused: {why})"
            ),
            (Ok(()), Ok(true)) => {
                write!(
                    f,
                    "userfault (an exact budget, for stores if it is named; system calls may use \
                     the memory, so `lowtide run --mode userfault` can)"
                )
            }
            (Ok(()), Ok(false)) => write!(
                f,
                "pagecache ({}; `userfault` if named, but system calls on missing pages fail, so \
                 `lowtide run` does not: `sysctl vm.unprivileged_userfaultfd=1`)",
                self.touches()
            ),
            (Ok(()), Err(why)) => {
                write!(f, "pagecache ({}; no `userfault`: {why})", self.touches())
            }
        }
    }
}

/// Registers a page of a memfd that is mapped for reading.
fn register(wanted: Features, modes: Modes) -> Result<UserFault, (&'static str, io::Error)> {
    let faults = UserFault::open(Scope::Any, wanted).map_err(|e| ("userfaultfd(2)", e))?;
    if faults.features() != wanted {
        let lacks = format!("the kernel lacks {:?}", wanted - faults.features());
        return Err(("userfaultfd(2)", io::Error::new(io::ErrorKind::Unsupported, lacks)));
    }
    let len = page_size();
    let memory = memfd("lowtide-probe", len as u64).map_err(|e| ("memfd_create(2)", e))?;
    let window = SharedMapping::map(&memory, 0, len, Rights::Read, Sharing::Shared, false)
        .map_err(|e| ("mmap(2)", e))?;
    // SAFETY: only this function knows of the mapping, and nothing touches it.
    unsafe { faults.register(window.addresses(), modes) }
        .map_err(|e| ("registering with userfaultfd(2)", e))?;
    drop(window);
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(scan: bool, served: Result<bool, &str>, exact: bool) -> Maps {
        let why = |allowed: bool| if allowed { Ok(()) } else { Err("too old".to_owned()) };
        let offered = SERVED | Features::MOVE;
        Maps { scan: why(scan), served: served.map_err(str::to_owned), exact: why(exact), offered }
    }

    #[test]
    fn the_report_names_the_way_and_the_reason() {
        for (maps, way, words) in [
            (maps(true, Ok(true), true), "userfault", ["exact budget", "run --mode userfault"]),
            (maps(true, Ok(false), true), "pagecache", ["unprivileged", "`lowtide run` does not"]),
            (maps(true, Err("refused"), false), "pagecache", ["refused", "a neighbour was"]),
            (maps(false, Ok(true), true), "pagecache", ["no `userfault`", "too old"]),
        ] {
            let text = maps.to_string();
            assert_eq!(maps.way(), way, "{text}");
            assert!(text.starts_with(way), "{text}");
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }

    #[test]
    fn features_are_used_or_lacking_or_not_used_for_a_reason() {
        let text = maps(true, Ok(true), false).features();
        let parts: Vec<_> = text.split("; ").collect();
        assert!(parts[0].contains("poison") && !parts[0].contains("asynchronous"), "{text}");
        assert!(parts.iter().any(|part| part.starts_with("lacks asynchronous")), "{text}");
        assert!(parts.iter().any(|part| part.starts_with("no use of move (it is")), "{text}");
        assert!(!text.contains("minor"), "what is neither offered nor missed: {text}");
        let nothing = Maps { offered: Features::empty(), ..maps(true, Err("refused"), false) };
        assert!(nothing.features().starts_with("none; lacks missing pages"), "{nothing:?}");
    }

    #[test]
    fn what_is_asked_agrees_with_the_system_calls() {
        let maps = Maps::ask();
        assert_eq!(maps.scan.is_ok(), Pagemap::available());
        if let Err(error) = UserFault::open(Scope::Any, Features::empty()) {
            eprintln!("SKIPPED in part: {error}");
            assert!(maps.served.is_err() && maps.exact.is_err(), "{maps:?}");
        }
        assert_eq!(maps, Maps::ask(), "asking changes nothing");
    }
}
