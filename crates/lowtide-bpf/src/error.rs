//! The errors of loading an object, and of a run.
//!
//! Loading reports at once all that can be known without running: the object, the section, the
//! instruction, the reason. A run that fails changes no decision (the hook has no opinion); its
//! error is kept for [`status`](crate::Programs::status).

use crate::limits::{
    DATA_BYTES_MAX, FRAMES_MAX, FUNCTIONS_MAX, INSTRUCTIONS_MAX, MAP_BYTES_MAX, OBJECT_BYTES_MAX,
    RUN_BUDGET, SECTIONS_MAX,
};
use thiserror::Error;

/// An object that cannot be loaded.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{object}: {what}")]
pub struct LoadError {
    /// The name that the caller gave.
    pub object: String,
    /// What is wrong.
    pub what: LoadFault,
}

/// What is wrong with an object.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum LoadFault {
    /// Bigger than any sensible object.
    #[error(
        "the object has {bytes} bytes, more than {OBJECT_BYTES_MAX}; strip debug information with \
         `llvm-strip -g`"
    )]
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// More sections than any sensible object.
    #[error(
        "the object has {sections} sections, more than {SECTIONS_MAX}; compile without \
         -ffunction-sections and -fdata-sections"
    )]
    Sections {
        /// How many there are.
        sections: usize,
    },
    /// The bytes are not an ELF file, or one that is cut off or inconsistent.
    #[error("not a readable ELF object: {why}; compile with `clang -O2 -g -target bpf -c`")]
    NotElf {
        /// What does not fit.
        why: String,
    },
    /// An ELF file for another machine.
    #[error(
        "the object is for ELF machine {machine}, not for BPF (247); compile with `clang -target \
         bpf`"
    )]
    Machine {
        /// The number of the machine.
        machine: u16,
    },
    /// Linked, or of the wrong byte order or width.
    #[error(
        "the object is not a relocatable little-endian 64-bit file; compile with `-c -target bpfel`"
    )]
    Kind,
    /// No section is a hook's.
    #[error(
        "no section holds a program; there must be one of memcg/throttle, memcg/throttle_at_least, \
         memcg/charged, memcg/below_low, memcg/below_min, memcg/proactive, memcg/online, \
         memcg/offline, or a variable `struct memcg_bpf_ops` in .struct_ops.link"
    )]
    NoPrograms,
    /// A section that looks like a hook's and is none.
    #[error("section {section} names no hook; see `Hook` for those there are")]
    UnknownHook {
        /// The section.
        section: String,
    },
    /// Something that the kernel has, or that is proposed for it, and that is not offered here.
    #[error("`{name}` is not served: {why}")]
    NotServed {
        /// A member of `struct memcg_bpf_ops`, another structure, a section or a function.
        name: String,
        /// Why not, and what to do instead.
        why: &'static str,
    },
    /// Two sections for one hook, or two kinds of throttle.
    #[error("sections {first} and {second} answer the same question; keep one")]
    Twice {
        /// One section.
        first: String,
        /// The other.
        second: String,
    },
    /// The section's entry is not clear.
    #[error(
        "section {section} has {found} global functions; it must have exactly one, the program \
         (helper functions are `static`, outside of the section)"
    )]
    Entry {
        /// The section.
        section: String,
        /// How many there are.
        found: usize,
    },
    /// A section's content cannot be used.
    #[error("section {section}: {why}")]
    Section {
        /// The section.
        section: String,
        /// What does not fit.
        why: String,
    },
    /// A reference of an instruction to a symbol cannot be resolved.
    #[error("section {section}, instruction {at}: {why}")]
    Relocation {
        /// The section.
        section: String,
        /// The instruction's slot in the section.
        at: usize,
        /// What does not fit.
        why: String,
    },
    /// Maps are described by type information, and that is missing or wrong.
    #[error(
        "the type information (.BTF) {why}; compile with -g, and strip with `llvm-strip -g`, \
         which keeps it"
    )]
    TypeInformation {
        /// What does not fit.
        why: String,
    },
    /// A map cannot be made.
    #[error("map {map}: {why}")]
    Map {
        /// Its name.
        map: String,
        /// What does not fit.
        why: MapFault,
    },
    /// Global data need too much.
    #[error("global data have {bytes} bytes, more than {DATA_BYTES_MAX}; use a map")]
    Data {
        /// Their bytes.
        bytes: u64,
    },
    /// The verifier refuses an instruction.
    #[error("section {section}, instruction {at}: {why}")]
    Refused {
        /// The section; `.text` for functions that several programs share.
        section: String,
        /// The instruction's slot in the section, counted from 0 as in `llvm-objdump -d`.
        at: usize,
        /// Why.
        why: Refusal,
    },
}

