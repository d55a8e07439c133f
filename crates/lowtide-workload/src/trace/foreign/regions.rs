//! Page numbers of 52 bits, in spaces of 2^32 pages.
//!
//! A space has at most [`SPACE_PAGES_MAX`] pages, and an address space of 64 bits has more. So each
//! region of that many pages is a space of its own: the lowest keeps the name, region `n` is called
//! `NAME-n`.

use super::super::error::TraceFault;
use super::super::record::Names;
use crate::op::{SPACE_PAGES_MAX, Space, SpaceId};

/// The spaces of one long row of pages.
#[derive(Debug)]
pub(super) struct Regions {
    base: Space,
    /// The regions met, and their spaces; the last one used is in front. There are few.
    met: Vec<(u64, SpaceId)>,
}

impl Regions {
    /// Spaces called as `base` is.
    pub(super) const fn new(base: Space) -> Self {
        Self { base, met: Vec::new() }
    }

    /// The space of page `page` and the page's number in it.
    ///
    /// # Errors
    /// [`TraceFault::TooManyNames`].
    #[inline]
    pub(super) fn place(
        &mut self,
        page: u64,
        names: &mut Names,
    ) -> Result<(SpaceId, u64), TraceFault> {
        let (region, inside) = (page / SPACE_PAGES_MAX, page % SPACE_PAGES_MAX);
        match self.met.first() {
            Some(&(last, space)) if last == region => Ok((space, inside)),
            _ => Ok((self.find(region, names)?, inside)),
        }
    }

    #[cold]
    fn find(&mut self, region: u64, names: &mut Names) -> Result<SpaceId, TraceFault> {
        if let Some(at) = self.met.iter().position(|met| met.0 == region) {
            self.met.swap(0, at);
            return Ok(self.met[0].1);
        }
        let name = match region {
            0 => self.base.name.clone(),
            _ => format!("{}-{region}", self.base.name),
        };
        let id =
            names.space(Space { kind: self.base.kind, name }).ok_or(TraceFault::TooManyNames)?;
        self.met.insert(0, (region, id));
        Ok(id)
    }
}
