//! Page faults that this process serves itself: `userfaultfd(2)`.
//!
//! # Model
//!
//! A range of memory is registered with a descriptor. From then on some faults in it become
//! messages, and the thread that faulted sleeps until they are answered:
//!
//! | mode | the fault | message | answer |
//! |---|---|---|---|
//! | missing | no page exists there (a hole) | neither | [copy], [poison] |
//! | write protection | a store to a protected page | `wp` | [write_protect] with `false` |
//!
//! [copy]: UserFault::copy
//! [poison]: UserFault::poison
//! [write_protect]: UserFault::write_protect
//!
//! With [`Features::WP_ASYNC`] the kernel answers write protection faults itself: the store goes
//! on, the protection is gone, and a scan ([`crate::pagemap`]) finds the page `WRITTEN`. With
//! [`Features::SIGBUS`] there are no messages at all: the faulting thread gets the signal and
//! serves the page from its handler.
//!
//! # Present, mapped, missing
//!
//! Three states of a page of a memfd must not be confused. *Missing*: neither the page cache nor
//! the page table has it; a touch is a message. *Cached*: zapping took the entry of the page table
//! away ([`crate::page_cache::zap`]); a touch maps the page again **without** a message. *Mapped*:
//! no fault. Only punching a hole makes a page missing. In a range with write protection the kernel
//! does not map neighbours of a touched page (*fault-around*), so which pages of it are mapped says
//! exactly which were touched.
//!
//! A page becomes visible to the mapping with all its bytes when `copy` inserts it. Filling it
//! through an alias instead is visible byte by byte.
//!
//! # Marks of write protection
//!
//! On a memfd the mark of a protected page survives zapping and punching: an entry that holds no
//! page remembers it. A page that is zapped while unprotected comes back unprotected. Inserting a
//! page replaces the mark.
//!
//! A shared mapping without `PROT_WRITE` can be registered for both modes, if the descriptor is
//! open for writing (the kernel requires that the mapping *may* become writable).
//!
//! # What it takes
//!
//! Serving faults of system calls (a `read(2)` into the memory) needs `CAP_SYS_PTRACE`, or the
//! sysctl `vm.unprivileged_userfaultfd`, or rights on `/dev/userfaultfd`. Without, the descriptor
//! serves faults of user code only, and a system call on a missing page fails with `EFAULT`.
//!
//! # Moves
//!
//! Registered memory that moves (`mremap(2)`) stays registered with [`Features::EVENT_REMAP`]:
//! other threads see it at its new addresses in one step, and no touch of it escapes. The thread
//! that moves it waits until a message of that is taken, and the kernel lets no fault of the
//! descriptor be answered meanwhile (`EAGAIN`). So a thread that answers takes what messages there
//! are, and tries again: others may all be about to answer, too. The faults among them are woken,
//! and come again.
//!
//! # Drop and fork
//!
//! Closing the descriptor ends all registrations and wakes all threads: their faults are then
//! served by the kernel, and a missing page reads as **zeroes**. So memory must be unreachable
//! before its descriptor is dropped. A child of `fork(2)` has the memory without the registration,
//! with the same effect; [`crate::page_cache::dont_fork`] keeps the memory from children.
//!
//! # Cost
//!
//! A page of 4 KiB takes 1.2 to 1.8 µs to insert, and 0.8 µs (in long runs) to 3.5 µs (alone) to
//! punch; `examples/fault_costs.rs` measures these and others, and its head has the figures.
//!
//! # Safety
//!
//! The calls write only to structures of this file, and to pages that are missing. The kernel
//! refuses to fill memory that is not registered, and registering is the unsafe step: its caller
//! owns the memory and accepts that this descriptor decides what missing pages contain.

#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use bitflags::bitflags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode, opcode};
use rustix::mm::UserfaultfdFlags;
use thiserror::Error;

use crate::call::{exchange, length};

/// The group of the requests, and the version of the interface.
const GROUP: u8 = 0xaa;
const VERSION: u64 = 0xaa;

// The kernel's structures are runs of 64-bit fields, so arrays stand for them. Two requests are
// numbered as if the kernel only wrote their argument; it reads it.
const API: Opcode = opcode::read_write::<[u64; 3]>(GROUP, 0x3f);
const REGISTER: Opcode = opcode::read_write::<[u64; 4]>(GROUP, 0x00);
const UNREGISTER: Opcode = opcode::read::<[u64; 2]>(GROUP, 0x01);
const WAKE: Opcode = opcode::read::<[u64; 2]>(GROUP, 0x02);
const COPY: Opcode = opcode::read_write::<[u64; 5]>(GROUP, 0x03);
const WRITEPROTECT: Opcode = opcode::read_write::<[u64; 3]>(GROUP, 0x06);
const POISON: Opcode = opcode::read_write::<[u64; 4]>(GROUP, 0x08);

