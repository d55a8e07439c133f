//! A function of the program that hears of pages that cannot be brought in.

use crate::error::Error;
use lowtide_sys::room;
use std::fmt;
use std::sync::Arc;

/// What the program wants to do when a page cannot be brought in.
#[derive(Clone)]
pub(super) struct OnError(Arc<dyn Fn(&Error) + Send + Sync>);

impl OnError {
    pub(super) fn new(call: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }

    pub(super) fn call(&self, error: &Error) {
        // It is the program's, and has the program's descriptors.
        room::outside(|| (self.0)(error));
    }
}

impl fmt::Debug for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnError")
    }
}
