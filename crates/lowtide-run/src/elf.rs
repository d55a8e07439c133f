//! Which library a program is to have in `LD_PRELOAD`, if any, as its file says.
//!
//! There is a library for each C library ([`CLibrary`]), and the name of the program's dynamic
//! linker says which of them it needs. With that of the other one it would end before its first
//! instruction: symbols are missing, or the C library itself is not found.
//!
//! Other programs get none. Their dynamic linker does not pass over the library in silence: they
//! end, too, or a line that they never wrote is on their standard error.
//!
//! | program | recognised by | what becomes of it |
//! |---|---|---|
//! | of 32 bits | the class of the file | a line for each start |
//! | of another architecture | `e_machine`, the order of bytes | the same, where it runs at all |
//! | with AddressSanitizer as a library | `libasan` or `libclang_rt.asan` needed | it ends |
//!
//! The command and the library both use this file, so they cannot differ. It allocates nothing,
//! takes no lock and calls nothing but what it is given to read with: the library comes here in
//! children of `vfork` and in handlers of signals.

/// Bytes of a file in which the kernel looks for `#!` and the interpreter.
pub const START: usize = 256;

/// Files that are looked at for one program: itself, and as many interpreters of interpreters as
/// the kernel follows.
pub const DEPTH: usize = 6;

/// Libraries that must be the first: of gcc and of clang.
const SANITIZERS: [&[u8]; 2] = [b"libasan.", b"libclang_rt.asan"];

/// `e_machine` of the library, where it is known.
const OWN_MACHINE: Option<u16> = match std::env::consts::ARCH.as_bytes() {
    b"x86_64" => Some(62),
    b"aarch64" => Some(183),
    b"riscv64" => Some(243),
    b"loongarch64" => Some(258),
    b"s390x" => Some(22),
    b"powerpc64" => Some(21),
    _ => None,
};
const OWN_ORDER: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };

const HEADER: usize = 64;
const SEGMENT: usize = 56;
const ENTRY: usize = 16;
/// The kernel refuses a longer table of segments; no list of libraries is longer.
const MOST_BYTES: u64 = 1 << 16;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// What keeps the library out of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It has 32 bits.
    Narrow,
    /// It is for another architecture.
    Foreign,
    /// Its AddressSanitizer has to be the first library.
    Sanitizer,
}

/// The C library that a program uses, and so the library of ours that is made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CLibrary {
    /// That of GNU, glibc.
    Gnu,
    /// musl.
    Musl,
}

impl CLibrary {
    /// The file of our library. Programs that start others know it by this name.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Gnu => "liblowtide_preload.so",
            Self::Musl => "liblowtide_preload-musl.so",
        }
    }
}

/// Reads at a place of a file; how many bytes there were.
pub trait ReadAt: Fn(&mut [u8], u64) -> usize {}

impl<F: Fn(&mut [u8], u64) -> usize> ReadAt for F {}

/// Which library the program is to have. `None` where that makes no difference: nothing is known,
/// because it is no ELF file, or a broken one; or no library is loaded, because the program has no
/// dynamic linker.
pub fn judge(read: &impl ReadAt) -> Option<Result<CLibrary, Obstacle>> {
    let header = header(read)?;
    if header[4] == 1 {
        return Some(Err(Obstacle::Narrow));
    }
    let machine = number(&header, 18, 2) as u16;
    if header[5] != OWN_ORDER || OWN_MACHINE.is_some_and(|own| own != machine) {
        return Some(Err(Obstacle::Foreign));
    }
    let linker = segments(&header, read).find(|segment| segment.kind == PT_INTERP)?;
    if needs(read, &SANITIZERS) {
        return Some(Err(Obstacle::Sanitizer));
    }
    let mut name = [0; START];
    let len = read_part(read, &mut name, linker.offset, linker.len);
    let is_musl = name[..len].windows(4).any(|part| part == b"musl");
    Some(Ok(if is_musl { CLibrary::Musl } else { CLibrary::Gnu }))
}

/// Whether the program names a library among those that it needs whose name begins like one of
/// these. It is of this architecture.
fn needs(read: &impl ReadAt, beginnings: &[&[u8]]) -> bool {
    let Some(header) = header(read) else { return false };
    let Some(list) = segments(&header, read).find(|segment| segment.kind == PT_DYNAMIC) else {
        return false;
    };
    let mut names = entries(&list, read).filter(|(tag, _)| *tag == DT_STRTAB);
    let Some((_, address)) = names.next() else { return false };
    // Addresses are those in memory; the part of the file that comes there has it.
    let has = |part: &Segment| part.kind == PT_LOAD && part.has(address);
    let Some(part) = segments(&header, read).find(has) else { return false };
    let names = (address - part.address).saturating_add(part.offset);
    let mut needed = entries(&list, read).filter(|(tag, _)| *tag == DT_NEEDED);
    needed.any(|(_, at)| {
        let mut name = [0; 32];
        let len = read(&mut name, names.saturating_add(at));
        beginnings.iter().any(|beginning| name[..len.min(32)].starts_with(beginning))
    })
}

/// The words of a script's first line, behind its `#!`.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty())
}

/// The header of an ELF file, of which one of 32 bits has the beginning.
fn header(read: &impl ReadAt) -> Option<[u8; HEADER]> {
    let mut header = [0; HEADER];
    let len = read(&mut header, 0);
    let is_whole = match header[4] {
        1 => len >= 20,
        2 => len >= HEADER,
        _ => false,
    };
    (header.starts_with(b"\x7fELF") && is_whole).then_some(header)
}

/// A part of the file, and where it comes in memory.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    len: u64,
}

impl Segment {
    fn has(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|at| at < self.len)
    }
}

fn segments(header: &[u8; HEADER], read: &impl ReadAt) -> impl Iterator<Item = Segment> {
    let (table, size) = (number(header, 32, 8), number(header, 54, 2));
    let count = if size == SEGMENT as u64 { number(header, 56, 2) } else { 0 };
    (0..count.min(MOST_BYTES / SEGMENT as u64)).map_while(move |index| {
        let mut segment = [0; SEGMENT];
        let at = table.saturating_add(index * SEGMENT as u64);
        (read(&mut segment, at) == SEGMENT).then(|| Segment {
            kind: number(&segment, 0, 4),
            offset: number(&segment, 8, 8),
            address: number(&segment, 16, 8),
            len: number(&segment, 32, 8),
        })
    })
}

/// What the dynamic linker reads: tags and values, to the end that a tag says.
fn entries(list: &Segment, read: &impl ReadAt) -> impl Iterator<Item = (u64, u64)> {
    let (start, count) = (list.offset, list.len.min(MOST_BYTES) / ENTRY as u64);
    let all = (0..count).map_while(move |index| {
        let mut entry = [0; ENTRY];
        let at = start.saturating_add(index * ENTRY as u64);
        (read(&mut entry, at) == ENTRY).then(|| (number(&entry, 0, 8), number(&entry, 8, 8)))
    });
    all.take_while(|(tag, _)| *tag != DT_NULL)
}

/// Reads a part of which not more is wanted than there is room for.
fn read_part(read: &impl ReadAt, to: &mut [u8], at: u64, len: u64) -> usize {
    let len = len.min(to.len() as u64) as usize;
    read(&mut to[..len], at).min(len)
}

/// A number of so few bytes, in the order of this machine.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let bytes = bytes[at..at + len].iter();
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    if OWN_ORDER == 1 { bytes.rev().fold(0, add) } else { bytes.fold(0, add) }
}