/// The flag for faults of user code only (Linux 5.11).
const USER_MODE_ONLY: u32 = 1;

const COPY_DONT_WAKE: u64 = 1;
const COPY_WRITE_PROTECTED: u64 = 1 << 1;

/// The size in bytes of a message, its kind, and the kind of page faults.
const MESSAGE: usize = 32;
const MESSAGE_PAGEFAULT: u8 = 0x12;
/// How many messages one read takes at most.
const MESSAGES_MAX: usize = 64;

bitflags! {
    /// What a kernel can do with page faults, and what a descriptor shall do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// Write protection of anonymous memory.
        const WP = 1;
        /// Memory that moves stays registered, see *Moves*.
        const EVENT_REMAP = 1 << 2;
        /// Mode missing on memfds and tmpfs.
        const MISSING_SHMEM = 1 << 5;
        /// A signal to the faulting thread instead of messages.
        const SIGBUS = 1 << 7;
        /// Messages name the thread.
        const THREAD_ID = 1 << 8;
        /// Faults in pages that exist and are not mapped, on memfds and tmpfs (Linux 5.14).
        const MINOR_SHMEM = 1 << 10;
        /// Messages have the address itself, not that of its page (5.18).
        const EXACT_ADDRESS = 1 << 11;
        /// Write protection of memfds, tmpfs and huge pages (5.19).
        const WP_SHMEM = 1 << 12;
        /// Write protection marks where no page is, of anonymous memory too (6.4).
        const WP_UNPOPULATED = 1 << 13;
        /// [`UserFault::poison`] (6.6).
        const POISON = 1 << 14;
        /// The kernel resolves write protection faults itself (6.7).
        const WP_ASYNC = 1 << 15;
        /// Moving pages of anonymous memory (6.8).
        const MOVE = 1 << 16;
    }

    /// Which faults of a range become messages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Modes: u64 {
        /// Touches of pages that do not exist.
        const MISSING = 1;
        /// Stores to pages that [`UserFault::write_protect`] or `copy` protected.
        const WRITE_PROTECT = 1 << 1;
    }
}

/// Whose faults a descriptor must serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of system calls too where that is allowed, else those of user code;
    /// [`UserFault::user_mode_only`] reports which.
    Any,
    /// Those of system calls too, or none.
    SystemCalls,
    /// Those of user code only.
    UserMode,
}

/// One page fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The address: that of the page, or with [`Features::EXACT_ADDRESS`] the one that was touched.
    pub address: usize,
    /// The touch was a store.
    pub write: bool,
    /// A store to a protected page.
    pub wp: bool,
    /// The thread, with [`Features::THREAD_ID`]; else 0.
    pub thread: u32,
}

/// Why a page could not be put where it is missing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The page is there already (`EEXIST`): another thread was faster. Its waiters may still have
    /// to be woken ([`UserFault::wake`]).
    #[error("the page is present already; wake its waiters and go on")]
    Present,
    /// The file system of the memory is full (`ENOSPC`).
    #[error("the file system behind the memory has no space left")]
    NoSpace,
    /// The machine or the memory cgroup has no memory for the page (`ENOMEM`).
    #[error("no memory for a page; free some, or raise the limit of the cgroup")]
    NoMemory,
    /// The range is not wholly in registered memory (`ENOENT`): it was unmapped or unregistered.
    #[error("the range is not registered any more")]
    Unregistered,
    /// The process is exiting (`ESRCH`).
    #[error("the process is exiting")]
    Exited,
    /// Anything else; `EINVAL` for ranges that are not whole pages.
    #[error("a page could not be inserted: {0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for CopyError {
    fn from(errno: Errno) -> CopyError {
        match errno {
            Errno::EXIST => CopyError::Present,
            Errno::NOSPC => CopyError::NoSpace,
            Errno::NOMEM => CopyError::NoMemory,
            Errno::NOENT => CopyError::Unregistered,
            Errno::SRCH => CopyError::Exited,
            other => CopyError::Io(other.into()),
        }
    }
}

/// A descriptor that receives page faults. Close-on-exec, and reads of it never wait: use
/// `poll(2)` or `epoll(7)` on it.
///
/// All methods may be called by several threads at once.
#[derive(Debug)]
pub struct UserFault {
    fd: OwnedFd,
    user_mode_only: bool,
    offered: Features,
    features: Features,
}

