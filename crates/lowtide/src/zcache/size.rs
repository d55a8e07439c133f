//! How much memory compressed pages may take, as it was chosen.

/// See the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ZcacheSize {
    /// Nothing is compressed.
    None,
    /// As much as is found best.
    Measured,
    /// This many sixteenths of a budget: for proofs.
    Sixteenths(u64),
}
