//! Which file of a crate names which other.
//!
//! A file names another if a path in it (a `use`, or a path in the code) leads to an item that the
//! other defines. Names that a `mod.rs` or `lib.rs` only passes on lead to the file behind it, so a
//! table of contents ties nothing together. Tests inside of files do not count.

use crate::files::{root, texts};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

/// A module path below the crate's root: `["writeback", "flush"]`.
type Path = Vec<String>;

/// One crate: its files, and for each the others that it names.
#[derive(Debug)]
pub struct Crate {
    /// Name of its folder.
    pub name: String,
    /// From a file to the files that it names. Each file has an entry.
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// For each type, the files with methods of it, those of traits apart.
    pub methods: BTreeMap<String, BTreeSet<String>>,
}

/// What one file has.
#[derive(Default)]
struct Module {
    file: String,
    /// What a `use` brings in, by the name that it has here.
    aliases: BTreeMap<String, Path>,
    /// Modules of which all names are brought in.
    globs: Vec<Path>,
    /// Every path that is named, `use` or not, from the crate's root.
    paths: Vec<Path>,
    methods: BTreeSet<String>,
}

/// All crates below `crates/`.
///
/// # Panics
/// If a source does not parse.
#[must_use]
pub fn crates() -> Vec<Crate> {
    let mut modules: BTreeMap<String, BTreeMap<Path, Module>> = BTreeMap::new();
    for text in texts() {
        let inside = text.path.strip_prefix("crates/").or(text.path.strip_prefix("lab/"));
        let Some((name, file)) = inside.and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        let Some(file) = file.strip_suffix(".rs") else { continue };
        let mut path: Path = file.split('/').map(str::to_owned).collect();
        if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            path.pop();
        }
        let source = syn::parse_file(&text.content)
            .unwrap_or_else(|e| panic!("{}: {e}", root().join(&text.path).display()));
        let mut reader = Reader { at: path.clone(), module: Module::default() };
        reader.visit_file(&source);
        let module = Module { file: format!("{file}.rs"), ..reader.module };
        modules.entry(name.to_owned()).or_default().insert(path, module);
    }
    modules.into_iter().map(|(name, modules)| of_modules(name, &modules)).collect()
}

fn of_modules(name: String, modules: &BTreeMap<Path, Module>) -> Crate {
    let mut names = BTreeMap::new();
    let mut methods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for module in modules.values() {
        let named = module.paths.iter().filter_map(|path| home(modules, path, 0));
        let others = named.filter(|file| *file != module.file);
        names.insert(module.file.clone(), others.collect());
        for subject in &module.methods {
            methods.entry(subject.clone()).or_default().insert(module.file.clone());
        }
    }
    Crate { name, names, methods }
}

/// The file that defines what a path names.
fn home(modules: &BTreeMap<Path, Module>, path: &[String], depth: usize) -> Option<String> {
    // Names may be passed on in a circle only by mistake; the compiler would refuse it.
    if depth > 16 {
        return None;
    }
    let longest = (0..=path.len()).rev().find(|&n| modules.contains_key(&path[..n]))?;
    let module = &modules[&path[..longest]];
    let Some(item) = path.get(longest) else {
        // A module as such: a table of contents is no home of anything.
        return None;
    };
    if let Some(target) = module.aliases.get(item) {
        let mut whole = target.clone();
        whole.extend_from_slice(&path[longest + 1..]);
        return home(modules, &whole, depth + 1);
    }
    for glob in &module.globs {
        let mut whole = glob.clone();
        whole.extend_from_slice(&path[longest..]);
        if modules.get(glob).is_some_and(|m| m.aliases.contains_key(item)) {
            return home(modules, &whole, depth + 1);
        }
    }
    Some(module.file.clone())
}

struct Reader {
    /// The module that is being read.
    at: Path,
    module: Module,
}

impl Reader {
    /// A path as it is written, from the crate's root; `None` if it leads elsewhere.
    fn whole(&self, written: &[String]) -> Option<Path> {
        let (first, rest) = written.split_first()?;
        let mut whole = match first.as_str() {
            "crate" => Path::new(),
            "self" => self.at.clone(),
            "super" => self.at[..self.at.len().checked_sub(1)?].to_vec(),
            // A child of this module, or something from outside.
            _ => {
                let mut whole = self.at.clone();
                whole.push(first.clone());
                whole
            }
        };
        for part in rest {
            match part.as_str() {
                "super" => drop(whole.pop()?),
                "self" => {}
                _ => whole.push(part.clone()),
            }
        }
        Some(whole)
    }

    fn tree(&mut self, tree: &UseTree, before: &mut Path) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(&path.tree, before);
                before.pop();
            }
            UseTree::Name(name) => self.bring(before, &name.ident.to_string(), None),
            UseTree::Rename(rename) => {
                self.bring(before, &rename.ident.to_string(), Some(rename.rename.to_string()));
            }
            UseTree::Glob(_) => self.module.globs.extend(self.whole(before)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree, before)),
        }
    }

    fn bring(&mut self, before: &[String], name: &str, alias: Option<String>) {
        let mut written = before.to_vec();
        if name != "self" {
            written.push(name.to_owned());
        }
        let Some(whole) = self.whole(&written) else { return };
        let alias = alias.or_else(|| written.last().cloned());
        if let Some(alias) = alias.filter(|alias| alias != "_") {
            self.module.aliases.insert(alias, whole.clone());
        }
        self.module.paths.push(whole);
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.path().is_ident("cfg").then(|| attribute.meta.require_list());
        matches!(list, Some(Ok(list)) if list.tokens.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        if is_test(attributes) {
            return;
        }
        if let Item::Impl(item) = item
            && item.trait_.is_none()
            && let syn::Type::Path(subject) = &*item.self_ty
            && let Some(last) = subject.path.segments.last()
        {
            self.module.methods.insert(last.ident.to_string());
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_some() {
            self.at.push(item.ident.to_string());
            syn::visit::visit_item_mod(self, item);
            self.at.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&item.tree, &mut Path::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let written: Path = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if written.len() > 1 && ["crate", "super", "self"].contains(&written[0].as_str()) {
            self.module.paths.extend(self.whole(&written));
        }
        syn::visit::visit_path(self, path);
    }
}

/// The circles of a crate, the largest first: files that name each other, directly or by way of
/// others.
#[must_use]
pub fn circles(names: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        names.keys().map(|file| (file, reached(names, file))).collect();
    let mut left: BTreeSet<&String> = names.keys().collect();
    let mut circles = Vec::new();
    while let Some(file) = left.pop_first() {
        let circle: Vec<&String> = left
            .iter()
            .copied()
            .filter(|f| reach[file].contains(f) && reach[f].contains(file))
            .collect();
        left.retain(|file| !circle.contains(file));
        if !circle.is_empty() {
            circles.push(std::iter::once(file).chain(circle).cloned().collect::<Vec<_>>());
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reached<'a>(names: &'a BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&String> = names[from].iter().collect();
    while let Some(file) = next.pop() {
        if found.insert(file) {
            next.extend(&names[file]);
        }
    }
    found
}
