//! Mappings of the program that are within the budget, and how each is kept there.

use crate::budgets::{Counted, Subject, Watched};
use crate::mirrors::Mirrored;
use std::ops::Range;

/// A mapping, or what is left of it.
pub(crate) struct Kept {
    pub(crate) subject: Subject,
    pub(crate) how: Keeping,
}

/// How it is kept.
pub(crate) enum Keeping {
    /// The kernel's mapping, watched.
    Watched(Watched),
    /// A mirror, always of the whole mapping.
    Mirrored(Mirrored),
}

impl Kept {
    pub(crate) fn counted(&self) -> Counted<'_> {
        match &self.how {
            Keeping::Watched(_) => (&self.subject, None),
            Keeping::Mirrored(mirror) => (&self.subject, Some(mirror)),
        }
    }

    /// The first page that could not be brought in, and why, if it is a mirror.
    pub(crate) fn error(&self) -> Option<String> {
        match &self.how {
            Keeping::Watched(_) => None,
            Keeping::Mirrored(mirror) => mirror.first_error(),
        }
    }
}

impl Keeping {
    /// How the program is going to use some of its addresses.
    pub(crate) fn advise(&self, addresses: Range<usize>, random: bool) {
        match self {
            Self::Watched(watched) => {
                watched.advise(addresses, random);
            }
            Self::Mirrored(mirror) => mirror.advise(random),
        }
    }

    /// What is at some addresses is soon wanted. False if the kernel has to be advised.
    pub(crate) fn will_need(&self, addresses: Range<usize>) -> bool {
        match self {
            Self::Watched(watched) => watched.will_need(addresses),
            Self::Mirrored(mirror) => {
                mirror.will_need(addresses);
                true
            }
        }
    }
}
