//! How much code there is: lines that are neither blank nor a comment, outside of tests.
//!
//! Sources are formatted by rustfmt, so an item that is for tests alone ends with a line of its own
//! indent.

/// Whether all of a file is for tests, benches or fuzzers, or an example.
fn is_aside(path: &str) -> bool {
    let folders = ["/tests/", "/benches/", "/fuzz/", "/examples/"];
    let names = ["/tests.rs", "/test.rs", "_tests.rs"];
    folders.iter().any(|folder| path.contains(folder))
        || names.iter().any(|name| path.ends_with(name))
}

/// The number of lines from an attribute to the end of its item, both included.
fn item(lines: &[&str]) -> usize {
    let indent = &lines[0][..lines[0].len() - lines[0].trim_start().len()];
    let ends = |line: &str| {
        let inner = line.strip_prefix(indent).unwrap_or_default();
        let is_head = !inner.starts_with([' ', '#', '/']);
        is_head && inner.ends_with(['}', ';', ','])
    };
    lines.iter().position(|line| ends(line)).map_or(lines.len(), |at| at + 1)
}

/// The lines of code of a source with this path from the root, outside of tests.
#[must_use]
pub fn code_lines(path: &str, source: &str) -> usize {
    let lines: Vec<&str> = source.lines().collect();
    let is_test = |line: &str, mark: &str| {
        let rest = line.trim_start().strip_prefix(mark);
        rest.is_some_and(|rest| rest.starts_with("test)") || rest.starts_with("all(test"))
    };
    if is_aside(path) || lines.iter().any(|line| is_test(line, "#![cfg(")) {
        return 0;
    }
    let (mut count, mut at) = (0, 0);
    while let Some(line) = lines.get(at) {
        if is_test(line, "#[cfg(") {
            at += item(&lines[at..]);
            continue;
        }
        let line = line.trim_start();
        count += usize::from(!line.is_empty() && !line.starts_with("//"));
        at += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_outside_of_tests_is_counted() {
        let source = "//! Head.\n\nuse a::b;\n#[cfg(test)]\nuse c::d;\n\n/// Says.\n\
                      pub fn f() {\n    // why\n    b();\n}\n\n\
                      struct S {\n    #[cfg(test)]\n    seen: u8,\n    g: u8,\n}\n\n\
                      #[cfg(test)]\nmod tests {\n    #[test]\n    fn g() {}\n}\n";
        assert_eq!(code_lines("crates/a/src/f.rs", source), 7);
        assert_eq!(code_lines("crates/a/src/tests.rs", source), 0);
        assert_eq!(code_lines("crates/a/examples/f.rs", source), 0);
        assert_eq!(code_lines("crates/a/src/f.rs", "#![cfg(test)]\nfn f() {}\n"), 0);
    }
}