impl UserFault {
    /// Opens a descriptor with those of the `wanted` features that the kernel has.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` where the scope is not allowed, `Unsupported` where the kernel (or a
    /// filter of system calls) has no userfaultfd; else what the calls say (`EMFILE`).
    pub fn open(scope: Scope, wanted: Features) -> io::Result<UserFault> {
        // The handshake fails for a feature that is missing and can be done once only, so a first
        // descriptor finds out what there is.
        let (probe, _) = descriptor(scope)?;
        let offered = handshake(probe.as_fd(), Features::empty())?;
        drop(probe);
        let features = wanted & offered;
        let (fd, user_mode_only) = descriptor(scope)?;
        handshake(fd.as_fd(), features)?;
        Ok(UserFault { fd, user_mode_only, offered, features })
    }

    /// Whether only faults of user code are served: a system call on a missing page then fails with
    /// `EFAULT`.
    #[must_use]
    pub fn user_mode_only(&self) -> bool {
        self.user_mode_only
    }

    /// The features that the kernel has.
    #[must_use]
    pub fn offered(&self) -> Features {
        self.offered
    }

    /// The features that this descriptor uses: those wanted and offered.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Makes faults in `range` (addresses, whole pages) messages of this descriptor. Registering
    /// the same range again with other modes replaces them.
    ///
    /// # Safety
    ///
    /// The caller owns the memory. From now on any user of this descriptor decides what its missing
    /// pages contain, and may leave a thread that touches one waiting. No reference to the memory
    /// may rest on another rule.
    ///
    /// # Errors
    ///
    /// `EINVAL` for memory of a kind that cannot have these modes, `EPERM` for a shared mapping
    /// that can never be written, `EBUSY` for memory of another descriptor, `ENOMEM` for addresses
    /// without memory.
    pub unsafe fn register(&self, range: Range<usize>, modes: Modes) -> io::Result<()> {
        let len = length("register", &range)?;
        let mut argument = [range.start as u64, len as u64, modes.bits(), 0];
        // SAFETY: The request takes a range, the modes and a field for the answer. The caller
        // accepts what registering means for the memory.
        unsafe { exchange(self.fd.as_fd(), REGISTER, &mut argument) }?;
        Ok(())
    }

    /// Ends the registration of `range` and wakes the threads that wait there. Missing pages read
    /// as zeroes from now on, and marks of write protection are lost.
    ///
    /// # Errors
    ///
    /// As for [`UserFault::register`].
    pub fn unregister(&self, range: Range<usize>) -> io::Result<()> {
        self.simple(UNREGISTER, "unregister", &range)
    }

    /// Inserts copies of `src` at `dst` where pages are missing, and wakes the threads that wait
    /// for them. With `write_protected` the pages are protected (the range must be registered for
    /// that).
    ///
    /// Returns how many bytes were inserted: at least a page, and less than requested when a later
    /// page could not be; a call for the rest then reports why. Source and destination may have any
    /// relation but overlap. `src` may not lie in missing memory of this descriptor, unless another
    /// thread serves it.
    ///
    /// # Errors
    ///
    /// [`CopyError`], when not even the first page was inserted.
    pub fn copy(&self, dst: usize, src: &[u8], write_protected: bool) -> Result<usize, CopyError> {
        let mode = if write_protected { COPY_WRITE_PROTECTED } else { 0 };
        let from = src.as_ptr().expose_provenance() as u64;
        self.fill(COPY, [dst as u64, from, src.len() as u64, mode, 0])
    }

    /// As [`UserFault::copy`], but leaves the threads that wait for the pages asleep: the caller
    /// answers them when it has done the rest, with [`UserFault::wake`] or by ending the
    /// protection.
    ///
    /// # Errors
    ///
    /// [`CopyError`], when not even the first page was inserted.
    pub fn copy_quietly(
        &self,
        dst: usize,
        src: &[u8],
        write_protected: bool,
    ) -> Result<usize, CopyError> {
        let protected = if write_protected { COPY_WRITE_PROTECTED } else { 0 };
        let mode = protected | COPY_DONT_WAKE;
        let from = src.as_ptr().expose_provenance() as u64;
        self.fill(COPY, [dst as u64, from, src.len() as u64, mode, 0])
    }

    /// Marks unmapped pages as broken, and wakes the threads that wait for them: every touch is
    /// `SIGBUS`, or `EFAULT` in a system call, until the mark is zapped. Returns as
    /// [`UserFault::copy`].
    ///
    /// # Errors
    ///
    /// [`CopyError`], when not even the first page was marked; `EINVAL` inside on kernels without
    /// [`Features::POISON`].
    pub fn poison(&self, range: Range<usize>) -> Result<usize, CopyError> {
        let len = length("poison", &range)?;
        self.fill(POISON, [range.start as u64, len as u64, 0, 0])
    }

