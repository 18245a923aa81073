#!/usr/bin/env bash
# test-system.sh [STAGE…]: the tests that need root, guests, kernel judges, packages or others' programs. All stages when none is named, each
# under a time limit; what shares nothing runs side by side.
#
#   STRICT=1           a test that cannot run is a failure
#   RECORD=1           writes the seconds of each stage to docs/internals/test-times.toml
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

# Compiling has its own stage, so that a test's time limit is about the test.
stage_build() {
    cargo nextest run "${of_workspace[@]}" -P test-system --no-run &&
        cargo build --profile test "${shipped[@]}" &&
        cargo build --profile test --package netvale-soak --package netvale-bench
}

# What guests boot from, made once and kept. Tests that lack it say that they are skipped.
stage_guests() {
    scripts/guest-image.sh && scripts/newer-debian.sh && scripts/guest-driver.sh
}

# Containers' and packages' trees, made once and kept, and the packages themselves.
stage_trees() {
    scripts/packages-test.sh prepare
}

tests() {
    NETVALE_PROGRAMS=$target_dir/debug cargo nextest run "${of_workspace[@]}" -P test-system "$@"
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
    PROFILE=test scripts/guide-commands.sh
}

# The packages, of the programs that are built already: installed where systemd runs, upgraded, purged; the image under podman.
stage_packages() {
    PROFILE=test NETVALE=$target_dir/debug/netvale scripts/packages-test.sh
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
