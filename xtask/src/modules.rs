//! Finds a crate's modules, and for each module, the modules of the same crate that its paths name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta, MetaNameValue, UseTree};

/// The path from the crate's root to a module; empty for the root itself.
pub type ModulePath = Vec<String>;

/// A module of a crate, and the modules that it uses.
#[derive(Debug)]
pub struct Module {
    /// The module's path from the crate's root.
    pub path: ModulePath,
    /// The other modules of the crate that the module names.
    pub uses: BTreeSet<ModulePath>,
}

/// A parsed file, before the crate's modules are known.
struct ParsedFile {
    path: ModulePath,
    /// All paths within the crate that the file's code names.
    named: Vec<ModulePath>,
    /// The paths of the names that the file's `use` lines import; such a path may name a re-export.
    imports: BTreeMap<String, ModulePath>,
}

/// Returns the modules of the crate whose root file is `root`, except test modules.
pub fn read(root: &Path) -> Result<Vec<Module>, String> {
    let mut parsed = Vec::new();
    let folder = root.parent().unwrap_or(root);
    read_file(root, folder, Vec::new(), &mut parsed)?;
    Ok(resolve_all(&parsed))
}

fn read_file(file: &Path, folder: &Path, path: ModulePath, out: &mut Vec<ParsedFile>) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let syntax = syn::parse_file(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    read_items(&syntax.items, folder, path, out)
}

fn read_items(items: &[Item], folder: &Path, path: ModulePath, out: &mut Vec<ParsedFile>) -> Result<(), String> {
    let mut names = PathCollector { path: &path, named: Vec::new(), imports: BTreeMap::new() };
    let mut below = Vec::new();
    for item in items.iter().filter(|item| !is_test(attributes(item))) {
        match item {
            Item::Mod(module) => below.push(module),
            item => names.visit_item(item),
        }
    }
    let PathCollector { named, imports, .. } = names;
    out.push(ParsedFile { path: path.clone(), named, imports });
    for module in below {
        read_module(module, folder, &path, out)?;
    }
    Ok(())
}

fn read_module(module: &ItemMod, folder: &Path, parent: &[String], out: &mut Vec<ParsedFile>) -> Result<(), String> {
    let name = module.ident.to_string();
    let path: ModulePath = parent.iter().cloned().chain([name.clone()]).collect();
    let own = folder.join(&name);
    match &module.content {
        Some((_, items)) => read_items(items, &own, path, out),
        None => {
            let file = file_of(module, folder, &name);
            read_file(&file, &own, path, out)
        }
    }
}

/// Returns the file of a module: `name.rs`, `name/mod.rs`, or the path in `#[path]`.
fn file_of(module: &ItemMod, folder: &Path, name: &str) -> PathBuf {
    let told = module.attrs.iter().find_map(|attribute| text_of(attribute, "path"));
    let plain = folder.join(format!("{name}.rs"));
    match told {
        Some(told) => folder.join(told),
        None if plain.exists() => plain,
        None => folder.join(name).join("mod.rs"),
    }
}

/// Returns the text of the attribute `#[NAME = "TEXT"]`; `None` for any other attribute.
pub fn text_of(attribute: &Attribute, name: &str) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(MetaNameValue { path, value: Expr::Lit(ExprLit { lit: Lit::Str(text), .. }), .. })
            if path.is_ident(name) =>
        {
            Some(text.value())
        }
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether the attributes have `#[cfg(test)]`, or `test` as one of several conditions.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let words = list.tokens.to_string();
            words == "test" || words.starts_with("all (test") || words.starts_with("all(test")
        }
        _ => false,
    })
}

/// Collects the paths of one module.
struct PathCollector<'a> {
    path: &'a [String],
    named: Vec<ModulePath>,
    imports: BTreeMap<String, ModulePath>,
}

