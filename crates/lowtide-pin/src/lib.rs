//! Pins without a lock: how a thread reads a page that another thread may take away at any moment.
//!
//! A page of a file is in a frame, in another one later, or in none. Two protocols between threads
//! that share no lock decide which. A *translation* is one word for each page, with its state and
//! its frame; all that happens to a page is a compare-and-swap of that word. A *hazard slot* is a
//! word of one thread, in which it announces the page that it reads; a thread that wants the frame
//! looks into the slots of all threads first. So a reader writes to nothing that another reader
//! touches.
//!
//! | module | concept |
//! |---|---|
//! | [`translation`] | the word of a page, its transitions, and the table of a file's words |
//! | [`hazard`] | slots, and the looks at those of all threads |
//! | [`rounds`] | looks that threads share |
//! | [`sampling`] | counting hits at no cost |
//! | [`sync`] | real atomics and barriers, or those of the model checker |
//!
//! The crate knows neither files nor budgets: what is in a frame, when a page leaves, and which
//! pages permit readers without a fence, is the caller's decision.
//!
//! # Proofs
//!
//! `tests/loom_*.rs` run both protocols under every schedule and every stale value that the memory
//! model allows (`RUSTFLAGS="--cfg loom"`); the tests in the files run under Miri, too.
//!
//! # Cost
//!
//! A pin and its end are one thread-local load, one load and two stores in a line that only this
//! thread writes. What is on that path is `#[inline]`, because it is called from another crate.
#![deny(unsafe_code)]
// The theory at the head of a file names what only the file has.
#![allow(rustdoc::private_intra_doc_links)]

#[allow(unsafe_code, reason = "see the file's header")]
pub mod hazard;
pub mod rounds;
pub mod sampling;
pub mod sync;
#[allow(unsafe_code, reason = "see the file's header")]
pub mod translation;
