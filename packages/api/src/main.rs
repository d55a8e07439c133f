//! What the crates that programs depend on offer, one line an item, in `CRATE.txt` beside this
//! package. A change of it is seen in a review, and one that breaks programs is a line that is
//! gone or differs.
//!
//! ```sh
//! cargo run --manifest-path packages/api/Cargo.toml              # compares
//! cargo run --manifest-path packages/api/Cargo.toml -- --write   # writes what is offered now
//! ```
//!
//! Needed: a nightly toolchain, which alone writes documentation as JSON. Where it is another
//! version than `public-api` reads, this says so.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Crates, with the folder of each. The others are parts of these, and promise nothing.
const CRATES: [(&str, &str); 2] =
    [("lowtide", "crates/lowtide"), ("lowtide-memmap2", "crates/lowtide-memmap2")];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_write = std::env::args().nth(1).is_some_and(|arg| arg == "--write");
    let mut differs = false;
    for (name, folder) in CRATES {
        let manifest = here.join("../..").join(folder).join("Cargo.toml");
        let file = here.join(format!("{name}.txt"));
        let offered = offered(&manifest)?;
        if is_write {
            fs::write(&file, offered)?;
            continue;
        }
        let written = fs::read_to_string(&file)?;
        let (before, now): (BTreeSet<_>, BTreeSet<_>) =
            (written.lines().collect(), offered.lines().collect());
        for line in before.difference(&now) {
            println!("- {line}");
        }
        for line in now.difference(&before) {
            println!("+ {line}");
        }
        println!("{name}: {} items, {} before", now.len(), before.len());
        differs |= before != now;
    }
    if differs {
        eprintln!("where that is meant, run it with --write; lines with - may break programs");
    }
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Items of a crate with all its features, without what each type has by itself.
fn offered(manifest: &Path) -> Result<String, Box<dyn Error>> {
    let json = rustdoc_json::Builder::default()
        .toolchain("nightly")
        .manifest_path(manifest)
        .all_features(true)
        .quiet(true)
        .build()?;
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}