/// Why a map cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MapFault {
    /// Neither an array nor a hash.
    #[error("type {found} is not offered; use BPF_MAP_TYPE_HASH (1) or BPF_MAP_TYPE_ARRAY (2)")]
    Type {
        /// The kernel's number of the type.
        found: u32,
    },
    /// A property that is needed is missing.
    #[error("`{member}` is missing")]
    Missing {
        /// The property.
        member: &'static str,
    },
    /// A property that is not offered.
    #[error("`{member}` is not offered here; remove it")]
    Unknown {
        /// The property.
        member: String,
    },
    /// A property out of range.
    #[error("`{member}` is {found}; it must be from {least} to {most}")]
    Size {
        /// The property.
        member: &'static str,
        /// What it is.
        found: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// All maps together need too much.
    #[error("the object's maps need more than {MAP_BYTES_MAX} bytes; lower max_entries")]
    TooMuch,
    /// The program refers to a map that the type information does not have.
    #[error(
        "it has no type information; define it with the macros of lowtide_bpf.h in SEC(\".maps\")"
    )]
    Undefined,
}

/// Why the verifier refuses an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The section has no instructions.
    #[error("there are no instructions")]
    Empty,
    /// Too many instructions.
    #[error(
        "the program has {found} instructions, with the functions it calls; at most \
         {INSTRUCTIONS_MAX} are allowed"
    )]
    TooLong {
        /// How many there are.
        found: usize,
    },
    /// No such operation.
    #[error("operation {op:#04x} is unknown")]
    UnknownOperation {
        /// The first byte.
        op: u8,
    },
    /// A field has a value that the operation does not know.
    #[error(
        "operation {op:#04x} has a value in a field that it does not use or does not know there"
    )]
    Field {
        /// The first byte.
        op: u8,
    },
    /// A register above `r10`.
    #[error("register r{register} does not exist")]
    Register {
        /// Its number.
        register: u8,
    },
    /// A write to `r10`.
    #[error("r10, the frame pointer, cannot be written")]
    FramePointer,
    /// The second slot of a 64-bit constant is missing or not empty.
    #[error("the second half of a 64-bit constant is missing")]
    HalfConstant,
    /// A 64-bit constant that only the kernel can resolve.
    #[error("a 64-bit constant of kind {kind} refers to something that only the kernel has")]
    ForeignConstant {
        /// The constant's `src` field.
        kind: u8,
    },
    /// A jump or call leaves the program.
    #[error("the jump goes to instruction {target}, outside of the program")]
    JumpOutOfRange {
        /// Where it goes.
        target: i64,
    },
    /// A jump or call into the second half of a 64-bit constant.
    #[error("the jump goes to instruction {target}, the middle of a 64-bit constant")]
    JumpIntoConstant {
        /// Where it goes.
        target: usize,
    },
    /// Control runs past the last instruction.
    #[error("control runs past the end; the program must end with an exit")]
    NoExit,
    /// No way leads from here to an exit.
    #[error("an endless loop: no path leads from here to an exit")]
    EndlessLoop,
    /// A call of a helper that does not exist here.
    #[error("helper {number} does not exist here; see lowtide_bpf.h for those that do")]
    UnknownHelper {
        /// Its number.
        number: i32,
    },
    /// A call of a kernel function.
    #[error("calls of kind {kind} (kernel functions) are not offered")]
    ForeignCall {
        /// The call's `src` field.
        kind: u8,
    },
    /// A function calls itself, perhaps through others.
    #[error("the call is recursive")]
    Recursion,
    /// Functions call functions too deeply.
    #[error("calls go deeper than {FRAMES_MAX} functions")]
    TooDeep,
    /// Too many functions.
    #[error("the program calls more than {FUNCTIONS_MAX} functions")]
    TooManyFunctions,
    /// A register is read that nothing was written to.
    #[error("r{register} is read before anything was written to it")]
    Uninitialised {
        /// The register.
        register: u8,
    },
    /// A write to the snapshot.
    #[error("a write to the context; it is read-only")]
    ContextWrite,
    /// An access beside the snapshot.
    #[error("an access to byte {offset} of the context, which has {bytes}")]
    ContextBounds {
        /// First byte.
        offset: i64,
        /// How many there are.
        bytes: u64,
    },
    /// An access beside the stack frame.
    #[error("an access to byte {offset} of the stack; a frame has bytes -512 to -1")]
    StackBounds {
        /// First byte, from the frame pointer.
        offset: i64,
    },
    /// An access beside a map's value.
    #[error("an access to byte {offset} of a map's value, which has {bytes}")]
    ValueBounds {
        /// First byte.
        offset: i64,
        /// How many there are.
        bytes: u64,
    },
    /// An access beside global data.
    #[error("an access to byte {offset} of a section of global data that has {bytes}")]
    DataBounds {
        /// First byte, from the beginning of the section.
        offset: i64,
        /// How many there are.
        bytes: u64,
    },
    /// A write to constant data.
    #[error("a write to constant data")]
    ConstantWrite,
    /// A looked-up value is used without a test for null.
    #[error("a looked-up value may be null; compare it with null first")]
    MaybeNull,
    /// A number is used as an address.
    #[error("r{register} is a number, not an address")]
    NotAnAddress {
        /// The register.
        register: u8,
    },
    /// A map is used as memory.
    #[error("r{register} is a map; only helpers can use it")]
    MapAsMemory {
        /// The register.
        register: u8,
    },
    /// An operation's group is used as memory.
    #[error(
        "r{register} is a group, whose fields are the kernel's; lowtide_limit() gives what can be \
         read here"
    )]
    GroupAsMemory {
        /// The register.
        register: u8,
    },
    /// A helper wants an operation's group and gets something else.
    #[error("helper {number} wants an operation's group in r1")]
    NotAGroup {
        /// The helper.
        number: i32,
    },
    /// A kernel structure is read by its layout.
    #[error(
        "a field of a kernel structure is read by the kernel's layout (CO-RE); there is none here, \
         use the functions of memcg_bpf_ops.h"
    )]
    KernelField,
    /// A helper wants a map and gets something else.
    #[error("helper {number} wants a map in r{register}")]
    NotAMap {
        /// The helper.
        number: i32,
        /// The register.
        register: u8,
    },
    /// An address would get into memory that outlives the run.
    #[error("an address cannot be stored in maps or global data")]
    AddressEscapes,
    /// A program would return an address.
    #[error("the program returns an address")]
    AddressReturned,
}

