//! How a program gets this crate in place of memmap2: what the README says is what Cargo does.

use std::fs;
use std::path::Path;
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// What Cargo says of the packages that a program is made of: its output, and its warnings.
fn tree(manifest: &str) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let package = "[workspace]\n[package]\nname = \"program\"\nversion = \"0.0.0\"\n\
                   edition = \"2024\"\n";
    fs::write(dir.path().join("Cargo.toml"), format!("{package}{manifest}")).unwrap();
    fs::create_dir(dir.path().join("src")).unwrap();
    fs::write(dir.path().join("src/lib.rs"), "").unwrap();
    // The versions that are on this machine already.
    fs::copy(Path::new(HERE).join("../../Cargo.lock"), dir.path().join("Cargo.lock")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{err}");
    (out, err)
}

fn is_ours(tree: &str) -> bool {
    tree.lines().any(|line| line.starts_with("lowtide-memmap2 "))
}

#[test]
fn a_patch_replaces_it_for_all_that_ask_for_memmap2() {
    let (tree, said) = tree(&format!(
        "[dependencies]\nmemmap2 = \"0.9\"\n[patch.crates-io]\n\
         memmap2 = {{ path = \"{HERE}/memmap2\" }}\n"
    ));
    assert!(is_ours(&tree), "{tree}{said}");
    assert!(!said.contains("not used"), "{said}");
}

#[test]
fn a_patch_with_a_package_of_another_name_replaces_nothing() {
    let (tree, said) = tree(&format!(
        "[dependencies]\nmemmap2 = \"0.9\"\n[patch.crates-io]\n\
         memmap2 = {{ package = \"lowtide-memmap2\", path = \"{HERE}\" }}\n"
    ));
    assert!(!is_ours(&tree), "{tree}");
    assert!(said.contains("was not used in the crate graph"), "{said}");
}

#[test]
fn by_name_a_package_chooses_for_itself() {
    let (tree, said) = tree(&format!(
        "[dependencies]\nmemmap2 = {{ package = \"lowtide-memmap2\", path = \"{HERE}\" }}\n"
    ));
    assert!(is_ours(&tree), "{tree}{said}");
}
