//! The page's files for the browser: the files in the folder `assets`, which are compiled in, and a generated script
//! with the display names of port kinds.

use std::sync::Arc;

use netvale_control::types::PortKind;

use crate::http::answer::HttpAnswer;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// URL path, content type and text of each file in the folder.
const FILES: [(&str, &str, &str); 16] = [
    ("/", HTML, include_str!("assets/index.html")),
    ("/style.css", CSS, include_str!("assets/style.css")),
    ("/icon.svg", SVG, include_str!("assets/icon.svg")),
    ("/main.js", SCRIPT, include_str!("assets/main.js")),
    ("/server.js", SCRIPT, include_str!("assets/server.js")),
    ("/dom.js", SCRIPT, include_str!("assets/dom.js")),
    ("/format.js", SCRIPT, include_str!("assets/format.js")),
    ("/rates.js", SCRIPT, include_str!("assets/rates.js")),
    ("/charts.js", SCRIPT, include_str!("assets/charts.js")),
    ("/topology.js", SCRIPT, include_str!("assets/topology.js")),
    ("/tables.js", SCRIPT, include_str!("assets/tables.js")),
    ("/flows.js", SCRIPT, include_str!("assets/flows.js")),
    ("/histogram.js", SCRIPT, include_str!("assets/histogram.js")),
    ("/rings.js", SCRIPT, include_str!("assets/rings.js")),
    ("/details.js", SCRIPT, include_str!("assets/details.js")),
    ("/capture.js", SCRIPT, include_str!("assets/capture.js")),
];

/// Returns URL path, content type and text of each file.
pub fn files() -> impl Iterator<Item = (&'static str, &'static str, Arc<str>)> {
    let made = [("/kinds.js", SCRIPT, kinds().into())];
    FILES.into_iter().map(|(path, kind, text)| (path, kind, text.into())).chain(made)
}

/// Returns the script with the display names of port kinds.
fn kinds() -> String {
    let rows = PortKind::ALL.iter().map(|kind| format!("  {}: {:?},\n", kind.as_str(), kind.label()));
    format!("export const KINDS = {{\n{}}};\n", rows.collect::<String>())
}

/// Returns an answer with the file at a URL path; `None` if there is no such file.
#[must_use]
pub fn at(path: &str) -> Option<HttpAnswer> {
    let (_, kind, text) = files().find(|(known, ..)| *known == path)?;
    Some(HttpAnswer::page(kind, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the files load nothing from other hosts, never parse text as HTML elements, and contain no inline
    /// code or style, which the page's Content-Security-Policy forbids.
    #[test]
    fn the_files_load_nothing_from_elsewhere() {
        for (path, _, text) in files() {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in [
                "http:",
                "https:",
                "innerHTML",
                "outerHTML",
                "insertAdjacent",
                "document.write",
                "eval(",
                "<style",
                " style=",
                " onclick=",
            ] {
                assert!(!text.contains(forbidden), "{path}: {forbidden}");
            }
            assert!(path.ends_with(".js") || !text.contains("<script>"), "{path}");
        }
    }

    /// Objective: every file to which another file refers exists.
    #[test]
    fn every_file_referred_to_exists() {
        let is_there = |name: &str| files().any(|(path, ..)| path.strip_prefix('/') == Some(name));
        for (path, _, text) in files() {
            for mark in ["from \"./", "src=\"", "href=\""] {
                for (_, rest) in text.match_indices(mark).map(|(at, _)| text.split_at(at + mark.len())) {
                    let name = rest.split('"').next().unwrap_or_default();
                    assert!(is_there(name) || name.starts_with('#'), "{path}: {name}");
                }
            }
        }
    }
}
