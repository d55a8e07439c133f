//! Scenes that end a process or change it for good: each is played in a process of its own.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::any::type_name;
use std::ffi::CStr;
use std::process::{Command, Output};

/// Says to a process that it is the child of a test.
const CHILD: &str = "LOWTIDE_MAP_CHILD";
/// The exit code of a child that can say why the scene cannot be played here.
pub(crate) const SKIPPED: i32 = 77;

/// The request of /dev/userfaultfd for a new descriptor.
pub(crate) const NEW_USERFAULTFD: u32 = 0xAA00;
/// The request of /proc/self/pagemap for a scan: it reads and writes 96 bytes.
pub(crate) const PAGEMAP_SCAN: u32 = 0xC060_6610;

/// The name by which the runner knows the test in which a closure is written: `module::test`.
fn test_of<Scene>() -> &'static str {
    let (_crate, path) = type_name::<Scene>().split_once("::").expect("a path");
    path.trim_end_matches("::{{closure}}")
}

/// This program again, in which the runner runs one test: `module::test`.
pub(crate) fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
}

/// In the test: starts the scene in a process of its own, and returns how it ended, or nothing if
/// it cannot be played here. In that process: plays the scene, and never returns. The scene is a
/// closure of the test, whose name it tells.
pub(crate) fn child<Scene: FnOnce() -> i32>(scene: Scene) -> Option<Output> {
    play(test_of::<Scene>(), scene)
}

/// A test that changes or measures all of its process: it has one of its own, in which it must end
/// well.
pub(crate) fn alone<Scene: FnOnce()>(scene: Scene) {
    let played = play(test_of::<Scene>(), || {
        scene();
        0
    });
    let Some(output) = played else { return };
    assert_well(&output);
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        eprintln!("{line}");
    }
}

fn play(test: &str, scene: impl FnOnce() -> i32) -> Option<Output> {
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        std::process::exit(scene());
    }
    let output = again(test).env(CHILD, test).output().unwrap();
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(out.contains("running 1 test\n"), "{test} is no test of this program: {out}{error}");
    if output.status.code() == Some(SKIPPED) {
        eprintln!("SKIPPED: {error}");
        return None;
    }
    Some(output)
}

/// Checks that a scene ended well.
pub(crate) fn assert_well(output: &Output) {
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}\n{out}\n{error}", output.status);
}

/// A call by its number; perhaps only where an argument, by its index, has this value.
pub(crate) type Call = (libc::c_long, Option<(u32, u32)>);

/// One request of `ioctl(2)`.
pub(crate) const fn ioctl(request: u32) -> Call {
    (libc::SYS_ioctl, Some((1, request)))
}

/// Makes system calls fail in all threads, and in what they become, with a filter as sandboxes
/// install it. With `errno` 0 they seem to succeed, and do nothing. False if the kernel takes no
/// filter.
pub(crate) fn refuse(calls: &[Call], errno: i32) -> bool {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let unless_equal = |k: u32, skip: u8| {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        libc::sock_filter { code, jt: 0, jf: skip, k }
    };
    let failed = libc::SECCOMP_RET_ERRNO | errno as u32;
    let failed = statement(libc::BPF_RET | libc::BPF_K, failed);
    let mut program = Vec::new();
    for &(call, only) in calls {
        program.push(statement(LOAD, 0)); // the number of the call
        let Some((argument, value)) = only else {
            program.extend([unless_equal(call as u32, 1), failed]);
            continue;
        };
        program.push(unless_equal(call as u32, 3));
        program.push(statement(LOAD, 16 + 8 * argument)); // its lower half
        program.extend([unless_equal(value, 1), failed]);
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the call takes numbers only.
    let no_new = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let (set, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the kernel copies the program, which lives until the call has returned.
    let installed = unsafe { libc::syscall(libc::SYS_seccomp, set, all, &raw const filter) };
    no_new == 0 && installed == 0
}

fn mount(at: &CStr, kind: &CStr, flags: libc::c_ulong) -> bool {
    let none = c"none".as_ptr();
    // SAFETY: the strings live until the call has returned.
    unsafe { libc::mount(none, at.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) == 0 }
}

/// From now on what this process mounts is seen by it and its children alone, and goes with them.
/// False if this user may not.
pub(crate) fn private_mounts() -> bool {
    // SAFETY: the call takes a number.
    let own = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    own && mount(c"/", c"none", libc::MS_REC | libc::MS_PRIVATE)
}

/// Hides a folder under an empty one, from this process alone. False if this user may not.
pub(crate) fn hide(folder: &CStr) -> bool {
    private_mounts() && mount(folder, c"tmpfs", 0)
}
