//! Open files: one space for each, however often it is opened.
//!
//! | file | concept |
//! |---|---|
//! | `state` | [`Space`]: a file and its translations |
//! | `open`, `close` | opening by any name; writing everything and leaving memory |
//! | `backing` | the descriptors of a file, and the lock on it |
//! | `beneath` | direct writes beside what passes through the kernel's page cache |
//! | `stable` | pages that do not change while they are written |
//! | `length`, `punch` | where a file ends; holes |
//! | `owned` | owning all pages of a range for a moment |
//! | `whole` | which pages a range of bytes has as a whole |

pub(crate) mod backing;
pub(crate) mod beneath;
mod close;
pub(crate) mod length;
pub(crate) mod open;
pub(crate) mod owned;
pub(crate) mod punch;
mod stable;
mod state;
pub(crate) mod whole;

pub(crate) use state::{PAGES_MAX, SPACES_MAX, Space, head_of, parts};
