//! Over-limit policies as eBPF programs.
//!
//! The behaviour of a group at its limits (how long a task sleeps that pays for being over `high`,
//! whether reclaim spares the group, how much is reclaimed in advance) can be a program: a few
//! lines of C, compiled by clang as for the kernel, loaded into lowtide from the object file, and
//! run in a virtual machine in the process. A program sees a
//! [`LimitSnapshot`](lowtide_core::hooks::LimitSnapshot) and its maps, nothing else. It cannot
//! reach outside, cannot run forever, and its answers are clamped by the engine.
//!
//! ```c
//! #include "lowtide_bpf.h"
//!
//! LOWTIDE_THROTTLE(half_as_long)
//! {
//!     return ctx->default_delay_ns / 2;
//! }
//! ```
//!
//! ```sh
//! clang -O2 -g -target bpf -I include -c half.bpf.c -o half.bpf.o && llvm-strip -g half.bpf.o
//! ```
//!
//! ```no_run
//! use lowtide_bpf::Programs;
//! use lowtide_core::hooks::{LimitHooks, LimitSnapshot};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let programs = Programs::load(&std::fs::read("half.bpf.o")?, "half")?;
//! // One clone goes to the engine (`lowtide::Tenant::set_hooks`, or `Engine::set_hooks` of
//! // `lowtide-core`), the other stays with the operator.
//! let mut hooks: Box<dyn LimitHooks> = Box::new(programs.clone());
//! let snapshot = LimitSnapshot { default_delay_ns: 1000, ..LimitSnapshot::default() };
//! let answer = hooks.throttle(&snapshot);
//! for hook in programs.status() {
//!     println!("{}: {} runs, {} failed: {answer:?}", hook.hook, hook.runs, hook.failures);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What a program is
//!
//! One global function in the section of its [`Hook`], with the snapshot as its argument, and what
//! that function calls. The header `include/lowtide_bpf.h` has the snapshot, the helpers and a
//! macro for each hook. An object may hold a program for each hook (one of the two throttles and
//! `charged`); they share maps and global data.
//!
//! | section | returns | no opinion |
//! |---|---|---|
//! | `memcg/throttle` | nanoseconds to sleep | negative |
//! | `memcg/throttle_at_least` | nanoseconds to sleep at least | negative |
//! | `memcg/charged` | nanoseconds to sleep at least, after each batch | negative |
//! | `memcg/below_low`, `memcg/below_min` | 1 protected, 0 not | negative |
//! | `memcg/proactive` | pages to reclaim | 0, negative |
//! | `memcg/online`, `memcg/offline` | nothing | |
//!
//! The hooks that are proposed for Linux (a variable `struct memcg_bpf_ops`) are other names of
//! these: the header `include/memcg_bpf_ops.h`, and `docs/design/bpf.md` for what is not served.
//!
//! Supported: all instructions of RFC 9669 (`-mcpu=v1` to `v4`) but the legacy packet loads; hash
//! and array maps described by BTF; constant, initialised and zeroed global data; functions that
//! call functions; loops. Not supported: kernel types and other kernel functions,
//! other maps, addresses in global data, tail calls.
//!
//! | helper | number | |
//! |---|---:|---|
//! | `bpf_map_lookup_elem` | 1 | as in the kernel |
//! | `bpf_map_update_elem` | 2 | as in the kernel |
//! | `bpf_map_delete_elem` | 3 | as in the kernel |
//! | `bpf_ktime_get_ns` | 5 | the snapshot's `now_ns` |
//! | `lowtide_request_reclaim(group, pages)` | 4096 | queued for the driver |
//! | `lowtide_limit(memcg)` | 4097 | the snapshot of an operation's group |
//! | `bpf_mem_cgroup_usage(memcg)` | by name | bytes that the group uses |
//!
//! # Guarantees
//!
//! * **Loading** rejects what is certainly wrong, with section, instruction and reason
//!   ([`LoadError`]). It never panics, whatever the bytes are.
//! * **A run** costs at most [`RUN_BUDGET`](limits::RUN_BUDGET) instructions, allocates nothing,
//!   and ends with an error at the first access outside of what the program may see. Addresses are
//!   virtual: none of the process's is ever in a register.
//! * **A failing run** means no opinion. After [`FAILURES_MAX`](limits::FAILURES_MAX) in a row the
//!   hook is switched off, and [`Programs::status`] has the reason. Changes that such a run made in
//!   maps, and its requests, stay.
//! * **Equal snapshots and equal histories of the maps give equal answers.** There is no clock, no
//!   random number, and no address that differs from process to process.
//!
//! | module | |
//! |---|---|
//! | `elf`, `btf` | object files: sections, relocations, definitions of maps |
//! | `isa` | the meaning of eight bytes |
//! | `verify`, `types` | checks before a run |
//! | `vm`, `memory` | the run: an interpreter, and the memory that it can address |
//! | `helpers`, `map` | calls to the host; state from run to run |
//! | `ops` | the operations proposed for Linux |
//! | `hook`, `programs` | the meaning of answers; the handle |
//! | [`limits`] | sizes and bounds |
//!
//! Why we have a machine of our own: `docs/decisions/0006-bpf-vm.md`.

#![forbid(unsafe_code)]

mod btf;
#[cfg(test)]
mod differential;
mod elf;
mod error;
mod helpers;
mod hook;
mod isa;
pub mod limits;
mod map;
mod memory;
mod ops;
mod programs;
mod types;
mod verify;
mod vm;

pub use error::{LoadError, LoadFault, MapFault, Refusal, RunError, RunFault};
pub use hook::Hook;
pub use programs::{HookStatus, MapError, Programs, SwitchedOff};
