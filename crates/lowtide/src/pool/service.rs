//! A service of a pager: threads that it starts when they are first needed.

use std::any::Any;
use std::fmt;
use std::thread::JoinHandle;

/// What is started when a pager first needs it, and ends with the pager.
pub(crate) trait Service: Any + fmt::Debug + Send + Sync {
    /// Ends it. Returns the threads that may still be ending.
    fn close(&self) -> Vec<JoinHandle<()>>;
}
