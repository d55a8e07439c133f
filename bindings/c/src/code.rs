//! What a function returns: a number for the program, and a text for people.
//!
//! As in LMDB a code of 0 is success, a positive one an error number of the system, and a negative
//! one of lowtide's own, so that one `int` has both. The text names the file, the page and what
//! helps, which no number can; it is kept for the thread until its next error.

use lowtide::map::MapError;
use lowtide::warm::WarmError;
use lowtide::{BuildError, CloseError, Error, OpenError, TenantError};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// All is well.
pub const LT_OK: c_int = 0;
/// The library met a defect of its own. The text says where. Report it.
pub const LT_PANIC: c_int = -30001;
/// The range, or the page, is past the end of the file or the region.
pub const LT_OUT_OF_RANGE: c_int = -30002;
/// The budget of a tenant, or of the pager, is full of what cannot be evicted.
pub const LT_NO_ROOM: c_int = -30003;
/// This thread has the page pinned, and would wait for itself. Unpin it before.
pub const LT_HELD_HERE: c_int = -30004;
/// Another thread had the page pinned for too long.
pub const LT_HELD_ELSEWHERE: c_int = -30005;
/// The call is not possible in a callback of lt_view_get_many, where it would wait for other
/// threads.
pub const LT_NESTED: c_int = -30006;
/// The device did not answer in time.
pub const LT_TIMEOUT: c_int = -30007;
/// The view was opened for reading only.
pub const LT_READ_ONLY: c_int = -30008;
/// The pager met a defect before. Flushed data are safe; close it and open another one.
pub const LT_POISONED: c_int = -30009;
/// The tenant has been removed.
pub const LT_GONE: c_int = -30010;
/// A tenant of this name exists.
pub const LT_EXISTS: c_int = -30011;
/// Another process, or another pager, has the file locked.
pub const LT_LOCKED: c_int = -30012;
/// A mapping of this kind is not possible here. The text says why.
pub const LT_NOT_POSSIBLE: c_int = -30013;
/// The page is not in memory at this moment. Only lt_view_try_pin returns this.
pub const LT_NOT_RESIDENT: c_int = -30014;
/// The handle belongs to the parent of this process.
pub const LT_FORKED: c_int = -30015;
/// Another thread pinned the page, and that thread must unpin it.
pub const LT_WRONG_THREAD: c_int = -30016;
/// A structure has a choice that this library does not know: the program was compiled with a newer
/// header.
pub const LT_TOO_NEW: c_int = -30017;

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: String,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// An argument that makes no sense.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Makes a call of C one of Rust: what fails becomes a code, and so does a panic.
#[inline]
pub(crate) fn call(work: impl FnOnce() -> Outcome) -> c_int {
    caught(work).map_or_else(fail, |()| LT_OK)
}

/// As [`call`], for a function that returns a value: `none` stands for a failure.
pub(crate) fn value<T>(none: T, work: impl FnOnce() -> Outcome<T>) -> T {
    caught(work).unwrap_or_else(|failure| {
        fail(failure);
        none
    })
}

#[inline]
fn caught<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    // What was half done is behind the pager's lock, which a panic poisons.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(of_panic(panic)))
}

fn of_panic(panic: Box<dyn Any + Send>) -> Failure {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    let failure = Failure::new(LT_PANIC, format!("a defect of lowtide, please report it: {said}"));
    // A payload of another kind may panic when it is dropped.
    std::mem::forget(panic);
    failure
}

#[cold]
fn fail(Failure { code, text }: Failure) -> c_int {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // A thread that is ending keeps no text.
    let _ = LAST.try_with(|last| last.replace(text));
    code
}

/// What went wrong in the last call of this thread that failed: what, where, and what to do. It is
/// the empty text if no call has failed. The text is valid until the next call of this thread that
/// fails. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn lt_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The general meaning of a code, also of one of errno. The text is valid forever. Threads: any,
/// but for positive codes the rules of strerror(3) hold.
#[unsafe(no_mangle)]
pub extern "C" fn lt_strerror(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        LT_OK => c"no error",
        LT_PANIC => c"the library met a defect of its own",
        LT_OUT_OF_RANGE => c"the range is past the end",
        LT_NO_ROOM => c"the budget is full of pages that cannot be evicted",
        LT_HELD_HERE => c"this thread has the page pinned",
        LT_HELD_ELSEWHERE => c"another thread has the page pinned",
        LT_NESTED => c"not possible in a callback of lt_view_get_many",
        LT_TIMEOUT => c"the device did not answer in time",
        LT_READ_ONLY => c"the view was opened for reading only",
        LT_POISONED => c"the pager met a defect before",
        LT_GONE => c"the tenant has been removed",
        LT_EXISTS => c"a tenant of this name exists",
        LT_LOCKED => c"another process or pager has the file locked",
        LT_NOT_POSSIBLE => c"a mapping of this kind is not possible here",
        LT_NOT_RESIDENT => c"the page is not in memory",
        LT_FORKED => c"the handle belongs to the parent of this process",
        LT_WRONG_THREAD => c"another thread pinned the page",
        LT_TOO_NEW => c"the program was compiled with a newer lowtide.h",
        // SAFETY: it takes any number, and returns a text that C has.
        1.. => return unsafe { libc::strerror(code) },
        _ => c"no code of lowtide",
    };
    text.as_ptr()
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        let code = match (inner, error.raw_os_error()) {
            (Some(inner), _) => of_error(inner),
            (None, Some(number)) => number,
            (None, None) => of_kind(error.kind()),
        };
        Self::new(code, error.to_string())
    }
}

