#!/usr/bin/env bash
# Policies persist: when other policies are refused, through changes of other policies under full traffic, through
# `netvale upgrade`, through `netvale export` and `netvale apply`; and `apply` changes them in place. Meanwhile pings go
# between two stations, and none may be lost.
#
# The restart of a killed daemon from its service manager's store needs a manager: the Rust tests have one (restart.rs).
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need iperf3 ping ss

# ports FILE [TEXT [TEXT]]: writes a configuration with stations 1 and 2 and a third port; the texts are added to
# stations 1 and 3.
ports() {
    cat >"$1" <<TOML
[[port]]
switch = "vale0"
port = "tap:s1"
name = "s1"
mac = "02:00:00:00:00:01"
${2:-}
[[port]]
switch = "vale0"
port = "tap:s2"
name = "s2"
mac = "02:00:00:00:00:02"
[[port]]
switch = "vale0"
port = "tap:s3"
name = "s3"
${3:-}
TOML
}

# steady COMMAND…: runs the command while pings go from 1 to 2; none may be lost.
steady() {
    local what=$1 pinger sent got last
    shift
    background in_space s1 ping -i 0.01 -W 5 10.1.0.2 >"$work/pings"
    pinger=$!
    sleep 0.3
    "$@"
    sleep 0.5
    end_of "$pinger" INT || true
    sent=$(sed -n 's/^\([0-9]*\) packets transmitted.*/\1/p' "$work/pings")
    got=$(sed -n 's/.* \([0-9]*\) received.*/\1/p' "$work/pings")
    # The numbers of the answered pings have no gap. The last ones may still be under way when ping ends.
    last=$(sed -n 's/.* icmp_seq=\([0-9]*\) .*/\1/p' "$work/pings" | sort -n | tail -n 1)
    if [ "$sent" -lt 30 ] || [ "$got" != "$last" ] || [ $((sent - got)) -gt 10 ]; then
        fail "$what: no ping is lost" "$(tail -n 20 "$work/pings")" "$(shown s1)" "$(shown s2)"
    fi
    ok "$what: $got of $sent pings"
}

policies() {
    nv show "vale0:$1" --json | jq -cS '.policies // {}'
}

# All policies, except those that exclude another one.
all_policies() {
    nv port set vale0:s3 trunk 10,20-30 native 1 vlan_protocol 802.1ad addresses 02:00:00:00:00:03,10.1.0.3 guard mac,ip,arp max_addresses 7 \
        sticky on locked on isolated on flood off mcast_flood off bcast_flood off storm_unknown 10 storm_mcast 20 \
        storm_bcast 30 loop_guard on rate_in 10mbit burst_in 64kb pps_in 1000 rate_out 20mbit burst_out 128kb pps_out 2000 queue_out 512kb \
        link_in 'delay 5ms 1ms distribution normal loss 1% seed 7' link_out 'rate 10mbit limit 50' >"$work/set" 2>&1 ||
        fail "a port takes all policies" "$(cat "$work/set")"
    nv filter vale0:s3 in pass udp port 53 >/dev/null
    nv filter vale0:s3 in drop 'not (host 10.0.0.1 or arp)' >/dev/null
    nv filter vale0:s3 out drop tcp port 25 >/dev/null
    expect "policies of one port" "$(policies s3 | jq length)" -ge 26
}

# --- changes under full traffic

cat >"$work/change.py" <<'PYTHON'
"""change.py SOCKET COUNT: changes policies of port s3, and such of s1 that its traffic does not touch.

When VLANs come and go, addresses are learned anew and s3 gets a copy of what is sent meanwhile; its filter drops none of these, as that would
count as a drop of the sender's."""

import json
import socket
import sys

control = socket.socket(socket.AF_UNIX)
control.connect(sys.argv[1])
lines = control.makefile("rw")


def of_third(n):
    return (
        {"access": 10 + n % 5},
        {"access": None, "trunk": "10,20-30", "native": 1},
        {"trunk": None, "native": None, "access": 100, "vlan_protocol": "802.1ad"},
        {"access": None, "vlan_protocol": None, "max_addresses": 1 + n % 9, "isolated": True, "sticky": True},
        {"isolated": None, "sticky": None, "locked": n % 2 == 0, "flood": False},
        {"locked": None, "flood": None, "max_addresses": None, "learning": False, "storm_bcast": 5 + n},
        {"learning": None, "rate_in": "%dmbit" % (1 + n), "pps_out": 1 + n},
        {"rate_out": "%dmbit" % (1 + n), "pps_out": None, "queue_out": "300kb"},
        {"rate_in": None, "rate_out": None, "queue_out": None, "filter_in": ["drop 4,40 0 0 12,21 0 1 2054,6 0 0 1,6 0 0 0"]},
        {"filter_out": ["drop 4,40 0 0 12,21 0 1 34525,6 0 0 1,6 0 0 0"], "filter_in": None},
        {"filter_out": None, "link_in": "delay 5ms loss 10%", "guard": "mac", "addresses": "02:00:00:00:00:03"},
        {"link_in": "delay 1ms", "link_out": "rate 1mbit", "guard": None, "addresses": None},
        {"link_in": None, "link_out": None},
    )[n % 13]


