//! What a map says about itself.

use super::mode::MapMode;
use std::fmt;

/// How a map works now. `Display` is one line for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MapReport {
    /// How its pages come in.
    pub mode: MapMode,
    /// The consequences of that on this machine.
    pub how: &'static str,
    /// Bytes of the map.
    pub bytes: u64,
    /// Bytes that are in memory now.
    pub resident_bytes: u64,
    /// Bytes of the file that the page cache has beyond these, since they are in use elsewhere:
    /// other processes have mapped them.
    pub elsewhere_bytes: u64,
    /// Bytes that are in swap now, as they were before compression; none of a map of a file.
    pub swapped_bytes: u64,
    /// Page faults that were served, or pages that were noticed to come in.
    pub faults: u64,
}

impl fmt::Display for MapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, how, bytes, resident_bytes, elsewhere_bytes, swapped_bytes, faults } =
            self;
        write!(f, "{mode} ({how}): {resident_bytes} of {bytes} bytes in memory, ")?;
        if *elsewhere_bytes > 0 {
            write!(f, "{elsewhere_bytes} more in use elsewhere, ")?;
        }
        if *swapped_bytes > 0 {
            write!(f, "{swapped_bytes} in swap, ")?;
        }
        write!(f, "{faults} faults")
    }
}
