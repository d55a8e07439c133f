//! The names of the fields of results, pinned in a file: one that is removed or renamed is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

/// The names of fields, by the workload whose rows have them.
pub(crate) type Names<'a> = BTreeMap<&'a str, BTreeSet<String>>;

/// Adds the names of all fields, those of objects within objects after a dot.
pub(crate) fn add(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name =
                    if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                add(value, &name, found);
                found.insert(name);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add(item, prefix, found)),
        _ => {}
    }
}

/// Compares the names with those in a file of the package's tests, in which the names that all
/// workloads have come first; rows `apart` have little in common with the others.
/// `LOWTIDE_WRITE_NAMES=1` writes the file.
pub(crate) fn pin(all: &Names<'_>, title: &str, apart: &[&str], file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let alike = all.iter().filter(|(name, _)| !apart.contains(name)).map(|(_, names)| names);
    let common = alike.cloned().reduce(|common, names| &common & &names).expect("a workload");
    let mut list = format!("# {title}\n");
    common.iter().for_each(|name| writeln!(list, "{name}").unwrap());
    for (workload, names) in all {
        writeln!(list, "\n# {workload}").unwrap();
        names.difference(&common).for_each(|name| writeln!(list, "{name}").unwrap());
    }
    if std::env::var_os("LOWTIDE_WRITE_NAMES").is_some() {
        std::fs::write(&path, &list).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap();
    for (now, then) in list.lines().zip(pinned.lines()) {
        assert_eq!(now, then, "left: now, right: pinned in {}", path.display());
    }
    assert_eq!(list, pinned);
}
