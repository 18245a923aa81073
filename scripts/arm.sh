#!/usr/bin/env bash
# arm.sh check|test: tests whether netvale compiles for 64-bit ARM, and whether its core works there.
#
#   check   type-checks the whole workspace with its tests; needs Rust's target, but no linker
#   test    runs the tests of the packet path's crates under qemu-user
#
# Prints what is skipped and exits with status 77 if the target or the tools are not available.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

target=aarch64-unknown-linux-gnu
packages=(netvale-abi netvale-wire netvale-mem netvale-virtio netvale-port netvale-switch)
export CARGO_TARGET_DIR=$target_dir/arm

need_target() {
    [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ] && return
    have rustup || skip "Rust's target $target is not installed, and there is no rustup to install it"
    timeout 300 rustup target add "$target" >/dev/null 2>&1 ||
        skip "rustup could not install Rust's target $target (offline?)"
}

# Build scripts run on this machine, not on ARM, so they are linked for it, and the cross compiler is not needed.
check() {
    need_target
    cargo check --quiet --workspace --all-targets --locked --target "$target"
}

# An emulated CPU is some ten times slower, so property tests run fewer cases.
test_core() {
    need_target
    have qemu-aarch64 || skip "qemu-aarch64 is not installed (scripts/install-deps.sh test-long)"
    have aarch64-linux-gnu-gcc || skip "aarch64-linux-gnu-gcc is not installed (scripts/install-deps.sh test-long)"
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
    export PROPTEST_CASES=${PROPTEST_CASES:-32}
    cargo test --locked --target "$target" --lib --bins --tests --no-fail-fast "${packages[@]/#/--package=}"
}

need_rust
case ${1:-} in
check) check ;;
test) test_core ;;
*)
    echo "usage: arm.sh check|test" >&2
    exit 2
    ;;
esac
