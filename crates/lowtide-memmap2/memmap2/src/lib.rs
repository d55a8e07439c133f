//! `lowtide-memmap2` under the name that other crates ask for.
pub use lowtide_memmap2::*;
