//! A sample: what all processes under lowtide said of themselves at one moment.

use lowtide_status::Status;

/// All processes at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// When it was taken: nanoseconds since 1970.
    pub(crate) at_ns: u64,
    /// The processes, in no particular order.
    pub(crate) processes: Vec<Seen>,
}

/// A process, and its page or why it cannot be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// The process.
    pub(crate) pid: u32,
    /// Its page.
    pub(crate) status: Option<Box<Status>>,
    /// Why its page cannot be read.
    pub(crate) error: Option<String>,
}

impl Seen {
    /// A process whose page was read.
    pub(crate) fn page(status: Status) -> Self {
        Self { pid: status.pid, status: Some(Box::new(status)), error: None }
    }

    /// A process whose page cannot be read.
    pub(crate) fn unreadable(pid: u32, why: String) -> Self {
        Self { pid, status: None, error: Some(why) }
    }
}
