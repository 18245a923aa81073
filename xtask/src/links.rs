//! `links`: checks every link between pages, every path of a page that a file names, and the lists of pages.
//!
//! - A link in a tracked Markdown file leads to a tracked file or folder; the part after `#` is a heading of that page.
//! - Each page that any tracked file names as `docs/….md` exists, and so does each source that a page names by its
//!   path.
//! - Each page below `docs` is listed in the book (docs/SUMMARY.md), and each decision is listed in docs/adr/index.md.
//!
//! Web addresses are not checked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::Findings;
use crate::files::tracked_files;

const SUMMARY: &str = "docs/SUMMARY.md";
const DECISIONS: &str = "docs/adr/index.md";

/// A page's links and anchors.
#[derive(Default)]
struct LinkPage {
    /// Targets of the page's links, as written on the page, each with its line number.
    links: Vec<(usize, String)>,
    /// Anchors of the page's headings.
    anchors: BTreeSet<String>,
}

/// Checks the files that git tracks below `root`.
pub fn run(root: &Path) -> Result<Findings, String> {
    let files: BTreeSet<String> = tracked_files(root)?.into_iter().filter(|name| root.join(name).exists()).collect();
    let mut pages = BTreeMap::new();
    let mut findings = Vec::new();
    for name in &files {
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        // The tests below name missing pages.
        if name != "xtask/src/links.rs" {
            findings.extend(missing_files(name, &text, &files));
        }
        if name.ends_with(".md") {
            pages.insert(name.clone(), LinkPage::read(&text));
        }
    }
    for (name, page) in &pages {
        for (line, link) in &page.links {
            findings.extend(broken(name, link, &files, &pages).map(|why| format!("{name}:{line}: {link}: {why}")));
        }
    }
    findings.extend(unlisted(SUMMARY, "docs/", &pages));
    findings.extend(unlisted(DECISIONS, "docs/adr/", &pages));
    Ok(findings)
}

impl LinkPage {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let mut seen: HashMap<String, usize> = HashMap::new();
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = text[..range.start].matches('\n').count() + 1;
                    page.links.push((line, dest_url.into_string()));
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    let slug = slug(&heading.take().unwrap_or_default());
                    let before = seen.entry(slug.clone()).or_default();
                    page.anchors.insert(if *before == 0 { slug } else { format!("{slug}-{before}") });
                    *before += 1;
                }
                _ => {}
            }
        }
        page
    }
}

/// Returns the anchor of a heading: lower case, words joined by hyphens, without punctuation.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Returns the reason why a link on page `from` is broken; `None` if the link is not broken.
fn broken(from: &str, link: &str, files: &BTreeSet<String>, pages: &BTreeMap<String, LinkPage>) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { from.to_owned() } else { resolve(from, path) };
    if !is_there(&target, files) {
        return Some(format!("there is no {target}"));
    }
    let page = pages.get(&target).filter(|_| !anchor.is_empty())?;
    (!page.anchors.contains(anchor)).then(|| format!("{target} has no heading for #{anchor}"))
}

/// Converts a path that is relative to page `from` to a path from the tree's root.
fn resolve(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Returns whether a file of this name, or a folder with tracked files, exists.
fn is_there(name: &str, files: &BTreeSet<String>) -> bool {
    let folder = format!("{name}/");
    files.contains(name) || files.range(folder.clone()..).next().is_some_and(|first| first.starts_with(&folder))
}

/// Folders whose files are named by their path from the root: on pages all these folders, in other files only `docs`.
const FOLDERS: [&str; 6] = ["docs/", "crates/", "fuzz/", "guest/", "scripts/", "xtask/"];

/// Returns findings for files that are named by their path from the root and do not exist: on a page, all files are
/// checked, in other files only pages.
fn missing_files(name: &str, text: &str, files: &BTreeSet<String>) -> Findings {
    let page = name.ends_with(".md");
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for folder in FOLDERS.iter().filter(|folder| page || **folder == "docs/") {
            let paths = line.match_indices(folder).filter_map(|(at, _)| path_at(line, at));
            let gone = paths.filter(|path| (page && path.contains('.')) || path.ends_with(".md"));
            let gone = gone.filter(|path| !is_there(path, files) && !is_there(&resolve(name, path), files));
            findings.extend(gone.map(|path| format!("{name}:{}: there is no {path}", index + 1)));
        }
    }
    findings
}

