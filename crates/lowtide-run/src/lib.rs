//! What the command `lowtide run` and the library that it loads into a program must agree on.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | the settings of a run, as environment variables |
//! | `elf` | which library a program needs, as its file says |
//! | `shares` | the table by which the processes of a run divide one budget |
//!
//! The command judges the first program and the library judges every program started from there, so
//! both read the same variables and the same files. This crate is linked into programs that know
//! nothing of lowtide, so it uses little beside the standard library.

pub mod elf;
pub mod settings;
pub mod shares;
