//! How long functions are.

/// What may come before `fn`.
const BEFORE: [&str; 6] = ["const", "async", "unsafe", "default", "extern", "\"C\""];

/// The name of the function that begins in a line.
fn begins(line: &str) -> Option<&str> {
    let modifier = |word: &&str| word.starts_with("pub") || BEFORE.contains(word);
    let mut words = line.split_whitespace().skip_while(modifier);
    let name = (words.next()? == "fn").then(|| words.next())??;
    name.split(['(', '<']).next()
}

/// The functions of a source that is formatted by rustfmt, with their lines from the name to the
/// last brace. Those without a body are left out.
#[must_use]
pub fn functions(source: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = begins(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        // The head ends where the body begins, or with a semicolon if there is none.
        let head = lines[at..].iter().position(|line| line.ends_with(['{', '}', ';']));
        let Some(head) = head.filter(|head| !lines[at + head].ends_with(';')) else { continue };
        let rest = &lines[at + head..];
        let is_last = |line: &&str| line.strip_prefix(indent) == Some("}");
        let body = if rest[0].ends_with('}') { Some(0) } else { rest.iter().position(is_last) };
        found.extend(body.map(|body| (name.to_owned(), head + body + 1)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_counted_from_their_name_to_their_last_brace() {
        let source = "trait A {\n    fn none(&self);\n    fn one(&self) {}\n}\n\
                      pub(crate) const fn long<T>(\n    a: u8,\n) -> u8 {\n    if a {\n    }\n}\n\
                      // fn comment() {\n";
        let found = functions(source);
        let found: Vec<_> = found.iter().map(|(name, lines)| (name.as_str(), *lines)).collect();
        assert_eq!(found, [("one", 1), ("long", 6)]);
    }
}
