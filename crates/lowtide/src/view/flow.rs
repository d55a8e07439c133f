//! How a closure that is called for page after page says that it has seen enough.

use std::ops::ControlFlow;

/// What such a closure returns: nothing, to be called to the end, or a [`ControlFlow`].
///
/// ```
/// # let file = tempfile::NamedTempFile::new()?;
/// # std::fs::write(file.path(), [7; 3 << 12])?;
/// # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(1)).build()?;
/// use std::ops::ControlFlow::{Break, Continue};
///
/// let (view, mut found) = (pager.open(file.path())?, None);
/// view.get_many(&[0, 1, 2], |index, page| {
///     if page.contains(&7) {
///         found = Some(index);
///         return Break(());
///     }
///     Continue(())
/// })?;
/// assert!(found.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Flow: sealed::Sealed {
    /// Whether this was the last call.
    fn is_break(&self) -> bool;
}

impl Flow for () {
    fn is_break(&self) -> bool {
        false
    }
}

impl<B, C> Flow for ControlFlow<B, C> {
    fn is_break(&self) -> bool {
        Self::is_break(self)
    }
}

mod sealed {
    /// Other answers may come; programs cannot add any.
    pub trait Sealed {}

    impl Sealed for () {}

    impl<B, C> Sealed for std::ops::ControlFlow<B, C> {}
}
