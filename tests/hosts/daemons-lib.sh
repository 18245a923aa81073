# shellcheck shell=bash
# Shared by scripts of this folder whose hosts need no FRR: each host is a namespace with a daemon, whose files are in a folder of its name. Sourced by
# bash, behind tests/policies/lib.sh.

# at HOST COMMAND…: of that host's daemon.
at() {
    local on=$1
    shift
    "$NETVALE" --run-dir "$work/$on" "$@"
}

# daemon HOST [COMMAND…]: starts it, by that command if there is one.
daemon() {
    local name=$1
    shift
    background in_space "$name" "$@" "$NETVALE" --run-dir "$work/$name" up >"$work/$name.log" 2>&1
    wait_for "the daemon of host $name starts" 20 at "$name" list
}
