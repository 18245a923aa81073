#!/usr/bin/env bash
# test-system.sh [STAGE…]: the tests that need root, guests, kernel judges, packages or others' programs. All stages when none is named, each
# under a time limit; what shares nothing runs side by side.
#
#   STRICT=1           a test that cannot run is a failure
#   RECORD=1           writes the seconds of each stage to docs/internals/test-times.toml
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

# Compiling has its own stage, so that a test's time limit is about the test. Programs, libraries and tests are built as one: what is built for
# fewer packages gets other features, and is built again.
stage_build() {
    cargo build --profile test "${workspace[@]}" && cargo nextest run --cargo-profile test "${workspace[@]}" -P test-system --no-run
}

# What guests boot from, made once and kept. Tests that lack it say that they are skipped.
stage_guests() {
    scripts/guest-image.sh && scripts/newer-debian.sh && scripts/newer-passt.sh && scripts/newer-netavark.sh && scripts/guest-driver.sh
}

tests() {
    cargo nextest run --cargo-profile test "${workspace[@]}" -P test-system "$@"
}

stage_system() {
    tests -E "not ($measuring)"
}

# What asserts times and rates has the machine for itself.
stage_measuring() {
    tests -E "$measuring"
}

# The Python package: built, installed, and its tests.
stage_python() {
    scripts/python-tests.sh
}

# README and guide, as their readers run them.
stage_guide() {
    scripts/guide-commands.sh
}

# The packages, of the programs that are built already: installed where systemd runs, upgraded, purged; the image under podman.
stage_packages() {
    scripts/packages-test.sh
}

# A daemon with all kinds of ports under random attack.
stage_soak() {
    scripts/soak.sh 1 --quiet
}

# limited STAGE…: each under its time limit.
limited() {
    local name limit
    for name in "$@"; do
        declare -F "stage_$name" >/dev/null || {
            echo "test-system.sh: no stage is called $name" >&2
            exit 2
        }
        case $name in
        build | system) limit=2400 ;;
        *) limit=1200 ;;
        esac
        stage "$name" "$limit" "$0" --inside "$name"
    done
}

# What the stage `build` has built is what all others use.
export PROFILE=test NO_BUILD=1 NETVALE_PROGRAMS=$target_dir/debug NETVALE=$target_dir/debug/netvale

case ${1:-} in
# Runs inside the process that `stage` started.
--inside)
    need_nextest
    "stage_$2"
    exit
    ;;
--lane)
    shift
    limited "$@"
    exit
    ;;
esac

need_rust
need_nextest
stages_begin
if [ $# -gt 0 ]; then
    limited "$@"
else
    side_by_side build guests
    side_by_side system "packages guide python"
    limited measuring soak
fi
stages_summary test-system
