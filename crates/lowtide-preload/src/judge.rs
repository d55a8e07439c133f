//! Which mappings can be kept within a budget, and why others are left to the kernel.
//!
//! What this library does to a mapping is to remove entries of its page table and to drop clean
//! pages of its file. For a shared mapping both are invisible: the kernel brings the page back, and
//! a dirty page is not dropped. For a private mapping the same holds while nothing was stored to
//! it, so it is taken only while it cannot be stored to. Code is never slowed down by eviction.
//!
//! | mapping | |
//! |---|---|
//! | shared, readable, of a file | adopted |
//! | private, readable only, of a file | adopted until it becomes writable |
//! | private and writable, or executable | left alone |
//! | locked in memory, or of a file that lives in memory | left alone: there is nothing to evict |

use libc::c_int;
use lowtide_run::local::lives_in_memory;
use rustix::fs::{FileType, fstat};
use std::os::fd::BorrowedFd;

/// How an adopted mapping is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Stores to it are stores to the file, or there are none.
    Shared,
    /// Nothing can be stored to it.
    PrivateReadOnly,
}

/// Defines why something is as it is: each reason, its name in JSON, and the reason in words.
macro_rules! reasons {
    ($(#[$about:meta])* $name:ident {
        $($(#[$when:meta])* $reason:ident = $json:literal, $text:literal;)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$when])* $reason),*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub(crate) const ALL: [Self; [$($json),*].len()] = [$(Self::$reason),*];

            /// Its name in JSON.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $json),*
                }
            }

            /// The reason in words.
            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Self::$reason => $text),*
                }
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// Why a mapping is left to the kernel.
    Reason {
        /// Below the threshold.
        Small = "small", "smaller than --threshold";
        /// Code.
        Executable = "executable", "code";
        /// Private and writable.
        Writable = "private_writable", "private and writable: stores are the program's own copies";
        /// Not readable when it was mapped.
        Unreadable = "not_readable", "not readable when it was mapped";
        /// Locked in memory.
        Locked = "locked", "locked in memory by the program";
        /// A file that is memory.
        InMemory = "in_memory", "the file lives in memory (tmpfs, memfd, huge pages)";
        /// No thread, no memory, no descriptor; or a child without the handlers of `fork`.
        Resources = "resources",
            "no thread, memory or descriptor for its watcher, or a process made by raw clone(2)";
        /// The file could not be opened by the keeper.
        Unopened = "not_opened", "the file could not be opened a second time";
        /// The engine refused.
        Refused = "refused", "refused by the runtime";
        /// Our own thread failed.
        Broken = "broken", "lowtide's own thread failed";
        /// The program serves page faults itself.
        Userfaultfd = "userfaultfd", "the program uses userfaultfd(2) itself";
        /// The program gives up rights, or goes into other namespaces.
        Rights = "rights", "the program, of one thread, gave up rights or changed its namespaces";
    }
}

/// What is to become of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is kept within the budget.
    Adopt(Kind),
    /// It is left to the kernel, and counted.
    Leave(Reason),
    /// It is not of a file: no concern of ours.
    Ignore,
}

/// Whether protection and flags allow it; files are looked at by [`of_file`].
pub(crate) const fn of_flags(prot: c_int, flags: c_int) -> Verdict {
    if prot & libc::PROT_EXEC != 0 {
        return Verdict::Leave(Reason::Executable);
    }
    if flags & (libc::MAP_LOCKED | libc::MAP_HUGETLB) != 0 {
        return Verdict::Leave(Reason::Locked);
    }
    let is_private = flags & libc::MAP_TYPE == libc::MAP_PRIVATE;
    if is_private && prot & libc::PROT_WRITE != 0 {
        return Verdict::Leave(Reason::Writable);
    }
    if prot & libc::PROT_READ == 0 {
        return Verdict::Leave(Reason::Unreadable);
    }
    Verdict::Adopt(if is_private { Kind::PrivateReadOnly } else { Kind::Shared })
}

/// A file by its device and number, so that a second descriptor is known to be of the same.
pub(crate) type Identity = (u64, u64);

/// Whether the file is one whose pages can be dropped: its identity, or another verdict.
pub(crate) fn of_file(fd: BorrowedFd<'_>) -> Result<Identity, Verdict> {
    let stat = fstat(fd).map_err(|_| Verdict::Ignore)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Verdict::Ignore);
    }
    if lives_in_memory(fd) {
        return Err(Verdict::Leave(Reason::InMemory));
    }
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, PROT_EXEC, PROT_READ, PROT_WRITE};
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn only_what_nothing_can_be_lost_of_is_adopted() {
        let leave = Verdict::Leave;
        for (prot, flags, verdict) in [
            (PROT_READ, MAP_SHARED, Verdict::Adopt(Kind::Shared)),
            (PROT_READ | PROT_WRITE, MAP_SHARED, Verdict::Adopt(Kind::Shared)),
            (PROT_READ, MAP_SHARED_VALIDATE, Verdict::Adopt(Kind::Shared)),
            (PROT_READ, MAP_PRIVATE, Verdict::Adopt(Kind::PrivateReadOnly)),
            (PROT_READ | PROT_WRITE, MAP_PRIVATE, leave(Reason::Writable)),
            (PROT_READ | PROT_EXEC, MAP_PRIVATE, leave(Reason::Executable)),
            (PROT_READ | PROT_EXEC, MAP_SHARED, leave(Reason::Executable)),
            (libc::PROT_NONE, MAP_SHARED, leave(Reason::Unreadable)),
            (PROT_READ, MAP_SHARED | libc::MAP_LOCKED, leave(Reason::Locked)),
        ] {
            assert_eq!(of_flags(prot, flags), verdict, "{prot:#x} {flags:#x}");
        }
    }

    #[test]
    fn devices_and_files_that_are_memory_are_not_adopted() {
        let null = File::open("/dev/null").expect("a device");
        assert_eq!(of_file(null.as_fd()), Err(Verdict::Ignore));
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC);
        let memory = memory.expect("a file in memory");
        assert_eq!(of_file(memory.as_fd()), Err(Verdict::Leave(Reason::InMemory)));
        let own = File::open(std::env::current_exe().expect("a path")).expect("this test");
        assert!(of_file(own.as_fd()).is_ok(), "the target folder is on a disk");
    }

    #[test]
    fn reasons_are_numbered_in_order() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }
}
