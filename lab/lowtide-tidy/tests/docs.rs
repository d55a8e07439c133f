//! The documents can be read: lines fit a terminal, pages are short, words are plain, and the files
//! and workloads that they name exist; every error is explained.

use lowtide_tidy::{Text, banned, check, code_lines, limit, parts, root, texts, too_wide};
use std::collections::BTreeSet;
use std::fs;

/// Pages of which a part is cited by number, or that only grow.
const LONG: [&str; 2] = ["docs/kernel/", "CHANGELOG.md"];
/// Pages in other words than ours: facts about the kernel, and what was said of earlier versions.
const QUOTED: [&str; 2] = ["docs/kernel/", "CHANGELOG.md"];
/// Pages whose list of words or of rules has the words that are banned.
const OWN_WORDS: [&str; 2] = ["docs/glossary.md", "CONTRIBUTING.md"];

fn documents() -> Vec<Text> {
    let all: Vec<Text> = texts().into_iter().filter(|text| text.kind() == "md").collect();
    assert!(all.len() > 30, "the repository has dozens of documents, found {}", all.len());
    all
}

fn is_one_of(text: &Text, places: &[&str]) -> bool {
    places.iter().any(|place| text.path.starts_with(place))
}

/// The lines of a document outside of fenced blocks, with their numbers.
fn prose(content: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (n, line) in content.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((n + 1, line));
        }
    }
    lines
}

/// The lines of blocks that are marked as commands.
fn commands(content: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut lines = Vec::new();
    for (n, line) in content.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            inside = !inside && language == "sh";
        } else if inside {
            lines.push((n + 1, line));
        }
    }
    lines
}

#[test]
fn lines_are_no_wider_than_a_terminal() {
    let mut wide = Vec::new();
    for text in documents() {
        for (n, line) in prose(&text.content) {
            // A table cannot be wrapped, nor can the marker that writes one, nor a fenced block.
            let table = line.trim_start().starts_with(['|', '<']);
            if let Some(width) = too_wide(line).filter(|_| !table) {
                wide.push(format!("{}:{n}: {width} columns", text.path));
            }
        }
    }
    assert!(wide.is_empty(), "too many columns:\n{}", wide.join("\n"));
}

#[test]
fn a_page_is_read_in_one_sitting() {
    let pages = documents().into_iter().filter(|text| !is_one_of(text, &LONG));
    let most = limit("page-lines");
    let long: Vec<String> = pages
        .map(|text| (text.content.lines().count(), text.path))
        .filter(|(lines, _)| *lines > most)
        .map(|(lines, path)| format!("{path}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "more than {most} lines, split them:\n{}", long.join("\n"));
}

#[test]
fn documents_become_no_longer() {
    let documents = documents();
    let lines = |is: &dyn Fn(&str) -> bool| {
        let those = documents.iter().filter(|text| is(&text.path));
        those.map(|text| text.content.lines().count()).sum::<usize>()
    };
    check("docs-lines", lines(&|path| path.starts_with("docs/")));
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        check(page, lines(&|path| path == page));
    }
}

#[test]
fn a_counter_is_spelled_in_few_files() {
    let spells = |text: &&Text| {
        text.kind() == "rs"
            && code_lines(&text.path, &text.content) > 0
            && text.content.contains("ahead_wasted")
    };
    check("counter-files", texts().iter().filter(spells).count());
}

#[test]
fn words_are_plain() {
    let mut found = Vec::new();
    for text in documents() {
        if is_one_of(&text, &QUOTED) || is_one_of(&text, &OWN_WORDS) {
            continue;
        }
        for (n, word, instead) in banned(&prose(&text.content)) {
            found.push(format!("{}:{n}: `{word}`: {instead}", text.path));
        }
    }
    assert!(found.is_empty(), "words that stop a reader:\n{}", found.join("\n"));
}

/// What the links of a document lead to, where that is a file of the repository.
fn links(content: &str) -> Vec<(usize, &str)> {
    let starts = |(n, line)| parts_after(line, "](").map(move |rest| (n, rest));
    let all = prose(content).into_iter().flat_map(starts);
    let targets = all.filter_map(|(n, rest)| Some((n, rest.split([')', '#']).next()?)));
    targets.filter(|(_, link)| !link.is_empty() && !link.contains("://")).collect()
}

/// What follows each place where a mark is.
fn parts_after<'a>(line: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(mark).map(move |(at, _)| &line[at + mark.len()..])
}

