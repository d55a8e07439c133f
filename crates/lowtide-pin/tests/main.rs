//! The proofs of the lock-free protocols, in one binary.
#![cfg(loom)]

mod loom_hazard;
mod loom_translation;
