//! Descriptions of machines: what a simulation runs on.
//!
//! A machine is data: a number of CPUs, an amount of memory, a device, perhaps swap, and the costs
//! of the kernel's work. It has a name among the presets, or a file in TOML with its differences
//! from one:
//!
//! ```
//! use lowtide_sim::spec::MachineSpec;
//!
//! let machine = MachineSpec::from_toml(
//!     r#"
//!     base = "xeon-96t"           # what is not said here is as there
//!     memory = "32G"
//!
//!     [device]
//!     base = "sata-ssd"           # or `device = "sata-ssd"`, if nothing about it changes
//!     read_ns = 150_000
//!
//!     [swap]                      # or `swap = "none"`
//!     kind = "zram"
//!     size = "16G"
//!     compressor = "lz4"          # lzo-rle unless said
//!     compressed_percent = 40     # of a page; 38 with lz4 unless said
//!
//!     [costs]                     # nanoseconds; see `Costs`
//!     compress_lz4_ns = 4_000
//!     "#,
//!     "mine",
//! )?;
//! assert_eq!((machine.cpus, machine.memory, machine.device.read_ns), (96, 32 << 30, 150_000));
//! # Ok::<(), lowtide_sim::spec::SpecError>(())
//! ```
//!
//! Without `base`, `cpus` and `memory` are required and everything else has the default that
//! [`MachineSpec`] documents. Sizes are bytes, or text as on the command line; latencies are whole
//! nanoseconds. A key that is not known, a value that makes no machine and a name that does not
//! exist are refused with what to write instead.
//!
//! A [`MachineSpec`] that a function of this module returns can be simulated and need not be
//! checked again; code that makes or changes one calls [`MachineSpec::validate`].
//!
//! | file | concept |
//! |---|---|
//! | `machine`, `device` | the two descriptions, and the device presets |
//! | `compressor` | what compresses the pages of swap |
//! | `fault_path` | how a fault waits for its I/O |
//! | `presets`, `this` | the machines by name; the machine that this runs on |
//! | `file` | the grammar of the file, and how it lies over a base |
//! | `limits` | what can be simulated |
//! | `number`, `error` | how numbers are read; the errors |

mod compressor;
mod device;
mod error;
mod fault_path;
mod file;
mod limits;
mod machine;
mod number;
mod presets;
mod this;

pub use compressor::{Compressor, UnknownCompressor};
pub use device::DeviceSpec;
pub use error::{BadValue, SpecError};
pub use fault_path::{FaultPath, UnknownFaultPath};
pub(crate) use limits::{Limit, Unit};
pub use machine::{MachineSpec, SwapKind, SwapSpec};
pub(crate) use number::Whole;
