#!/usr/bin/env bash
# Port security: which addresses may be behind a port, which frames it gets, how much it may flood, loops; attackers and
# bystanders.
#
# First single frames between three ports in one namespace (matrix.c), then stations with addresses: arping and scapy
# attack, and stations that are not involved lose nothing.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need arping ping iperf3 gcc bridge
need_scapy
compiled matrix

# fresh [OPTION…]: ports p, q and r that have learned nothing; the options are p's.
fresh() {
    nv detach vale0:p >/dev/null 2>&1 && detach q r
    attach p wire "$@"
    attach q wire
    attach r wire
}

# passes WHAT: sends the frames of standard input between p, q and r.
passes() {
    crosses "$1" wire p q r
}

# dropped PORT REASON NUMBER: that many frames were dropped there.
dropped() {
    expect "port $1 counts them as $2" "$(drops "$1" "$2")" -eq "$3"
}

# --- single frames

addresses_of_ports() {
    fresh --addresses 02:00:00:00:00:0a
    passes "a static address is at its port before it sends anything, and at no other" <<'LIST'
q 0a 0b : p=none
q all 0a :
q 0b 0a :
p all 0a : q=none r=none
p all 0c : q=none r=none
r 0c 0d : p=none
LIST
    dropped q address-taken 2
    set_policies p addresses default
    passes "it is anyone's afterwards" <<'LIST'
q all 0a : p=none r=none
r 0a 0d : q=none
LIST

    fresh --sticky on
    passes "a sticky address stays" <<'LIST'
p all 1a : q=none r=none
q all 1a :
r 1a 1b : p=none
LIST
    dropped q address-taken 1
    set_policies p sticky default
    passes "without the policy it moves" <<'LIST'
q all 1a : p=none r=none
r 1a 1b : q=none
LIST

    fresh --max-addresses 2
    passes "a third address is one too many, until one of the two is elsewhere" <<'LIST'
p all 2a : q=none r=none
p all 2b : q=none r=none
p all 2c :
p 2d 2c :
p all 2b : q=none r=none
r 2c 2d : p=none q=none
q all 2a : p=none r=none
p all 2c : q=none r=none
LIST
    dropped p address-limit 2

    fresh --learning off
    passes "without learning, all get frames for who is there" <<'LIST'
p all 3a : q=none r=none
r 3a 3b : p=none q=none
p 3b 3a : r=none
LIST
    [ "$(nv table vale0 --json | jq -c '[.entries[] | .port]')" = '["r"]' ] ||
        [ "$(nv table vale0 --json | jq '[.entries[] | select(.port | test("p$"))] | length')" = 0 ] ||
        fail "the table has no address behind p" "$(nv table vale0 --json)"
    ok "the table has no address behind p"

    fresh --locked on --addresses 02:00:00:00:00:6a
    passes "from a locked port, only addresses that are known there" <<'LIST'
p all 6b :
p all 6a : q=none r=none
q 6a 6c : p=none
p 6c 6b :
p 6c 6a : q=none
LIST
    dropped p locked 2
    set_policies p locked off
    passes "unlocked, it learns" <<'LIST'
p all 6b : q=none r=none
LIST
    set_policies p locked on
    passes "what it learned is known when it is locked again" <<'LIST'
p all 6b : q=none r=none
p all 6d :
q 6b 6c : p=none
LIST
}

what_ports_get() {
    fresh --flood off
    passes "flood off: nothing for unknown addresses" <<'LIST'
q 77 4b : r=none
q group 4b : p=none r=none
q all 4b : p=none r=none
p all 4a : q=none r=none
q 4a 4b : p=none
LIST
    set_policies p flood on mcast_flood off
    passes "mcast_flood off: nothing for groups" <<'LIST'
q 77 4b : p=none r=none
q group 4b : r=none
q 33:33:00:00:00:01 4b : r=none
q all 4b : p=none r=none
LIST
    set_policies p mcast_flood default bcast_flood off
    passes "bcast_flood off: nothing for all" <<'LIST'
q 77 4b : p=none r=none
q group 4b : p=none r=none
q all 4b : r=none
p all 4a : q=none r=none
LIST

    fresh --isolated on
    set_policies q isolated on
    passes "isolated ports reach only others" <<'LIST'
p all 5a : r=none
q all 5b : r=none
r all 5c : p=none q=none
p 5b 5a :
q 5a 5b :
p 5c 5a : r=none
r 5b 5c : q=none
p 77 5a : r=none
LIST
    dropped p isolated 1
    dropped q isolated 1
    set_policies q isolated off
    passes "one that is no longer isolated reaches all" <<'LIST'
p 5b 5a : q=none
q all 5b : p=none r=none
LIST
}

# --- storms

