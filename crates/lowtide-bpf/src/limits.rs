//! Limits of programs: one place for all of them.

/// Bytes of an object file.
pub const OBJECT_BYTES_MAX: usize = 4 << 20;

/// Sections of an object. Compilers make about thirty, and two for each program.
pub const SECTIONS_MAX: usize = 512;

/// Instruction slots of a program with the functions that it may call.
pub const INSTRUCTIONS_MAX: usize = 4096;

/// Functions of a program, itself included.
pub const FUNCTIONS_MAX: usize = 64;

/// What one run may spend. An instruction costs 1; a helper costs [`HELPER_COST`] and 1 more for
/// each 16 bytes that it reads or writes.
pub const RUN_BUDGET: u32 = 4096;

/// What the call of a helper costs, see [`RUN_BUDGET`].
pub const HELPER_COST: u32 = 16;

/// Bytes of a function's stack frame.
pub const FRAME_BYTES: u32 = 512;

/// Functions under way at once: the program and those it calls.
pub const FRAMES_MAX: u32 = 8;

/// Bytes of context that a program may read. Behind the fields that the engine knows they are 0, so
/// that a program made for a later engine runs on this one.
pub const CONTEXT_BYTES: usize = 512;

/// Maps of an object.
pub const MAPS_MAX: usize = 16;

/// Bytes of a map's key.
pub const KEY_BYTES_MAX: u32 = 256;

/// Bytes of a map's value.
pub const VALUE_BYTES_MAX: u32 = 4096;

/// Entries of a map.
pub const ENTRIES_MAX: u32 = 1 << 20;

/// Bytes of all maps of an object, allocated when it is loaded.
pub const MAP_BYTES_MAX: u64 = 16 << 20;

/// Bytes of all global data of an object.
pub const DATA_BYTES_MAX: u64 = 1 << 20;

/// Sections of global data of an object.
pub const DATA_SECTIONS_MAX: usize = 64;

/// Reclaim requests that wait to be taken.
pub const REQUESTS_MAX: usize = 64;

/// Failing runs in a row after which a hook is switched off.
pub const FAILURES_MAX: u32 = 16;
