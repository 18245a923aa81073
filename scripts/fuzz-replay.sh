#!/usr/bin/env bash
# fuzz-replay.sh [TARGET|all]: runs each fuzz target once on its seeds and its kept inputs. Needs only the stable
# compiler, and no libFuzzer.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fuzz-lib.sh"
cd "$root" || exit 1

fuzz_targets "${1:-all}"
need_rust
fuzz_build replay || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

passed=0 failed=0
for name in "${targets[@]}"; do
    fuzz_inputs "$name" "$work/$name"
    if TMPDIR=$work timeout -k 5 120 "$bin_dir/$name" "$work/$name" >"$work/log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        echo "replay $name: $(tail -n 1 "$work/log")"
    else
        failed=$((failed + 1))
        tail -n 40 "$work/log"
        echo "replay $name: FAILED (the input is named above)"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
