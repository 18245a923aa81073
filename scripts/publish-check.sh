#!/usr/bin/env bash
# publish-check.sh [OPTION…]: checks that every crate of the workspace that is meant for crates.io can be packaged for
# it, with complete metadata. Publishes nothing. Options go to cargo (--no-verify: without building what was packaged).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"

cargo publish --dry-run --workspace --allow-dirty --locked "$@"
