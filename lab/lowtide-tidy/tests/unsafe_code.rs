//! CONTRIBUTING.md says where unsafe code may be, and names every crate.

use lowtide_tidy::{parts, root, texts};
use std::collections::BTreeSet;
use std::fs;
use syn::visit::Visit;

/// Whether a source has unsafe code.
struct Unsafe(bool);

impl<'ast> Visit<'ast> for Unsafe {
    fn visit_expr_unsafe(&mut self, _: &'ast syn::ExprUnsafe) {
        self.0 = true;
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.0 |= item.unsafety.is_some();
        syn::visit::visit_item_impl(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.0 |= signature.unsafety.is_some();
    }

    fn visit_item_foreign_mod(&mut self, _: &'ast syn::ItemForeignMod) {
        self.0 = true;
    }
}

/// Names of crates in a text, without what all begin with.
fn named(text: &str) -> BTreeSet<String> {
    let names = parts(text, true).filter_map(|part| {
        let name = part.strip_prefix("lowtide").unwrap_or(part);
        let is_short = name.starts_with('-') && part.len() < 24;
        (is_short || name.is_empty()).then(|| name.trim_start_matches('-').to_owned())
    });
    names.collect()
}

#[test]
fn the_rule_about_unsafe_code_names_every_crate() {
    let (mut has, mut forbids) = (BTreeSet::new(), BTreeSet::new());
    for text in texts().into_iter().filter(|text| text.kind() == "rs") {
        let inside = text.path.strip_prefix("crates/").or(text.path.strip_prefix("lab/"));
        let Some((folder, file)) = inside.and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        let name = folder.strip_prefix("lowtide").unwrap_or(folder).trim_start_matches('-');
        let mut found = Unsafe(false);
        found.visit_file(&syn::parse_file(&text.content).expect("Rust"));
        if found.0 {
            has.insert(name.to_owned());
        }
        if ["lib.rs", "main.rs"].contains(&file)
            && text.content.contains("\n#![forbid(unsafe_code)]\n")
        {
            forbids.insert(name.to_owned());
        }
    }
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("the rules");
    let rules = page.split("\n* ");
    let rule = rules.into_iter().find(|rule| rule.starts_with("**Unsafe code")).expect("the rule");
    let rule = rule.split_whitespace().collect::<Vec<_>>().join(" ");
    let (may, must_not) = rule.split_once("These forbid it:").expect("both lists");
    assert_eq!(named(may), has, "left: CONTRIBUTING.md, right: crates with unsafe code");
    assert_eq!(named(must_not), forbids, "left: CONTRIBUTING.md, right: crates that forbid it");
}
