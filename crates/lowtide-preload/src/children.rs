//! Programs are started with the library that is made for them, or without any.
//!
//! `LD_PRELOAD` is inherited, so a program under `lowtide run` hands this library to every program
//! that it starts. Some of them use another C library and need our library for that one; others can
//! load none (`lowtide_run::elf`), and end at once, or complain. Alone they would have run. So the
//! file is checked before it is executed, and in the list of its environment the other library
//! takes the place of this one, if its path is known (`lowtide_run::settings`), or this one is
//! removed. The rest of the list stays. Where nothing is known of a file, nothing is changed.
//! Programs that are started by one without a library are not served either.
//!
//! An interpreter is looked at in the place of its script. What `env` starts is not: `env` comes
//! here itself. A path that counts from a folder to which the new process changes first
//! (`posix_spawn_file_actions_addchdir_np`) is looked for from the present one.
//!
//! All this happens in children of `vfork`, which share their parent's memory, in children that a
//! process with other threads has forked, and in handlers of signals. So nothing here allocates,
//! takes a lock, or changes what is left behind, and little of the stack is used.
//!
//! # Safety
//!
//! Paths and lists come from the program, which passes them to the function that it calls. A path
//! is only read by the kernel, unless the C library would read it, too. A list is not changed: its
//! pointers are copied.

#![allow(unsafe_code)]

use crate::c_library;
use crate::interpose::Errno;
use libc::{AT_FDCWD, c_char, c_int};
use lowtide_run::elf::{self, CLibrary, Obstacle};
use lowtide_run::settings::{self, LD_PRELOAD};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::{Errno as Failure, pread, retry_on_intr};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{mem, ptr, slice};

/// A list of strings that ends with a null pointer.
pub(crate) type List = *const *const c_char;

/// Words of a list that are put on the stack. More are mapped.
const FEW: usize = 512;

/// The longest path that the kernel takes, with its end.
const PATH_MAX: usize = 4096;

/// Which file is executed.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    /// By a path, from a directory.
    At(c_int, *const c_char),
    /// By a descriptor.
    Open(c_int),
    /// By a name that is looked for in `PATH`.
    Named(*const c_char),
}

/// This library's file, as the dynamic linker names it.
static OWN: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// The entry of an environment that names the library for the other C library alone.
static OTHER: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Finds out which library this is, and where the other one is. The linker's lock is taken here,
/// so not later.
pub(crate) fn look_up() {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    let here: fn() = look_up;
    // SAFETY: an address of this library, and a place for what is known of it.
    if unsafe { libc::dladdr(here as *const libc::c_void, about.as_mut_ptr()) } != 0 {
        // SAFETY: zeroes, or written. The name lives as long as the library.
        let name = unsafe { about.assume_init() }.dli_fname;
        OWN.store(name.cast_mut(), Ordering::Release);
    }
    let other = c_library::OTHER;
    if let Some(path) = settings::library(other, |name| std::env::var_os(name)) {
        let list = settings::in_list(other, &path);
        let entry = [LD_PRELOAD.as_bytes(), b"=", list.as_bytes()].concat();
        // An environment has no zeroes. It stays for the process, as this library does.
        if let Ok(entry) = CString::new(entry) {
            OTHER.store(entry.into_raw(), Ordering::Release);
        }
    }
}

/// Our libraries.
#[derive(Clone, Copy)]
struct Ours<'a> {
    /// The file of this one.
    own: &'a [u8],
    /// The entry that names the other one alone.
    other: Option<&'a CStr>,
}

impl Ours<'_> {
    fn known() -> Option<Self> {
        let known = |place: &AtomicPtr<c_char>| {
            let text = place.load(Ordering::Acquire);
            // SAFETY: a text that stays as it is.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
        };
        Some(Self { own: known(&OWN)?.to_bytes(), other: known(&OTHER) })
    }

    /// Whether a library of a list is one of these: the name of its file says so.
    fn has(&self, library: &[u8]) -> bool {
        fn name(path: &[u8]) -> &[u8] {
            path.trim_ascii_end().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
        }
        let name_of = |c_library: CLibrary| c_library.file().as_bytes();
        let names = [name(self.own), name_of(CLibrary::Gnu), name_of(CLibrary::Musl)];
        names.contains(&name(library))
    }

    fn are_in(&self, list: &[u8]) -> bool {
        libraries(list).any(|library| self.has(library))
    }
}

