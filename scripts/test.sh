#!/usr/bin/env bash
# test.sh [STAGE…]: runs the test stages (all when none is named), each under a time limit.
#
#   FUZZ_SECONDS=20      time for each fuzz target, 64 s for all of them together
#   SOAK_MINUTES=1       time for the soak; SEED=n repeats one
#   TEST_BUDGET=5250     seconds for all stages together
#
# Each stage uses one directory below the target directory, so that nothing is built twice.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

budget=${TEST_BUDGET:-5250}
all_stages=(build guests unit python doc loom miri fuzz guide packages soak)

# Compiling has its own stage, so that a test's time limit is about the test.
stage_build() {
    cargo test --workspace --lib --bins --tests --examples --no-run || return 1
    # What crates/system-tests tests, by the very command that it makes sure with.
    cargo build --profile test --package netvale-cli --package netvale-capi --package netvale-pcap --package netvale-cni || return 1
    cargo build --profile test --package netvale-soak
}

# What guests boot from, made once and kept. Tests that lack it say that they are skipped.
stage_guests() {
    scripts/guest-image.sh || skip "no guest image"
    scripts/newer-debian.sh || skip "no newer QEMU"
    scripts/guest-driver.sh || skip "no driver for guests"
}

stage_unit() {
    cargo test --workspace --lib --bins --tests --examples --no-fail-fast
}

# A daemon with all kinds of ports under random attack.
stage_soak() {
    scripts/soak.sh "${SOAK_MINUTES:-1}" --quiet
}

# The Python package: built, installed, and its tests.
stage_python() {
    scripts/python-tests.sh
}

# The commands of README and guide, as a reader runs them.
stage_guide() {
    scripts/guide-commands.sh
}

# The packages, of the programs that are built already: installed where systemd runs, upgraded, purged; the image under podman.
stage_packages() {
    PROFILE=test NETVALE=$target_dir/debug/netvale scripts/packages-test.sh
}

stage_doc() {
    cargo test --workspace --doc
}

# Model checks: loom runs every interleaving of the tests written for it. A crate has such tests when
# its manifest names loom: as `tests/loom*.rs`, or in modules called `loom` something.
stage_loom() {
    local manifest dir package ran=0
    export CARGO_TARGET_DIR=$target_dir/loom RUSTFLAGS="--cfg loom"
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0
    for manifest in $(grep -l '^loom\b' crates/*/Cargo.toml); do
        dir=$(dirname "$manifest")
        package=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
        ran=1
        if compgen -G "$dir/tests/loom*.rs" >/dev/null; then
            cargo test --release -p "$package" --test 'loom*' || return 1
        else
            cargo test --release -p "$package" --lib loom || return 1
        fi
    done
    [ "$ran" = 1 ] || skip "no crate has loom models"
}

# Undefined behaviour in the crates that do not need the kernel. What needs a mapping or a socket is
# ignored under Miri by its own test. Property tests run few cases: Miri is some hundred times slower.
stage_miri() {
    cargo +nightly miri --version >/dev/null 2>&1 || skip "Miri is not installed (rustup toolchain install nightly --component miri)"
    export MIRIFLAGS=${MIRIFLAGS:--Zmiri-disable-isolation} PROPTEST_CASES=${MIRI_PROPTEST_CASES:-4}
    cargo +nightly miri setup >/dev/null 2>&1 || skip "Miri's standard library could not be built (rustup component add rust-src --toolchain nightly)"
    cargo +nightly miri test --lib --tests --no-fail-fast \
        -p netvale-abi -p netvale-portspec -p netvale-wire || return 1
    cargo +nightly miri test --lib -p netvale-mem
}

stage_fuzz() {
    have c++ || skip "no C++ compiler for libFuzzer (install g++)"
    # Who asks for a time gets it for each target.
    [ -n "${FUZZ_SECONDS:-}" ] || export FUZZ_TOTAL=64
    scripts/fuzz.sh all "${FUZZ_SECONDS:-20}"
}

limit_of() {
    case $1 in
    build) echo 1800 ;;
    guests) echo 1200 ;;
    unit) echo 2700 ;;
    python) echo 300 ;;
    guide) echo 900 ;;
    packages) echo 900 ;;
    soak) echo 900 ;;
    doc) echo 600 ;;
    loom) echo 600 ;;
    miri) echo 1800 ;;
    fuzz) echo 900 ;;
    *) return 1 ;;
    esac
}

# Runs inside the process that `stage` started.
if [ "${1:-}" = --inside ]; then
    "stage_$2"
    exit
fi

need_rust
[ $# -gt 0 ] || set -- "${all_stages[@]}"
for name in "$@"; do
    limit=$(limit_of "$name") || {
        echo "test.sh: no stage is called $name; there are: ${all_stages[*]}" >&2
        exit 2
    }
    left=$((budget - SECONDS))
    [ "$left" -ge 1 ] || left=1
    [ "$limit" -le "$left" ] || limit=$left
    stage "$name" "$limit" "$0" --inside "$name"
done
stages_summary
