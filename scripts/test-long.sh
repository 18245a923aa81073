#!/usr/bin/env bash
# test-long.sh [STAGE…]: tests that take long and whose subject changes seldom; `make test` and `make test-system` do
# not run them.
#
#   FUZZ_SECONDS=30      time for each fuzz target
#   SOAK_MINUTES=10      time for the soak test; SEED=n repeats one
#   STRICT=1, RECORD=1   as for test.sh
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# The tarball builds with nothing but itself and a compiler.
stage_dist() {
    local archive
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    archive=$(scripts/package-dist.sh "$work") || return 1
    tar -x -C "$work" -f "$archive" || return 1
    cd "$work"/netvale-*/ || return 1
    CARGO_HOME=$work/cargo CARGO_TARGET_DIR=$work/target cargo build --offline --frozen --profile test --package netvale-cli --package netvale-capi \
        --package netvale-pcap --package netvale-bench || return 1
    "$work/target/debug/netvale" --version
}

# Every crate compiles with the oldest Rust that the manifest allows.
stage_oldest() {
    have rustup || skip "no rustup to install Rust $oldest"
    timeout 300 rustup toolchain install "$oldest" --profile minimal >/dev/null 2>&1 || skip "rustup could not install Rust $oldest (offline?)"
    CARGO_TARGET_DIR=$target_dir/oldest cargo "+$oldest" check --workspace --all-targets --locked
}

# As make test-system does, but with the static program.
stage_image() {
    [ "$(id -u)" = 0 ] || skip "switching users requires root"
    PROFILE=test scripts/packages-test.sh image
}

# The kind of port that docs/internals/adding-a-port-kind.md adds: it must work, and need no more files than the page
# lists.
stage_kind() {
    local patch=docs/internals/loop.patch files crates
    files=$(grep -c '^diff --git' $patch)
    crates=$(sed -n 's#^diff --git a/\(crates/[^ ]*\)/\(src\|tests\)/.*#\1#p' $patch | sort -u | wc -l)
    if [ "$files" -gt 8 ] || [ "$crates" -gt 3 ]; then
        echo "a kind of port needs $files files in $crates crates"
        return 1
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    git ls-files -z | tar --null --files-from=- --create | tar -x -C "$work" || return 1
    cd "$work" && git apply $patch || return 1
    export CARGO_TARGET_DIR=$target_dir/kind
    cargo test --package netvale-portspec --test it documented &&
        cargo test --package netvale-daemon --test it measuring && cargo test --package netvale-daemon --lib schema &&
        cargo test --package netvale-control --test it && cargo test --package netvale-cli --lib attach
}

# Undefined behaviour in the crates that do not need the kernel. Tests that need a mapping or a socket are marked as
# ignored under Miri. Property tests run few cases: Miri is some hundred times slower.
stage_miri() {
    cargo +nightly miri --version >/dev/null 2>&1 || skip "Miri is not installed (rustup toolchain install nightly --component miri)"
    export MIRIFLAGS=${MIRIFLAGS:--Zmiri-disable-isolation} PROPTEST_CASES=${MIRI_PROPTEST_CASES:-4}
    cargo +nightly miri setup >/dev/null 2>&1 || skip "Miri's standard library could not be built (rustup component add rust-src --toolchain nightly)"
    cargo +nightly miri test --lib --tests --no-fail-fast \
        -p netvale-abi -p netvale-portspec -p netvale-wire || return 1
    cargo +nightly miri test --lib -p netvale-mem
}

# Other projects' programs, built from source, on netmap.
stage_judges() {
    local netvale=$target_dir/debug/netvale script
    cargo build --profile test --package netvale-cli --package netvale-capi --package netvale-pcap || return 1
    for script in tests/judges/*.sh; do NETVALE=$netvale "$script" || return; done
}

stage_fuzz() {
    have c++ || skip "no C++ compiler for libFuzzer (install g++)"
    scripts/fuzz.sh all "${FUZZ_SECONDS:-30}"
}

stage_soak() {
    scripts/soak.sh "${SOAK_MINUTES:-10}" --quiet
}

stage_publish() {
    scripts/publish-check.sh
}

# The papers' figures whose shape is known, in short runs.
stage_papers() {
    [ "$(id -u)" = 0 ] || skip "network namespaces need root"
    scripts/papers.sh --quick
}

# The crates of the packet path, on ARM.
stage_arm() {
    scripts/arm.sh test
}

if [ "${1:-}" = --inside ]; then
    "stage_$2"
    exit
fi

need_rust
stages_begin
[ $# -gt 0 ] || set -- dist oldest kind image publish arm miri judges papers fuzz soak
for name in "$@"; do
    stage "$name" 3600 "$0" --inside "$name"
done
stages_summary test-long
