//! Limits only fall: one that is higher than in the commit before names a record of why.

use lowtide_tidy::{LIMITS, check, code_lines, limits, parse, root, texts};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// The standard output of git here, if there is a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root()).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok())?
}

/// The limits of the last commit that had others than there are now.
fn before() -> Option<String> {
    let now = fs::read_to_string(root().join(LIMITS)).ok()?;
    let commits = git(&["log", "-n", "2", "--format=%H", "--", LIMITS])?;
    let mut texts = commits.lines().filter_map(|c| git(&["show", &format!("{c}:{LIMITS}")]));
    texts.find(|text| *text != now)
}

#[test]
fn a_limit_is_raised_only_by_a_decision() {
    let now = limits();
    let old = before().map(|text| parse(&text)).unwrap_or_default();
    for limit in &now {
        let was = old.iter().find(|old| old.name == limit.name);
        let raised = was.is_some_and(|was| limit.value > was.value);
        assert!(
            !raised || was.is_some_and(|was| was.record != limit.record),
            "{} was raised from {:?} to {}, and no record says why",
            limit.name,
            was.map(|was| was.value),
            limit.value
        );
        if !limit.record.is_empty() {
            let record = root().join("docs/decisions").join(&limit.record);
            let text = fs::read_to_string(record).expect("the record of a limit");
            assert!(text.contains(&limit.name), "{} does not name {}", limit.record, limit.name);
        }
    }
    for old in old {
        let is_kept = now.iter().any(|limit| limit.name == old.name);
        let crate_left =
            old.name.strip_prefix("code/").is_some_and(|path| !root().join(path).exists());
        assert!(is_kept || crate_left, "the limit `{}` is gone", old.name);
    }
}

#[test]
fn the_code_of_each_crate_stays_within_its_limit() {
    let mut crates: BTreeMap<String, usize> = BTreeMap::new();
    for text in texts().iter().filter(|text| text.kind() == "rs") {
        let parts: Vec<&str> = text.path.splitn(3, '/').collect();
        let [folder @ ("crates" | "lab" | "bindings"), name, _] = parts[..] else { continue };
        *crates.entry(format!("{folder}/{name}")).or_default() +=
            code_lines(&text.path, &text.content);
    }
    let is_product = |name: &str| !name.starts_with("lab/");
    let product: usize = crates.iter().filter(|(name, _)| is_product(name)).map(|(_, n)| n).sum();
    assert!(product > 10_000, "the product has thousands of lines, found {product}");
    check("code", product);
    for (name, lines) in crates {
        check(&format!("code/{name}"), lines);
    }
}
