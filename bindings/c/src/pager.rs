//! A pager: one budget, and the files that share it.

use crate::code::{Failure, Outcome, call, value};
use crate::flags::{
    self, LT_PAGER_BUFFERED, LT_PAGER_DIRECT, LT_PAGER_NO_BACKGROUND, LT_PAGER_NO_ZCACHE,
    LT_PAGER_POPULATE, Of,
};
use crate::handle::{Own, give, handle, of, take};
use crate::sized::{self, WithSize};
use crate::text::{choice, path, time};
use lowtide::advanced::PagerAdvanced as _;
use lowtide::{IoMode, Pager, PagerBuilder, Size, SwapOptions};
use std::ffi::{c_char, c_int};
use std::io;
use std::time::Duration;

/// One budget of memory, and what shares it.
#[derive(Debug)]
pub struct lt_pager(Own<Pager>);

handle!(lt_pager: Pager);

/// The choices for a pager. Set `size` to sizeof(lt_pager_options) and the rest to zero, which
/// stands for the defaults; set what should differ.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lt_pager_options {
    /// sizeof(lt_pager_options).
    pub size: usize,
    /// Bytes of the budget. 0: seven eighths of the limit of this process's memory cgroup.
    pub max: u64,
    /// Bytes of a page, a power of two. 0: 4096, which mappings need.
    pub page_size: u64,
    /// LT_PAGER_POPULATE and others that begin so.
    pub flags: u32,
    /// Reads that lt_view_get_many keeps in flight. 0: 32.
    pub depth: u32,
    /// The policy of reclaim: "mglru" (the default), "lru", "tide", or one of a kernel version.
    pub policy: *const c_char,
    /// "auto" (the default), "uring" or "psync".
    pub io_engine: *const c_char,
    /// How long a call waits for room or for pages that are pinned, in milliseconds. 0: 10 s.
    /// UINT64_MAX: without limit; so in the next two.
    pub memory_timeout_ms: u64,
    /// How long a call waits for pages to be written. 0: 60 s.
    pub io_timeout_ms: u64,
    /// How long a call waits for pages to be read. 0: as long as the device takes.
    pub read_timeout_ms: u64,
    /// Bytes of the budget that compressed pages of regions may take. 0: none, and no swap.
    pub swap: u64,
    /// A directory for a swap file. Null: no file.
    pub swap_dir: *const c_char,
    /// Bytes of the swap file, at most.
    pub swap_file: u64,
    /// A file with the list of the pages that were in memory, which are read again when their files
    /// are opened; it is saved when the pager ends. Null: the start is cold.
    pub warm: *const c_char,
}

// SAFETY: zeroes are numbers and null pointers.
unsafe impl WithSize for lt_pager_options {}

/// Opens a pager. `options` may be null.
///
/// EINVAL: a choice that makes no sense, or no budget where no cgroup has a limit. ENOMEM: more
/// than the limit of the memory cgroup. LT_TOO_NEW. Else what the kernel refuses.
/// Threads: any. All handles may be shared by threads, unless their functions say otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_pager_open(
    options: *const lt_pager_options,
    out: *mut *mut lt_pager,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { give(out, || Ok(builder(&sized::read(options)?)?.build()?)) })
}

/// # Safety
/// Texts of the options are texts.
unsafe fn builder(options: &lt_pager_options) -> Outcome<PagerBuilder> {
    flags::check(options.flags, Of::Pager)?;
    let mut builder = match options.max {
        // Without a limit, building fails for want of a budget.
        0 => PagerBuilder::from_cgroup().unwrap_or_default(),
        max => Pager::builder().max(Size::new(max)),
    };
    if options.page_size > 0 {
        builder = builder.base_page(usize::try_from(options.page_size).unwrap_or(usize::MAX));
    }
    // SAFETY: the caller's promise.
    if let Some(policy) = unsafe { choice(options.policy, "the policy") }? {
        builder = builder.policy(policy);
    }
    // SAFETY: the caller's promise.
    if let Some(engine) = unsafe { choice(options.io_engine, "the I/O engine") }? {
        builder = builder.io_engine(engine);
    }
    if options.depth > 0 {
        builder = builder.depth(options.depth);
    }
    let set = |flag| options.flags & flag != 0;
    builder = builder.background(!set(LT_PAGER_NO_BACKGROUND)).populate(set(LT_PAGER_POPULATE));
    builder = builder.zcache(!set(LT_PAGER_NO_ZCACHE));
    builder = match (set(LT_PAGER_BUFFERED), set(LT_PAGER_DIRECT)) {
        (true, false) => builder.direct(IoMode::Buffered),
        (false, true) => builder.direct(IoMode::Direct),
        (true, true) => {
            let text = "LT_PAGER_BUFFERED and LT_PAGER_DIRECT exclude each other";
            return Err(Failure::argument(text));
        }
        (false, false) => builder,
    };
    if let Some(limit) = time(options.memory_timeout_ms) {
        builder = builder.memory_timeout(limit);
    }
    if let Some(limit) = time(options.io_timeout_ms) {
        builder = builder.io_timeout(limit);
    }
    if let Some(limit) = time(options.read_timeout_ms) {
        builder = builder.read_timeout(limit);
    }
    if options.swap > 0 {
        let mut swap = SwapOptions::compressed(options.swap);
        if !options.swap_dir.is_null() {
            // SAFETY: the caller's promise.
            swap = swap.file(unsafe { path(options.swap_dir) }?, options.swap_file);
        }
        builder = builder.swap(swap);
    }
    if !options.warm.is_null() {
        // SAFETY: the caller's promise.
        builder = builder.warm(unsafe { path(options.warm) }?);
    }
    Ok(builder)
}

/// Writes and syncs everything, and closes the handle, also where it fails. Views and others that
/// are still open keep working; the memory is given back when they are closed, too. Null is no
/// error.
///
/// What a write fails with, for the first file that could not be written: it is lost when its last
/// view is closed. LT_FORKED: the handle is as it was.
/// Threads: any; no other thread may use the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_pager_close(pager: *mut lt_pager) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| match unsafe { take(pager) }? {
        Some(pager) => Ok(pager.close()?),
        None => Ok(()),
    })
}

/// Saves the list of the pages that are in memory in a file, as a whole or not at all.
///
/// The error of the kernel, if it refuses. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_pager_save_warm(pager: *const lt_pager, file: *const c_char) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { Ok(of(pager, "the pager")?.save_warm(path(file)?)?) })
}

/// Waits until the pages are read that were in memory of all files that were opened so far, as far
/// as there is room. ETIMEDOUT: they are not after `timeout_ms` milliseconds. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_pager_wait_warm(pager: *const lt_pager, timeout_ms: u64) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| match unsafe { of(pager, "the pager") }?.wait_warm(Duration::from_millis(timeout_ms)) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT).into()),
    })
}

/// Bytes of a page; 0 if the handle is null or of another process. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_pager_page_size(pager: *const lt_pager) -> usize {
    // SAFETY: the caller follows the header.
    value(0, || Ok(unsafe { of(pager, "the pager") }?.page_size()))
}
