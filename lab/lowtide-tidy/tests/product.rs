//! What a program links is the product, and the product contains no instrument: its crates depend
//! on each other alone, and what they hide from the documentation is listed here.

use lowtide_tidy::{check, root, texts};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use syn::visit::Visit;

/// What a program links.
const PRODUCT: [&str; 9] = [
    "lowtide",
    "lowtide-bpf", // Where a program asks for it: decision 24.
    "lowtide-core",
    "lowtide-io",
    "lowtide-pin",
    "lowtide-status", // Behind the feature `status`.
    "lowtide-swap",
    "lowtide-sys",
    "lowtide-zstd",
];

/// Crates of the repository that each crate uses, tests and examples apart. `lowtide-lab` may use
/// all of them; `lowtide-tidy` looks at files only.
const USES: [(&str, &[&str]); 23] = [
    (
        "lowtide",
        &[
            "lowtide-core",
            "lowtide-io",
            "lowtide-pin",
            "lowtide-status",
            "lowtide-swap",
            "lowtide-sys",
        ],
    ),
    (
        "lowtide-bench",
        &[
            "lowtide",
            "lowtide-core",
            "lowtide-host",
            "lowtide-report",
            "lowtide-sim",
            "lowtide-sys",
            "lowtide-workload",
        ],
    ),
    ("lowtide-bpf", &["lowtide-core"]),
    (
        "lowtide-cli",
        &[
            "lowtide",
            "lowtide-bench",
            "lowtide-core",
            "lowtide-host",
            "lowtide-mrc",
            "lowtide-report",
            "lowtide-run",
            "lowtide-sim",
            "lowtide-status",
            "lowtide-sys",
            "lowtide-watch",
            "lowtide-workload",
        ],
    ),
    ("lowtide-core", &[]),
    ("lowtide-experiments", &["lowtide-core", "lowtide-mrc", "lowtide-sim", "lowtide-workload"]),
    ("lowtide-host", &["lowtide-core", "lowtide-sys"]),
    ("lowtide-io", &["lowtide-sys"]),
    ("lowtide-memmap2", &["lowtide"]),
    ("lowtide-mrc", &["lowtide-core", "lowtide-sim", "lowtide-workload"]),
    ("lowtide-pin", &["lowtide-core", "lowtide-sys"]),
    ("lowtide-preload", &["lowtide", "lowtide-run", "lowtide-status", "lowtide-sys"]),
    ("lowtide-programs", &["lowtide-workload"]),
    ("lowtide-proof", &["lowtide", "lowtide-sys", "lowtide-workload"]),
    ("lowtide-report", &["lowtide", "lowtide-core", "lowtide-sim", "lowtide-workload"]),
    ("lowtide-run", &["lowtide-sys"]),
    ("lowtide-sim", &["lowtide-core", "lowtide-workload"]),
    ("lowtide-status", &["lowtide-core"]),
    ("lowtide-swap", &["lowtide-zstd"]),
    ("lowtide-sys", &[]),
    ("lowtide-watch", &["lowtide-core", "lowtide-status", "lowtide-sys"]),
    ("lowtide-workload", &[]),
    ("lowtide-zstd", &[]),
];

/// Crates of others that a program links with the product. Each is a decision.
const FOREIGN: [&str; 21] = [
    "allocator-api2", // Behind the feature `alloc`, as `talc`.
    "bitflags",
    "bytemuck",
    "crc32fast",
    "hashbrown",
    "io-uring",
    "libc",
    "loom", // Only for the proofs of the protocols, behind `cfg(loom)`.
    "lz4_flex",
    "object",
    "prometheus-client", // Behind the feature `metrics` of `lowtide-status`.
    "roaring",           // Sets of pages that are written or failed: decision 22.
    "rustix",
    "serde", // Behind the feature `status`, as `serde_json`: what others read is JSON.
    "serde_json",
    "slab", // Things on their way under numbers: what a free list and a vector would be.
    "talc",
    "thiserror",
    "tracing",
    "xxhash-rust",
    "zstd-sys",
];

/// What the product's crates offer and do not document: nothing. What few need has a feature.
const HIDDEN: [&str; 0] = [];

/// Names of a section of a manifest, by the section.
fn dependencies(manifest: &str) -> BTreeMap<String, Vec<String>> {
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if section.ends_with("dependencies") && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            sections.entry(section.clone()).or_default().push(name.to_owned());
        } else if let Some((kind, name)) = section.rsplit_once('.')
            && kind.ends_with("dependencies")
        {
            // `[dependencies.name]`
            sections.entry(kind.to_owned()).or_default().push(name.to_owned());
        }
    }
    sections
}

