#!/usr/bin/env bash
# publish-check.sh [OPTION…]: whether every crate of the workspace that is meant for crates.io can be packed for it, with all that its
# manifest has to say. Publishes nothing. Options go to cargo (--no-verify: without building what was packed).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"

cargo publish --dry-run --workspace --allow-dirty --locked "$@"
