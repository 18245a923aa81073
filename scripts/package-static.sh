#!/usr/bin/env bash
# package-static.sh [FOLDER]: writes the netvale command, which runs without any library on any Linux of this
# architecture, and prints its path. FOLDER: target/packages.
#
#   PROFILE=release      the build profile
set -euo pipefail
. "$(dirname "$0")/lib.sh"
say_where_it_stops
cd "$root"

has_musl || {
    echo "Rust lacks the target $musl_target: rustup target add $musl_target" >&2
    exit 1
}
file=${1:-$target_dir/packages}/netvale-$(release)-$(uname -m)
program=$(build_static "${PROFILE:-release}")
install -D -m 755 "$program" "$file"
strip "$file"
echo "$file"
