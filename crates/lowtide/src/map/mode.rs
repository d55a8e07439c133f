//! The two modes of a map, and their names.

use std::fmt;
use std::str::FromStr;

/// How a map gets its pages, and how its budget is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum MapMode {
    /// `userfault` where system calls may use the memory, otherwise `pagecache`.
    #[default]
    Auto,
    /// The program's page faults are served by this process, from a mirror of the file. The budget
    /// is exact.
    Userfault,
    /// The kernel's own mapping of the file, watched and trimmed. Everything works as with any
    /// mapping; the budget may be exceeded for moments (`watch.rs` says by how much).
    PageCache,
}

/// A text that is not the name of a mode.
#[derive(Clone, Debug, thiserror::Error)]
#[error("unknown map mode `{0}`: expected auto, userfault or pagecache")]
pub struct UnknownMapMode(String);

impl FromStr for MapMode {
    type Err = UnknownMapMode;

    fn from_str(text: &str) -> Result<Self, UnknownMapMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "userfault" => Ok(Self::Userfault),
            "pagecache" => Ok(Self::PageCache),
            _ => Err(UnknownMapMode(text.to_owned())),
        }
    }
}

impl fmt::Display for MapMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Userfault => "userfault",
            Self::PageCache => "pagecache",
        })
    }
}
