//! What crates.io gets is complete: each crate that is published says what crates.io shows, names
//! the versions of those that it uses, and comes after them.

use lowtide_tidy::root;
use std::collections::BTreeMap;
use std::fs;

/// What crates.io shows, and searches by.
const SHOWN: [&str; 8] = [
    "version",
    "edition",
    "rust-version",
    "license",
    "description",
    "readme",
    "keywords",
    "categories",
];

/// Manifests of all packages of the workspace, by package.
fn packages() -> BTreeMap<String, String> {
    let workspace = read("Cargo.toml");
    let members = workspace.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let folders = members.split('"').skip(1).step_by(2);
    let package = |folder: &str| {
        let text = read(&format!("{folder}/Cargo.toml"));
        let name = text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
        (name.trim_matches('"').to_owned(), text)
    };
    folders.map(package).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is_published(manifest: &str) -> bool {
    !manifest.contains("\npublish = false\n")
}

/// Names in the sections of a manifest that a crate of others sees.
fn uses(manifest: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]") && !line.contains("dev-");
        } else if inside && line.starts_with("lowtide") {
            found.push(line.split(['.', ' ', '=']).next().unwrap());
        }
    }
    found
}

#[test]
fn each_crate_that_is_published_says_what_crates_io_shows() {
    let all = packages();
    let published: Vec<_> = all.iter().filter(|(_, manifest)| is_published(manifest)).collect();
    assert!(published.len() >= 14, "{} crates", published.len());
    for (name, manifest) in published {
        let package = manifest.split("\n[").next().unwrap();
        for shown in SHOWN {
            let is_said = package.lines().any(|line| line.starts_with(shown));
            assert!(is_said, "{name} has no {shown}");
        }
        assert!(manifest.contains("[package.metadata.docs.rs]"), "{name}: docs.rs");
    }
}

#[test]
fn those_that_are_used_have_versions() {
    let workspace = read("Cargo.toml");
    for (name, manifest) in packages().iter().filter(|(_, manifest)| is_published(manifest)) {
        for used in uses(manifest) {
            let line = workspace.lines().find(|line| line.starts_with(&format!("{used} = {{")));
            let line = line.unwrap_or_else(|| panic!("{used} is not in the workspace's list"));
            assert!(line.contains("version = "), "{name} uses {used} without a version");
        }
    }
}

#[test]
fn the_order_of_publishing_has_each_crate_once_and_after_those_that_it_uses() {
    let (all, order) = (packages(), read("packages/order"));
    let order: Vec<&str> = order.lines().collect();
    let mut named = order.clone();
    named.sort_unstable();
    let published: Vec<&str> = all
        .iter()
        .filter(|(_, manifest)| is_published(manifest))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(named, published, "packages/order");
    for (at, name) in order.iter().enumerate() {
        for used in uses(&all[*name]) {
            assert!(order[..at].contains(&used), "{name} is published before {used}");
        }
    }
}

/// A line of a manifest, without its quotes.
fn value(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
    line.unwrap_or_else(|| panic!("no {name}")).trim_matches('"').to_owned()
}

#[test]
fn the_rust_that_users_need_is_the_one_that_tests_run_with() {
    let needed = value(&read("Cargo.toml"), "rust-version");
    let pinned = value(&read("rust-toolchain.toml"), "channel");
    assert!(pinned == needed || pinned.starts_with(&format!("{needed}.")), "{needed}: {pinned}");
    assert!(read("README.md").contains(&format!("Rust {needed}")), "README.md");
    assert!(read("packages/Dockerfile").contains(&format!("FROM rust:{needed}-")), "Dockerfile");
}
