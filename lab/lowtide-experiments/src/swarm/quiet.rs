//! Panics as results: a run that panics has found something, and says it in its report rather than
//! on the terminal.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// In a run: what the last panic said, once there was one. Outside of one: `None`.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `run`. A panic in it becomes an error: its message and where it was.
///
/// The first call in a process adds a hook to the one that is there; panics of other threads, and
/// those outside of `run`, are the old hook's as before.
pub(super) fn catch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| {
            let caught = SAID.with_borrow_mut(|said| {
                let inside = said.is_some();
                if inside {
                    *said = Some(info.to_string().replace('\n', " "));
                }
                inside
            });
            if !caught {
                usual(info);
            }
        }));
    });
    SAID.set(Some(String::new()));
    // Nothing of the run is looked at after a panic.
    let result = catch_unwind(AssertUnwindSafe(run));
    let said = SAID.take();
    result.map_err(|_| said.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_says_what_and_where() {
        let said =
            catch(|| assert!(SAID.with_borrow(Option::is_none), "water in the {}", "engine"))
                .unwrap_err();
        assert!(said.contains("water in the engine") && said.contains("quiet.rs"), "{said}");
        assert_eq!(catch(|| 5), Ok(5));
    }
}
