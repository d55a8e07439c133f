//! A library whose constructor maps the file that `CONSTRUCTOR_FILE` names, or allocates 2 MiB if
//! there is none. `dlopen` has the lock of the dynamic loader meanwhile.

#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

use std::os::fd::AsRawFd;
use std::ptr;

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let Some(path) = std::env::var_os("CONSTRUCTOR_FILE") else {
        // SAFETY: any size, and the memory is this function's.
        unsafe {
            let memory = libc::malloc(2 << 20).cast::<u8>();
            memory.write_volatile(1);
            libc::free(memory.cast());
        }
        return;
    };
    let file = std::fs::File::open(path).expect("the file");
    if std::env::var_os("CONSTRUCTOR_PAUSES").is_some() {
        // Meanwhile another thread maps a file.
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let (prot, len, fd) = (libc::PROT_READ, 2 << 20, file.as_raw_fd());
    // SAFETY: a new mapping at an address of the kernel's choice, as long as the file.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0);
        assert_ne!(start, libc::MAP_FAILED);
        start.cast::<u8>().wrapping_add(4096).read_volatile();
    }
}
