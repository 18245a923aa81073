//! Compares the options' reference page with the table from which it is generated.

use std::path::Path;

use netvale_control::options::page::page;

/// Objective: the page in the tree matches the table; `UPDATE=1` writes it.
#[test]
fn the_reference_page_matches_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/attach-options.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, page()).expect("written");
    }
    let there = std::fs::read_to_string(&file).expect("the page");
    assert!(there == page(), "UPDATE=1 cargo test -p netvale-control --test options writes {}", file.display());
}
