//! What the background thread does for swap every two seconds.

use crate::pool::{Pool, StateGuard};

/// Clusters of the swap file that one round gives back to the file system.
const PUNCHED: usize = 64;

/// Looks after the stores and the file, without the lock.
pub(crate) fn maintain<'a>(pool: &'a Pool, state: StateGuard<'a>) -> StateGuard<'a> {
    let stores = state.swaps.all(|_| true);
    if stores.is_empty() && pool.swap_file.is_none() {
        return state;
    }
    drop(state);
    for store in stores {
        store.maintain();
    }
    if let Some(file) = &pool.swap_file {
        file.discard(PUNCHED);
    }
    pool.lock()
}
