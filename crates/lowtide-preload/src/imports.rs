//! Which names the program, and the libraries that it starts with, need from other libraries.
//!
//! A program reaches a function of a library by its name, so a name that nothing needs is a
//! function that nothing calls, unless it is looked up at run time: `dlsym` is a name, too. The
//! names are read where the dynamic linker has read them: an object in memory has a dynamic
//! section, that leads to its relocations, and each relocation of a symbol to the symbol's name.
//! The table of symbols itself does not say how long it is.
//!
//! This library's own needs do not count: its threads are judged elsewhere (`own.rs`).
//!
//! # Safety
//!
//! The dynamic linker maps what a dynamic section names for as long as the object is loaded, and
//! holds its lock while it calls the function for each object.

#![allow(unsafe_code)]

use crate::real::Next;
use libc::{Elf64_Phdr, Elf64_Sym, c_char, c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;
use std::{mem, ptr, slice};

const DT_PLTRELSZ: usize = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_REL: usize = 17;
const DT_PLTREL: usize = 20;
const DT_JMPREL: usize = 23;

/// An entry of a dynamic section: a tag, and its value.
type Dynamic = [usize; 2];
/// A relocation with an addend: where, of what, and how much is added.
type Relocation = [usize; 3];

struct Search<'a> {
    names: &'a [&'a CStr],
    has_found: bool,
}

/// The dynamic linker's own: a program may have another of this name, which is not ready yet.
static EACH_OBJECT: Next = Next::new(c"dl_iterate_phdr");

type Look = unsafe extern "C" fn(*mut dl_phdr_info, size_t, *mut c_void) -> c_int;

/// Whether an object that is loaded now needs one of these names, or it is unknown what one needs.
pub(crate) fn needs_any(names: &[&CStr]) -> bool {
    type F = unsafe extern "C" fn(Look, *mut c_void) -> c_int;
    let Some(next) = EACH_OBJECT.found() else { return true };
    // SAFETY: the dynamic linker's function of this name.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    let mut search = Search { names, has_found: false };
    // SAFETY: the function gets what it expects, and leaves it when the call is over.
    unsafe { next(look_at, (&raw mut search).cast()) };
    search.has_found
}

/// Looks at an object. Anything but zero ends the search.
unsafe extern "C" fn look_at(info: *mut dl_phdr_info, _: size_t, search: *mut c_void) -> c_int {
    // SAFETY: passed by `needs_any`, which waits for the search.
    let search = unsafe { &mut *search.cast::<Search<'_>>() };
    // SAFETY: the dynamic linker's, during this call.
    let info = unsafe { &*info };
    // SAFETY: the program headers of a loaded object.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    search.has_found = !is_own(base, headers) && needs(base, headers, search.names);
    c_int::from(search.has_found)
}

/// Whether this object is this library.
fn is_own(base: usize, headers: &[Elf64_Phdr]) -> bool {
    let here = needs_any as *const () as usize;
    headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        (start..start.wrapping_add(header.p_memsz as usize)).contains(&here)
    })
}

fn needs(base: usize, headers: &[Elf64_Phdr], names: &[&CStr]) -> bool {
    let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
        return false;
    };
    let dynamic: *const Dynamic =
        ptr::with_exposed_provenance(base.wrapping_add(header.p_vaddr as usize));
    let count = header.p_memsz as usize / size_of::<Dynamic>();
    // SAFETY: the dynamic section of a loaded object.
    let dynamic = unsafe { slice::from_raw_parts(dynamic, count) };
    let value = |wanted: usize| {
        let mut used = dynamic.iter().take_while(|[tag, _]| *tag != 0);
        used.find(|[tag, _]| *tag == wanted).map(|[_, value]| *value)
    };
    // Where the section is read-only, the dynamic linker leaves addresses as they are in the file.
    let place = |tag| value(tag).map(|at| if at < base { base + at } else { at });
    if place(DT_REL).is_some() || value(DT_PLTREL).is_some_and(|kind| kind != DT_RELA) {
        return true;
    }
    let tables = [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)];
    let (Some(symbols), Some(strings)) = (place(DT_SYMTAB), place(DT_STRTAB)) else {
        return tables.iter().any(|(at, _)| place(*at).is_some());
    };
    let symbols: *const Elf64_Sym = ptr::with_exposed_provenance(symbols);
    let strings: *const c_char = ptr::with_exposed_provenance(strings);
    tables.into_iter().any(|(at, len)| {
        let (Some(at), Some(len)) = (place(at), value(len)) else { return false };
        let first: *const Relocation = ptr::with_exposed_provenance(at);
        // SAFETY: a table of the object, as long as the object says.
        let table = unsafe { slice::from_raw_parts(first, len / size_of::<Relocation>()) };
        table.iter().map(|[_, of, _]| of >> 32).filter(|number| *number != 0).any(|number| {
            // SAFETY: the relocations name symbols of the table.
            let symbol = unsafe { &*symbols.wrapping_add(number) };
            let name = strings.wrapping_add(symbol.st_name as usize);
            // SAFETY: the names of symbols end with a zero.
            symbol.st_shndx == 0 && names.contains(&unsafe { CStr::from_ptr(name) })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_needed_where_another_object_calls_it() {
        assert!(!needs_any(&[]) && !needs_any(&[c"lowtide_no_such_function", c""]));
        // The library that unwinds finds its tables by one of these.
        let found = [c"dl_iterate_phdr", c"_dl_find_object", c"abort"];
        assert!(needs_any(&found));
        // A test is the program, and the program is this library: what it needs does not count.
        let only_here = c"mmap64";
        // SAFETY: the name ends with a zero.
        assert!(!unsafe { libc::dlsym(libc::RTLD_DEFAULT, only_here.as_ptr()) }.is_null());
        assert!(!needs_any(&[only_here]));
    }
}