/// Manifests of the crates below `crates/` and `lab/`, by name.
fn manifests() -> BTreeMap<String, String> {
    let dirs = |folder| fs::read_dir(root().join(folder)).expect("the crates");
    let all = dirs("crates").chain(dirs("lab")).map(|dir| {
        let path = dir.expect("a crate").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
        (name, manifest)
    });
    all.filter(|(name, _)| !["lowtide-tidy", "lowtide-lab"].contains(&name.as_str())).collect()
}

#[test]
fn each_crate_uses_those_below_it_and_the_product_uses_no_instrument() {
    let manifests = manifests();
    let known: Vec<&str> = USES.iter().map(|(name, _)| *name).collect();
    let found: Vec<&str> = manifests.keys().map(String::as_str).collect();
    assert_eq!(found, known, "a crate has no place in the list");
    for (name, uses) in USES {
        let sections = dependencies(&manifests[name]);
        let linked = sections.iter().filter(|(section, _)| !section.starts_with("dev-"));
        let mut all: Vec<&str> = linked.flat_map(|(_, names)| names).map(String::as_str).collect();
        all.sort_unstable();
        all.dedup();
        let (ours, others): (Vec<&str>, Vec<&str>) =
            all.into_iter().partition(|name| name.starts_with("lowtide"));
        assert_eq!(ours, uses, "{name} uses other crates of the repository than it may");
        if PRODUCT.contains(&name) {
            assert!(uses.iter().all(|used| PRODUCT.contains(used)), "{name} is the product");
            let new: Vec<&str> = others.into_iter().filter(|d| !FOREIGN.contains(d)).collect();
            assert!(new.is_empty(), "{name} makes programs link {new:?}");
        }
    }
}

/// Items with `#[doc(hidden)]`, by file.
struct Hidden {
    file: String,
    found: Vec<String>,
}

impl Hidden {
    fn look(&mut self, attributes: &[syn::Attribute], what: impl FnOnce() -> String) {
        let hidden = |attribute: &syn::Attribute| {
            attribute.path().is_ident("doc")
                && matches!(attribute.meta.require_list(),
                    Ok(list) if list.tokens.to_string() == "hidden")
        };
        if attributes.iter().any(hidden) {
            self.found.push(format!("{}: {}", self.file, what()));
        }
    }
}

impl<'ast> Visit<'ast> for Hidden {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item;
        match item {
            Item::Mod(item) => self.look(&item.attrs, || format!("mod {}", item.ident)),
            Item::Fn(item) => self.look(&item.attrs, || format!("fn {}", item.sig.ident)),
            Item::Struct(item) => self.look(&item.attrs, || format!("struct {}", item.ident)),
            Item::Enum(item) => self.look(&item.attrs, || format!("enum {}", item.ident)),
            Item::Trait(item) => self.look(&item.attrs, || format!("trait {}", item.ident)),
            Item::Use(item) => self.look(&item.attrs, || match &item.tree {
                syn::UseTree::Path(path) => format!("use {}", path.ident),
                _ => "use".into(),
            }),
            _ => {}
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.look(&item.attrs, || format!("fn {}", item.sig.ident));
        syn::visit::visit_impl_item_fn(self, item);
    }
}

#[test]
fn nothing_of_the_laboratory_is_published_or_used_by_what_is_installed() {
    for (name, manifest) in manifests() {
        let in_lab = root().join("lab").join(&name).exists();
        assert!(!in_lab || manifest.contains("\npublish = false\n"), "{name} can be published");
        let used = USES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, used)| used);
        let of_lab = used.iter().find(|used| root().join("lab").join(used).exists());
        assert!(in_lab || of_lab.is_none(), "{name} uses {of_lab:?} of the laboratory");
    }
}

