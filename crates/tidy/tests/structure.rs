//! The structure of the code stays one that can be read.

use lowtide_tidy::{circles, crates};

/// Files that may name each other in a circle. `impl Pool` in one file and a use of it in another
/// is idiom; a web of many such files is a knot.
const CIRCLE_MAX: usize = 10;
/// Files that may have methods of one type, traits apart.
const METHOD_FILES_MAX: usize = 8;
/// Types that are scattered further, with the number of their files now. It may only fall.
const SCATTERED: [(&str, &str, usize); 4] = [
    ("lowtide", "Pool", 10),
    ("lowtide-core", "Engine", 15),
    ("lowtide-sim", "Ctx", 15),
    ("lowtide-sim", "World", 14),
];

#[test]
fn no_circle_of_files_is_large() {
    let mut large = Vec::new();
    for part in crates() {
        assert!(!part.names.is_empty(), "{} has files", part.name);
        for circle in circles(&part.names).iter().filter(|circle| circle.len() > CIRCLE_MAX) {
            large.push(format!("{}: {} files: {}", part.name, circle.len(), circle.join(" ")));
        }
    }
    assert!(large.is_empty(), "{}", large.join("\n"));
}

#[test]
fn the_methods_of_a_type_are_in_few_files() {
    let mut wide = Vec::new();
    for part in crates() {
        for (name, files) in &part.methods {
            let known =
                SCATTERED.iter().find(|(of, subject, _)| *of == part.name && subject == name);
            let most = known.map_or(METHOD_FILES_MAX, |&(_, _, files)| files);
            if files.len() > most || known.is_some() && files.len() < most {
                wide.push(format!("{}: {name} has methods in {} files", part.name, files.len()));
            }
        }
    }
    assert!(wide.is_empty(), "other than what is allowed here:\n{}", wide.join("\n"));
}
