#!/usr/bin/env bash
# test-long.sh [STAGE…]: tests that take long and whose subject changes seldom; `make test` goes without them.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# The tarball builds with nothing but itself and a compiler.
stage_dist() {
    local work archive
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    archive=$(scripts/package-dist.sh "$work") || return 1
    tar -x -C "$work" -f "$archive" || return 1
    cd "$work"/netvale-*/ || return 1
    CARGO_HOME=$work/cargo CARGO_TARGET_DIR=$work/target cargo build --offline --frozen --profile test --package netvale-cli --package netvale-capi \
        --package netvale-pcap --package netvale-bench || return 1
    "$work/target/debug/netvale" --version
}

# Every crate compiles with the Rust that the manifest calls the oldest.
stage_oldest() {
    have rustup || skip "no rustup to install Rust $oldest"
    timeout 300 rustup toolchain install "$oldest" --profile minimal >/dev/null 2>&1 || skip "rustup could not install Rust $oldest (offline?)"
    CARGO_TARGET_DIR=$target_dir/oldest cargo "+$oldest" check --workspace --all-targets --locked
}

# As make test does, with the static program.
stage_image() {
    [ "$(id -u)" = 0 ] || skip "becoming other users needs root"
    PROFILE=test scripts/packages-test.sh image
}

# More of what make test does for a short time.
stage_fuzz() {
    FUZZ_SECONDS=30 scripts/test.sh fuzz
}

stage_soak() {
    scripts/soak.sh 10 --quiet
}

stage_publish() {
    scripts/publish-check.sh
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
[ $# -gt 0 ] || set -- dist oldest image publish arm fuzz soak
for name in "$@"; do
    stage "$name" 3600 "$0" --inside "$name"
done
stages_summary