/// Starts a program: with another environment, if it would fail with this one because of us.
///
/// # Safety
/// What the program passes to a function of the `exec` family.
pub(crate) unsafe fn start(
    program: Program,
    env: List,
    call: impl FnOnce(Option<List>) -> c_int,
) -> c_int {
    let judged = Ours::known().and_then(|ours| {
        let _errno = Errno::save();
        // SAFETY: the caller's promise.
        let mut lists = unsafe { entries(env) }.filter_map(list_of);
        if !lists.any(|list| ours.are_in(list)) {
            return None;
        }
        // SAFETY: as above.
        Some((ours, unsafe { judge(program) }?))
    });
    let change = match judged {
        Some((ours, Ok(needed))) if needed != c_library::OWN => Change { ours, to: ours.other },
        Some((ours, Err(_))) => Change { ours, to: None },
        _ => return call(None),
    };
    // SAFETY: the caller's promise.
    unsafe { start_with(change, env, call) }
}

/// The entries of an environment.
///
/// # Safety
/// A list of strings, or null; it stays so while the iterator is used.
unsafe fn entries<'a>(env: List) -> impl Iterator<Item = &'a CStr> {
    let mut at = env;
    std::iter::from_fn(move || {
        // SAFETY: the caller's promise; a null pointer ends the list.
        let entry = if at.is_null() { ptr::null() } else { unsafe { *at } };
        if entry.is_null() {
            return None;
        }
        // SAFETY: this entry was not the last.
        at = unsafe { at.add(1) };
        // SAFETY: the caller's promise.
        Some(unsafe { CStr::from_ptr(entry) })
    })
}

/// The libraries of an entry that is the dynamic linker's list of them.
fn list_of(entry: &CStr) -> Option<&[u8]> {
    entry.to_bytes().strip_prefix(LD_PRELOAD.as_bytes())?.strip_prefix(b"=")
}

fn libraries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| b": ".contains(byte)).filter(|library| !library.is_empty())
}

/// What is to become of our libraries in an environment.
#[derive(Clone, Copy)]
struct Change<'a> {
    ours: Ours<'a>,
    /// The entry that names the one that takes their place, if one does.
    to: Option<&'a CStr>,
}

impl<'a> Change<'a> {
    /// The list of an entry, if it is to be changed.
    fn list<'b>(&self, entry: &'b CStr) -> Option<&'b [u8]> {
        list_of(entry).filter(|list| self.ours.are_in(list))
    }

    /// What such a list has beside our libraries.
    fn others<'b>(&self, list: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        libraries(list).filter(|library| !self.ours.has(library))
    }

    /// What comes first in it then.
    fn first(&self) -> Option<&'a [u8]> {
        self.to.and_then(list_of)
    }
}

/// Words that the changed list takes, with the text of what is changed in it.
///
/// # Safety
/// As [`entries`].
unsafe fn words_for(change: Change<'_>, env: List) -> usize {
    let mut words = 1;
    let added = change.first().map_or(0, |library| library.len() + 1);
    // SAFETY: the caller's promise.
    for entry in unsafe { entries(env) } {
        let changed = change.list(entry);
        let copied = changed.filter(|list| change.others(list).next().is_some());
        // Ends of texts are shorter than what is left out of them.
        let text = copied.map_or(0, |_| entry.count_bytes() + added);
        words += 1 + text.div_ceil(size_of::<usize>());
    }
    words
}

