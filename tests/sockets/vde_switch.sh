#!/usr/bin/env bash
# The drop-in for vde_switch, as an ordinary user without capabilities, with Debian's plugs: the ways in which NixOS's
# test driver and os-autoinst start it and talk to it; answers and VLANs beside Debian's vde_switch, which is the judge;
# long and tagged frames; kills, leftovers, several starts together, and everything that is malformed.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need python3 vde_switch vde_plug dpipe unixcmd

ln -s "$NETVALE" "$work/vde_switch"
mkdir -m 777 "$work/w"
cd "$work/w"

# looks WHAT PART [WORD…]: a part of vde_switch.py, in a folder of its own.
looks() {
    local folder=$work/w/$2 status=0
    "${as_user[@]}" mkdir "$folder"
    "${as_user[@]}" timeout -k 5 120 python3 "$here/vde_switch.py" "$2" "$work/vde_switch" "$folder" "${@:3}" \
        >"$work/said" 2>&1 || status=$?
    [ "$status" = 0 ] || fail "$1" "$(tail -n 40 "$work/said")"
    [ -z "$(ls -A "$folder")" ] || fail "$1: nothing is left" "$(ls -lRA "$folder")"
    ok "$1"
}

looks "NixOS's test driver: options, showinfo on standard input, whose end ends it" nixos
looks "os-autoinst: ports and VLANs before guests, by the management socket" autoinst
looks "in the background: ready when the starter ends, a pidfile, SIGTERM" background
looks "a hub passes frames of 8,000 bytes and tagged ones to all, a switch where they belong" frames
looks "tags are treated as Debian's vde_switch does" tags "$(command -v vde_switch)"
looks "answers are those of Debian's vde_switch" answers "$(command -v vde_switch)"
looks "a port's VLAN is set before its peer comes, and outlives it" ports
looks "modes and groups are those of Debian's vde_switch" modes "$(command -v vde_switch)"
looks "commands in one write, in single bytes, without reader, without end" sessions
looks "killed: the next one has the same place immediately, also beside leftovers" killed
looks "several starts together: one switch" twice
looks "files in the way, and paths that are too long, are left alone" way
looks "a hub's loop leaves the console and other switches alone" loop
looks "requests of every version" versions
finish
