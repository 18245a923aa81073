#!/usr/bin/env bash
# check.sh: all checks of the tree that run no tests.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

deny=$tools_dir/bin/cargo-deny
[ -x "$deny" ] || deny=$(command -v cargo-deny || true)

xtask() {
    stage "$1" 300 cargo run --quiet --package xtask -- "$1"
}

stage_deny() {
    [ -n "$deny" ] || skip "cargo-deny is not installed (scripts/install-deps.sh check)"
    "$deny" --log-level error check licenses bans sources
}

# The advisory database is downloaded; without a network, a copy from an earlier run is used.
stage_advisories() {
    [ -n "$deny" ] || skip "cargo-deny is not installed (scripts/install-deps.sh check)"
    if timeout 60 "$deny" fetch db >/dev/null 2>&1; then
        "$deny" --log-level error check advisories
    elif compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/" >/dev/null; then
        echo "cannot download the advisory database; using the copy from an earlier run"
        "$deny" --log-level error --offline check advisories
    else
        skip "cannot download the advisory database (offline?)"
    fi
}

# Instructions per frame are counted in the release build.
stage_cost() {
    have valgrind || skip "valgrind is not installed (scripts/install-deps.sh check)"
    cargo build --quiet --release --package netvale-bench || return 1
    "$target_dir/release/netvale-bench" cost --budgets docs/internals/budgets.toml
}

if [ "${1:-}" = --inside ]; then
    "stage_$2"
    exit
fi

need_rust
stages_begin
stage format 60 cargo fmt --all --check
stage format-fuzz 60 cargo fmt --manifest-path fuzz/Cargo.toml --check
stage clippy 600 cargo clippy --quiet --workspace --all-targets -- -D warnings
stage clippy-fuzz 600 env RUSTFLAGS='--cfg fuzzing' cargo clippy --quiet --manifest-path fuzz/Cargo.toml --target-dir "$target_dir/fuzz" -- -D warnings
stage arm 1800 scripts/arm.sh check
stage rustdoc 600 env RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps
xtask layers
xtask circles
xtask unsafe-gate
xtask names
xtask words
xtask links
xtask glossary
xtask test-targets
xtask module-tables
xtask counters
stage cost 1800 "$0" --inside cost
stage cargo-deny 120 "$0" --inside deny
stage advisories 180 "$0" --inside advisories
stages_summary check
