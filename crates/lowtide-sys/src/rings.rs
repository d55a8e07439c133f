//! Refusing the program that this process becomes the system calls that read by themselves.
//!
//! A ring of `io_uring(7)`, or a context of `io_setup(2)`, is made by a system call that no library
//! can stand in front of, and reads into memory of the program while that does something else. A
//! filter of `seccomp(2)` answers these two calls as a kernel does that has not got them, `ENOSYS`.
//! Programs ask, and do without: they must also run where containers refuse the same calls.
//!
//! A process that may not change what the kernel does for others gets a filter only with
//! `PR_SET_NO_NEW_PRIVS`: programs that it starts gain no rights of a file (`sudo`).
//!
//! # Safety
//!
//! A filter is data: the kernel checks it, and keeps a copy.

#![allow(unsafe_code)]

use std::io;

use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
use libc::{SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter, sock_fprog};

/// Where a filter finds the number of the call, and the architecture.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// The architecture as the kernel names it to filters; none where it is not known here.
const OWN: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "riscv64") {
    Some(0xc000_00f3)
} else {
    None
};

/// The bit of calls with short pointers on `x86_64`, and what `io_setup` is among them.
const SHORT: u32 = 0x4000_0000;
const IO_SETUP_SHORT: u32 = 543;

const fn step(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Skips `yes` steps if the value is this one, or else `no`.
const fn skip_if(k: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt: yes, jf: no, k }
}

/// Calls of another architecture are those of programs that have no library of ours.
const fn filter(own: u32) -> [sock_filter; 9] {
    [
        step(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE),
        skip_if(own, 0, 5),
        step(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        step(BPF_ALU | BPF_AND | BPF_K, !SHORT),
        skip_if(libc::SYS_io_uring_setup as u32, 3, 0),
        skip_if(libc::SYS_io_setup as u32, 2, 0),
        skip_if(IO_SETUP_SHORT, 1, 0),
        step(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        step(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}

/// From now on this thread, and what it starts or becomes, can make no rings. There is no way back.
///
/// # Errors
/// Of `seccomp(2)`; `Unsupported` on architectures that are not known here.
pub fn refuse() -> io::Result<()> {
    let own = OWN.ok_or(io::ErrorKind::Unsupported)?;
    match install(own) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            rustix::thread::set_no_new_privs(true)?;
            install(own)
        }
        result => result,
    }
}

fn install(own: u32) -> io::Result<()> {
    let mut steps = filter(own);
    let program = sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let (call, set) = (libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER);
    // SAFETY: the program has as many steps as it says, and lives as long as the call.
    let done = unsafe { libc::syscall(call, set, 0, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno_of(call: libc::c_long) -> Option<i32> {
        // SAFETY: the addresses are none, so the kernel makes nothing.
        let done = unsafe { libc::syscall(call, 1, 1) };
        if done < 0 { io::Error::last_os_error().raw_os_error() } else { None }
    }

    #[test]
    fn a_thread_that_refuses_rings_has_none_and_everything_else() {
        let before = errno_of(libc::SYS_io_setup);
        std::thread::spawn(|| {
            if let Err(error) = refuse() {
                return eprintln!("SKIPPED: {error}");
            }
            assert_eq!(errno_of(libc::SYS_io_uring_setup), Some(libc::ENOSYS));
            assert_eq!(errno_of(libc::SYS_io_setup), Some(libc::ENOSYS));
            assert_eq!(errno_of(libc::SYS_getpid), None);
        })
        .join()
        .expect("the thread");
        assert_eq!(errno_of(libc::SYS_io_setup), before, "other threads are as usual");
    }
}
