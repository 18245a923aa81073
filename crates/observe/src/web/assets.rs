//! The page's files, as they lie beside this one: what a browser gets, and all of it.

use std::sync::Arc;

use crate::http::answer::Answer;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Path, type and text of each file.
pub const FILES: [(&str, &str, &str); 15] = [
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
    ("/histogram.js", SCRIPT, include_str!("assets/histogram.js")),
    ("/rings.js", SCRIPT, include_str!("assets/rings.js")),
    ("/details.js", SCRIPT, include_str!("assets/details.js")),
    ("/capture.js", SCRIPT, include_str!("assets/capture.js")),
];

/// The file at a path.
#[must_use]
pub fn at(path: &str) -> Option<Answer> {
    let (_, kind, text) = FILES.iter().find(|(known, ..)| *known == path)?;
    Some(Answer::page(kind, Arc::from(*text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: nothing in the files is from elsewhere, or makes elements of texts, or is code or style within the
    /// page, which its policy forbids.
    #[test]
    fn own_and_plain() {
        for (path, _, text) in FILES {
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

    /// Objective: all that a file refers to is there.
    #[test]
    fn complete() {
        let is_there = |name: &str| FILES.iter().any(|(path, ..)| path.strip_prefix('/') == Some(name));
        for (path, _, text) in FILES {
            for mark in ["from \"./", "src=\"", "href=\""] {
                for (_, rest) in text.match_indices(mark).map(|(at, _)| text.split_at(at + mark.len())) {
                    let name = rest.split('"').next().unwrap_or_default();
                    assert!(is_there(name) || name.starts_with('#'), "{path}: {name}");
                }
            }
        }
    }
}
