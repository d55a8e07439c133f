//! lowtide for C: `include/lowtide.h` is made from this crate, and is its documentation.
//!
//! A function here takes what C has (pointers, numbers, texts that end with a zero byte), calls one
//! function of the crate `lowtide`, and returns a number. Nothing is decided here.
//!
//! **What a caller of C may get wrong** is answered by a code where it can be noticed: a null
//! pointer, a handle in a child of `fork`, a page that another thread pinned, a structure of a
//! newer header. What cannot be noticed is in the header: a handle that was closed, a buffer that
//! is too short. **Nothing unwinds into C**: `code.rs` turns a panic into a code.
//!
//! | file | concept |
//! |---|---|
//! | `code` | numbers and texts of errors; the border that no panic crosses |
//! | `handle` | opaque handles; a child of `fork` does not have those of its parent |
//! | `flags` | flags of structures, no two of which share a bit |
//! | `sized` | structures that carry their size, so that a program outlives its header |
//! | `text` | texts and buffers of C |
//! | `version` | that of the header, and that of the library |
//! | `log` | the messages of the library, for a function of the program |
//! | `pager`, `tenant`, `stat` | budgets, and what is counted |
//! | `view`, `page` | files page by page; pages that stay where they are |
//! | `map`, `adopt` | files behind pointers: mappings of ours, and of the program |
//! | `region` | memory without a file |
#![allow(non_camel_case_types, reason = "names of C")]
#![allow(unreachable_pub, reason = "C reaches it")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one promise of the caller covers all")]
#![allow(clippy::missing_safety_doc, reason = "the rules for all functions begin the header")]

mod adopt;
mod code;
mod flags;
mod handle;
mod log;
mod map;
mod page;
mod pager;
mod region;
mod sized;
mod stat;
mod tenant;
mod text;
mod version;
mod view;
