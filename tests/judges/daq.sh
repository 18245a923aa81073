#!/usr/bin/env bash
# Snort's library for packet I/O (libdaq) with its netmap module, inline between two interfaces, under `netvale run`. It
# maps the memory of only the first interface and swaps buffers between the two, since all drivers share one memory.
# measures: no
# shellcheck source=SCRIPTDIR/../judges-lib.sh
. "$(dirname "$0")/../judges-lib.sh"
tree=$(nsenter "--net=/proc/self/fd/$outside" "$root/scripts/netmap-judges.sh" daq 2>"$work/tree.log") ||
    skip "no libdaq with netmap: $(tail -n 1 "$work/tree.log")"

start_daemon
two_stations
background nv run -- "$tree/bin/daq_judge" "$tree/lib" na:nb >"$work/said" 2>&1
engine=$!
wait_for "the module starts" 60 grep -q started "$work/said"
drops_long "libdaq between two interfaces" a 10.1.0.2
gone "$engine" && fail "it still runs" "$(cat "$work/said")"
end_of "$engine" INT || true
finish
