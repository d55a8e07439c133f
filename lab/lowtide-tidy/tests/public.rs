//! What users read is native English: the pages of the guide and of operation, the help of the
//! command, the messages of errors and the reference of the library have none of the habits that
//! can be counted.

use lowtide_tidy::{habits, texts};

/// Pages that are not read: facts about the kernel in its own words, and rules with the words.
const NOT_READ: [&str; 3] = ["docs/kernel/", "docs/glossary.md", "CONTRIBUTING.md"];
/// Where all public items are for users: of the library, and of C and Python, whose header and
/// reference are made from them.
const REFERENCE: [&str; 3] = ["crates/lowtide/src/", "bindings/c/src/", "bindings/python/src/"];
/// The modules of the Python package.
const PYTHON: &str = "bindings/python/python/";
/// The header of the C library.
const HEADER: &str = "bindings/c/include/lowtide.h";
/// Derives of what the command line consists of, whose comments are its help.
const HELP: [&str; 4] = ["Args", "Parser", "Subcommand", "ValueEnum"];

/// A paragraph and the line where it begins.
type Paragraph = (usize, String);

/// The paragraphs of a document, outside of fenced blocks and headings. A row of a table is one,
/// and so is an item of a list.
fn paragraphs(content: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut fenced, mut open) = (false, false);
    for (n, line) in (1..).zip(content.lines().map(str::trim)) {
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        if fenced || is_fence || line.is_empty() || line.starts_with('#') {
            open = false;
        } else if open && !line.starts_with(['|', '*', '-']) {
            let (_, text) = found.last_mut().expect("an open paragraph");
            *text = format!("{text} {line}");
        } else {
            found.push((n, line.to_owned()));
            open = true;
        }
    }
    found
}

/// The comments above items: the paragraphs of each, and the first line of the item behind its
/// attributes.
fn comments(content: &str) -> Vec<(Vec<Paragraph>, &str)> {
    let lines: Vec<&str> = content.lines().map(str::trim).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let first = at;
        while at < lines.len() && lines[at].starts_with("///") {
            at += 1;
        }
        if at == first {
            at += 1;
            continue;
        }
        let bare: Vec<&str> = lines[first..at].iter().map(|line| line[3..].trim()).collect();
        let item = lines[at..].iter().find(|line| !line.starts_with("#[") && !line.ends_with(")]"));
        let all = paragraphs(&bare.join("\n"));
        let all = all.into_iter().map(|(n, text)| (first + n, text)).collect();
        found.push((all, *item.unwrap_or(&"")));
    }
    found
}

/// The messages of errors.
fn messages(content: &str) -> Vec<Paragraph> {
    let starts = content.match_indices("#[error(").map(|(at, mark)| at + mark.len());
    let message = |start: usize| {
        let text = content[start..].trim_start().strip_prefix('"')?;
        let end = text.match_indices('"').find(|(at, _)| !text[..*at].ends_with('\\'))?.0;
        let words: Vec<&str> = text[..end].split(['\\', '\n', ' ']).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        Some((content[..start].lines().count(), words.join(" ")))
    };
    starts.filter_map(message).collect()
}

/// The comments in types that describe a command line.
fn help(content: &str) -> Vec<Paragraph> {
    let derives =
        |line: &str| line.starts_with("#[derive(") && HELP.iter().any(|name| line.contains(name));
    let mut found = Vec::new();
    let mut inside = false;
    let mut part = String::new();
    for line in content.lines() {
        inside |= derives(line);
        inside &= !line.starts_with('}');
        // Lines outside are blank, so that numbers of lines are right.
        part += if inside { line } else { "" };
        part.push('\n');
    }
    for (paragraphs, _) in comments(&part) {
        found.extend(paragraphs);
    }
    found
}

/// The docstrings of a Python module, a paragraph each.
fn docstrings(content: &str) -> Vec<Paragraph> {
    let mut found = Vec::new();
    let mut line = 1;
    for (n, part) in content.split("\"\"\"").enumerate() {
        if n % 2 == 1 {
            found.extend(paragraphs(part).into_iter().map(|(at, text)| (line + at - 1, text)));
        }
        line += part.matches('\n').count();
    }
    found
}

/// The comments of a C header, a paragraph each.
fn header(content: &str) -> Vec<Paragraph> {
    let bare = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("//").or(line.strip_prefix("/*")).or(line.strip_prefix("*"));
        text.map_or_else(String::new, |text| text.trim_start_matches('/').trim().to_owned())
    };
    paragraphs(&content.lines().map(bare).collect::<Vec<_>>().join("\n"))
}

#[test]
fn what_users_read_has_no_habit_that_stops_them() {
    let mut found = Vec::new();
    let mut read = 0;
    for text in texts() {
        let is_page = !NOT_READ.iter().any(|page| text.path.starts_with(page));
        let mut all = Vec::new();
        if text.kind() == "md" && is_page {
            all = paragraphs(&text.content);
        } else if text.path == HEADER {
            all = header(&text.content);
        } else if text.path.starts_with(PYTHON) {
            all = docstrings(&text.content);
        } else if text.kind() == "rs" && text.path.contains("/src/") {
            all = messages(&text.content);
            all.extend(help(&text.content));
            if REFERENCE.iter().any(|place| text.path.starts_with(place)) {
                let public = comments(&text.content).into_iter();
                let public = public.filter(|(_, item)| item.starts_with("pub "));
                all.extend(public.flat_map(|(paragraphs, _)| paragraphs));
            }
        }
        read += all.len();
        for (n, paragraph) in all {
            for (habit, instead) in habits(&paragraph) {
                found.push(format!("{}:{n}: `{habit}`: {instead}", text.path));
            }
        }
    }
    assert!(read > 2000, "users read much, found {read} paragraphs");
    assert!(found.is_empty(), "{} habits:\n{}", found.len(), found.join("\n"));
}

#[test]
fn what_users_read_is_found() {
    let page = "# What is it\n\n`a` b\nc\n* d\n  e\n\n```sh\nf\n```\n| g |\n";
    let texts = |all: Vec<Paragraph>| all.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(texts(paragraphs(page)), ["`a` b c", "* d e", "| g |"]);
    let source = "/// A\n/// b.\n#[derive(Debug, Args)]\nstruct C {\n    /// Help\n    \
                  #[arg(long)]\n    d: u64,\n}\n/// E.\npub fn f() {}\n#[error(\n    \
                  \"no \\\n     g: {h}\"\n)]\n";
    assert_eq!(texts(help(source)), ["Help"]);
    assert_eq!(texts(messages(source)), ["no g: {h}"]);
    assert_eq!(
        docstrings("\"\"\"A\nb.\"\"\"\nc = \"\"\"D.\"\"\""),
        [(1, "A b.".into()), (3, "D.".into())]
    );
    assert_eq!(texts(header("/*\n * a\n */\nint b;\n// c\n// d\n")), ["a", "c d"]);
    let items: Vec<&str> = comments(source).into_iter().map(|(_, item)| item).collect();
    assert_eq!(items, ["struct C {", "d: u64,", "pub fn f() {}"]);
}
