//! What the sources and the documents refer to is in the repository.
//!
//! Every page that a source or a document names must exist, and every section that is cited of a
//! page on the kernel's rules (`docs/kernel`) must be a heading there, or a numbered point of the
//! section cited before it: "§9, 54" is point 54 of section 9.

use lowtide_tidy::{Text, root, texts};
use std::collections::BTreeMap;
use std::fs;

/// Every file that may name another: all but this one, which has examples.
fn files() -> Vec<Text> {
    texts().into_iter().filter(|text| text.path != "lab/lowtide-tidy/tests/references.rs").collect()
}

/// The pages that a line names, with what follows each.
fn pages(line: &str) -> Vec<(&str, &str)> {
    let part = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    let ends = line.match_indices(".md").map(|(at, _)| at + 3);
    let whole = ends.filter(|&end| !line[end..].starts_with(|c: char| c.is_ascii_alphanumeric()));
    whole
        .filter_map(|end| {
            let start = line[..end]
                .rfind(|c| !part(c))
                .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8));
            let name = &line[start..end];
            let rest = &line[end..];
            // What a link shows may be short; what it leads to is checked.
            let shown = rest.trim_start_matches('`').starts_with("](");
            (name.len() > 3 && !shown && !name.contains("://")).then_some((name, rest))
        })
        .collect()
}

/// The references that begin a text: `§1.2, 3 and B4`, each as it would stand in a heading.
fn references(mut text: &str) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start_matches(['`', ',', ' ', ')', '§']);
        text = text.strip_prefix("and ").unwrap_or(text).trim_start_matches(['`', '§']);
        let letter = usize::from(text.starts_with(['A', 'B', 'C', 'D']));
        let digits = text[letter..].len()
            - text[letter..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let reference = text[..letter + digits].trim_end_matches('.');
        let word = text[letter + digits..].starts_with(|c: char| c.is_ascii_uppercase());
        if reference.is_empty() || word {
            return found;
        }
        found.push(reference.to_owned());
        text = &text[letter + digits..];
        // "§4(c), (d)", "§3d" and "§3.1-3.3".
        while let Some(rest) = text.trim_start_matches([',', ' ']).strip_prefix('(') {
            text = rest.get(2..).unwrap_or_default();
        }
        text = text.strip_prefix(['a', 'b', 'c', 'd', '-', '–']).unwrap_or(text);
        if !text.starts_with([',', ' ', '§', 'A', 'B', 'C', 'D'])
            && !text.starts_with(char::is_numeric)
        {
            return found;
        }
    }
}

/// What can be cited of a page: `"9"` for a section, `"9/54"` for a point of one.
fn sections(page: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut section = String::new();
    for line in page.lines() {
        let number = |text: &str| {
            text.split(' ').next().unwrap_or_default().trim_end_matches('.').to_owned()
        };
        if line.starts_with('#') {
            section = number(line.trim_start_matches('#').trim_start());
            all.push(section.clone());
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            all.push(format!("{section}/{}", number(line)));
        }
    }
    all
}

#[test]
fn every_page_that_is_named_exists() {
    let root = root();
    let mut missing = Vec::new();
    for text in files() {
        let dir = text.folder();
        for (n, line) in text.content.lines().enumerate() {
            for (page, _) in pages(line) {
                let mut above = dir.ancestors().take_while(|d| d.starts_with(&root));
                let in_docs = root.join("docs").join(page).exists();
                let known = in_docs || above.any(|d| d.join(page).exists());
                if !known {
                    missing.push(format!("{}:{}: there is no {page}", text.path, n + 1));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_section_that_is_cited_exists() {
    let mut known = BTreeMap::new();
    for entry in fs::read_dir(root().join("docs/kernel")).expect("the kernel's rules") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        known.insert(name, sections(&fs::read_to_string(&path).expect("a page")));
    }
    let mut cited = 0;
    let mut wrong = Vec::new();
    for text in files() {
        for (n, line) in text.content.lines().enumerate() {
            for (page, rest) in pages(line) {
                let name = page.rsplit('/').next().unwrap_or(page);
                let Some(sections) = known.get(name).filter(|_| name != "README.md") else {
                    continue;
                };
                let mut before: Vec<String> = Vec::new();
                for reference in references(rest) {
                    cited += 1;
                    let at = format!("{}:{}: {page} has no {reference}", text.path, n + 1);
                    if sections.contains(&reference) {
                        before.push(reference);
                        continue;
                    }
                    let point =
                        |section: &str, n: &str| sections.contains(&format!("{section}/{n}"));
                    let in_d = reference.strip_prefix('D').is_some_and(|n| point("D", n));
                    if !in_d && !before.iter().any(|section| point(section, &reference)) {
                        wrong.push(at);
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cited > 200, "the sources cite the kernel's rules, found {cited}");
}

#[test]
fn references_are_read_as_people_write_them() {
    for (text, expected) in [
        ("` §1.2, 1.3, 2.6.", "1.2 1.3 2.6"),
        ("` §3.1-3.3, 4.5.", "3.1 3.3 4.5"),
        ("` §4(c), (d)) |", "4"),
        ("` §9, 54: an", "9 54"),
        ("` §4.5 and 4.6; I25", "4.5 4.6"),
        ("` §16, 9, 10 and 12: ends", "16 9 10 12"),
        ("` A7, C3). A heap", "A7 C3"),
        ("` B5-B10, D 11, 12).", "B5 B10 D 11 12"),
        ("` §0.3, T-mode). So", "0.3"),
        ("`. The Big one", ""),
        (" says", ""),
    ] {
        assert_eq!(references(text).join(" "), expected, "{text}");
    }
}
