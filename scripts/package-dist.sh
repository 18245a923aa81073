#!/usr/bin/env bash
# package-dist.sh [FOLDER]: writes a tarball of the last commit with the sources of all crates that it depends on, so
# that it builds without a network, and prints its path. FOLDER: target/packages. Uncommitted files are not included.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
say_where_it_stops
cd "$root"

out=${1:-$target_dir/packages}
version=$(release)
name=netvale-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
date=$(git log -1 --format=%ct)

git archive --prefix="$name/" HEAD | tar -x -C "$work"
mkdir -p "$work/$name/.cargo"
# Cargo prints the configuration with which it finds the sources.
(cd "$work/$name" && cargo vendor --locked --versioned-dirs vendor 2>/dev/null >.cargo/config.toml)
mkdir -p "$out"
tar --sort=name --mtime="@$date" --owner=0 --group=0 --numeric-owner -C "$work" -c "$name" | gzip -n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
