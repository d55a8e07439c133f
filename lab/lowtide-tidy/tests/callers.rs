//! A public method of `lowtide` has a caller: a method that is frozen cannot go any more, and one
//! that nothing calls is a promise without a user.
//!
//! Callers are what a user could have written: the command, the bindings, the library of `run`,
//! `lowtide-memmap2`, examples, benchmarks, the laboratory, and the programs of README and the
//! guide. Tests of `lowtide` itself are none, nor are examples in its own comments. Methods are
//! known by their names alone, so one whose name is common (`len`, `read_at`) always has a caller;
//! the test finds what was added for completeness, and what lost its last caller.
//!
//! A method without a caller leaves, or becomes `pub(crate)`, or is listed in [`PROMISED`] with the
//! document that promises it. What tests alone need is in `instruments.rs`, which promises nothing.

use lowtide_tidy::{Text, texts};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// Methods that no program calls yet, each with the document that promises it and why.
const PROMISED: [(&str, &str); 3] = [
    ("is_break", "`Flow`: `lowtide` itself asks what a closure answered"),
    ("move_to", "docs/guide/tenants.md: a tree changes while it is used"),
    ("stable_writes", "lowtide/src/lib.rs: what a power cut leaves of a sector"),
];

/// Public methods of the files of `lowtide`: where each name is defined.
#[derive(Default)]
struct Methods {
    file: String,
    found: BTreeMap<String, String>,
}

impl Visit<'_> for Methods {
    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        let of_tests = |attr: &syn::Attribute| {
            attr.path().is_ident("cfg")
                && matches!(&attr.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
        };
        if !module.attrs.iter().any(of_tests) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        for member in item.items.iter().filter(|_| item.trait_.is_none()) {
            if let syn::ImplItem::Fn(method) = member
                && matches!(method.vis, syn::Visibility::Public(_))
            {
                self.found.insert(method.sig.ident.to_string(), self.file.clone());
            }
        }
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        if matches!(item.vis, syn::Visibility::Public(_)) {
            for member in &item.items {
                if let syn::TraitItem::Fn(method) = member {
                    self.found.insert(method.sig.ident.to_string(), self.file.clone());
                }
            }
        }
    }
}

/// Names after a dot or two colons, comments apart: what a text calls, or passes on.
fn called(code: &str, names: &mut BTreeSet<String>) {
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for (at, _) in line.match_indices(['.', ':']) {
            let after = &line[at + 1..];
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            // A field is followed by neither; a path may be passed on without a call.
            let rest = &after[end..];
            let is_path = line[..at].ends_with(':');
            if end > 0 && (rest.starts_with('(') || rest.starts_with("::<") || is_path) {
                names.insert(after[..end].to_owned());
            }
        }
    }
}

/// The programs of a page: its blocks of Rust.
fn programs(page: &str) -> String {
    let blocks = page.split("```").skip(1).step_by(2);
    blocks.filter(|block| block.starts_with("rust")).collect()
}

/// Folders of the crates that use `lowtide`.
fn users(all: &[Text]) -> Vec<String> {
    let uses = |manifest: &str| {
        manifest.lines().any(|line| line.starts_with("lowtide =") || line.starts_with("lowtide."))
    };
    let manifests = all.iter().filter(|text| text.path.ends_with("Cargo.toml"));
    let folders = manifests.filter(|text| uses(&text.content)).filter_map(|text| {
        let folder = text.path.strip_suffix("Cargo.toml")?;
        // The root only says where crates are.
        (!folder.is_empty() && folder != "crates/lowtide/").then(|| folder.to_owned())
    });
    folders.chain(["crates/lowtide/examples/".to_owned()]).collect()
}

#[test]
fn each_public_method_has_a_caller() {
    let all = texts();
    let mut methods = Methods::default();
    for text in &all {
        let is_source = text.path.starts_with("crates/lowtide/src/") && text.kind() == "rs";
        if is_source && !text.path.ends_with("/instruments.rs") {
            methods.file.clone_from(&text.path);
            methods.visit_file(&syn::parse_file(&text.content).expect("Rust"));
        }
    }
    assert!(methods.found.len() > 150, "found {}", methods.found.len());
    let users = users(&all);
    assert!(users.len() > 8, "{users:?}");
    let mut names = BTreeSet::new();
    for text in &all {
        if text.kind() == "rs" && users.iter().any(|folder| text.path.starts_with(folder)) {
            called(&text.content, &mut names);
        } else if text.path == "README.md" || text.path.starts_with("docs/guide/") {
            called(&programs(&text.content), &mut names);
        }
    }
    let promised: BTreeSet<&str> = PROMISED.iter().map(|(name, _)| *name).collect();
    let left: Vec<_> = methods.found.iter().filter(|(name, _)| !names.contains(*name)).collect();
    let news: Vec<_> = left.iter().filter(|(name, _)| !promised.contains(name.as_str())).collect();
    assert!(news.is_empty(), "no program calls (see this test's head): {news:#?}");
    let kept: BTreeSet<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
    let called: Vec<_> = promised.difference(&kept).collect();
    assert!(called.is_empty(), "is called, or is gone: take it off the list: {called:?}");
}

#[test]
fn calls_are_told_from_fields_and_comments() {
    let mut names = BTreeSet::new();
    let code = "a.call()?.field;\n// b.said()\nlist.map(View::passed).turbo::<u8>() + x.y.z";
    called(code, &mut names);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["call", "map", "passed", "turbo"]);
    assert_eq!(
        programs("a ```sh\nb.c()\n``` d\n```rust,no_run\ne.f()\n```"),
        "rust,no_run\ne.f()\n"
    );
}
