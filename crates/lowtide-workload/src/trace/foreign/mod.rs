//! Formats of other tools, read and never written.
//!
//! | file | format |
//! |---|---|
//! | `oracle.rs` | `oracle-general`: objects, binary |
//! | `object_csv.rs` | `object-csv`: objects, text with a header |
//! | `msr.rs` | `msr`: blocks of volumes, text |
//! | `lackey.rs` | `lackey`: addresses of a program, text |
//! | `filemap.rs` | `filemap`: page-cache events of the kernel, text |
//!
//! Their sizes and addresses become pages of 4 KiB ([`PAGE_BYTES`]):
//!
//! | file | concept |
//! |---|---|
//! | `objects.rs` | objects without place get page ranges of an arena |
//! | `regions.rs` | page numbers beyond what one space can have go on in the next |

pub(super) mod filemap;
pub(super) mod lackey;
pub(super) mod msr;
pub(super) mod object_csv;
mod objects;
pub(super) mod oracle;
mod regions;

/// The page that bytes and addresses of foreign traces are counted in.
pub const PAGE_BYTES: u64 = 4096;

/// The pages that `bytes` bytes at `offset` touch, as the first and how many: unaligned ends touch
/// both pages. No bytes are taken for one. `None` when they end beyond 2^64 or are more pages than
/// an operation can have.
pub(super) fn pages_of(offset: u64, bytes: u64) -> Option<(u64, u32)> {
    let last = offset.checked_add(bytes.max(1) - 1)? / PAGE_BYTES;
    let first = offset / PAGE_BYTES;
    Some((first, u32::try_from(last - first + 1).ok()?))
}
