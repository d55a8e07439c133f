//! The conformance program of a guest (`guest/`), in Rust: the library, in both modes of a map, and
//! the crate that stands in for memmap2.
//!
//! ```text
//! guest userfault|pagecache|memmap2|plain|plain-map ACT
//! ```
//!
//! What is checked is in `guest/`, a library in C that this program opens (`GUEST_LIBRARY`).
//!
//! # Safety
//!
//! The functions have the types that `guest/guest.h` declares. The files are the program's own, and
//! change only where an act is about that.

#![allow(unsafe_code)]

use lowtide::map::{MapMode, MapOptions};
use lowtide::{Pager, Size};
use lowtide_memmap2::Mmap;
use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::BorrowedFd;

const MAPPED: c_int = 0;
const VIEWED: c_int = 1;
const ADOPTED: c_int = 2;
const FLOCK: c_int = 2;
const KINDS: c_int = 6;

/// The library of checks.
struct Guest(*mut c_void);

impl Guest {
    fn open() -> Self {
        let path = CString::new(env::var("GUEST_LIBRARY").expect("a library")).expect("a path");
        // SAFETY: its constructors do nothing.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be opened");
        Self(library)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the library is never closed.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?}");
        symbol
    }

    fn text(&self, name: &CStr, text: &str) {
        let text = CString::new(text).expect("no zero");
        // SAFETY: see the head; `guest_begin` and `guest_look`.
        let call: extern "C" fn(*const c_char) = unsafe { std::mem::transmute(self.symbol(name)) };
        // `guest_begin` keeps it.
        call(text.into_raw());
    }

    fn look(&self, moment: &str) {
        self.text(c"guest_look", moment);
    }

    fn number(&self, name: &CStr) -> c_int {
        // SAFETY: see the head; nothing is read of the functions that return nothing.
        let call: extern "C" fn() -> c_int = unsafe { std::mem::transmute(self.symbol(name)) };
        call()
    }

    fn file(&self, step: c_int, kind: c_int) -> BorrowedFd<'static> {
        // SAFETY: see the head.
        let call: extern "C" fn(c_int, c_int) -> c_int =
            unsafe { std::mem::transmute(self.symbol(c"guest_file")) };
        // SAFETY: it stays open.
        unsafe { BorrowedFd::borrow_raw(call(step, kind)) }
    }

    fn len(&self, step: c_int, kind: c_int) -> usize {
        // SAFETY: see the head.
        let call: extern "C" fn(c_int, c_int) -> usize =
            unsafe { std::mem::transmute(self.symbol(c"guest_len")) };
        call(step, kind)
    }

    fn path(&self, step: c_int, kind: c_int) -> String {
        // SAFETY: see the head.
        let call: extern "C" fn(c_int, c_int) -> *const c_char =
            unsafe { std::mem::transmute(self.symbol(c"guest_path")) };
        // SAFETY: a text that stays.
        unsafe { CStr::from_ptr(call(step, kind)) }.to_string_lossy().into_owned()
    }

    fn mmap(&self, step: c_int, kind: c_int) -> *const u8 {
        // SAFETY: see the head.
        let call: extern "C" fn(c_int, c_int) -> *const u8 =
            unsafe { std::mem::transmute(self.symbol(c"guest_mmap")) };
        call(step, kind)
    }

    fn has(&self, step: c_int, kind: c_int, bytes: *const u8) {
        // SAFETY: see the head.
        let call: extern "C" fn(c_int, c_int, *const u8) =
            unsafe { std::mem::transmute(self.symbol(c"guest_has")) };
        call(step, kind, bytes);
    }
}

fn library(guest: &Guest, mode: MapMode) {
    guest.look("before");
    let pager = Pager::builder().max("256M".parse::<Size>().unwrap()).build().expect("a pager");
    let map = |kind| {
        // SAFETY: see the head.
        let map = unsafe { MapOptions::new().mode(mode).map(&pager, guest.file(MAPPED, kind)) };
        let map = map.expect("a map");
        guest.has(MAPPED, kind, map.as_ptr());
        map
    };
    let maps: Vec<_> = (0..KINDS).map(map).collect();
    guest.look("map");
    let view = |kind| {
        let view = pager.open(guest.path(VIEWED, kind)).expect("a view");
        let mut bytes = vec![0; guest.len(VIEWED, kind)];
        view.read_at(0, &mut bytes).expect("bytes");
        view
    };
    let views: Vec<_> = (0..KINDS).filter(|kind| *kind != FLOCK).map(view).collect();
    guest.look("view");
    let region = pager.root().region(1 << 20).expect("a region");
    region.write_at(0, &[1; 1 << 18]).expect("room");
    guest.look("region");
    let adopt = |kind| {
        let (own, len) = (guest.mmap(ADOPTED, kind), guest.len(ADOPTED, kind));
        // SAFETY: a mapping of this file that is never unmapped.
        let adopted = unsafe {
            MapOptions::new().adopt(&pager, guest.file(ADOPTED, kind), own.cast_mut(), len)
        };
        guest.has(ADOPTED, kind, own);
        adopted.expect("an adoption")
    };
    let adopted: Vec<_> = (0..KINDS).map(adopt).collect();
    guest.look("adopt");
    guest.number(c"guest_act");
    (0..KINDS).for_each(|kind| guest.has(MAPPED, kind, std::ptr::null()));
    drop((adopted, region, views, maps));
    pager.close().expect("it ends");
}

fn memmap2(guest: &Guest) {
    guest.look("before");
    let map = |kind| {
        // SAFETY: see the head.
        let map = unsafe { Mmap::map(&guest.file(MAPPED, kind)) }.expect("a map");
        guest.has(MAPPED, kind, map.as_ptr());
        map
    };
    let maps: Vec<_> = (0..KINDS).map(map).collect();
    guest.look("map");
    guest.number(c"guest_act");
    (0..KINDS).for_each(|kind| guest.has(MAPPED, kind, std::ptr::null()));
    drop(maps);
}

/// Without lowtide: all that the library does, or what memmap2 does alone.
fn plain(guest: &Guest, has_all: bool) {
    guest.look("before");
    let map = |step, kind| guest.has(step, kind, guest.mmap(step, kind));
    (0..KINDS).for_each(|kind| map(MAPPED, kind));
    guest.look("map");
    if has_all {
        guest.look("view");
        guest.look("region");
        (0..KINDS).for_each(|kind| map(ADOPTED, kind));
        guest.look("adopt");
    }
    guest.number(c"guest_act");
    guest.number(c"guest_unmap");
}

fn main() {
    let args: Vec<String> = env::args().collect();
    let guest = Guest::open();
    guest.text(c"guest_begin", &args[2]);
    match args[1].as_str() {
        "userfault" => library(&guest, MapMode::Userfault),
        "pagecache" => library(&guest, MapMode::PageCache),
        "memmap2" => memmap2(&guest),
        "plain" => plain(&guest, true),
        "plain-map" => plain(&guest, false),
        other => panic!("no way {other}"),
    }
    std::process::exit(guest.number(c"guest_end"));
}
