#!/usr/bin/env bash
# fuzz-merge.sh TARGET FOLDER…: builds the kept corpus of a target (fuzz/corpora/TARGET.tar.gz) from its seeds, its
# present corpus, and what long runs have left in the folders. Of all these inputs, it keeps only as many as are needed
# to reach the same code.
#
#   MAX_LEN=512    leaves out longer inputs
set -uo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fuzz-lib.sh"

name=${1:?a target}
shift
folders=()
for folder in "$@"; do folders+=("$(realpath "$folder")"); done
cd "$root" || exit 1
fuzz_targets "$name"
need_rust
[ -n "${FUZZ_BIN:-}" ] && bin_dir=$FUZZ_BIN || fuzz_build plain || exit 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
fuzz_inputs "$name" "$work/known"
mkdir -p "$work/kept" fuzz/corpora
TMPDIR=$work "$bin_dir/$name" -set_cover_merge=1 -timeout=10 -rss_limit_mb=2048 -max_len="${MAX_LEN:-512}" \
    -artifact_prefix="$work/" "$work/kept" "$work/known" "${folders[@]}" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log"
    exit 1
}
# The same inputs result in the same archive.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work/kept" -cf - . | gzip -9n >"fuzz/corpora/$name.tar.gz"
echo "fuzz $name: $(find "$work/kept" -type f | wc -l) inputs, $(find "$work/kept" -type f -printf '%s\n' | awk '{s += $1} END {print s + 0}') bytes"
