#!/usr/bin/env bash
# fuzz.sh [TARGET|all] [SECONDS]: builds the fuzz targets and runs each for a bounded time (20 s).
# fuzz.sh TARGET FILE: runs one input again, to look at a crash.
#
# Plain libFuzzer on stable Rust: the coverage passes are in rustc's LLVM, so neither nightly nor
# cargo-fuzz is needed. See fuzz/README.md.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

wanted=${1:-all}
what=${2:-20}
targets=()
for file in fuzz/src/bin/*.rs; do
    name=$(basename "$file" .rs)
    if [ "$wanted" = all ] || [ "$wanted" = "$name" ]; then targets+=("$name"); fi
done
if [ ${#targets[@]} = 0 ]; then
    echo "fuzz.sh: no target is called $wanted; there are: $(cd fuzz/src/bin && echo *.rs | sed 's/\.rs\b//g')" >&2
    exit 2
fi
need_rust

# With --target the flags reach the targets but not build scripts and procedural macros, which could
# not be linked with them.
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$target_dir/fuzz
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks --cfg fuzzing"
cargo build --quiet --release --manifest-path fuzz/Cargo.toml --target "$host" \
    "${targets[@]/#/--bin=}" || exit 1
bin_dir=$CARGO_TARGET_DIR/$host/release
limits=(-timeout=10 -rss_limit_mb=2048)

if [ -f "$what" ]; then
    exec "$bin_dir/$wanted" "${limits[@]}" "$what"
fi
case $what in
'' | *[!0-9]*)
    echo "fuzz.sh: $what is neither a number of seconds nor a file" >&2
    exit 2
    ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# The corpus grows in a copy; only chosen seeds are kept in the repository.
run_target() {
    local name=$1 log=$work/$1.log
    mkdir -p "$work/$name" "fuzz/artifacts/$name"
    [ ! -d "fuzz/seeds/$name" ] || cp -r "fuzz/seeds/$name/." "$work/$name/"
    if "$bin_dir/$name" "${limits[@]}" -max_total_time="$what" \
        -artifact_prefix="fuzz/artifacts/$name/" "$work/$name" >"$log" 2>&1 </dev/null; then
        echo "fuzz $name: ok: $(grep -E '^#[0-9]+\s+DONE|^Done' "$log" | tr -s '\t ' ' ' | paste -sd' ')"
    else
        tail -n 60 "$log"
        echo "fuzz $name: FAILED; to run that input again: scripts/fuzz.sh $name $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)"
        return 1
    fi
}

status=0
for name in "${targets[@]}"; do
    run_target "$name" || status=1
done
exit $status
