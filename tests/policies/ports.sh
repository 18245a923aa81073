#!/usr/bin/env bash
# Thousands of ports on one switch: all are listed, floods reach them, a pair beside them is served, an upgrade keeps
# them, and the limits are refused in a sentence that names them.
#
# Most ports are sinks (`null:`), which take no descriptors. Others have rings that no program has opened.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need jq

PRIVATE=1000
SINKS=100
RINGS=100
MOST=4096

# sections SWITCH PORT COUNT [LINE]: sections of a configuration file for ports PORT1, PORT2, …
sections() {
    local n
    for n in $(seq "$3"); do printf '[[port]]\nswitch = "%s"\nport = "%s%d"\n%s\n' "$1" "$2" "$n" "${4:-}"; done
}

# listed SWITCH: the number of its ports that `list` shows.
listed() {
    nv list --json | jq --arg switch "$1:" \
        '[.. | objects | .name? | strings | select(startswith($switch))] | unique | length'
}

start_daemon

sections vale0 null:p "$PRIVATE" 'private = true' >"$work/idle.toml"
sections vale0 null:s "$SINKS" >>"$work/idle.toml"
sections vale0 r "$RINGS" >>"$work/idle.toml"
must nv apply "$work/idle.toml"
expect "a switch with over a thousand ports is listed" "$(listed vale0)" = $((PRIVATE + SINKS + RINGS))
vlans=$(nv list --json | jq '[.. | objects | select(.policies?.private) | .policies.access] | unique | length')
expect "private ports have VLANs of their own" "$vlans" = "$PRIVATE"

background nv pkt-gen -i vale0:rx -f rx -n 1000 >"$work/rx.err" 2>&1
receiver=$!
wait_for "a receiver beside idle ports" 20 is rx '.state == "open"'
must nv pkt-gen -i vale0:tx -f tx -n 2000 -R 5000
ended "a pair beside idle ports" "$receiver" 0
wait_for "the ports in the pair's VLAN get the flood" 20 has_got "s$SINKS" 1
expect "private ports get nothing of it" "$(moved "p$PRIVATE" out frames)" = 0

upgrade
expect "an upgrade keeps all ports" "$(listed vale0)" = $((PRIVATE + SINKS + RINGS))

# Full switches.
sections vale1 null:n $((MOST + 1)) >"$work/full.toml"
refuses "a file with too many ports" 4 "vale1 has too many ports, expected at most $MOST" apply "$work/full.toml"
expect "which changes nothing" "$(listed vale0)" = $((PRIVATE + SINKS + RINGS))
sections vale1 null:n "$MOST" >"$work/full.toml"
must nv apply "$work/full.toml"
expect "a full switch" "$(listed vale1)" = "$MOST"
expect "another file's ports are gone" "$(listed vale0)" = 0
refuses "a port too many" 4 "vale1 has the maximum of $MOST ports" attach vale1 null:more
must nv detach vale1:n7
must nv pkt-gen -i vale1:tx -f tx -n 300
wait_for "broadcasts reach the last port" 30 \
    sh -c "'$NETVALE' --run-dir '$run_dir' show vale1:n$MOST --json |
        jq -e '[.rings[] | select(.dir == \"out\") | .frames] | add == 300'"
ok "broadcasts reach the last port"
: >"$work/none.toml"
for n in $(seq 1025); do printf '[[port]]\nswitch = "vale%d"\nport = "null:x"\n' "$n"; done >"$work/switches.toml"
refuses "a file with too many switches" 4 "too many switches, expected at most 1024" apply "$work/switches.toml"
must nv apply "$work/none.toml"
expect "no ports are left" "$(listed vale1)" = 0
finish