impl PathCollector<'_> {
    /// Returns the path from the crate's root to which these names lead; `None` if they do not lead into the crate.
    fn absolute(&self, names: &[String]) -> Option<ModulePath> {
        let up = names.iter().take_while(|name| *name == "super").count();
        let (start, rest) = match names.first()?.as_str() {
            "crate" => (&self.path[..0], &names[1..]),
            "self" => (self.path, &names[1..]),
            "super" => (self.path.get(..self.path.len().checked_sub(up)?)?, &names[up..]),
            _ => return None,
        };
        Some(start.iter().chain(rest).cloned().collect())
    }

    fn import(&mut self, tree: &UseTree, lead: &mut Vec<String>) {
        let depth = lead.len();
        match tree {
            UseTree::Path(path) => {
                lead.push(path.ident.to_string());
                self.import(&path.tree, lead);
            }
            UseTree::Name(name) => self.import_one(lead, &name.ident.to_string(), &name.ident.to_string()),
            UseTree::Rename(rename) => self.import_one(lead, &rename.ident.to_string(), &rename.rename.to_string()),
            UseTree::Glob(_) => self.named.extend(self.absolute_or_below(lead)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, lead)),
        }
        lead.truncate(depth);
    }

    fn import_one(&mut self, lead: &[String], name: &str, here: &str) {
        let whole: Vec<String> = lead.iter().cloned().chain((name != "self").then(|| name.to_owned())).collect();
        let Some(target) = self.absolute_or_below(&whole) else { return };
        let here = if name == "self" && here == "self" { lead.last().map_or("", String::as_str) } else { here };
        self.imports.insert(here.to_owned(), target);
    }

    /// Like [`PathCollector::absolute`], but the first name may also be a child of the current module.
    fn absolute_or_below(&self, names: &[String]) -> Option<ModulePath> {
        self.absolute(names).or_else(|| Some(self.path.iter().chain(names).cloned().collect()))
    }
}

impl<'ast> Visit<'ast> for PathCollector<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let before = std::mem::take(&mut self.imports);
        self.import(&item.tree, &mut Vec::new());
        // A re-export does not count as a use here, but only where its name is used.
        if matches!(item.vis, syn::Visibility::Inherited) {
            self.named.extend(self.imports.values().cloned());
        }
        self.imports.extend(before);
    }

    /// `pub(crate)` does not name a module.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.named.extend(self.absolute_or_below(&names));
        syn::visit::visit_path(self, path);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            syn::visit::visit_impl_item_fn(self, function);
        }
    }
}

fn resolve_all(parsed: &[ParsedFile]) -> Vec<Module> {
    let crate_map: BTreeMap<&[String], &ParsedFile> = parsed.iter().map(|p| (p.path.as_slice(), p)).collect();
    let resolve_one = |p: &ParsedFile| {
        let mut uses: BTreeSet<ModulePath> =
            p.named.iter().filter_map(|path| home(&crate_map, path, RE_EXPORTS)).collect();
        uses.remove(&p.path);
        Module { path: p.path.clone(), uses }
    };
    parsed.iter().map(resolve_one).collect()
}

/// Maximum number of re-exports that are followed to find the definition of a name.
const RE_EXPORTS: usize = 8;

/// Follows re-exports, and returns the module that defines the item at a path; `None` if the item is outside this
/// crate.
fn home(crate_map: &BTreeMap<&[String], &ParsedFile>, path: &[String], depth: usize) -> Option<ModulePath> {
    let length = (0..=path.len()).rev().find(|&n| crate_map.contains_key(&path[..n]))?;
    let module = crate_map.get(&path[..length])?;
    let Some((name, rest)) = path[length..].split_first() else { return Some(module.path.clone()) };
    match module.imports.get(name) {
        Some(target) if depth > 0 => {
            let whole: ModulePath = target.iter().chain(rest).cloned().collect();
            home(crate_map, &whole, depth - 1)
        }
        _ => Some(module.path.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &[&str], text: &str, out: &mut Vec<ParsedFile>) {
        let items = syn::parse_file(text).expect("Rust").items;
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        read_items(&items, Path::new("."), path, out).expect("modules");
    }

    fn uses(modules: &[Module], name: &str) -> Vec<String> {
        let module = modules.iter().find(|m| m.path.join("::") == name).expect("a module");
        module.uses.iter().map(|path| path.join("::")).collect()
    }

    /// Objective: paths in `use` and in code, including relative ones, lead to modules, and re-exports to the defining
    /// module; unused re-exports, other crates and tests yield nothing.
    #[test]
    fn paths_lead_to_modules() {
        let mut parsed = Vec::new();
        let root = "
            pub use a::Thing;
            mod a { pub struct Thing; mod deep { use super::super::b; fn f() { b::g() } } }
            mod b { pub(crate) fn g() {} use std::sync::Arc; fn f() -> Arc<crate::Thing> { loop {} } }
            mod c { use crate::{Thing, b as other}; fn f(_: Thing) { other::g(); self::h() } fn h() {} }
            mod d { pub use crate::b::g; #[cfg(test)] mod tests { use crate::c; fn f() { c::h() } } }
        ";
        parse(&[], root, &mut parsed);
        let modules = resolve_all(&parsed);
        assert!(uses(&modules, "").is_empty());
        assert_eq!(uses(&modules, "a::deep"), ["b"]);
        assert_eq!(uses(&modules, "b"), ["a"]);
        assert_eq!(uses(&modules, "c"), ["a", "b"]);
        assert!(uses(&modules, "d").is_empty());
        assert!(modules.iter().all(|m| m.path.join("::") != "d::tests"));
    }
}
