//! Whether a program can be reached by a preloaded library.
//!
//! The dynamic linker loads the library, so a program without one is out of reach, and so is one
//! that makes system calls without the C library. Both would run, unlimited and silently. They are
//! recognised before they start:
//!
//! | program | recognised by |
//! |---|---|
//! | static | no program header of type `PT_INTERP` |
//! | Go, also with the C library | `.go.buildinfo` or `.note.go.buildid` |
//! | with AddressSanitizer as a library | `libasan` or `libclang_rt.asan` needed |
//! | of another architecture | `e_machine`, or 32 bits |
//! | with the rights of another user or of its file | mode, attribute `security.capability` |
//!
//! A script is checked by its interpreter; `env` in a first line by the program that it starts.
//! Which programs would fail with the library, and which C library a program uses, is decided by
//! `lowtide_run::elf`: the library judges by it what this program starts.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};
use rustix::fs::{Access, access};
use rustix::io::pread;
use rustix::process::{getegid, geteuid};

use super::error::{Lack, RunError};
use lowtide_run::elf::{self, CLibrary, Obstacle};

/// The path of a program, found as `execvp(3)` finds it.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, RunError> {
    let not_found = || RunError::NotFound { program: name.to_string_lossy().into_owned() };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return if path.exists() { executable(path) } else { Err(not_found()) };
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/bin:/usr/bin".into());
    let mut refused = None;
    for folder in env::split_paths(&folders) {
        let path = folder.join(name);
        if !name.is_empty() && path.is_file() {
            match executable(path) {
                Ok(path) => return Ok(path),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    Err(refused.unwrap_or_else(not_found))
}

fn executable(path: PathBuf) -> Result<PathBuf, RunError> {
    let allowed = if path.is_dir() {
        Err(io::Error::from(io::ErrorKind::IsADirectory))
    } else {
        access(&path, Access::EXEC_OK).map_err(io::Error::from)
    };
    match allowed {
        Ok(()) => Ok(path),
        Err(source) => Err(RunError::CannotExecute { path, source }),
    }
}

/// Refuses a program that no library can be loaded into, or in which it sees nothing. Says which
/// library the program needs; `None` where the kernel or a deep chain of scripts will decide.
pub(crate) fn check(path: &Path) -> Result<Option<CLibrary>, Lack> {
    let mut path = path.to_owned();
    for _ in 0..elf::DEPTH {
        match look(&path)? {
            Looked::Script(next) => path = next,
            Looked::Program(needed) => return Ok(needed),
        }
    }
    Ok(None)
}

/// What a file is.
enum Looked {
    /// To be interpreted by this.
    Script(PathBuf),
    /// A program, and what it needs, if that is known.
    Program(Option<CLibrary>),
}

/// Looks at a file.
fn look(path: &Path) -> Result<Looked, Lack> {
    let out_of_reach = |(why, advice)| Lack::Reach { path: path.to_owned(), why, advice };
    let Ok(file) = File::open(path) else {
        // It may be executed and not read: the kernel does not load libraries then either.
        let advice = "make it readable for this user";
        return Err(out_of_reach(("it is not readable for this user", advice)));
    };
    if let Some(found) = foreign_rights(path) {
        return Err(out_of_reach(found));
    }
    let read = |to: &mut [u8], at| pread(&file, to, at).unwrap_or(0);
    let mut start = [0; elf::START];
    let len = read(&mut start, 0);
    if let Some(line) = start[..len].strip_prefix(b"#!") {
        return Ok(interpreter(line).map_or(Looked::Program(None), Looked::Script));
    }
    let judged = elf::judge(&read);
    let found = match judged {
        Some(Err(obstacle)) => Some(what_is(obstacle)),
        _ => out_of_sight(&ReadCache::new(&file)),
    };
    match found {
        Some(found) => Err(out_of_reach(found)),
        None => Ok(Looked::Program(judged.and_then(Result::ok))),
    }
}

/// The program behind the first line of a script.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let mut words = elf::words(line);
    let path = PathBuf::from(OsStr::from_bytes(words.next()?));
    if path.file_name() != Some(OsStr::new("env")) {
        return Some(path);
    }
    let started = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    find(OsStr::from_bytes(started)).ok().or(Some(path))
}

/// What a program is that is out of reach, and what to do.
type Found = (&'static str, &'static str);

/// A program that starts with other rights than its parent's ignores `LD_PRELOAD`.
fn foreign_rights(path: &Path) -> Option<Found> {
    let Ok(meta) = fs::metadata(path) else { return None };
    let set_user = meta.mode() & 0o4000 != 0 && meta.uid() != geteuid().as_raw();
    let set_group = meta.mode() & 0o2010 == 0o2010 && meta.gid() != getegid().as_raw();
    if set_user || set_group {
        return Some((
            "it runs with the rights of its owner (set-user-ID or set-group-ID), and such a \
             program loads no library of its caller",
            "run it as its owner, or a copy without the bit",
        ));
    }
    let mut value = [0_u8; 64];
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut value).is_ok();
    (has_capabilities && !geteuid().is_root()).then_some((
        "it has file capabilities, and such a program loads no library of its caller",
        "run a copy without them, or as root",
    ))
}

