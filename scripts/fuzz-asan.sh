#!/usr/bin/env bash
# fuzz-asan.sh [SECONDS]: every fuzz target under AddressSanitizer, where there is a compiler that has it.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

inside() {
    have c++ || skip "no C++ compiler for libFuzzer (install g++)"
    rustc +nightly -vV >/dev/null 2>&1 || skip "no nightly compiler, which AddressSanitizer takes (rustup toolchain install nightly)"
    FUZZ_ASAN=1 scripts/fuzz.sh all "$1"
}

seconds=${1:-60}
(inside "$seconds")
status=$?
# A machine that lacks something is no failure.
[ "$status" = "$SKIPPED" ] || exit "$status"
