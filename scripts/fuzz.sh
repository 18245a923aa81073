#!/usr/bin/env bash
# fuzz.sh [TARGET|all] [SECONDS]: builds the fuzz targets and runs each for a bounded time (20 s).
# fuzz.sh TARGET FILE: runs one input again, to examine a crash.
#
#   FUZZ_ASAN=1       uses AddressSanitizer, which needs the nightly compiler
#   FUZZ_TOTAL=240    a time limit in seconds for all targets together, of which each gets an equal share
#
# Plain libFuzzer on stable Rust: the coverage passes are in rustc's LLVM, so neither nightly nor cargo-fuzz is needed.
# See fuzz/README.md.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fuzz-lib.sh"
cd "$root" || exit 1

wanted=${1:-all}
what=${2:-20}
kind=${FUZZ_ASAN:+asan}
fuzz_targets "$wanted"
need_rust
fuzz_build "${kind:-plain}" || exit 1
limits=(-timeout=10 -rss_limit_mb=2048)

if [ -f "$what" ]; then
    exec "$bin_dir/$wanted" "${limits[@]}" "$what"
fi
case $what in
'' | *[!0-9]*)
    echo "fuzz.sh: $what: expected a number of seconds or a file" >&2
    exit 2
    ;;
esac
share=$((${FUZZ_TOTAL:-$((what * ${#targets[@]}))} / ${#targets[@]}))
[ "$what" -le "$share" ] || what=$share

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# The corpus grows in a copy; scripts/fuzz-merge.sh adds useful inputs to the repository.
run_target() {
    local name=$1 log=$work/$1.log words=()
    mkdir -p "fuzz/artifacts/$name"
    fuzz_inputs "$name" "$work/$name"
    [ ! -f "fuzz/dictionaries/$name.dict" ] || words=("-dict=fuzz/dictionaries/$name.dict")
    if TMPDIR=$work "$bin_dir/$name" "${limits[@]}" "${words[@]}" -max_total_time="$what" \
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
