//! One slice of a system, in the process of its threads: operations, what the script does beside
//! them, and the closing flush.

use std::time::Instant;

use lowtide_report::tally::Slice;

use super::job::Script;
use crate::access::DataAccess;
use crate::error::BenchError;
use crate::thread_pool::{ThreadPool, Until};

/// The parameters of a slice.
pub struct Turn<'a, S> {
    pub until: Until,
    /// Operations per step.
    pub batch: u32,
    /// Whether there may be something to flush.
    pub writes: bool,
    pub script: &'a S,
}

impl<S: Script> Turn<'_, S> {
    /// Plays it: `pool` performs the operations; `access` is flushed at the end,
    /// whose time counts. `ended` sees the slice before the closing flush.
    ///
    /// # Errors
    /// Those of [`ThreadPool::run`].
    pub fn play<D: DataAccess>(
        &self,
        pool: &mut ThreadPool,
        access: &mut D,
        ended: impl FnOnce(&mut Slice),
    ) -> Result<Slice, BenchError> {
        let operations = || Ok(pool.run(self.until, self.batch)?);
        let mut slice = self.script.slice(access, operations)?;
        ended(&mut slice);
        if self.writes {
            let begin = Instant::now();
            if let Err(error) = access.flush() {
                slice.errors += 1;
                slice.first_error.get_or_insert_with(|| format!("flush: {error}"));
            }
            slice.add_flush(begin.elapsed());
        }
        Ok(slice)
    }
}
