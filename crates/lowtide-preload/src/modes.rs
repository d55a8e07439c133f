//! Why a mapping is kept in `pagecache` mode although `userfault` is wanted, and how many are.

use crate::left::LeftAlone;
use lowtide_run::leases::NoLease;
use std::ops::Deref;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Stores through it go to the file.
    Stored,
    /// It replaces other memory, of which threads may know.
    Fixed,
    /// Another descriptor, or mapping, may change the file.
    OpenForWriting,
    /// A child has it from its parent: threads may know of it.
    Inherited,
    /// Leases are for owners.
    NotOwner,
    /// No lease on files of this file system.
    NoLease,
    /// userfaultfd, direct I/O or page tables.
    Unavailable,
    /// No memory, thread or room in a table.
    Resources,
    /// The addresses of the process are limited.
    Addresses,
    /// It was mirrored until the file was opened for writing, or cut.
    Opened,
    /// It was mirrored until a part was unmapped, replaced or locked.
    Cut,
    /// It was mirrored until it was moved or got another length.
    Moved,
    /// It was mirrored until its protection changed.
    Protected,
    /// It was mirrored until the program gave advice that changes more than reading ahead.
    Advised,
}

impl Why {
    /// All of them.
    pub(crate) const ALL: [Why; 14] = [
        Why::Stored,
        Why::Fixed,
        Why::OpenForWriting,
        Why::Inherited,
        Why::NotOwner,
        Why::NoLease,
        Why::Unavailable,
        Why::Resources,
        Why::Addresses,
        Why::Opened,
        Why::Cut,
        Why::Moved,
        Why::Protected,
        Why::Advised,
    ];

    /// Its name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Why::Stored => "shared_writable",
            Why::Fixed => "fixed_address",
            Why::OpenForWriting => "open_for_writing",
            Why::Inherited => "inherited",
            Why::NotOwner => "not_owner",
            Why::NoLease => "no_lease",
            Why::Unavailable => "unavailable",
            Why::Resources => "resources",
            Why::Addresses => "few_addresses",
            Why::Opened => "turned_opened_for_writing",
            Why::Cut => "turned_cut",
            Why::Moved => "turned_moved",
            Why::Protected => "turned_protected",
            Why::Advised => "turned_advised",
        }
    }

    /// The reason in words.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Why::Stored => "shared and writable: stores go to the file",
            Why::Fixed => "mapped in the place of other memory (MAP_FIXED)",
            Why::OpenForWriting => "the file is open for writing",
            Why::Inherited => "inherited from the parent process",
            Why::NotOwner => "the file belongs to another user: no lease",
            Why::NoLease => "the file system gives no lease that could be trusted",
            Why::Unavailable => "userfault cannot be used here",
            Why::Resources => "no memory, thread or room for another mirror",
            Why::Addresses => "addresses are limited (ulimit -v), and a mirror takes them twice",
            Why::Opened => "userfault until the file was opened for writing or cut",
            Why::Cut => "userfault until a part was unmapped, replaced or locked",
            Why::Moved => "userfault until it was moved or resized",
            Why::Protected => "userfault until its protection changed",
            Why::Advised => "userfault until the program gave special advice",
        }
    }
}

impl From<NoLease> for Why {
    fn from(none: NoLease) -> Self {
        match none {
            NoLease::OpenForWriting => Self::OpenForWriting,
            NoLease::NotOwner => Self::NotOwner,
            NoLease::Unsupported => Self::NoLease,
            NoLease::Resources => Self::Resources,
        }
    }
}

/// How mappings were kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Modes {
    /// Mappings that are, or were, in `userfault` mode.
    pub(crate) userfault: u64,
    /// Mappings that are in `pagecache` mode, or were.
    pub(crate) pagecache: u64,
    /// Why, each with the first file.
    because: Vec<LeftAlone<Why>>,
}

impl Modes {
    /// A mapping is in `pagecache` mode for this reason.
    pub(crate) fn add<P: Deref<Target = [u8]>>(
        &mut self,
        reason: Why,
        bytes: u64,
        path: impl FnOnce() -> P,
    ) {
        let known = self.because.iter_mut().find(|known| known.reason == reason);
        if let Some(known) = known {
            known.count += 1;
            known.bytes += bytes;
            return;
        }
        let first = Some(String::from_utf8_lossy(&path()).into_owned());
        let first = first.filter(|path| !path.is_empty());
        self.because.push(LeftAlone { reason, count: 1, bytes, first });
    }

    /// The reasons, in their order.
    pub(crate) fn because(&self) -> Vec<LeftAlone<Why>> {
        let of = |reason: Why| self.because.iter().filter(move |known| known.reason == reason);
        Why::ALL.into_iter().flat_map(of).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_with_their_bytes_and_the_first_file() {
        let mut modes = Modes::default();
        modes.add(Why::Opened, 5, || b"/a".to_vec());
        modes.add(Why::Stored, 1, Vec::new);
        modes.add(Why::Opened, 7, || b"/b".to_vec());
        let because = modes.because();
        assert_eq!(
            (because[0].reason, because[0].count, &because[0].first),
            (Why::Stored, 1, &None)
        );
        let opened = &because[1];
        assert_eq!((opened.count, opened.bytes, opened.first.as_deref()), (2, 12, Some("/a")));
    }

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Why::ALL.into_iter().map(Why::name).collect();
        assert_eq!(names.len(), Why::ALL.len());
    }
}
