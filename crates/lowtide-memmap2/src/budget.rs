//! The one pager of the process, which all maps share.
//!
//! A crate that maps a file has no place for a pager, and must not have one of its own: budgets add
//! up. So there is one, made at the first map. A child of `fork` has none of its parent's threads
//! and gets another one at its own first map; the budget of parent and children together is a
//! multiple then.
//!
//! No thread waits for the one that makes it: a child that is forked meanwhile would wait for a
//! thread that it does not have. Each thread that finds none makes one, and all use the first that
//! is ready.

use lowtide::{Pager, PagerBuilder, Size};
use std::env;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The variable with the budget, such as `256M`.
pub const VARIABLE: &str = "LOWTIDE_MAX";

/// The pager, and the process that it belongs to. What it points to is never freed: other threads
/// may look at it, and what a child has of its parent's would wait for threads that are not there.
static MADE: AtomicPtr<Made> = AtomicPtr::new(ptr::null_mut());

struct Made {
    process: u32,
    pager: Option<Pager>,
}

/// The pager of this process, for its counters; `None` where neither [`VARIABLE`] nor a memory
/// cgroup says how much it may have. Maps are plain then. It is made at the first call, and lives
/// as long as the process.
///
/// # Errors
/// `InvalidInput` for a budget that makes no sense; else what the kernel refuses. The next call
/// tries again.
pub fn pager() -> io::Result<Option<Pager>> {
    let process = std::process::id();
    let found = MADE.load(Ordering::Acquire);
    if let Some(made) = of(found).filter(|made| made.process == process) {
        return Ok(made.pager.clone());
    }
    let pager = build(env::var_os(VARIABLE).as_deref().map(|text| text.to_string_lossy()))?;
    let made = Box::into_raw(Box::new(Made { process, pager }));
    match MADE.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(of(made).and_then(|made| made.pager.clone())),
        Err(first) => {
            // SAFETY: made above, and known to no other thread. Its pager ends here.
            drop(unsafe { Box::from_raw(made) });
            Ok(of(first).and_then(|made| made.pager.clone()))
        }
    }
}

fn of(made: *mut Made) -> Option<&'static Made> {
    // SAFETY: null, or published in `MADE` and never freed.
    unsafe { made.as_ref() }
}

fn build(wanted: Option<impl AsRef<str>>) -> io::Result<Option<Pager>> {
    let builder = match wanted {
        None => PagerBuilder::from_cgroup(),
        Some(text) => Some(Pager::builder().max(size(text.as_ref())?)),
    };
    let invalid = |error| {
        let text = format!("the memory for maps ({VARIABLE}, or the memory cgroup): {error}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    builder.map(|builder| builder.build().map_err(invalid)).transpose()
}

fn size(text: &str) -> io::Result<Size> {
    let invalid = |error| {
        let text = format!("{VARIABLE} is not a size such as 256M: {error}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    text.trim().parse().map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_makes_no_sense_is_an_error_that_names_the_variable() {
        for text in ["much", "", "1"] {
            let error = build(Some(text)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(VARIABLE), "{error}");
        }
        let pager = build(Some("4M")).unwrap().unwrap();
        assert_eq!(pager.stat().budget_bytes, 4 << 20);
    }
}
