//! Threads that must not wait for other threads.
//!
//! Inside a callback of `get_many` a thread has a page that the caller cannot release, and perhaps
//! reads in flight that no other thread can end. Another thread may wait for either. So what such a
//! thread cannot have at once is refused with [`Error::Nested`]: a wait for a thread that waits for
//! this one would never end.
//!
//! [`Error::Nested`]: crate::Error::Nested

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static SERVING: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread works for others, of all tenants: it never sleeps for one of them.
#[derive(Debug)]
pub(crate) struct Serving(PhantomData<*const ()>);

impl Serving {
    pub(crate) fn begin() -> Self {
        SERVING.set(true);
        Self(PhantomData)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVING.set(false);
    }
}

/// Whether this thread works for others.
pub(crate) fn is_serving() -> bool {
    SERVING.get()
}

/// While it lives, this thread must not wait for others. It does not leave the thread.
#[derive(Debug)]
pub(crate) struct Nested(PhantomData<*const ()>);

impl Nested {
    pub(crate) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(PhantomData)
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Whether this thread is inside a callback, or may have reads in flight.
pub(crate) fn is_nested() -> bool {
    DEPTH.get() > 0
}
