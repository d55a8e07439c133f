//! The name by which the dynamic linker finds the library. It changes when a program that was
//! linked against the old one would not work with the new one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblowtide.so.0");
}