#[test]
fn links_lead_somewhere_and_every_page_is_linked() {
    let documents = documents();
    let mut dead = Vec::new();
    let mut linked = Vec::new();
    for text in &documents {
        for (n, link) in links(&text.content) {
            match text.folder().join(link).canonicalize() {
                Ok(target) => linked.push(target),
                Err(_) => dead.push(format!("{}:{n}: {link} leads nowhere", text.path)),
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
    for page in documents.iter().filter(|page| page.path.starts_with("docs/")) {
        let path = root().join(&page.path);
        assert!(linked.contains(&path), "no page has a link to {}", page.path);
    }
}

/// The name by which a heading is linked to, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let shown = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    shown.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_into_a_page_lead_to_a_heading() {
    let headings = |content: &str| {
        let lines = prose(content).into_iter().map(|(_, line)| line);
        lines.filter(|line| line.starts_with('#')).map(anchor).collect::<BTreeSet<_>>()
    };
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for text in documents() {
        for (n, line) in prose(&text.content) {
            for rest in parts_after(line, "](") {
                let link = rest.split(')').next().unwrap_or_default();
                let Some((page, to)) = link.split_once('#').filter(|_| !link.contains("://"))
                else {
                    continue;
                };
                let path = if page.is_empty() { text.path.clone() } else { page.to_owned() };
                let folder = if page.is_empty() { root() } else { text.folder() };
                let content = fs::read_to_string(folder.join(path)).unwrap_or_default();
                seen += 1;
                if !headings(&content).contains(to) {
                    wrong.push(format!("{}:{n}: there is no heading {link}", text.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 20, "pages link into each other, found {seen}");
}

/// The folder that the first part of a path on these pages stands for.
fn home(first: &str) -> Option<String> {
    let name = match first {
        "lowtide" => "lowtide".to_owned(),
        "core" | "sys" | "pin" | "io" | "swap" | "bpf" | "sim" | "mrc" | "host" | "bench"
        | "cli" | "workload" | "preload" | "report" | "run" => {
            format!("lowtide-{first}")
        }
        "lab" | "experiments" | "proof" | "programs" => {
            return Some(format!("lab/lowtide-{first}/src"));
        }
        _ => return None,
    };
    Some(format!("crates/{name}/src"))
}

#[test]
fn sources_that_documents_name_exist() {
    let root = root();
    let mut missing = Vec::new();
    let mut named = 0;
    for text in documents() {
        let followed = ["ARCHITECTURE.md", "docs/design/", "docs/decisions/", "docs/glossary.md"];
        if !is_one_of(&text, &followed) {
            continue;
        }
        for (n, line) in prose(&text.content) {
            // In a list, later names are in the folder of the first.
            let mut folder = String::new();
            let is_path = |part: &&str| part.ends_with(".rs") || part.ends_with('/');
            for path in parts(line, true).filter(is_path) {
                let (first, rest) = path.split_once('/').unwrap_or(("", path));
                let place = match home(first) {
                    _ if root.join(path).exists() => path.to_owned(),
                    Some(home) => format!("{home}/{rest}"),
                    None => format!("{folder}/{path}"),
                };
                named += 1;
                if !root.join(&place).exists() {
                    missing.push(format!("{}:{n}: there is no {path} ({place})", text.path));
                }
                let whole = place.trim_end_matches('/');
                folder = whole.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(named > 150, "documents name their sources, found {named}");
}

#[test]
fn commands_in_documents_name_workloads_that_exist() {
    let root = root();
    let mut sources = String::new();
    for file in ["crates/lowtide-cli/src", "lab/lowtide-lab/src", "crates/lowtide-workload/src"] {
        for text in texts().into_iter().filter(|text| text.path.starts_with(file)) {
            sources += &fs::read_to_string(root.join(&text.path)).expect("a source");
        }
    }
    let mut unknown = Vec::new();
    let mut named = 0;
    for text in documents() {
        for (n, line) in commands(&text.content) {
            let line = line.replace("cargo run --release -- ", "lowtide ");
            let line = line.replace("cargo run --release -p lowtide-lab -- ", "lowtide-lab ");
            let mut words = line.split_whitespace();
            let command = (words.next(), words.next(), words.next());
            let (Some("lowtide" | "lowtide-lab"), Some("bench" | "sim"), Some(workload)) = command
            else {
                continue;
            };
            if workload.starts_with('-') {
                continue;
            }
            named += 1;
            if !sources.contains(&format!("\"{workload}\"")) {
                unknown.push(format!("{}:{n}: there is no workload {workload}", text.path));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(named > 15, "documents show commands, found {named}");
}

#[test]
fn every_error_of_the_library_is_explained_to_operators() {
    let root = root();
    let page = fs::read_to_string(root.join("docs/operating.md")).expect("the operators' page");
    let source = fs::read_to_string(root.join("crates/lowtide/src/error.rs")).expect("the errors");
    let mut missing = Vec::new();
    let mut tables = 0;
    for item in syn::parse_file(&source).expect("Rust").items {
        let syn::Item::Enum(errors) = item else { continue };
        let name = errors.ident.to_string();
        let table = page.lines().skip_while(|line| !line.contains(&format!(": `{name}` |")));
        let rows: Vec<&str> = table.take_while(|line| line.starts_with('|')).collect();
        tables += usize::from(!rows.is_empty());
        for variant in errors.variants {
            let variant = format!("`{}`", variant.ident);
            let first = |row: &&str| row.split('|').nth(1).is_some_and(|c| c.contains(&variant));
            if !rows.iter().any(first) {
                missing.push(format!("{name}: {variant}"));
            }
        }
    }
    assert!(missing.is_empty(), "docs/operating.md does not explain:\n{}", missing.join("\n"));
    assert_eq!(tables, 3, "a table for each kind of error");
}

#[test]
fn what_is_looked_for_is_found() {
    let block = "a\n```sh\nlowtide sim zipf\n```\nb\n```text\nlowtide sim none\n```";
    assert_eq!(prose(block), [(1, "a"), (5, "b")]);
    assert_eq!(commands(block), [(3, "lowtide sim zipf")]);
    assert_eq!(anchor("## The `x` of a b-c, 2"), "the-x-of-a-b-c-2");
    assert_eq!(links("[a](traces.md#c) and [d](https://e)"), [(1, "traces.md")]);
}