/// The number of a kind for which there is none.
fn of_kind(kind: io::ErrorKind) -> c_int {
    match kind {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::FileTooLarge => libc::EFBIG,
        io::ErrorKind::StorageFull => libc::ENOSPC,
        _ => libc::EIO,
    }
}

/// The number of the system, or that of the kind.
fn of_io(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or_else(|| of_kind(error.kind()))
}

fn of_error(error: &Error) -> c_int {
    match error {
        Error::OutOfRange { .. } => LT_OUT_OF_RANGE,
        Error::OutOfBudget { .. } => LT_NO_ROOM,
        Error::HeldHere { .. } => LT_HELD_HERE,
        Error::HeldElsewhere { .. } => LT_HELD_ELSEWHERE,
        Error::Nested { .. } => LT_NESTED,
        Error::Timeout { .. } => LT_TIMEOUT,
        Error::ReadOnly { .. } => LT_READ_ONLY,
        Error::Poisoned => LT_POISONED,
        Error::Tenant(source) => of_tenant(source),
        other => other.raw_os_error().unwrap_or_else(|| of_kind(other.kind())),
    }
}

fn of_tenant(error: &TenantError) -> c_int {
    match error {
        TenantError::Exists { .. } => LT_EXISTS,
        TenantError::Gone => LT_GONE,
        TenantError::Poisoned => LT_POISONED,
        TenantError::NoRoom { .. } => LT_NO_ROOM,
        TenantError::Busy => libc::EBUSY,
        TenantError::HasChildren { .. } => libc::ENOTEMPTY,
        _ => libc::EINVAL,
    }
}

fn of_open(error: &OpenError) -> c_int {
    match error {
        OpenError::Locked { .. } => LT_LOCKED,
        OpenError::Poisoned { .. } => LT_POISONED,
        OpenError::Tenant { source, .. } => of_tenant(source),
        OpenError::SetLen { source, .. } => of_error(source),
        other => other.raw_os_error().unwrap_or_else(|| of_kind(other.kind())),
    }
}

fn of_map(error: &MapError) -> c_int {
    match error {
        MapError::Mode { .. } | MapError::PageSize { .. } => LT_NOT_POSSIBLE,
        MapError::Memory(source) => of_error(source),
        MapError::Open(source) => of_open(source),
        MapError::Tenant(source) => of_tenant(source),
        MapError::Kernel { source, .. } => of_io(source),
        _ => libc::EINVAL,
    }
}

fn of_build(error: &BuildError) -> c_int {
    match error {
        BuildError::Memory { source, .. }
        | BuildError::IoEngine { source, .. }
        | BuildError::Thread(source) => of_io(source),
        BuildError::AboveLimit { .. } => libc::ENOMEM,
        BuildError::SwapFile(_) => libc::EIO,
        _ => libc::EINVAL,
    }
}

fn of_close(error: &CloseError) -> c_int {
    error.files.first().map_or(libc::EIO, |file| of_error(&file.source))
}

fn of_warm(error: &WarmError) -> c_int {
    match error {
        WarmError::Read { source, .. } | WarmError::Write { source, .. } => of_io(source),
        _ => libc::EINVAL,
    }
}

macro_rules! failures {
    ($($error:ty: $code:ident),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new($code(&error), error.to_string())
            }
        }
    )*};
}

failures!(Error: of_error, TenantError: of_tenant, OpenError: of_open, MapError: of_map,
    BuildError: of_build, CloseError: of_close, WarmError: of_warm);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code_and_a_text() {
        let code = call(|| panic!("page {} is lost", 7));
        // SAFETY: the function returns a text of C.
        let text = unsafe { CStr::from_ptr(lt_last_error()) }.to_string_lossy();
        assert_eq!(code, LT_PANIC);
        assert!(text.contains("page 7 is lost"), "{text}");
        assert_eq!(value(5, || panic!("again")), 5);
    }

    #[test]
    fn each_code_of_ours_has_a_text_of_its_own() {
        // SAFETY: the function returns a text of C.
        let text = |code| unsafe { CStr::from_ptr(lt_strerror(code)) }.to_str().unwrap().to_owned();
        let all: std::collections::BTreeSet<String> = (LT_TOO_NEW..=LT_PANIC).map(text).collect();
        assert_eq!(all.len(), (LT_PANIC - LT_TOO_NEW + 1) as usize);
        assert!(!all.contains(&text(-1)) && !all.contains(&text(LT_OK)));
        assert_eq!(text(libc::ENOENT), "No such file or directory");
    }
}