    /// Sets or removes the write protection of `range`; removing wakes the threads that wait for
    /// it. On a memfd, pages that are not mapped are marked too.
    ///
    /// # Errors
    ///
    /// `ENOENT` where the range is not registered for it.
    pub fn write_protect(&self, range: Range<usize>, protect: bool) -> io::Result<()> {
        let len = length("protect", &range)?;
        let mut argument = [range.start as u64, len as u64, u64::from(protect)];
        loop {
            // SAFETY: The request takes a range and a mode, and changes no contents.
            match unsafe { exchange(self.fd.as_fd(), WRITEPROTECT, &mut argument) } {
                Err(Errno::AGAIN) => self.make_way(),
                other => return Ok(other.map(drop)?),
            }
        }
    }

    /// Memory moves: takes what messages there are, of which that may be one.
    fn make_way(&self) {
        let mut events = [Event::default(); MESSAGES_MAX];
        let page = rustix::param::page_size();
        let taken = self.read_events(&mut events).unwrap_or(0);
        for event in &events[..taken] {
            let start = event.address & !(page - 1);
            // What is not registered any more has no threads that wait.
            let _ = self.wake(start..start + page);
        }
        std::thread::yield_now();
    }

    /// Wakes the threads that wait for pages of `range`; they fault again.
    ///
    /// # Errors
    ///
    /// `EINVAL` for ranges that are not whole pages.
    pub fn wake(&self, range: Range<usize>) -> io::Result<()> {
        self.simple(WAKE, "wake", &range)
    }

