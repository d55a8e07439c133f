//! One slice of a system, in the process of its threads: operations, with concurrent checkpoints if
//! there are any, and the closing flush.

use std::time::Instant;

use lowtide_report::tally::Slice;

use super::checkpoint::Checkpointer;
use crate::bench::access::DataAccess;
use crate::bench::error::BenchError;
use crate::bench::thread_pool::{ThreadPool, Until};

/// The parameters of a slice.
#[derive(Debug)]
pub struct Turn<'a> {
    pub until: Until,
    /// Operations per step.
    pub batch: u32,
    /// Whether there may be something to flush.
    pub writes: bool,
    /// Checkpoints, if there are any.
    pub checkpointer: Option<&'a Checkpointer>,
}

impl Turn<'_> {
    /// Plays it: `pool` performs the operations; `access` is flushed at each checkpoint and at the
    /// end, whose time counts. `ended` sees the slice before the closing flush.
    ///
    /// # Errors
    /// Those of [`ThreadPool::run`].
    pub fn play<D: DataAccess>(
        &self,
        pool: &mut ThreadPool,
        access: &mut D,
        ended: impl FnOnce(&mut Slice),
    ) -> Result<Slice, BenchError> {
        let mut slice = match self.checkpointer {
            None => Slice::of(&pool.run(self.until, self.batch)?),
            Some(checkpointer) => {
                let (tallies, checkpoints) =
                    checkpointer.beside(access, || Ok(pool.run(self.until, self.batch)?))?;
                Slice { checkpoints: Some(checkpoints), ..Slice::of(&tallies) }
            }
        };
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
