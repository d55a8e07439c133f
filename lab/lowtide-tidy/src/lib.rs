//! What the tests of the repository itself need: its files, and the structure of its code.
//!
//! The tests are in `tests/`: `references` follows what pages and sources name, `structure` looks
//! at which file names which, `switches` at where the switches of a policy are read, `product` at
//! what a program links, `docs` and `sources` at what is hard to read, `limits` at sizes that only
//! fall.

#![forbid(unsafe_code)]

mod code;
mod files;
mod functions;
mod imports;
mod limits;
mod prose;
mod tables;

pub use code::code_lines;
pub use files::{Text, root, texts};
pub use functions::functions;
pub use imports::{Crate, circles, crates};
pub use limits::{LIMITS, Limit, check, limit, limits, parse};
pub use prose::{banned, habits, parts, too_wide};
pub use tables::with_tables;
