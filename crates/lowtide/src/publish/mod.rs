//! What a pager says of itself to other processes. Feature `status`.
//!
//! [`Pager::status`] is a snapshot in the form that `lowtide top`, `lowtide stat` and exporters of
//! metrics read ([`lowtide_status`]). [`Pager::publish_status`] writes it once a second.
//!
//! | file | concept |
//! |---|---|
//! | `snapshot.rs` | the figures of a pager and its tenants |
//! | `thread.rs` | the thread that writes the page of this process |

mod snapshot;
mod thread;

pub(crate) use thread::Publication;

use crate::pager::Pager;
use lowtide_status::{Error, Origin, PagerStatus};

impl Pager {
    /// The state of the pager and its tenants, in the form of a status page. `hits` to
    /// `write_bytes` are those of [`Pager::stat`]. All but the policy is zero after a defect of the
    /// pager ([`Error::Poisoned`](crate::Error::Poisoned)).
    ///
    /// Cost: O(tenants) and O(open files), some microseconds for each tenant, with the pool's lock
    /// taken once for each. At most 500 tenants have figures, those with the most memory.
    #[must_use]
    pub fn status(&self) -> PagerStatus {
        snapshot::of(&self.inner.pool)
    }

    /// Writes [`Pager::status`] into the status page of this process once a second, until the
    /// pager ends. All pagers of a process share the page, and one thread that writes it. `origin`
    /// is what the page calls this process; that of the first pager counts.
    ///
    /// Only this user's processes can read the page. Cost: about 0.1 ms a second.
    ///
    /// # Errors
    /// Where no page can be made: [`lowtide_status::Error`] says why. The pager works on.
    ///
    /// # Examples
    /// ```
    /// use lowtide::{Pager, Size, status};
    ///
    /// let pager = Pager::builder().max(Size::mib(8)).build()?;
    /// pager.publish_status(status::Origin::Library)?;
    /// // As `lowtide stat PID` does, in another process:
    /// let page = status::read(std::process::id())?;
    /// assert_eq!(page.pagers[0].tenants[0].stat.max_bytes, Some(8 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn publish_status(&self, origin: Origin) -> Result<(), Error> {
        self.inner.publication.begin(&self.inner.pool, origin)
    }
}
