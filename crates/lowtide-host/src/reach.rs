//! What `lowtide run` can do on this machine, as far as it can be known before a program starts.
//!
//! | what is kept | what it takes |
//! |---|---|
//! | files, `pagecache` | memory that a fork wipes or leaves out; own descriptors; residency |
//! | files, `userfault` | the same; faults of system calls; page table scan; `MREMAP_DONTUNMAP` |
//! | files that are read | as `pagecache`; all of them where `cachestat(2)` counts pages |
//!
//! Own descriptors: a thread has a table of its own. Residency: the kernel says which pages of a
//! file are in memory.
//!
//! Each step is tried. Some sandboxes answer a call with success and do nothing: gVisor's
//! `mincore(2)` says of every page that it is in memory. So the answer is compared with the one
//! that is right for a page that nothing has touched.
//!
//! # Safety
//!
//! Mappings are made, tried and unmapped here; nothing else knows of them, and nothing touches
//! their memory.

#![allow(unsafe_code)]

use std::io;
use std::ptr;

use lowtide_sys::memory::{HugePages, Mapping, page_size};
use lowtide_sys::page_cache::cachestat;
use lowtide_sys::pagemap::{Pagemap, mincore};
use lowtide_sys::shared::{Rights, SharedMapping, Sharing, memfd};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::maps::Maps;

/// Whether mappings of files can be kept in the page cache. Costs some ten system calls.
///
/// # Errors
/// Why not, for people.
pub fn files() -> Result<(), String> {
    wiped().map_err(|error| {
        format!(
            "memory cannot be kept from children of fork: madvise(MADV_WIPEONFORK, Linux 4.14): \
             {error}"
        )
    })?;
    // As the pager's memory.
    Mapping::new(page_size(), HugePages::No)
        .map_err(|error| format!("cannot allocate the pager's memory: {error}"))?;
    lowtide_sys::descriptors::try_own().map_err(|error| {
        format!(
            "no thread can have descriptors of its own: close_range(2) (Linux 5.9) and \
             unshare(CLONE_FILES): {error}"
        )
    })?;
    if Pagemap::available() {
        return Ok(());
    }
    match nothing_is_resident() {
        Ok(true) => Ok(()),
        Ok(false) => Err("the kernel says of every page that it is in memory (gVisor does): it \
                          cannot be seen what a program has of its files"
            .into()),
        Err(error) => Err(format!("it cannot be seen which pages are in memory: {error}")),
    }
}

/// Whether mappings of files that do not change can be kept exactly (`--mode userfault`), if
/// [`files`] can be kept.
///
/// # Errors
/// Why not, for people.
pub fn exact() -> Result<(), String> {
    served()?;
    put_aside().map_err(|error| {
        format!(
            "mappings cannot be put aside: mremap(MREMAP_DONTUNMAP) of files (Linux 5.13): {error}"
        )
    })
}

/// Whether what a program reads of files can be kept (`--files`), if [`files`] can be: what of it
/// cannot, or nothing.
///
/// # Errors
/// Why nothing can be kept, for people.
pub fn reads() -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot create a file that counts pages: {error}");
    let memory = memfd("lowtide-probe", page_size() as u64).map_err(failed)?;
    Ok(match cachestat(&memory, 0, 0) {
        Ok(_) => String::new(),
        Err(error) => format!(
            "of files that this user owns or may write: the kernel does not count pages of others, \
             cachestat(2), Linux 6.5: {error}"
        ),
    })
}

fn served() -> Result<(), String> {
    let maps = Maps::ask();
    maps.scan?;
    match maps.served? {
        true => Ok(()),
        false => Err("a system call on a page that is not in memory would fail: the kernel \
                      serves only faults of user code here; set the sysctl \
                      vm.unprivileged_userfaultfd to 1, or give this user /dev/userfaultfd"
            .into()),
    }
}

/// Tries memory that a fork wipes.
fn wiped() -> io::Result<()> {
    let (len, prot) = (page_size(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: No address is demanded, so nothing is replaced.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::PRIVATE) }?;
    // SAFETY: The mapping above, which nothing touches.
    let advised = unsafe { madvise(start, len, Advice::LinuxWipeOnFork) };
    // SAFETY: The mapping above, which nothing refers to.
    unsafe { munmap(start, len) }?;
    Ok(advised?)
}

/// A page that nothing has touched, mapped.
fn untouched() -> io::Result<SharedMapping> {
    let len = page_size();
    let memory = memfd("lowtide-probe", len as u64)?;
    SharedMapping::map(&memory, 0, len, Rights::Read, Sharing::Shared, false)
}

/// Whether the kernel knows that an untouched page is not in memory.
fn nothing_is_resident() -> io::Result<bool> {
    let (mapping, mut resident) = (untouched()?, [1]);
    mincore(mapping.addresses(), &mut resident)?;
    Ok(resident[0] & 1 == 0)
}

/// Moves a mapping of a file, and leaves its addresses as they are.
fn put_aside() -> io::Result<()> {
    let mapping = untouched()?;
    let (at, len) = (mapping.as_ptr().cast(), mapping.len());
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    // The kernel reads a place with this flag; none lets it choose.
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: The mapping stays mapped, and the kernel chooses where the other one is.
    let aside = unsafe { libc::mremap(at, len, len, flags, none) };
    if aside == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: The new mapping, which nothing refers to.
    unsafe { munmap(aside, len) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_keeps_files_and_what_is_lacking_has_a_reason() {
        assert_eq!(files(), Ok(()));
        let counted = cachestat(memfd("lowtide-probe", 1).unwrap(), 0, 0).is_ok();
        assert_eq!(reads().unwrap().is_empty(), counted);
        assert!(nothing_is_resident().unwrap());
        put_aside().unwrap();
        if let Err(lack) = exact() {
            eprintln!("SKIPPED in part: {lack}");
            assert!(!lack.is_empty());
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("lowtide-probe"), "{maps}");
    }
}
