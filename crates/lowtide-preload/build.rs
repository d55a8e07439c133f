//! For musl, two things that the linker does.
//!
//! **What unwinds the stack becomes a part of the library.**
//! The standard library asks the linker for `gcc_s`, which is a file of its own. Where musl is not
//! the C library of the machine, the file of this name is for another one; where it is, programs
//! of C do without it, and none may start to need it because of us. Rust comes with the same
//! functions for programs that are linked statically. They are put in a place that the linker
//! looks at first, under the name that it looks for.
//!
//! **`malloc` and its kin are the C library's own** for all code in this file, as
//! `src/c_library/musl.rs` finds them: by these names the program's would be found, if it has any.
//! Outside, nothing of this is seen.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Functions of which `src/c_library/musl.rs` has its own, with a name before these.
const ALLOCATING: [&str; 5] = ["malloc", "calloc", "realloc", "free", "posix_memalign"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_ENV")? != "musl" {
        return Ok(());
    }
    for name in ALLOCATING {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={name}=lowtide_{name}");
    }
    let target = env::var("TARGET")?;
    let rustc = env::var_os("RUSTC").ok_or("cargo names no compiler")?;
    let output =
        Command::new(rustc).args(["--print", "target-libdir", "--target", &target]).output()?;
    let folder = String::from_utf8(output.stdout)?;
    let unwinder = PathBuf::from(folder.trim()).join("self-contained/libunwind.a");
    if !unwinder.is_file() {
        // A distribution's Rust, on a machine of musl.
        println!("cargo::warning=no {}: the library needs libgcc_s.so.1", unwinder.display());
        return Ok(());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no folder")?);
    fs::copy(&unwinder, out.join("libgcc_s.a"))?;
    println!("cargo::rustc-link-search=native={}", out.display());
    Ok(())
}