/// A run that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("instruction {at}: {what}")]
pub struct RunError {
    /// The instruction's slot in the program; functions of `.text` are counted after the program's
    /// own section.
    pub at: usize,
    /// What went wrong.
    pub what: RunFault,
}

/// What went wrong in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RunFault {
    /// The budget of a run is used up.
    #[error("more than {RUN_BUDGET} instructions were executed")]
    Budget,
    /// An access to nothing.
    #[error("an access to a null address (+{offset})")]
    Null {
        /// The distance from null.
        offset: u32,
    },
    /// An access outside of what the program may see.
    #[error("an access of {bytes} bytes outside of everything that the program may see")]
    OutOfBounds {
        /// Bytes of the access.
        bytes: usize,
    },
    /// A write to the context or to constant data.
    #[error("a write to read-only memory")]
    ReadOnly,
    /// A helper wants a map and gets something else.
    #[error("a helper wants a map and got something else")]
    NotAMap,
    /// A helper wants an operation's group and gets something else.
    #[error("a helper wants an operation's group and got something else")]
    NotAGroup,
    /// Too many functions under way.
    #[error("calls go deeper than {FRAMES_MAX} functions")]
    TooDeep,
    /// An instruction that cannot be executed. The verifier lets none pass.
    #[error("the instruction cannot be executed")]
    Illegal,
}
