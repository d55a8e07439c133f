//! How lowtide's maps work on this machine: which way a map takes, and why.
//!
//! | way | what it takes |
//! |---|---|
//! | `userfault` | page faults of a memfd served by this process, and a scan of page tables |
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
use lowtide_sys::shared::{Access, SharedMapping, Sharing, memfd};
use lowtide_sys::userfault::{Features, Modes, Scope, UserFault};

/// What the way `userfault` needs of `userfaultfd(2)`.
const SERVED: Features = Features::MISSING_SHMEM.union(Features::WP_SHMEM).union(Features::POISON);
/// What makes touches of single pages visible in the way `pagecache`.
const EXACT: Features = Features::WP.union(Features::WP_ASYNC);

/// What maps can do here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maps {
    /// Whether page tables can be scanned (`PAGEMAP_SCAN`); the text has the reason if not.
    pub scan: Result<(), String>,
    /// The way `userfault`: whether system calls may use the memory; the text has the reason if
    /// page faults cannot be served.
    pub served: Result<bool, String>,
    /// The way `pagecache`: whether touches of single pages can be seen; the text has the reason if
    /// only those of neighbours together can.
    pub exact: Result<(), String>,
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
            served: registered(SERVED, Modes::MISSING | Modes::WRITE_PROTECT)
                .map(|faults| !faults.user_mode_only()),
            exact: registered(EXACT, Modes::WRITE_PROTECT).map(drop),
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

    /// How touches are seen in the way `pagecache`.
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
                "pagecache (for files that this user owns or may write; touches are not seen, and \
                 `map_copy` is refused: {why})"
            ),
            (Ok(()), Ok(true)) => {
                write!(
                    f,
                    "userfault (an exact budget, for stores if it is named; system calls may use \
                     the memory, so `lowtide run --way userfault` can)"
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
    let window = SharedMapping::map(&memory, 0, len, Access::Read, Sharing::Shared, false)
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
        Maps { scan: why(scan), served: served.map_err(str::to_owned), exact: why(exact) }
    }

    #[test]
    fn the_report_names_the_way_and_the_reason() {
        for (maps, way, words) in [
            (maps(true, Ok(true), true), "userfault", ["exact budget", "run --way userfault"]),
            (maps(true, Ok(false), true), "pagecache", ["unprivileged", "`lowtide run` does not"]),
            (maps(true, Err("refused"), false), "pagecache", ["refused", "a neighbour was"]),
            (maps(false, Ok(true), true), "pagecache", ["not seen", "too old"]),
        ] {
            let text = maps.to_string();
            assert_eq!(maps.way(), way, "{text}");
            assert!(text.starts_with(way), "{text}");
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
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
