//! The page size of a trace, and the conversion to the page size of a machine.
//!
//! A trace counts in pages, so all sizes in bytes depend on the page size. Our own formats may
//! specify it; foreign formats have bytes or addresses, which the reader converts to pages of 4
//! KiB. `--page` is for traces that do not specify a size, and overrides those that do, with a
//! note.
//!
//! The plain machine uses the trace's pages as its own. A full machine has a fixed page size: an
//! access to a page of the trace touches the machine's pages with the same bytes, so several small
//! pages share one, and a large page covers several.

use lowtide::Size;
use lowtide_report::out;
use lowtide_workload::PageOp;
use lowtide_workload::trace::{Trace, page_is_possible};

use lowtide_bench::sim::error::SimError;

/// The page size if neither the trace nor an option specifies it.
const USUAL_BYTES: u64 = 4096;

/// The page size of `trace`, or that of `--page` (`asked`). Notes if they differ.
///
/// # Errors
/// [`SimError::Usage`] for an impossible `--page`.
pub(crate) fn page_of(asked: Option<Size>, trace: &Trace) -> Result<u64, SimError> {
    let said = trace.page_bytes();
    let Some(asked) = asked else { return Ok(said.unwrap_or(USUAL_BYTES)) };
    let bytes = asked.bytes();
    if !page_is_possible(bytes) {
        return Err(SimError::usage(
            format!("--page {asked} is not possible"),
            "give a power of two from 512 bytes to 64K, such as --page 1K",
        ));
    }
    if let Some(said) = said.filter(|&said| said != bytes) {
        let said = Size::new(said);
        out::note(format_args!(
            "the trace has pages of {said}, and --page treats each of them as {asked}; omit it to \
             replay the trace as it is"
        ));
    }
    Ok(bytes)
}

/// A page size for the lines above the table, and its source.
pub(crate) fn shown(asked: Option<Size>, trace: &Trace, page: u64) -> String {
    let from = match (asked, trace.page_bytes()) {
        (None, None) => " (the trace does not say; --page may)",
        _ => "",
    };
    format!("pages of {}{from}", Size::new(page))
}

/// The conversion of pages of one size to another. Both are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repage {
    from: u64,
    to: u64,
}

impl Repage {
    /// The identity.
    pub(crate) const NONE: Self = Self { from: 1, to: 1 };

    /// Pages of `from` bytes become pages of `to` bytes.
    pub(crate) const fn new(from: u64, to: u64) -> Self {
        Self { from, to }
    }

    /// The operation on the converted pages.
    ///
    /// # Errors
    /// [`SimError::Usage`] when there are more of them than a space can have.
    pub(crate) fn op(self, op: PageOp) -> Result<PageOp, SimError> {
        if self.from == self.to {
            return Ok(op);
        }
        // Pages are below 2^32 and have at most 64 KiB.
        let first = op.page * self.from / self.to;
        let end = ((op.page + u64::from(op.pages)) * self.from).div_ceil(self.to);
        let other = u32::try_from(end - first).map(|pages| PageOp { page: first, pages, ..op });
        other.ok().filter(PageOp::range_is_possible).ok_or_else(|| {
            SimError::usage(
                format!(
                    "page {} of the trace is beyond the largest page of a simulated file",
                    op.page
                ),
                "omit --machine, or choose one with larger pages",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_workload::{OpKind, SpaceId};

    #[test]
    fn an_operation_touches_the_pages_that_hold_its_bytes() {
        let op = |page, pages| PageOp { kind: OpKind::Load, space: SpaceId(3), page, pages };
        for (from, to, given, want) in [
            (4096, 4096, (7, 3), (7, 3)),
            (1024, 4096, (7, 1), (1, 1)),
            (1024, 4096, (7, 2), (1, 2)),
            (1024, 4096, (4, 4), (1, 1)),
            (16384, 4096, (2, 3), (8, 12)),
        ] {
            assert_eq!(Repage::new(from, to).op(op(given.0, given.1)).unwrap(), op(want.0, want.1));
        }
        assert!(Repage::new(65536, 4096).op(op(1 << 30, 1)).is_err());
        assert!(Repage::new(65536, 4096).op(op(0, 1 << 30)).is_err());
    }
}