def of_sender(n):
    return (
        {"max_addresses": 10 + n},
        {"storm_mcast": 1000 + n, "max_addresses": None},
        {"storm_mcast": None, "loop_guard": True},
        {"loop_guard": None, "mcast_flood": False},
        {"mcast_flood": None, "filter_in": ["drop 4,40 0 0 12,21 0 1 34525,6 0 0 1,6 0 0 0"]},
        {"filter_in": None},
    )[n % 6]


for n in range(int(sys.argv[2])):
    port, change = ("vale0:s1", of_sender(n // 4)) if n % 4 == 3 else ("vale0:s3", of_third(n - n // 4))
    request = {"jsonrpc": "2.0", "id": n, "method": "port.set", "params": {"port": port, "set": change}}
    print(json.dumps(request), file=lines, flush=True)
    answer = json.loads(lines.readline())
    if "error" in answer:
        sys.exit(f"{port} {change}: {answer['error']}")
PYTHON

changed() {
    /usr/bin/python3 "$work/change.py" "$run_dir/control.sock" 10000 2>"$work/changes" ||
        fail "10000 changes of policies" "$(cat "$work/changes")"
}

changes() {
    local traffic
    background in_space s1 iperf3 -c 10.1.0.2 -t 500 -J >"$work/iperf.json"
    traffic=$!
    steady "10000 changes of other policies beside iperf3" changed
    kill -0 "$traffic" 2>/dev/null || fail "10000 changes are made beside traffic" "iperf3 ended before"
    ends_iperf "$traffic"
    local port
    for port in s1 s2; do
        drops_nothing "$port" || fail "no drops at $port" "$(shown "$port" | jq -c '.rings[].drops')"
    done
    ok "10000 changes: nothing is dropped, $(said '.end.sum_sent.retransmits') of $(said '.end.sum_sent.bytes / 1448 | floor') segments are sent again"
    # Set by hand, they are as before.
    local left
    for port in s1 s3; do
        left=$(policies "$port" | jq -r 'keys[] | . + " default"')
        # shellcheck disable=SC2086 # pairs of words
        [ -z "$left" ] || set_policies "$port" $left
    done
}

# --- policies that contradict each other

# Each line: the policy that the refusal names, and the request. The first policies of a request are valid; none of them
# is set.
contradictions() {
    local named asked before count=0
    set_policies s3 access 10 isolated on
    before=$(policies s3)
    while read -r named asked; do
        # shellcheck disable=SC2086 # words
        ! nv port set vale0:s3 flood off storm_bcast 7 $asked >"$work/refused" 2>&1 ||
            fail "refused: $asked" "$(cat "$work/refused")"
        grep -q "$named" "$work/refused" || fail "the refusal of '$asked' names $named" "$(cat "$work/refused")"
        [ "$(policies s3)" = "$before" ] || fail "$asked: nothing has changed" "$before" "$(policies s3)"
        count=$((count + 1))
    done <<'LIST'
trunk trunk 10,20
native native 5
access access 4095
access access 0
trunk access default trunk 20-10
trunk access default trunk 4095
native access default native 7
vlan_protocol access default vlan_protocol 802.1ad
vlan_protocol vlan_protocol 802.1x
sticky learning off sticky on
max_addresses learning off max_addresses 3
max_addresses max_addresses 0
burst_in burst_in 64kb
queue_out queue_out 1mb
guard guard ip,nonsense
addresses addresses 10.0.0.0/33
addresses addresses ff:ff:ff:ff:ff:ff
link_in link_in delay_1ms
link_in link_in slot
storm_mcast storm_mcast 0
pps_in pps_in 0
rate_group rate_group tenant
LIST
    ok "$count requests with contradictory or invalid policies are refused as a whole, with the policy's name"
    set_policies s3 access default isolated default
}

# --- upgrades

upgraded() {
    for _ in 1 2 3; do upgrade; done
}

end_daemon() {
    nv stop >/dev/null 2>&1 || true
    clean_up
}

upgrades() {
    local before counted n
    nv filter vale0:s1 in pass arp >/dev/null
    nv filter vale0:s1 in drop udp port 9 >/dev/null
    nv link vale0:s1 delay 30ms >/dev/null
    set_policies s1 rate_in 50mbit
    in_space s1 /usr/bin/python3 -c 'import socket
for n in range(10): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.1.0.2", 9))'
    wait_for "ten datagrams are dropped by the filter" 5 is s1 '.rules[1].frames == 10'
    before=$(policies s1)$(policies s2)$(policies s3)
    counted=$(shown s1 | jq '.rings[0].drops.filter')
    steady "three upgrades, with 30 ms of delay" upgraded
    [ "$(policies s1)$(policies s2)$(policies s3)" = "$before" ] ||
        fail "all policies are unchanged" "$before" "$(policies s1)$(policies s2)$(policies s3)"
    ok "all policies are unchanged"
    check "rules' counters go on" s1 '.rules[1].frames == 10'
    expect "drop counters are kept, too" "$(shown s1 | jq '.rings[0].drops.filter')" -eq "$counted"
    in_space s1 /usr/bin/python3 -c 'import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.1.0.2", 9))'
    wait_for "the filter still drops" 5 is s1 '.rules[1].frames == 11'
    ok "the filter still drops"
    in_space s1 ping -q -c 5 -i 0.2 10.1.0.2 >"$work/ping"
    jq -en "$(sed -n 's,^rtt .*= \([^/]*\)/.*,\1,p' "$work/ping") >= 30" >/dev/null ||
        fail "the link still has its delay" "$(cat "$work/ping")"
    ok "the link still has its delay"
    nv link vale0:s1 off >/dev/null
    iperf 1 2 -t 3 -O 1
    jq -en "$(said .end.sum_received.bits_per_second) <= 52000000" >/dev/null ||
        fail "the rate still holds" "$(said .end.sum_received)"
    ok "the rate still holds ($(said .end.sum_received.bits_per_second))"
    nv filter vale0:s1 in delete all >/dev/null
    set_policies s1 rate_in default
}

# --- configurations

# applied FILE [OPTION…]: runs `netvale apply`; its output is in $work/applied.
applied() {
    nv apply "$@" >"$work/applied" 2>&1 || fail "netvale apply" "$(cat "$work/applied")"
}

configurations() {
    local before
    before=$(policies s1)$(policies s2)$(policies s3)
    nv export >"$work/export.toml"
    applied "$work/export.toml"
    grep -q 'nothing to change' "$work/applied" || fail "the export matches the present policies" "$(cat "$work/applied")"
    ok "the export matches the present policies"

    ports "$work/plain.toml"
    nv apply --diff "$work/plain.toml" >"$work/applied" 2>&1 || fail "netvale apply --diff" "$(cat "$work/applied")"
    grep -q '^~ .*s3.*in place' "$work/applied" || fail "it says that s3 would change in place" "$(cat "$work/applied")"
    [ "$(policies s1)$(policies s2)$(policies s3)" = "$before" ] || fail "--diff changes nothing"
    steady "policies are taken away by apply" applied "$work/plain.toml" --json
    jq -e '[.changes[].action] == ["adjust"]' "$work/applied" >/dev/null ||
        fail "one port is adjusted" "$(cat "$work/applied")"
    [ "$(policies s1)$(policies s2)$(policies s3)" = '{}{}{}' ] || fail "no policies are left" "$(policies s3)"
    ok "one port is adjusted, no policies are left"

    steady "policies are given back by apply" applied "$work/export.toml"
    grep -q '^~ .*s3.*in place' "$work/applied" || fail "it says that s3 has changed in place" "$(cat "$work/applied")"
    [ "$(policies s1)$(policies s2)$(policies s3)" = "$before" ] ||
        fail "policies are those that were exported" "$before" "$(policies s1)$(policies s2)$(policies s3)"
    ok "export and apply: all policies are unchanged"

    # The client compiles the expressions of a file; the port that the pings come from changes, too.
    ports "$work/other.toml" "$(printf '%s\n' 'filter_in = ["drop udp port 9", "pass arp"]' 'rate_in = "900mbit"' 'link_in = "delay 2ms"' \
        'max_addresses = 5')" 'isolated = true'
    steady "other policies of the sender's port, by apply" applied "$work/other.toml" --json
    jq -e '[.changes[].action] == ["adjust", "adjust"]' "$work/applied" >/dev/null ||
        fail "two ports are adjusted" "$(cat "$work/applied")"
    check "they are those of the file" s1 \
        '.policies | .rate_in == "900mbit" and .link_in == "delay 2ms" and .max_addresses == 5'
    check "and rules" s1 '[.rules[].expression] == ["udp port 9", "arp"]'
    check "of the other port, too" s3 '.policies == { isolated: true }'

    ports "$work/bad.toml" 'rate_in = "0"'
    refuses "an invalid policy is refused" 1 "rate_in" apply "$work/bad.toml"
    check "and nothing changes" s1 '.policies.rate_in == "900mbit"'
    applied "$work/plain.toml"
}

ports "$work/up.toml"
# Ports of the configuration, as `apply` does not change ports that were attached by hand. Their TAPs are moved to the
# stations.
start_daemon --config "$work/up.toml"
for n in 1 2 3; do
    space "s$n"
    ip link set dev "s$n" netns "s$n"
    ip -n "s$n" link set dev "s$n" up
    ip -n "s$n" addr add "10.1.0.$n/24" dev "s$n"
done
iperf_server s2
reaches 1 2
contradictions
changes
all_policies
upgrades
configurations
finish