/// Writes the changed list. None if there is too little room: another thread has changed it.
///
/// # Safety
/// As [`entries`].
unsafe fn write_changed(change: Change<'_>, env: List, room: &mut [usize]) -> Option<List> {
    // SAFETY: the caller's promise.
    let count = unsafe { entries(env) }.count();
    let (list, text) = room.split_at_mut_checked(count + 1)?;
    // SAFETY: the same memory, as bytes, for as long.
    let mut text = unsafe {
        slice::from_raw_parts_mut(text.as_mut_ptr().cast::<u8>(), size_of_val::<[usize]>(text))
    };
    let mut places = list.iter_mut();
    // SAFETY: the caller's promise.
    for entry in unsafe { entries(env) } {
        let mut copied = entry.as_ptr();
        if let Some(list) = change.list(entry) {
            if change.others(list).next().is_none() {
                // The entry of one library is there already.
                let Some(only) = change.to else { continue };
                copied = only.as_ptr();
            } else {
                let mut len = 0;
                for library in change.first().into_iter().chain(change.others(list)) {
                    let before: [&[u8]; 2] =
                        if len == 0 { [LD_PRELOAD.as_bytes(), b"="] } else { [b":", b""] };
                    for part in before.into_iter().chain([library]) {
                        text.get_mut(len..len + part.len())?.copy_from_slice(part);
                        len += part.len();
                    }
                }
                *text.get_mut(len)? = 0;
                copied = text.as_ptr().cast();
                text = mem::take(&mut text).split_at_mut(len + 1).1;
            }
        }
        *places.next()? = copied.expose_provenance();
    }
    *places.next()? = 0;
    Some(list.as_ptr().cast())
}

/// Starts a program with a changed environment. Apart, so that only this needs the room.
///
/// # Safety
/// As [`start`].
#[inline(never)]
unsafe fn start_with(
    change: Change<'_>,
    env: List,
    call: impl FnOnce(Option<List>) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let words = unsafe { words_for(change, env) };
    if words <= FEW {
        let mut room = [0; FEW];
        // SAFETY: as above.
        let list = unsafe { write_changed(change, env, &mut room) };
        return call(list);
    }
    // A child of `vfork` that becomes the program leaves this behind in its parent.
    let room = {
        let _errno = Errno::save();
        map(words)
    };
    let list = room.and_then(|room| {
        // SAFETY: new memory of this length, which nothing else knows.
        let room = unsafe { slice::from_raw_parts_mut(room, words) };
        // SAFETY: the caller's promise.
        unsafe { write_changed(change, env, room) }
    });
    let result = call(list);
    if let Some(room) = room {
        let _errno = Errno::save();
        let len = words * size_of::<usize>();
        // SAFETY: mapped above, and not used any more.
        unsafe { libc::syscall(libc::SYS_munmap, room, len) };
    }
    result
}

/// Memory of the kernel's own, past all that watches mappings.
fn map(words: usize) -> Option<*mut usize> {
    let (nowhere, len) = (ptr::null_mut::<usize>(), words * size_of::<usize>());
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, where nothing is.
    let got = unsafe { libc::syscall(libc::SYS_mmap, nowhere, len, prot, flags, -1, 0_usize) };
    (got != -1).then(|| ptr::with_exposed_provenance_mut(got as usize))
}

/// What a program needs (`lowtide_run::elf`), or what keeps us out of it.
type Judged = Option<Result<CLibrary, Obstacle>>;

/// Which library the program is to have.
///
/// # Safety
/// As [`start`].
unsafe fn judge(program: Program) -> Judged {
    match program {
        Program::At(dir, path) => judge_file(dir, path, elf::DEPTH),
        Program::Open(fd) => judge_descriptor(fd),
        Program::Named(name) if name.is_null() => None,
        Program::Named(name) => {
            // SAFETY: the caller's promise; the C library reads the name, too.
            judge_named(unsafe { CStr::from_ptr(name) })
        }
    }
}