    /// Takes waiting messages, at most 64 in one call, and returns how many; 0 when there is none.
    /// Each message is given to one caller only.
    ///
    /// # Errors
    ///
    /// What `read(2)` says, except that nothing is there.
    pub fn read_events(&self, events: &mut [Event]) -> io::Result<usize> {
        let mut raw = [0u8; MESSAGE * MESSAGES_MAX];
        let room = events.len().min(MESSAGES_MAX) * MESSAGE;
        if room == 0 {
            return Ok(0);
        }
        let got = loop {
            match rustix::io::read(&self.fd, &mut raw[..room]) {
                Ok(bytes) => break bytes,
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let faults = raw[..got].chunks_exact(MESSAGE).filter_map(event_of);
        Ok(events.iter_mut().zip(faults).map(|(slot, event)| *slot = event).count())
    }

    /// A request that takes a range only.
    fn simple(&self, request: Opcode, what: &str, range: &Range<usize>) -> io::Result<()> {
        let len = length(what, range)?;
        let mut argument = [range.start as u64, len as u64];
        // SAFETY: Both requests of this form take a range, and write to no memory.
        unsafe { exchange(self.fd.as_fd(), request, &mut argument) }?;
        Ok(())
    }

    /// A request that inserts pages, whose last field receives the number of bytes done, or an
    /// error.
    fn fill<const N: usize>(
        &self,
        request: Opcode,
        mut argument: [u64; N],
    ) -> Result<usize, CopyError> {
        loop {
            // SAFETY: Every caller gives the structure of its request. The kernel fills only
            // missing pages of registered memory, whose owner accepted that; it reads from a
            // borrowed slice.
            match unsafe { exchange(self.fd.as_fd(), request, &mut argument) } {
                Err(Errno::AGAIN) if argument[N - 1].cast_signed() <= 0 => self.make_way(),
                Err(errno) if argument[N - 1].cast_signed() <= 0 => return Err(errno.into()),
                Ok(_) | Err(_) => break,
            }
        }
        usize::try_from(argument[N - 1])
            .map_err(|_| CopyError::Io(io::Error::other("the kernel reports an impossible length")))
    }
}

impl AsFd for UserFault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a descriptor by the first way that is allowed; says whether it is for user code only.
fn descriptor(scope: Scope) -> io::Result<(OwnedFd, bool)> {
    let plain = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    let user = plain | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
    // SAFETY: A descriptor with which nothing is registered affects no memory.
    let call = |flags| unsafe { rustix::mm::userfaultfd(flags) };
    if scope != Scope::UserMode {
        let refused = match call(plain) {
            Ok(fd) => return Ok((fd, false)),
            Err(error @ (Errno::PERM | Errno::NOSYS)) => error,
            Err(error) => return Err(error.into()),
        };
        if let Ok(fd) = from_device() {
            return Ok((fd, false));
        }
        if scope == Scope::SystemCalls {
            return Err(refused.into());
        }
    }
    match call(user) {
        // Before Linux 5.11 the flag is unknown.
        Err(Errno::INVAL) => Err(Errno::PERM.into()),
        other => Ok((other?, true)),
    }
}

/// Opens a descriptor through `/dev/userfaultfd` (Linux 6.1), whose file mode says which users may.
fn from_device() -> io::Result<OwnedFd> {
    struct New(libc::c_int);
    // SAFETY: The request takes flags in place of a pointer, writes nothing, and returns a new
    // descriptor, which belongs to the caller alone.
    unsafe impl Ioctl for New {
        type Output = OwnedFd;
        const IS_MUTATING: bool = false;
        fn opcode(&self) -> Opcode {
            opcode::none(GROUP, 0x00)
        }
        fn as_ptr(&mut self) -> *mut std::ffi::c_void {
            crate::call::address(self.0.cast_unsigned() as usize)
        }
        unsafe fn output_from_ptr(
            fd: IoctlOutput,
            _: *mut std::ffi::c_void,
        ) -> rustix::io::Result<OwnedFd> {
            // SAFETY: The kernel just made this descriptor for us.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
    }
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::CLOEXEC.bits().cast_signed())
        .open("/dev/userfaultfd")?;
    let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK).bits().cast_signed();
    // SAFETY: `New` describes the request of this device.
    Ok(unsafe { ioctl::ioctl(&device, New(flags)) }?)
}

/// Agrees on the version and on features; returns all that the kernel offers.
fn handshake(fd: BorrowedFd<'_>, features: Features) -> io::Result<Features> {
    let mut argument = [VERSION, features.bits(), 0];
    // SAFETY: The request takes a version, features, and a field for the answer.
    unsafe { exchange(fd, API, &mut argument) }?;
    Ok(Features::from_bits_truncate(argument[1]))
}

/// The page fault that a message reports; nothing for messages of another kind.
fn event_of(message: &[u8]) -> Option<Event> {
    let word = |at: usize| Some(u64::from_ne_bytes(message.get(at..at + 8)?.try_into().ok()?));
    if *message.first()? != MESSAGE_PAGEFAULT {
        return None;
    }
    let flags = word(8)?;
    Some(Event {
        address: usize::try_from(word(16)?).ok()?,
        write: flags & 1 != 0,
        wp: flags & 1 << 1 != 0,
        thread: u32::from_ne_bytes(message.get(24..28)?.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_gives_descriptors_that_work_and_never_wait() {
        let fd = match from_device() {
            Ok(fd) => fd,
            Err(error) => {
                eprintln!("SKIPPED: /dev/userfaultfd is not there or not for this user: {error}");
                return;
            }
        };
        let flags = rustix::io::fcntl_getfd(&fd).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        assert!(rustix::fs::fcntl_getfl(&fd).unwrap().contains(OFlags::NONBLOCK));
        let offered = handshake(fd.as_fd(), Features::empty()).unwrap();
        assert_ne!(offered, Features::empty());
        let from_device =
            UserFault { fd, user_mode_only: false, offered, features: Features::empty() };
        assert_eq!(from_device.read_events(&mut [Event::default()]).unwrap(), 0);
    }

    #[test]
    fn features_that_a_kernel_lacks_are_left_out_and_the_rest_is_used() {
        let future = Features::from_bits_retain(1 << 62);
        match UserFault::open(Scope::Any, Features::THREAD_ID | future) {
            Ok(fault) => assert_eq!(fault.features(), Features::THREAD_ID & fault.offered()),
            Err(error) => {
                let refused = [Errno::PERM, Errno::NOSYS].map(|e| Some(e.raw_os_error()));
                assert!(refused.contains(&error.raw_os_error()), "{error}");
                eprintln!("SKIPPED: this kernel refuses userfaultfd: {error}");
            }
        }
    }

    #[test]
    fn messages_of_other_kinds_and_short_ones_are_no_faults() {
        let mut message = [0u8; MESSAGE];
        message[0] = MESSAGE_PAGEFAULT;
        message[8] = 0b011;
        message[16..24].copy_from_slice(&0x7000u64.to_ne_bytes());
        message[24..28].copy_from_slice(&5u32.to_ne_bytes());
        let wanted = Event { address: 0x7000, write: true, wp: true, thread: 5 };
        assert_eq!(event_of(&message), Some(wanted));
        assert_eq!(event_of(&message[..20]), None);
        message[0] = 0x15;
        assert_eq!(event_of(&message), None);
    }
}
