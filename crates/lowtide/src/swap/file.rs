//! The swap file of a pager, with a hook through which tests make it fail.

use crate::io::{Inject, InjectOp, Request, carry_out};
use lowtide_swap::{CreateError, SwapFile, UnlinkedFile};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The name by which an injector knows the file.
const NAME: &str = "[swap]";

/// What the slots are on: a file without a name, past an injector if there is one.
pub(crate) struct Backing {
    file: UnlinkedFile,
    name: PathBuf,
    inject: Option<Arc<dyn Inject>>,
    requests: AtomicU64,
}

/// Makes the swap file of a pager.
///
/// # Errors
/// [`CreateError`]
pub(crate) fn create(
    dir: &Path,
    slots: u64,
    inject: Option<Arc<dyn Inject>>,
) -> Result<Arc<SwapFile<Backing>>, CreateError> {
    let file = UnlinkedFile::create(dir)?;
    let backing = Backing { file, name: NAME.into(), inject, requests: AtomicU64::new(0) };
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    Ok(Arc::new(SwapFile::on(backing, slots)?))
}

impl Backing {
    /// Carries a request out, as the injector says. `Ok` with the result of `act`, or with
    /// `pretended` if it is not called.
    fn request(
        &self,
        op: InjectOp,
        (offset, len): (u64, u64),
        pretended: usize,
        act: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some(inject) = &self.inject else { return act() };
        let number = self.requests.fetch_add(1, Relaxed);
        let mut done = pretended;
        let request = Request { op, path: &self.name, offset, len, number };
        carry_out(&**inject, &request, |_| {
            done = act()?;
            Ok(())
        })?;
        Ok(done)
    }
}

impl lowtide_swap::Backing for Backing {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let place = (offset, bytes.len() as u64);
        self.request(InjectOp::Write, place, bytes.len(), || self.file.write_at(bytes, offset))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (place, len) = ((offset, bytes.len() as u64), bytes.len());
        self.request(InjectOp::Read, place, len, || self.file.read_at(bytes, offset))
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let punched = self.request(InjectOp::Punch, (offset, bytes), 0, || {
            self.file.punch(offset, bytes).map(|()| 0)
        });
        punched.map(drop)
    }
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backing").field("file", &self.file).finish_non_exhaustive()
    }
}
