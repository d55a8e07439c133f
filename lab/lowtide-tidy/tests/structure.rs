//! The structure of the code stays one that can be read.

use lowtide_tidy::{check, circles, crates, functions, limit, root, texts};
use std::fs;

/// Types that are scattered further, with the number of their files now. It may only fall.
const SCATTERED: [(&str, &str, usize); 4] = [
    ("lowtide", "Pool", 10),
    ("lowtide-core", "Engine", 15),
    ("lowtide-sim", "Ctx", 15),
    ("lowtide-sim", "World", 14),
];

#[test]
fn no_circle_of_files_is_large() {
    // `impl Pool` in one file and a use of it in another is idiom; a web of many is a knot.
    let (mut large, mut most) = (Vec::new(), 0);
    for part in crates() {
        assert!(!part.names.is_empty(), "{} has files", part.name);
        for circle in circles(&part.names) {
            if circle.len() <= limit("circle-files") {
                most = most.max(circle.len());
                continue;
            }
            large.push(format!("{}: {} files: {}", part.name, circle.len(), circle.join(" ")));
        }
    }
    assert!(large.is_empty(), "{}", large.join("\n"));
    check("circle-files", most);
}

#[test]
fn the_methods_of_a_type_are_in_few_files() {
    let (mut wide, limit) = (Vec::new(), limit("method-files"));
    for part in crates() {
        for (name, files) in &part.methods {
            let known =
                SCATTERED.iter().find(|(of, subject, _)| *of == part.name && subject == name);
            let most = known.map_or(limit, |&(_, _, files)| files);
            if files.len() > most || known.is_some() && files.len() < most {
                wide.push(format!("{}: {name} has methods in {} files", part.name, files.len()));
            }
        }
    }
    assert!(wide.is_empty(), "other than what is allowed here:\n{}", wide.join("\n"));
}

#[test]
fn a_function_fits_a_screen_or_two() {
    let (mut wrong, mut seen, mut longest) = (Vec::new(), 0, 0);
    let most = limit("function-lines");
    for text in texts() {
        let inside = text.path.strip_prefix("crates/").or(text.path.strip_prefix("lab/"));
        if text.kind() != "rs" || !inside.is_some_and(|path| path.contains("/src/")) {
            continue;
        }
        for (name, lines) in functions(&text.content) {
            seen += 1;
            longest = longest.max(lines);
            if lines > most {
                wrong.push(format!("{}: {name} has {lines} lines", text.path));
            }
        }
    }
    assert!(wrong.is_empty(), "cut them:\n{}", wrong.join("\n"));
    check("function-lines", longest);
    assert!(seen > 5000, "the repository has thousands of functions, found {seen}");
}

#[test]
fn the_rooms_of_the_runtime_are_folders() {
    let dir = fs::read_dir(root().join("crates/lowtide/src")).expect("the sources");
    let names = dir.map(|entry| entry.expect("a file").path());
    let flat: Vec<_> = names.filter(|path| path.extension().is_some_and(|e| e == "rs")).collect();
    assert!(flat.len() >= 2, "files that lie flat are found: {flat:?}");
    check("flat-files", flat.len());
}
