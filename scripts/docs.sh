#!/usr/bin/env bash
# docs.sh: checks the links of all pages, and builds a book of them with mdBook: target/book/html/index.html.
#
# The book is built from a copy of the tree, so that links, including those to sources, work in both.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"

cargo run --quiet --package xtask -- links
mdbook=$tools_dir/bin/mdbook
[ -x "$mdbook" ] || mdbook=$(command -v mdbook) || { echo "skipped: the book: mdbook is not installed (scripts/install-deps.sh docs)" && exit; }

book=$target_dir/book
rm -rf "$book"
mkdir -p "$book/src"
cp docs/book.toml "$book/"
git ls-files -z | xargs -0 cp --parents -t "$book/src"
# The book's own list of pages is at the top.
sed -e 's#](\.\./#](#; t' -e 's#](#](docs/#' docs/SUMMARY.md >"$book/src/SUMMARY.md"
rm "$book/src/docs/SUMMARY.md"
"$mdbook" build "$book"
echo "the book: $book/html/index.html"