/// What the library cannot be loaded into.
fn what_is(obstacle: Obstacle) -> Found {
    match obstacle {
        Obstacle::Narrow => (
            "it is a 32-bit program, and the library is for 64 bits",
            "use the 64-bit build of the program",
        ),
        Obstacle::Foreign => (
            "it is for another architecture than the library",
            "use a build of the program for this machine",
        ),
        Obstacle::Sanitizer => (
            "it needs AddressSanitizer as a library, which ends a program that loads another first",
            "link the sanitizer statically (-static-libasan), or use a build without it",
        ),
    }
}

/// Why the library would be passed over, or see nothing, if the file says so.
fn out_of_sight<'data>(data: impl ReadRef<'data>) -> Option<Found> {
    // What cannot be read is left to the kernel to refuse.
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let has_loader = segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP);
    let sections = header.sections(endian, data).ok();
    let is_go = sections.as_ref().is_some_and(|sections| {
        let has = |name: &[u8]| sections.section_by_name(endian, name).is_some();
        has(b".go.buildinfo") || has(b".note.go.buildid")
    });
    if !has_loader {
        return Some(if is_go {
            (
                "it is a Go program, which is linked statically and makes its own system calls",
                "limit it with a memory cgroup, or use lowtide as a library",
            )
        } else {
            (
                "it is linked statically",
                "use a dynamically linked build, or limit it with a memory cgroup",
            )
        });
    }
    // Also with the C library (cgo): Go's own code maps past it. Without sections the library is
    // loaded, and that is all.
    is_go.then_some((
        "it is a Go program, which makes its own system calls",
        "limit it with a memory cgroup, or use lowtide as a library",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(dir: &Path, name: &str, text: &[u8]) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_script_is_judged_by_what_executes_it() {
        assert_eq!(interpreter(b" /bin/sh -e\nx"), Some("/bin/sh".into()));
        let sh = find(OsStr::new("sh")).unwrap();
        assert_eq!(interpreter(b"/usr/bin/env -S A=1 sh -e\n"), Some(sh));
        assert_eq!(interpreter(b"/usr/bin/env no-such-program\n"), Some("/usr/bin/env".into()));
        assert_eq!(interpreter(b"\n"), None);
    }

    #[test]
    fn programs_that_are_missing_or_not_executable_have_codes_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plain");
        fs::write(&path, "x").unwrap();
        let code = |path: &Path| find(path.as_os_str()).unwrap_err().exit_code();
        assert_eq!(code(&path), 126);
        assert_eq!(code(dir.path()), 126);
        assert_eq!(code(&dir.path().join("none")), 127);
        assert_eq!(find(OsStr::new("no-such-program-here")).unwrap_err().exit_code(), 127);
        assert_eq!(find(OsStr::new("")).unwrap_err().exit_code(), 127);
    }

    #[test]
    fn a_program_that_becomes_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "x", b"#!/bin/sh\n");
        assert!(check(&path).is_ok());
        let group = fs::metadata(&path).unwrap().gid();
        let other = rustix::fs::Gid::from_raw(group + 1);
        if rustix::fs::chown(&path, None, Some(other)).is_err() {
            eprintln!("SKIPPED: only root gives a file to another group");
            return;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2755)).unwrap();
        let error = check(&path).unwrap_err();
        assert!(error.to_string().contains("set-group-ID"), "{error}");
        assert_eq!(RunError::from(error).exit_code(), 2);
    }

    #[test]
    fn bytes_that_only_look_like_a_program_are_left_to_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [("empty", &b""[..]), ("elf", b"\x7fELF\x02\x01\x01"), ("zero", &[0])]
        {
            assert!(check(&script(dir.path(), name, bytes)).is_ok(), "{name}");
        }
        let narrow = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0";
        let error = check(&script(dir.path(), "narrow", narrow)).unwrap_err();
        assert!(error.to_string().contains("32-bit"), "{error}");
    }

    #[test]
    fn a_program_with_a_library_that_must_be_the_first_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("x.c");
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let build = |name: &str, options: &[&str]| {
            let path = dir.path().join(name);
            let mut gcc = std::process::Command::new("gcc");
            let built = gcc.args(options).arg("-o").arg(&path).arg(&source).status();
            built.is_ok_and(|status| status.success()).then_some(path)
        };
        let sanitize = "-fsanitize=address";
        let built =
            (build("dynamic", &[sanitize]), build("static", &[sanitize, "-static-libasan"]));
        let (Some(dynamic), Some(fixed)) = built else {
            return eprintln!("SKIPPED: gcc with AddressSanitizer is not installed");
        };
        let error = check(&dynamic).unwrap_err();
        assert!(error.to_string().contains("AddressSanitizer"), "{error}");
        assert_eq!(RunError::from(error).exit_code(), 2);
        assert!(check(&fixed).is_ok());
    }

    #[test]
    fn a_go_program_is_told_what_it_is_also_where_it_has_the_c_library() {
        let dir = tempfile::tempdir().unwrap();
        let build = |name: &str, source: &str, options: &[&str]| {
            let (path, file) = (dir.path().join(name), dir.path().join("x.c"));
            fs::write(&file, source).unwrap();
            let mut gcc = std::process::Command::new("gcc");
            let built = gcc.args(options).arg("-o").arg(&path).arg(&file).status();
            built.is_ok_and(|status| status.success()).then_some(path)
        };
        // The sections by which Go's own linker, and another, mark a program.
        let marked = |section: &str| {
            format!(
                "__attribute__((section(\"{section}\"), used)) char mark[64] = {{1}};\n\
                 int main(void) {{ return 0; }}\n"
            )
        };
        for (section, options, words) in [
            (".go.buildinfo", &[][..], "its own system calls"),
            (".note.go.buildid", &["-no-pie"], "its own system calls"),
            (".go.buildinfo", &["-static"], "linked statically and makes its own system calls"),
        ] {
            let Some(path) = build("go", &marked(section), options) else {
                return eprintln!("SKIPPED: gcc is not installed");
            };
            let error = check(&path).unwrap_err();
            let text = error.to_string();
            for word in ["it is a Go program", words, "memory cgroup"] {
                assert!(text.contains(word), "{word} is not in {text}");
            }
            assert_eq!(RunError::from(error).exit_code(), 2);
        }
    }

    #[test]
    fn this_test_itself_is_within_reach() {
        assert!(check(&env::current_exe().unwrap()).is_ok());
    }
}
