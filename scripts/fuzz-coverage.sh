#!/usr/bin/env bash
# fuzz-coverage.sh [TARGET|all]: reports which lines of each crate the kept inputs of the fuzz targets reach.
#
# Writes target/fuzz-coverage/report.txt, with a line for each crate and one for each file.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fuzz-lib.sh"
cd "$root" || exit 1

# llvm-profdata and llvm-cov must be of the same LLVM version as the compiler's.
find_tools() {
    local tools
    tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
    [ -x "$tools/llvm-cov" ] || rustup component add llvm-tools >/dev/null 2>&1
    [ -x "$tools/llvm-cov" ] || return 1
    profdata=$tools/llvm-profdata
    cov=$tools/llvm-cov
}

# Runs all inputs of a target; an input that ends the process is left out.
run_inputs() {
    local name=$1
    fuzz_inputs "$name" "$work/$name"
    find "$work/$name" -type f -print0 |
        TMPDIR=$work LLVM_PROFILE_FILE="$work/$name-%p.profraw" xargs -0 -r -n 200 "$bin_dir/$name" -timeout=10 >"$work/$name.log" 2>&1 ||
        echo "fuzz $name: an input failed: $(tail -n 1 "$work/$name.log")" >&2
}

# Lines and missed lines of each file, summed for each crate.
summary() {
    # llvm-cov leaves out the folders that all paths have in common.
    awk '$1 ~ /\/src\/.*\.rs$/ {
            file = $1; sub(/^.*crates\//, "", file); split(file, part, "/")
            lines[part[1]] += $8; missed[part[1]] += $9
        }
        END { for (name in lines) printf "%-14s %6d of %6d lines  %5.1f %%\n", name, lines[name] - missed[name], lines[name], 100 * (lines[name] - missed[name]) / lines[name] }' |
        sort
}

find_tools || skip "llvm-cov is not installed (rustup component add llvm-tools)"
need_rust
fuzz_targets "${1:-all}"
fuzz_build coverage || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
objects=()
for name in "${targets[@]}"; do
    run_inputs "$name"
    objects+=(-object "$bin_dir/$name")
done
"$profdata" merge -sparse "$work"/*.profraw -o "$work/all.profdata" || exit 1
report=$target_dir/fuzz-coverage/report.txt
"$cov" report "${objects[@]}" -instr-profile="$work/all.profdata" \
    --ignore-filename-regex='(registry|rustc|/fuzz/src|tests?\.rs|/tests/)' >"$work/files.txt" || exit 1
{
    summary <"$work/files.txt"
    echo
    cat "$work/files.txt"
} >"$report"
summary <"$work/files.txt"
echo "by file: $report"
