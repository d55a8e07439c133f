//! What the command `lowtide run` and the library that it loads into a program must agree on.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | the settings of a run, as environment variables |
//! | `globs` | which files `--map` names |
//! | `elf` | which library a program needs, as its file says |
//! | `shares`, `part` | the table by which processes divide a budget; the part of each |
//! | `files` | the same: what each process has of a file that several have |
//! | `place` | the file of that table |
//! | `leases`, `local` | the kernel's promise that a file does not change; where it holds |
//!
//! The command judges the first program and the library judges every program started from there, so
//! both read the same variables and the same files. Others that keep the memory of a program within
//! a budget, such as the Python package, share budgets and take leases by the same rules. This
//! crate is linked into programs that know nothing of lowtide, so it uses little beside the
//! standard library.

pub mod elf;
pub mod files;
pub mod globs;
pub mod leases;
pub mod local;
pub mod part;
pub mod place;
pub mod settings;
pub mod shares;
