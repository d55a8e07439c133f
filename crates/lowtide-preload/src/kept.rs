//! Mappings of the program that are within the budget, and how each is kept there.

use crate::budgets::{Counted, Share, Subject};
use crate::mirrors::Mirrored;
use std::ops::Range;

/// A mapping, or what is left of it.
pub(crate) struct Kept {
    pub(crate) subject: Subject,
    pub(crate) held: Held,
}

/// How it is kept.
pub(crate) enum Held {
    /// The kernel's mapping, watched.
    Watched(Share),
    /// A mirror, always of the whole mapping.
    Mirrored(Mirrored),
}

impl Kept {
    pub(crate) fn counted(&self) -> Counted<'_> {
        match &self.held {
            Held::Watched(_) => (&self.subject, None),
            Held::Mirrored(mirror) => (&self.subject, Some(mirror)),
        }
    }

    /// The first page that could not be brought in, and why, if it is a mirror.
    pub(crate) fn error(&self) -> Option<String> {
        match &self.held {
            Held::Watched(_) => None,
            Held::Mirrored(mirror) => mirror.first_error(),
        }
    }
}

impl Held {
    /// How the program is going to use some of its addresses.
    pub(crate) fn advise(&self, addresses: Range<usize>, random: bool) {
        match self {
            Self::Watched(share) => {
                share.advise(addresses, random);
            }
            Self::Mirrored(mirror) => mirror.advise(random),
        }
    }

    /// What is at some addresses is soon wanted. False if the kernel has to be advised.
    pub(crate) fn will_need(&self, addresses: Range<usize>) -> bool {
        match self {
            Self::Watched(share) => share.will_need(addresses),
            Self::Mirrored(mirror) => {
                mirror.will_need(addresses);
                true
            }
        }
    }
}
