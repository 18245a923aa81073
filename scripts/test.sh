#!/usr/bin/env bash
# test.sh [STAGE…]: the tests that need only cargo and a compiler: no root, no guests, no other packages. All stages if
# none is named, each under a time limit.
#
#   STRICT=1     a test that cannot run is a failure
#   RECORD=1     writes the seconds of each stage to docs/internals/test-times.toml
#
# Each kind of build has its own directory below the target directory, so that nothing is built twice.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

all_stages=(build unit doc loom replay)

# Compiling is a separate stage, so that a test's time limit covers only the test.
stage_build() {
    cargo nextest run --cargo-profile test "${workspace[@]}" -P test --no-run
}

stage_unit() {
    cargo nextest run --cargo-profile test "${workspace[@]}" -P test
}

stage_doc() {
    cargo test --quiet --workspace --doc
}

# Model checks: loom runs every interleaving of the tests written for it. A crate whose manifest names loom has such
# tests, in modules whose names begin with `loom`.
stage_loom() {
    local manifest packages=()
    export CARGO_TARGET_DIR=$target_dir/loom RUSTFLAGS="--cfg loom"
    for manifest in $(grep -l '^loom\b' crates/*/Cargo.toml crates/*/*/Cargo.toml); do
        packages+=(-p "$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)")
    done
    [ ${#packages[@]} != 0 ] || skip "no crate has loom models"
    # Models are long loops over few instructions, which take minutes without optimization.
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0
    cargo nextest run --cargo-profile release "${packages[@]}" --lib --tests -E 'test(/(^|::)loom/)'
}

# The kept inputs of the fuzz targets, once each.
stage_replay() {
    scripts/fuzz-replay.sh
}

limit_of() {
    case $1 in
    build) echo 2400 ;;
    unit) echo 1500 ;;
    *) echo 900 ;;
    esac
}

# Runs inside the process that `stage` started.
if [ "${1:-}" = --inside ]; then
    need_nextest
    "stage_$2"
    exit
fi

need_rust
need_nextest
stages_begin
[ $# -gt 0 ] || set -- "${all_stages[@]}"
for name in "$@"; do
    declare -F "stage_$name" >/dev/null || {
        echo "test.sh: unknown stage $name; stages: ${all_stages[*]}" >&2
        exit 2
    }
    stage "$name" "$(limit_of "$name")" "$0" --inside "$name"
done
stages_summary test