# storm KIND POLICY: 3,000 frames of a kind from a port that may send 100 a second.
storm() {
    local before got
    set_policies p "$2" 100
    before=$(moved q out frames) started=$SECONDS
    attack wire p "$1" 3000
    wait_for "all frames are looked at" 10 has_sent p 3000
    got=$(($(moved q out frames) - before))
    expect "of 3000 frames to $1, those that $2 permits cross" "$got" -ge 10
    expect "and not many more" "$got" -le $((10 + 100 * (SECONDS - started + 1)))
    expect "the others are counted" "$(drops p storm)" -eq $((3000 - got))
    set_policies p "$2" default
    before=$(moved q out frames)
    attack wire p "$1" 500
    wait_for "without the policy, all 500 cross" 10 has_got q $((before + 500))
    ok "without the policy, all 500 cross"
}

storms() {
    local kind
    for kind in unknown mcast bcast; do
        fresh
        storm $kind storm_$kind
    done
    # Each class has its own limit.
    fresh --storm-bcast 1
    attack wire p mcast 200
    wait_for "a limit for one class does not affect another" 10 has_got q 200
    ok "a limit for one class does not affect another"
    detach p q r
}

# --- stations

spoofing() {
    set_policies s1 addresses 02:00:00:00:00:01
    reaches 1 2
    # Claims to be station 1, with its address.
    in_space s3 arping -q -i s3 -c 3 -W 0.05 -s 02:00:00:00:00:01 -S 10.1.0.1 10.1.0.2 >/dev/null 2>&1 || true
    check "arping with another's address is dropped" s3 '[.rings[].drops["address-taken"] // 0] | add >= 3'
    reaches 2 1 "as before"
    set_policies s1 addresses default
}

# An endless number of sources, beside two stations that talk to each other.
flood_of_sources() {
    local lost
    set_policies s1 max_addresses 16
    reaches 2 3
    iperf_server s3
    background in_space s2 iperf3 -c 10.1.0.3 -u -b 2M -l 1000 -w 1M -t 8 -J >"$work/iperf.json"
    iperf=$!
    background in_space s2 ping -q -i 0.01 -c 700 -W 5 10.1.0.3 >"$work/ping"
    pinged=$!
    attack s1 s1 sources 100000
    wait_for "100,000 frames were looked at" 20 has_sent s1 100000
    wait "$pinged" || fail "the bystanders' ping is answered" "$(cat "$work/ping")"
    wait "$iperf" || fail "the bystanders' iperf3 ends" "$(cat "$work/iperf.json")"
    lost=$(sed -n 's/^700 packets transmitted, \([0-9]*\) received.*/\1/p' "$work/ping")
    expect "beside 100,000 source addresses, 700 of 700 pings are answered" "$lost" -eq 700
    jq -e '.end.sum | .packets > 1500 and .lost_packets == 0' "$work/iperf.json" >/dev/null ||
        fail "and no datagram of iperf3 is lost" "$(jq -c .end.sum "$work/iperf.json")"
    ok "and no datagram of iperf3 is lost ($(jq .end.sum.packets "$work/iperf.json"))"
    expect "nearly all of the flood was dropped" "$(drops s1 address-limit)" -ge 99980
    behind_s1=$(nv table vale0 --json | jq '[.entries[] | select(.port == "s1" or .port == "vale0:s1")] | length')
    expect "no more than its 16 addresses are in the table" "$behind_s1" -le 16
    expect "and some" "$behind_s1" -ge 1
    set_policies s1 max_addresses default
}

# Two ports with a Linux bridge between them: what one receives, the other sends.
loop() {
    space loop
    attach l1 loop --loop-guard on
    attach l2 loop --loop-guard on
    ip -n loop link add name br0 type bridge
    ip -n loop link set dev l1 master br0
    ip -n loop link set dev l2 master br0
    ip -n loop link set dev br0 up
    background in_space s1 ping -q -i 0.1 -w 60 -b 10.1.0.255 >/dev/null 2>&1
    free_at=$SECONDS
    wait_for "a loop is seen" 20 is_seen
    for guarded in l1 l2; do ! blocked $guarded || break; done
    check "the port of a loop is blocked, and says so" "$guarded" '.notes | any(test("is blocked.*has a loop"))'
    wait_for "its frames are dropped as loop" 5 has_dropped "$guarded" loop 1
    ok "its frames are dropped as loop"
    reaches 2 3 "while it is blocked"
    ip -n loop link set dev l2 nomaster
    wait_for "it is unblocked" 30 none_blocked
    expect "after 10 seconds" $((SECONDS - free_at)) -ge 9
    check "its notes remember" "$guarded" '.notes | any(test("was blocked.*has a loop"))'
    ip -n loop addr add 10.1.0.9/24 dev br0
    in_space s2 ping -q -c 5 -i 0.2 -W 2 10.1.0.9 >/dev/null 2>&1 || fail "its frames pass again" "$(shown l1)"
    ok "its frames pass again"
}

blocked() {
    is "$1" '.notes | any(test("is blocked"))'
}

some_blocked() {
    blocked l1 || blocked l2
}

# Whether a port is blocked. If not, $free_at is the time before this query: a block has lasted at most since then.
is_seen() {
    local now=$SECONDS
    some_blocked || { free_at=$now && return 1; }
}

none_blocked() {
    ! some_blocked
}

start_daemon
space wire
addresses_of_ports
what_ports_get
storms
for n in 1 2 3; do station $n; done
spoofing
flood_of_sources
loop
finish
