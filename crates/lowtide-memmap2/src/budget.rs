//! The one pager of the process, which all maps share.
//!
//! A crate that maps a file has no place for a pager, and must not have one of its own: budgets add
//! up. So there is one, made at the first map. A child of `fork` has none of its parent's threads
//! and gets another one at its own first map; the budget of parent and children together is a
//! multiple then.

use lowtide::{Pager, PagerBuilder, Size};
use std::env;
use std::io;
use std::sync::{Mutex, PoisonError};

/// The variable with the budget, such as `256M`.
pub const VARIABLE: &str = "LOWTIDE_MAX";

/// The pager, and the process that it belongs to.
static PAGER: Mutex<Option<(u32, Option<Pager>)>> = Mutex::new(None);

/// The pager of this process, for its counters; `None` where neither [`VARIABLE`] nor a memory
/// cgroup says how much it may have. Maps are plain then. It is made at the first call, and lives
/// as long as the process.
///
/// # Errors
/// `InvalidInput` for a budget that makes no sense; else what the kernel refuses. The next call
/// tries again.
pub fn pager() -> io::Result<Option<Pager>> {
    let mut slot = PAGER.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    match &*slot {
        Some((owner, pager)) if *owner == process => return Ok(pager.clone()),
        // The parent's: dropping it would wait for threads that this process does not have.
        Some(_) => std::mem::forget(slot.take()),
        None => {}
    }
    let pager = build(env::var_os(VARIABLE).as_deref().map(|text| text.to_string_lossy()))?;
    *slot = Some((process, pager.clone()));
    Ok(pager)
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
