//! The header in the repository is the one that the sources make.

use lowtide_core::counters::{Numbers, Stat, Unit};
use std::path::Path;

/// With the counters of `lt_stats` as fields, by the table of counters.
fn with_counters(text: &str) -> String {
    let mut fields = vec![None; Stat::C_PLACES];
    Stat::default().each(&mut |counter, _| {
        let Some((place, name)) = counter.c else { return };
        let unit = if counter.unit == Unit::Time { ", in nanoseconds" } else { "" };
        let field = format!("    // {}{unit}.\n    uint64_t {name};\n", counter.help);
        assert!(fields[place].replace(field).is_none(), "place {place} is given twice");
    });
    let fields = fields.into_iter().enumerate();
    let fields: String =
        fields.map(|(at, field)| field.unwrap_or_else(|| panic!("no place {at}"))).collect();
    let (before, array) = text.split_once("    // Each in the place that the table").unwrap();
    let (_, after) = array.split_once("uint64_t counters[COUNTERS];\n").unwrap();
    format!("{before}{fields}{after}")
}

#[test]
fn the_header_is_what_the_sources_say() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new().with_crate(here).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    let text = with_counters(&String::from_utf8(text).unwrap());
    let path = here.join("include/lowtide.h");
    if std::env::var_os("LOWTIDE_MAKE_HEADER").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let first = found.lines().zip(text.lines()).position(|(old, new)| old != new);
    assert!(
        found == text,
        "include/lowtide.h differs from the sources at line {:?}: make it again with \
         LOWTIDE_MAKE_HEADER=1 cargo test -p lowtide-c --test it header",
        first.map(|line| line + 1)
    );
}

#[test]
fn each_function_of_the_library_is_in_the_header() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(here.join("include/lowtide.h")).unwrap();
    let mut exported = 0;
    for file in std::fs::read_dir(here.join("src")).unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for part in source.split("#[unsafe(no_mangle)]").skip(1) {
            let name = part.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            assert!(header.contains(&format!("{name}(")), "{name}");
            exported += 1;
        }
    }
    assert!(exported >= 40, "{exported} functions");
}