/// The names that a `use` brings in.
fn leaves(tree: &syn::UseTree) -> Vec<String> {
    match tree {
        syn::UseTree::Path(path) => leaves(&path.tree),
        syn::UseTree::Name(name) => vec![name.ident.to_string()],
        syn::UseTree::Rename(rename) => vec![rename.rename.to_string()],
        syn::UseTree::Glob(_) => panic!("a glob hides how many names there are"),
        syn::UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

/// The public names of a crate's root: passed on, or modules. The root defines nothing else.
fn root_names(source: &str) -> Vec<String> {
    let public = |visibility: &syn::Visibility| matches!(visibility, syn::Visibility::Public(_));
    let of = |item| match item {
        syn::Item::Use(item) if public(&item.vis) => leaves(&item.tree),
        syn::Item::Mod(item) if public(&item.vis) => vec![item.ident.to_string()],
        _ => Vec::new(),
    };
    syn::parse_file(source).expect("Rust").items.into_iter().flat_map(of).collect()
}

#[test]
fn the_root_of_the_library_has_few_names() {
    let path = root().join("crates/lowtide/src/lib.rs");
    let names = root_names(&fs::read_to_string(path).expect("the library's root"));
    let known = ["Pager", "View", "Page", "Tenant", "Region", "map"];
    assert!(known.iter().all(|known| names.iter().any(|name| name == known)), "{names:?}");
    check("root-names", names.len());
}

#[test]
fn names_of_a_root_are_counted_as_they_are_passed_on() {
    let source = "pub mod a; mod b; pub use b::{C, d::{E, F as G}}; use b::H; pub(crate) use b::I;";
    assert_eq!(root_names(source), ["a", "C", "E", "G"]);
}

#[test]
fn the_command_stays_what_users_need() {
    let sources = "crates/lowtide-cli/src/";
    let all: Vec<_> = texts().into_iter().filter(|text| text.path.starts_with(sources)).collect();
    let lines: usize = all.iter().map(|text| text.content.lines().count()).sum();
    assert!(lines > 5000, "{lines} lines in {sources}");
    check("command-lines", lines);
    let named = |room: &str| {
        let list = all.iter().find(|text| {
            [format!("{sources}{room}/mod.rs"), format!("{sources}{room}.rs")].contains(&text.path)
        });
        let variants = |item| match item {
            syn::Item::Enum(list) => list.variants.len(),
            _ => 0,
        };
        let list = syn::parse_file(&list.expect("a list of workloads").content).expect("Rust");
        list.items.into_iter().map(variants).sum::<usize>()
    };
    let workloads = named("bench") + named("sim");
    assert!(workloads > 0, "workloads are found");
    check("command-workloads", workloads);
    for (room, other) in [("bench", "crate::sim"), ("sim", "crate::bench")] {
        let inside = all.iter().filter(|text| text.path.starts_with(&format!("{sources}{room}/")));
        let users: Vec<_> = inside.filter(|text| text.content.contains(other)).collect();
        assert!(users.is_empty(), "{room} uses {other}: {users:?}");
    }
}

/// What a user compiles, once for each name and version.
#[test]
fn the_command_is_made_of_few_crates() {
    let tree = ["tree", "--package", "lowtide-cli", "--edges", "normal", "--prefix", "none"];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ran = Command::new(cargo).args(tree).arg("--offline").current_dir(root()).output();
    let ran = ran.expect("cargo can be started");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let lines = String::from_utf8(ran.stdout).expect("names");
    let of = |line: &str| line.split(" (").next().unwrap_or(line).to_owned();
    let crates: BTreeSet<_> = lines.lines().map(of).collect();
    assert!(crates.contains("lowtide-core v0.1.0"), "{crates:?}");
    check("command-crates", crates.len());
}

#[test]
fn what_the_product_hides_is_listed() {
    let mut found = Vec::new();
    for text in texts() {
        let place = text.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        let Some((name, file)) = place.filter(|_| text.kind() == "rs") else { continue };
        if !PRODUCT.contains(&name) {
            continue;
        }
        let mut hidden = Hidden { file: file.to_owned(), found: Vec::new() };
        hidden.visit_file(&syn::parse_file(&text.content).expect("Rust"));
        found.extend(hidden.found);
    }
    found.sort_unstable();
    assert_eq!(found, HIDDEN, "hidden parts of the product");
}

#[test]
fn manifests_are_read_as_they_are_written() {
    let text = "[package]\nname = \"a\"\n[dependencies]\n# why\nlibc.workspace = true\n\
                syn = { version = \"2\" }\n\n[dependencies.lowtide-proof]\npath = \"..\"\n\
                [target.'cfg(loom)'.dependencies]\nloom = \"1\"\n[dev-dependencies]\nx = \"1\"\n";
    let sections = dependencies(text);
    assert_eq!(sections["dependencies"], ["libc", "syn", "lowtide-proof"]);
    assert_eq!(sections["target.'cfg(loom)'.dependencies"], ["loom"]);
    assert_eq!(sections["dev-dependencies"], ["x"]);
}
