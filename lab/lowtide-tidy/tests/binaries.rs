//! A crate has one binary of tests from outside: each is linked with all that the crate uses, and
//! the runner ends one before it begins the next.
//!
//! `tests/main.rs` names the files. One that it does not name would be no test at all, and nobody
//! would see that.

use lowtide_tidy::{Text, check, root, texts};
use std::collections::BTreeMap;
use std::fs;

/// The storm is drawn alone, for as long as one likes: a second binary of its crate.
const MORE: [(&str, usize); 1] = [("crates/lowtide", 2)];

/// The folders with a package, and their manifests.
fn packages() -> BTreeMap<String, String> {
    let manifest = |text: Text| {
        let folder = text.path.strip_suffix("/Cargo.toml")?.to_owned();
        text.content.contains("[package]").then_some((folder, text.content))
    };
    texts().into_iter().filter_map(manifest).collect()
}

/// Names of the files that lie flat in a package's folder of tests, without their extension.
fn files(package: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root().join(package).join("tests")) else { return Vec::new() };
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("a name in UTF-8"));
    names.filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned())).collect()
}

/// Binaries of tests of a package, by their first file.
fn binaries(manifest: &str, files: &[String]) -> Vec<String> {
    if !manifest.contains("autotests = false") {
        return files.iter().map(|name| format!("tests/{name}.rs")).collect();
    }
    let sections = manifest.split("\n[").filter(|section| section.starts_with("[test]]"));
    let paths = sections.flat_map(|section| section.lines());
    paths.filter_map(|line| Some(line.strip_prefix("path = ")?.trim_matches('"').into())).collect()
}

#[test]
fn a_crate_has_one_binary_of_tests() {
    let (mut wrong, mut all) = (Vec::new(), 0);
    for (package, manifest) in packages() {
        let found = binaries(&manifest, &files(&package));
        all += found.len();
        let more = MORE.iter().find(|(name, _)| *name == package);
        if found.len() > more.map_or(1, |(_, most)| *most) {
            wrong.push(format!("{package}: {}", found.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "name them in `tests/main.rs`:\n{}", wrong.join("\n"));
    assert!(all >= 15, "{all} binaries");
    check("test-binaries", all);
}

#[test]
fn each_file_of_tests_is_in_a_binary() {
    let mut lost = Vec::new();
    for (package, manifest) in packages() {
        let files = files(&package);
        let roots = binaries(&manifest, &files);
        let mut named = String::new();
        for path in &roots {
            let text = fs::read_to_string(root().join(&package).join(path));
            named += &text.unwrap_or_else(|error| panic!("{package}/{path}: {error}"));
        }
        for name in files {
            let path = format!("tests/{name}.rs");
            let line = format!("mod {name};");
            if !roots.contains(&path) && !named.lines().any(|found| found == line) {
                lost.push(format!("{package}/{path}"));
            }
        }
    }
    assert!(lost.is_empty(), "no test binary names them:\n{}", lost.join("\n"));
}