/// Returns the path that begins at `at`; `None` if it is the end of a longer path.
fn path_at(line: &str, at: usize) -> Option<&str> {
    let of_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let rest = &line[at..];
    let end = rest.find(|c| !of_path(c)).unwrap_or(rest.len());
    (!line[..at].ends_with(of_path)).then(|| rest[..end].trim_end_matches(['.', '/', '-']))
}

/// Returns the pages below `folder` that are missing in `list`.
fn unlisted(list: &str, folder: &str, pages: &BTreeMap<String, LinkPage>) -> Findings {
    let listed: BTreeSet<String> = pages
        .get(list)
        .map(|page| page.links.iter().map(|(_, link)| resolve(list, link)).collect())
        .unwrap_or_default();
    let below = pages.keys().filter(|name| name.starts_with(folder) && *name != SUMMARY && *name != list);
    below.filter(|name| !listed.contains(*name)).map(|name| format!("{name}: {list} does not list it")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pages: &[(&str, &str)]) -> Vec<String> {
        let files = pages.iter().map(|(name, _)| (*name).to_owned()).collect();
        let pages: BTreeMap<_, _> =
            pages.iter().map(|(name, text)| ((*name).to_owned(), LinkPage::read(text))).collect();
        let links = pages.iter().flat_map(|(name, page)| page.links.iter().map(move |(_, link)| (name, link)));
        links.filter_map(|(name, link)| broken(name, link, &files, &pages)).collect()
    }

    /// Objective: links to files, folders and headings are resolved relative to their page, and broken links are found.
    #[test]
    fn links_are_followed() {
        let a = "# A title, `code`\n[b](../b.md#one-two) [here](#a-title-code) [folder](../x) [web](https://x.y/z)\n";
        let good = [("docs/a.md", a), ("b.md", "## One: *two*\n"), ("x/y.rs", "")];
        assert_eq!(check(&good), Vec::<String>::new());
        let bad = [("docs/a.md", "[b](../b.md#three) ![gone](gone.svg)\n"), ("b.md", "## One\n")];
        assert_eq!(check(&bad), ["b.md has no heading for #three", "there is no docs/gone.svg"]);
    }

    /// Objective: the anchor of a second heading with the same text has a number; links in code blocks are ignored.
    #[test]
    fn headings_are_numbered_and_code_is_skipped() {
        let page = LinkPage::read("# A\n# A\n```\n[x](y)\n```\n");
        assert_eq!(page.anchors.into_iter().collect::<Vec<_>>(), ["a", "a-1"]);
        assert!(page.links.is_empty());
    }

    /// Objective: a path in a comment is checked, unless it belongs to another project.
    #[test]
    fn paths_in_sources_are_checked() {
        let files = BTreeSet::from(["docs/a.md".to_owned()]);
        let text = "// docs/a.md\n// docs/b.md, crates/x.rs\n// qemu/docs/c.md\n";
        assert_eq!(missing_files("x.rs", text, &files), ["x.rs:2: there is no docs/b.md"]);
        let found = ["x.md:2: there is no docs/b.md", "x.md:2: there is no crates/x.rs"];
        assert_eq!(missing_files("x.md", text, &files), found);
    }

    /// Objective: a page missing from the lists is found.
    #[test]
    fn unlisted_pages_are_found() {
        let texts = [("docs/SUMMARY.md", "[a](a.md)"), ("docs/a.md", ""), ("docs/b.md", "")];
        let pages = texts.into_iter().map(|(name, text)| (name.to_owned(), LinkPage::read(text))).collect();
        assert_eq!(unlisted(SUMMARY, "docs/", &pages), ["docs/b.md: docs/SUMMARY.md does not list it"]);
    }
}
