//! Which version the header is of, and which the library.

use std::ffi::c_int;

/// The version of this header: breaking changes.
pub const LT_VERSION_MAJOR: c_int = 0;
/// The version of this header: additions.
pub const LT_VERSION_MINOR: c_int = 1;
/// The version of this header: corrections.
pub const LT_VERSION_PATCH: c_int = 0;
/// The version of this header as one number: 10203 is 1.2.3.
pub const LT_VERSION: c_int = LT_VERSION_MAJOR * 10000 + LT_VERSION_MINOR * 100 + LT_VERSION_PATCH;

/// The version of the library that the program runs with, as LT_VERSION is that of the header it
/// was compiled with. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn lt_version() -> c_int {
    LT_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_package() {
        let text = format!("{LT_VERSION_MAJOR}.{LT_VERSION_MINOR}.{LT_VERSION_PATCH}");
        assert_eq!(text, env!("CARGO_PKG_VERSION"));
    }
}