/// The same, of a descriptor. One that only names its file (`O_PATH`) is opened through /proc.
fn judge_descriptor(fd: c_int) -> Judged {
    if fd < 0 {
        return None;
    }
    // SAFETY: the program's descriptor. If it is not open, reading fails.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    if pread(file, &mut [0; 1], 0) != Err(Failure::BADF) {
        return judge_open_file(file, elf::DEPTH);
    }
    // The digits, the last one first, behind the folder's name.
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut rest = fd.unsigned_abs();
    let digits = rest.checked_ilog10().unwrap_or(0) as usize + 1;
    for place in (14..14 + digits).rev() {
        path[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    judge_file(AT_FDCWD, path.as_ptr().cast(), elf::DEPTH)
}

/// The same, of the first file of this name in `PATH` that may be executed, as the C library
/// looks for it.
#[inline(never)]
fn judge_named(name: &CStr) -> Judged {
    let bytes = name.to_bytes();
    if bytes.contains(&b'/') {
        return judge_file(AT_FDCWD, name.as_ptr(), elf::DEPTH);
    }
    let mut room = [0; PATH_MAX];
    // SAFETY: the process's list.
    let mut all = unsafe { entries(environ()) };
    let found = all.find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="));
    for folder in found.unwrap_or(b"/bin:/usr/bin").split(|byte| *byte == b':') {
        let between: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        if folder.len() + bytes.len() + 2 > PATH_MAX || bytes.is_empty() {
            continue;
        }
        let mut len = 0;
        for part in [folder, between, bytes, b"\0"] {
            room[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        let Ok(path) = CStr::from_bytes_until_nul(&room) else { continue };
        let is_there = is_regular(AT_FDCWD, path.as_ptr())
            && accessat(CWD, path, Access::EXEC_OK, AtFlags::empty()).is_ok();
        if is_there {
            return judge_file(AT_FDCWD, path.as_ptr(), elf::DEPTH);
        }
    }
    None
}

/// The environment of this process.
pub(crate) fn environ() -> List {
    unsafe extern "C" {
        static mut environ: List;
    }
    // SAFETY: the C library's variable, a word. Another thread that changes it meanwhile is in the
    // way of the C library, too.
    unsafe { environ }
}

/// A file that is closed again, by a bare system call: the C library's function may end the thread,
/// where it is cancelled.
struct File(c_int);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: opened by us, and not used any more.
        unsafe { rustix::io::close(self.0) };
    }
}

/// Whether it is a regular file. Opening anything else may do something.
fn is_regular(dir: c_int, path: *const c_char) -> bool {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    let place = about.as_mut_ptr();
    // SAFETY: the kernel reads the path, and writes what is known of the file.
    let got = unsafe { libc::syscall(libc::SYS_newfstatat, dir, path, place, 0) };
    // SAFETY: zeroes, or written.
    got == 0 && unsafe { about.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// Opens a file to look at it. It does not wait for what another process has to give up first.
fn open(dir: c_int, path: *const c_char) -> Option<File> {
    if !is_regular(dir, path) {
        return None;
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    loop {
        // SAFETY: the kernel reads the path.
        let got = unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, 0) };
        if got >= 0 {
            return Some(File(got as c_int));
        }
        if Errno::now() != libc::EINTR {
            return None;
        }
    }
}

fn judge_file(dir: c_int, path: *const c_char, depth: usize) -> Judged {
    let file = open(dir, path)?;
    // SAFETY: open until `file` goes.
    judge_open_file(unsafe { BorrowedFd::borrow_raw(file.0) }, depth)
}

fn judge_open_file(file: BorrowedFd<'_>, depth: usize) -> Judged {
    let read = |to: &mut [u8], at: u64| read_at(file, to, at);
    let mut start = [0; elf::START];
    let len = read(&mut start, 0);
    let Some(line) = start[..len].strip_prefix(b"#!") else {
        return elf::judge(&read);
    };
    let mut path = [0; elf::START];
    match elf::words(line).next() {
        // The mark in front of it makes it shorter than the room.
        Some(word) if depth > 1 => path[..word.len()].copy_from_slice(word),
        _ => return None,
    }
    judge_file(AT_FDCWD, path.as_ptr().cast(), depth - 1)
}

/// Reads at a place of a file until there is enough, or no more; nothing is what fails.
fn read_at(file: BorrowedFd<'_>, to: &mut [u8], at: u64) -> usize {
    let mut done = 0;
    while done < to.len() {
        match retry_on_intr(|| pread(file, &mut to[done..], at.saturating_add(done as u64))) {
            Ok(len @ 1..) => done += len,
            _ => break,
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::{AsFd, AsRawFd};
    use std::path::{Path, PathBuf};
    use std::process::Command;

    const OURS: Ours<'_> =
        Ours { own: b"/a/liblowtide_preload.so", other: Some(c"LD_PRELOAD=/m/musl.so\r\r") };

    /// An environment with another library in the place of ours, or none, in this much room.
    fn changed(to: Option<&CStr>, entries: &[&str], room: usize) -> Option<Vec<String>> {
        let change = Change { ours: OURS, to };
        let owned: Vec<CString> = entries.iter().map(|one| CString::new(*one).unwrap()).collect();
        let mut list: Vec<*const c_char> = owned.iter().map(|one| one.as_ptr()).collect();
        list.push(ptr::null());
        // SAFETY: a list that lives until the end.
        let words = unsafe { words_for(change, list.as_ptr()) };
        let mut space = vec![usize::MAX; words.min(room)];
        // SAFETY: as above.
        let left = unsafe { write_changed(change, list.as_ptr(), &mut space) }?;
        // SAFETY: as above, and `space` lives, too.
        let left = unsafe { super::entries(left) };
        Some(left.map(|entry| entry.to_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn only_our_libraries_are_taken_out_of_an_environment() {
        let without = |entries: &[&str], room| changed(None, entries, room);
        let whole = usize::MAX;
        let one = "LD_PRELOAD=/a/liblowtide_preload.so";
        assert_eq!(without(&["A=1", one, "B=2"], whole).unwrap(), ["A=1", "B=2"]);
        let musl = "LD_PRELOAD=/c/liblowtide_preload-musl.so\r\r\r";
        assert_eq!(without(&["A=1", musl, "B=2"], whole).unwrap(), ["A=1", "B=2"]);
        let list = "LD_PRELOAD=/b/x.so /a/liblowtide_preload.so::y.so";
        let left = ["LD_PRELOAD=/b/x.so:y.so", "LD_PRELOADED=1"];
        assert_eq!(without(&[list, "LD_PRELOADED=1"], whole).unwrap(), left);
        let twice = [one, list, "LD_PRELOAD=z", "LD_PRELOAD="];
        let left = ["LD_PRELOAD=/b/x.so:y.so", "LD_PRELOAD=z", "LD_PRELOAD="];
        assert_eq!(without(&twice, whole).unwrap(), left);
        assert!(without(&[], whole).unwrap().is_empty());
        // As it is for a process whose other threads change the environment.
        for room in 0..9 {
            let left = without(&[list, "A=1"], room);
            assert!(left.is_none_or(|left| left.len() == 2), "{room}");
        }
    }

    #[test]
    fn the_library_for_the_other_c_library_takes_the_place_of_this_one() {
        let with = |entries: &[&str], room| changed(OURS.other, entries, room);
        let whole = usize::MAX;
        let one = "LD_PRELOAD=/a/liblowtide_preload.so";
        let only = "LD_PRELOAD=/m/musl.so\r\r";
        assert_eq!(with(&["A=1", one, "B=2"], whole).unwrap(), ["A=1", only, "B=2"]);
        let list = "LD_PRELOAD=/b/x.so /a/liblowtide_preload.so::y.so";
        let both = "LD_PRELOAD=/m/musl.so\r\r:/b/x.so:y.so";
        assert_eq!(
            with(&[list, one, "LD_PRELOAD=z"], whole).unwrap(),
            [both, only, "LD_PRELOAD=z"]
        );
        assert_eq!(with(&["LD_PRELOAD=z"], whole).unwrap(), ["LD_PRELOAD=z"]);
        for room in 0..16 {
            let left = with(&[list, "A=1"], room);
            assert!(left.is_none_or(|left| left == [both, "A=1"]), "{room}");
        }
    }

    /// What this machine's own C library is not.
    fn is_hindered(path: &Path) -> bool {
        is_other(judge_path(path))
    }

    fn is_other(judged: Judged) -> bool {
        judged.is_some_and(|needed| needed != Ok(c_library::OWN))
    }

    fn judge_path(path: &Path) -> Judged {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        judge_file(AT_FDCWD, path.as_ptr(), elf::DEPTH)
    }

    /// A program that is built with these options, if there is a compiler that knows them.
    fn build(dir: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
        let (source, path) = (dir.join("x.c"), dir.join(name));
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let built = Command::new("gcc").args(options).arg("-o").arg(&path).arg(&source).status();
        let built = built.is_ok_and(|status| status.success()).then_some(path);
        if built.is_none() {
            eprintln!("SKIPPED in part: no gcc that builds with {options:?}");
        }
        built
    }

    #[test]
    fn programs_that_fail_with_the_library_are_known_by_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let musl = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
        let sanitize = "-fsanitize=address";
        for (name, options, expected) in [
            ("plain", &[][..], false),
            ("fixed", &["-no-pie"], false),
            ("still", &["-static"], false),
            ("musl", &[musl], true),
            ("asan", &[sanitize], true),
            ("asan-fixed", &[sanitize, "-no-pie", "-s"], true),
            ("asan-within", &[sanitize, "-static-libasan"], false),
        ] {
            let Some(path) = build(dir, name, options) else { continue };
            assert_eq!(is_hindered(&path), expected, "{name}");
            let script = dir.join("script");
            fs::write(&script, format!("#! {} -e\n", path.display())).unwrap();
            assert_eq!(is_hindered(&script), expected, "a script of {name}");
            let open = fs::File::open(&path).unwrap();
            assert_eq!(is_other(judge_descriptor(open.as_raw_fd())), expected, "{name}, open");
            let flags = rustix::fs::OFlags::PATH;
            let named = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
            assert_eq!(is_other(judge_descriptor(named.as_raw_fd())), expected, "{name}, named");
            // Nothing is read past the end, whatever is missing.
            let bytes = fs::read(&path).unwrap();
            for len in (0..1024).chain([bytes.len() / 2, bytes.len() - 1]) {
                let part = &bytes[..len.min(bytes.len())];
                let read = |to: &mut [u8], at: u64| {
                    let rest = part.get(usize::try_from(at).unwrap()..).unwrap_or_default();
                    let len = rest.len().min(to.len());
                    to[..len].copy_from_slice(&rest[..len]);
                    len
                };
                assert!(!is_other(elf::judge(&read)) || expected, "{len} bytes of {name}");
            }
        }
        assert!(!is_hindered(Path::new("/dev/null")) && !is_hindered(dir));
        assert!(!is_hindered(&dir.join("none")) && judge_descriptor(-1).is_none());
    }

    #[test]
    fn bytes_that_are_anything_are_judged_without_harm() {
        let own = fs::read("/proc/self/exe").unwrap();
        let judge = |bytes: &[u8]| {
            let dir = tempfile::tempfile().unwrap();
            rustix::io::pwrite(&dir, bytes, 0).unwrap();
            is_other(judge_open_file(dir.as_fd(), elf::DEPTH))
        };
        assert!(!judge(&own[..4096]));
        // Each byte of the header, as large as can be: other bits, orders, machines and places.
        for at in 0..64 {
            let mut bytes = own[..1024].to_vec();
            bytes[at] = 0xff;
            let is_foreign = matches!(at, 5 | 18 | 19);
            assert_eq!(judge(&bytes), is_foreign, "byte {at}");
        }
        let mut narrow = own[..64].to_vec();
        narrow[4] = 1;
        assert!(judge(&narrow) && judge(&narrow[..20]) && !judge(&narrow[..19]));
    }

    #[test]
    fn scripts_that_are_their_own_interpreters_come_to_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        fs::write(&path, format!("#!{}\n", path.display())).unwrap();
        assert!(!is_hindered(&path));
        let long = [b"#!".as_slice(), &[b'x'; 400]].concat();
        fs::write(&path, long).unwrap();
        assert!(!is_hindered(&path));
    }

    #[test]
    fn names_are_looked_for_as_the_c_library_does() {
        for name in [c"sh", c"/bin/sh", c"", c"no-such-program-here"] {
            assert!(!is_other(judge_named(name)), "{name:?}");
        }
        let long = CString::new(vec![b'x'; 5000]).unwrap();
        assert!(judge_named(&long).is_none());
    }
}
