//! Descriptions of programs and experiments. Nothing here plays them: a runtime on real memory and
//! a simulated machine each have a player.
//!
//! | module | contents |
//! |---|---|
//! | [`script`] | experiments of groups that share memory |
//! | [`mapping`] | files read through mappings |
//! | [`heap`] | programs most of whose memory is heap |
//! | [`kernels`] | three jobs that real kernels performed, with heaps on swap |
//! | [`tenants`] | servers and browsers of equal demand |
//! | [`writer`] | a file written from start to end |

pub mod heap;
pub mod kernels;
pub mod mapping;
pub mod script;
pub mod tenants;
pub mod writer;
