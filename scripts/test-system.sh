#!/usr/bin/env bash
# test-system.sh [STAGE…]: the tests that need root, guests, kernel judges, packages or other projects' programs. All
# stages if none is named, each under a time limit; independent stages run in parallel.
#
#   STRICT=1           a test that cannot run is a failure
#   RECORD=1           writes the seconds of each stage to docs/internals/test-times.toml
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

# Compiling is a separate stage, so that a test's time limit covers only the test. Programs, libraries and tests are
# built together: a build of fewer packages would select other features, and build crates again.
stage_build() {
    cargo build --profile test "${workspace[@]}" && cargo nextest run --cargo-profile test "${workspace[@]}" -P test-system --no-run
}

# What guests boot from, built once and kept. Tests that lack it are reported as skipped.
stage_guests() {
    scripts/guest-image.sh && scripts/newer-debian.sh && scripts/newer-passt.sh && scripts/newer-netavark.sh &&
        scripts/guest-driver.sh && scripts/os-autoinst.sh
}

tests() {
    cargo nextest run --cargo-profile test "${workspace[@]}" -P test-system "$@"
}

stage_system() {
    tests -E "not ($measuring)"
}

# Tests that assert times and rates have the machine for themselves.
stage_measuring() {
    tests -E "$measuring"
}

# The Python package: built, installed, and tested.
stage_python() {
    scripts/python-tests.sh
}

# README and guide, run as their readers would.
stage_guide() {
    scripts/guide-commands.sh
}

# The packages, built from the existing programs: installed under systemd, upgraded, purged; the image under podman.
stage_packages() {
    scripts/packages-test.sh
}

# A daemon with all kinds of ports under random attack.
stage_soak() {
    scripts/soak.sh 1 --quiet
}

# limited STAGE…: runs each stage under its time limit.
limited() {
    local name limit
    for name in "$@"; do
        declare -F "stage_$name" >/dev/null || {
            echo "test-system.sh: unknown stage $name" >&2
            exit 2
        }
        case $name in
        build | system) limit=2400 ;;
        *) limit=1200 ;;
        esac
        stage "$name" "$limit" "$0" --inside "$name"
    done
}

# All others use the results of the stage `build`.
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
