#!/usr/bin/env bash
# Clones: guests with equal Ethernet and IP addresses behind private ports of one switch and one gateway. Each has its
# own way out, and a published port of its own.
#
# Each clone is a namespace with a TAP of the switch; `host` has the gateway, and a cable to `outside`, where a server
# is.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl jq ping

# Number of clones; figures for 1,000 are taken by hand.
CLONES=${CLONES:-64}
MAC=02:00:00:00:00:09
ADDRESS=10.0.0.5

# clone N: its server's page has its number.
clone() {
    space "c$1"
    must nv attach vale0 "tap:t$1" --name "vm$1" --netns "/run/netns/c$1" --mac "$MAC" --private on
    ip -n "c$1" link set dev "t$1" up
    ip -n "c$1" addr add "$ADDRESS/24" dev "t$1"
    ip -n "c$1" route add default via 10.0.0.1
    mkdir "$work/of$1"
    echo "from $1" >"$work/of$1/index.html"
    background in_space "c$1" busybox httpd -f -p 80 -h "$work/of$1"
}

memory() {
    sed -n 's/^VmRSS:\s*\([0-9]*\) kB/\1/p' "/proc/$gateway/status"
}

# each COMMAND…: runs it for all clones at the same time, with the clone's number; prints how many succeed.
each() {
    local n tasks=() good=0
    for n in $(seq "$CLONES"); do
        "$@" "$n" &
        tasks+=($!)
    done
    for n in "${tasks[@]}"; do wait "$n" && good=$((good + 1)) || true; done
    echo "$good"
}

# fetches CLONE [PORT]: all clones use the same port, as programs do that a snapshot has in the middle of their work. A
# clone that has closed a connection first cannot use its port again for a minute.
fetches() {
    local got
    got=$(in_space "c$1" curl -sS --max-time 60 --local-port "${2:-40000}" "http://192.0.2.2/$1")
    [ "$got" = "for $1" ] || { echo "clone $1 got: $got" >&2 && return 1; }
}

is_reached() {
    local got
    got=$(in_space host curl -sS --max-time 60 "http://127.0.0.1:$((2200 + $1))/")
    [ "$got" = "from $1" ] || { echo "the port of clone $1 leads to: $got" >&2 && return 1; }
}

vlans() {
    nv list --json | jq -c '[.. | objects | select(.policies?.private) | [.name, .policies.access]] | sort'
}

received() {
    in_space "c$1" cat "/sys/class/net/t$1/statistics/rx_packets"
}

ways_out() {
    expect "each clone has a VLAN of its own" "$(vlans | jq '[.[][1]] | unique | length')" -eq "$CLONES"
    # A clone is found at its port once it was heard.
    expect "clones fetch from the same port at the same time" "$(each fetches)" -eq "$CLONES"
    expect "each is reached by its published port" "$(each is_reached)" -eq "$CLONES"
    local names
    names=$(jq -r 'select(.event == "opened" and .direction == "out") | .port' "$work/flows" | sort -u | grep -c '^vm')
    expect "the record names their ports" "$names" -eq "$CLONES"
}

apart_from_each_other() {
    ip -n c2 addr add 10.0.0.6/24 dev t2
    local before
    before=$(received 2)
    ! in_space c1 ping -q -c 2 -i 0.2 -W 1 10.0.0.6 >/dev/null 2>&1 || fail "a clone reaches another"
    in_space c1 ping -q -b -c 5 -i 0.2 -W 1 10.0.0.255 >/dev/null 2>&1 || true
    expect "a clone hears nothing of another's broadcasts" "$(received 2)" -eq "$before"
}

# A clone that goes takes its connections with it, and the next one has another VLAN.
coming_and_going() {
    local before=$1
    must nv detach vale0:vm1
    ip netns del c1
    rm -r "$work/of1"
    clone 1
    fetches 1 || fail "a new clone has a way out"
    is_reached 1 || fail "… and is reached under the former one's name"
    ok "a new clone takes the place of one that is gone"
    [ "$(vlans)" != "$before" ] || fail "a new clone has another VLAN"
    ok "a new clone has another VLAN"
}

after_an_upgrade() {
    local before
    before=$(vlans)
    upgrade
    [ "$(vlans)" = "$before" ] || fail "VLANs stay the same" "$before" "$(vlans)"
    ok "VLANs stay the same"
    fetches 3 40001 || fail "a clone has its way out"
    is_reached 3 || fail "a clone is reached"
    clone $((CLONES + 1))
    wait_for "a clone that comes after the upgrade has a way out" 20 in_space "c$((CLONES + 1))" curl -sf -o /dev/null \
        http://192.0.2.2/1
    ok "clones have their ways out"
}

network
pages "$CLONES"
start_daemon
begin_private_gateway "$CLONES"
before=$(memory)
for n in $(seq "$CLONES"); do clone "$n"; done
ways_out
expect "the gateway's memory for a clone, KiB" $((($(memory) - before) / CLONES)) -le 100
apart_from_each_other
coming_and_going "$(vlans)"
after_an_upgrade
finish
