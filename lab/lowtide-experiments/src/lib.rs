//! What the laboratory plays, and what is known about it.
//!
//! | module | contents |
//! |---|---|
//! | [`programs`] | descriptions of programs and experiments, which both worlds play |
//! | [`compressed`] | what pages that stay compressed are worth, in cells |
//! | [`client`] | programs that run on the simulated machine |
//! | [`published`] | published figures, and when a simulation has reproduced them |
//! | [`swarm`] | random small machines whose invariants are checked |
//! | [`corpus`] | the traces that judge a policy, and the judgement |
//! | [`groundtruth`] | the exact sequences that real kernels were measured on |

#![forbid(unsafe_code)]

pub mod client;
pub mod compressed;
pub mod corpus;
pub mod groundtruth;
pub mod programs;
pub mod published;
pub mod swarm;
