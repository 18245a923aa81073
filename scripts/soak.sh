#!/usr/bin/env bash
# soak.sh [MINUTES] [OPTION…]: runs a real daemon with all kinds of ports under random attack, for that many minutes
# (default 10).
#
#   SEED=n               determines the order of actions; by default taken from the clock
#   SOAK_JSON=FILE       the report as JSON (default: soak.json in the target directory)
#   NO_BUILD=1           uses the existing build
#   SOAK_PROFILE=test    the build profile: test has debug assertions and overflow checks; release is what users run
#
# Options are netvale-soak's own; --quiet prints one line if all is well. docs/internals/soak.md describes the checks.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"
need_rust

minutes=${1:-10}
[ $# = 0 ] || shift
profile=${SOAK_PROFILE:-test}
case $profile in
test | dev) folder=$target_dir/debug ;;
*) folder=$target_dir/$profile ;;
esac
[ -n "${NO_BUILD:-}" ] || cargo build --quiet --profile "$profile" --package netvale-cli --package netvale-capi --package netvale-pcap --package netvale-soak
exec "$folder/netvale-soak" --minutes "$minutes" --json "${SOAK_JSON:-$target_dir/soak.json}" ${SEED:+--seed "$SEED"} "$@"
