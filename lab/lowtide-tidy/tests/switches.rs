//! The documentation of each policy switch names the functions that read it, and no other.

use lowtide_tidy::texts;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

const SOURCES: &str = "crates/lowtide-core/src/";
const POLICY: &str = "policy.rs";

/// For each switch, the functions that read it, as `file.rs: function`.
type Readers = BTreeMap<String, BTreeSet<String>>;

/// Finds `Switches::NAME` in the functions of one file, tests apart.
struct Reader<'a> {
    file: &'a str,
    function: String,
    found: &'a mut Readers,
}

impl Reader<'_> {
    fn inside(&mut self, function: &syn::Ident, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.function, function.to_string());
        visit(self);
        self.function = outer;
    }
}

fn is_test(module: &syn::ItemMod) -> bool {
    module.ident == "tests"
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(item) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.inside(&item.sig.ident, |reader| syn::visit::visit_item_fn(reader, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.inside(&item.sig.ident, |reader| syn::visit::visit_impl_item_fn(reader, item));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let [.., switches, name] = &parts[..]
            && switches == "Switches"
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
        {
            let place = format!("{}: {}", self.file, self.function);
            self.found.entry(name.clone()).or_default().insert(place);
        }
        syn::visit::visit_path(self, path);
    }
}

fn read() -> Readers {
    let mut found = Readers::new();
    for text in texts() {
        let Some(file) = text.path.strip_prefix(SOURCES) else { continue };
        if file == POLICY || !file.ends_with(".rs") || file.contains("tests") {
            continue;
        }
        let source = syn::parse_file(&text.content).expect("a source that compiles");
        let function = String::new();
        Reader { file, function, found: &mut found }.visit_file(&source);
    }
    found
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Each switch with the readers that its documentation names, and the documentation.
fn documented() -> BTreeMap<String, (BTreeSet<String>, String)> {
    let policy = texts().into_iter().find(|text| text.path == format!("{SOURCES}{POLICY}"));
    let policy = policy.expect("the policies are there");
    let (mut switches, mut about) = (BTreeMap::new(), String::new());
    for line in policy.content.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            about += comment;
        } else if let Some((name, _)) =
            line.strip_prefix("const ").and_then(|rest| rest.split_once(" = 1 <<"))
        {
            let mut readers = BTreeSet::new();
            let mut file = "";
            let sentence = about.split_once("Read in ").map_or("", |(_, sentence)| sentence);
            for name in quoted(sentence) {
                if name.ends_with(".rs") {
                    file = name;
                } else {
                    readers.insert(format!("{file}: {name}"));
                }
            }
            switches.insert(name.to_owned(), (readers, std::mem::take(&mut about)));
        } else {
            about.clear();
        }
    }
    switches
}

#[test]
fn the_documentation_of_a_switch_names_all_its_readers() {
    let (read, documented) = (read(), documented());
    assert!(documented.len() > 20, "there are {} switches", documented.len());
    let mut wrong = Vec::new();
    for (name, (named, about)) in &documented {
        let actual = read.get(name).cloned().unwrap_or_default();
        if *named != actual {
            wrong.push(format!("{name} is read in {actual:?}, its documentation says {named:?}"));
        }
        if actual.is_empty() && !about.contains("No effect on behaviour") {
            wrong.push(format!("{name} is read nowhere, and its documentation does not say so"));
        }
    }
    wrong.extend(read.keys().filter(|name| !documented.contains_key(*name)).cloned());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
