#!/usr/bin/env bash
# fuzz-asan.sh [SECONDS]: runs every fuzz target under AddressSanitizer, if a compiler with it is installed.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

inside() {
    have c++ || skip "no C++ compiler for libFuzzer (install g++)"
    rustc +nightly -vV >/dev/null 2>&1 || skip "no nightly compiler, which AddressSanitizer requires (rustup toolchain install nightly)"
    FUZZ_ASAN=1 scripts/fuzz.sh all "$1"
}

seconds=${1:-60}
(inside "$seconds")
status=$?
# A missing tool is no failure.
[ "$status" = "$SKIPPED" ] || exit "$status"
