//! Why a run ended early.

use lowtide_core::ConfigError;
use thiserror::Error;

/// Why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The budget is impossible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A charge failed after all retries.
    #[error(
        "out of memory after {:.3} s of virtual time: nothing in the budget could be evicted; \
         raise --max, or give heaps somewhere to go with [swap] in the machine's file",
        *at_ns as f64 / 1e9
    )]
    OutOfMemory {
        /// Virtual time.
        at_ns: u64,
    },
    /// Swap of a kind that the machine does not have yet.
    #[error(
        "swap on the device of machine `{machine}` is not simulated; write kind = \"zram\" in its \
         [swap], or swap = \"none\""
    )]
    SwapDevice {
        /// The machine's name.
        machine: String,
    },
    /// The device failed a read, by fault injection.
    #[error("the device failed a read after {:.3} s of virtual time", *at_ns as f64 / 1e9)]
    Io {
        /// Virtual time.
        at_ns: u64,
    },
    /// An access through a mapping to a page past the end of its file.
    #[error(
        "a page past the end of its file was accessed after {:.3} s of virtual time",
        *at_ns as f64 / 1e9
    )]
    BeyondEnd {
        /// Virtual time.
        at_ns: u64,
    },
    /// A write failed by fault injection, and a sync reported it.
    #[error(
        "a write, or a flush of the device's cache, had failed when a file was synced after {:.3} \
         s of virtual time",
        *at_ns as f64 / 1e9
    )]
    WriteBack {
        /// Virtual time.
        at_ns: u64,
    },
    /// The power went, as a plan of the swarm said.
    #[error("the power went after {:.6} s of virtual time", *at_ns as f64 / 1e9)]
    PowerCut {
        /// Virtual time.
        at_ns: u64,
    },
    /// The workload's reservation does not fit.
    #[error(
        "the workload needs {needed} bytes for itself and the budget is {max} bytes; raise --max"
    )]
    NoRoom {
        /// Bytes it needs.
        needed: u64,
        /// Bytes there are.
        max: u64,
    },
    /// All tasks wait for each other.
    #[error(
        "stuck after {:.3} s of virtual time: {clients} clients wait for something that will not \
         happen; this is a bug",
        *at_ns as f64 / 1e9
    )]
    Stuck {
        /// Virtual time.
        at_ns: u64,
        /// Clients that have not finished.
        clients: u32,
    },
    /// Something that must always hold does not: a bug, found by an observer.
    #[error("{invariant} does not hold after {:.6} s of virtual time: {what}", *at_ns as f64 / 1e9)]
    Violation {
        /// Virtual time.
        at_ns: u64,
        /// The name of what does not hold.
        invariant: &'static str,
        /// What was found instead.
        what: String,
    },
    /// The run was asked to stop.
    #[error("interrupted after {:.3} s of virtual time", *at_ns as f64 / 1e9)]
    Interrupted {
        /// Virtual time.
        at_ns: u64,
    },
}
