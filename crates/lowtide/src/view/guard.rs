//! The guard of a page.

use lowtide_pin::hazard::Held;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// A page that stays where it is, and as it is, while the guard lives.
///
/// Dereferences to the bytes of the page: always a whole base page; past the end of the file there
/// are zeroes. They do not change while the guard lives: a [`write_at`](crate::View::write_at) to
/// the page waits for the guard to be dropped. So do not keep guards longer than needed, and do not
/// wait for other work while holding one.
///
/// Getting and dropping a guard of a resident page takes no lock and no atomic read-modify-write.
/// A guard cannot leave its thread.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, vec![7; 3 * 4096])?;
/// # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(8)).build()?;
/// let view = pager.open(&path)?;
/// let sum: u64 = {
///     let page = view.page(2)?;                  // held from here
///     page.iter().map(|&byte| u64::from(byte)).sum()
/// };                                             // and given back here
/// assert_eq!(sum, 7 * 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the page is held only while the guard lives"]
pub struct Page<'view> {
    bytes: *const u8,
    len: usize,
    _held: Held,
    _view: PhantomData<&'view ()>,
}

impl<'view> Page<'view> {
    pub(crate) fn new(bytes: *const u8, len: usize, held: Held) -> Page<'view> {
        Page { bytes, len, _held: held, _view: PhantomData }
    }
}

impl Deref for Page<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` is the start of a frame of `len` bytes in the arena, which the view, and
        // so the guard's lifetime, keeps alive. The hazard slot keeps the frame this page's: it is
        // neither evicted nor stored to while the slot is set, and its bytes were initialised
        // before its translation was published, which the load that found it acquired.
        #[expect(unsafe_code, reason = "this is where a frame becomes a slice")]
        unsafe {
            std::slice::from_raw_parts(self.bytes, self.len)
        }
    }
}

impl AsRef<[u8]> for Page<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("len", &self.len).finish_non_exhaustive()
    }
}
