#!/usr/bin/env bash
# Address guards: a port may send only from the addresses it is given, and can be neither a DHCP server nor a router.
#
# Stations with addresses; arping, scapy and dnsmasq attack from the first one, with and without its guard.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need arping ping dnsmasq busybox
need_scapy

# The address that the neighbour table of station 2 has for 10.1.0.77.
neighbour() {
    ip -n s2 -j neigh show 10.1.0.77 | jq -r '.[0].lladdr // "none"'
}

# Announces to all that 10.1.0.77 is at station 1, and sends station 2 a request from that address.
poison() {
    ip -n s2 neigh flush all
    in_space s1 arping -q -i s1 -c 2 -W 0.05 -S 10.1.0.77 10.1.0.2 >/dev/null 2>&1 || true
}

learned() {
    [ "$(neighbour)" = 02:00:00:00:00:01 ]
}

arp() {
    poison
    wait_for "without a guard, a forged ARP announcement is accepted" 10 learned
    ok "without a guard, a forged ARP announcement is accepted"
    set_policies s1 guard arp
    poison
    check "with it, it is dropped" s1 '[.rings[].drops["spoofed-arp"] // 0] | add >= 2'
    [ "$(neighbour)" = none ] || fail "and no station accepts it" "station 2 has $(neighbour) for 10.1.0.77"
    ok "and no station accepts it"
    reaches 1 2 "it may speak for itself"
}

# refused KIND REASON: 20 frames of a kind pass without a guard, and are dropped with it.
refused() {
    local before
    set_policies s1 guard default
    before=$(moved s2 out frames)
    attack s1 s1 "$1" 20
    wait_for "without a guard, 20 of 20 of kind '$1' pass" 10 has_got s2 $((before + 20))
    set_policies s1 guard mac,ip,arp,nd,ra,dhcp
    before=$(drops s1 "$2")
    attack s1 s1 "$1" 20
    wait_for "with it, they are dropped as $2" 10 has_dropped s1 "$2" $((before + 20))
    ok "20 of 20 frames of kind '$1' pass without a guard, and are dropped as $2 with it"
}

# --- DHCP

# serve STATION FIRST: starts a DHCP server that hands out 10.1.0.FIRST and the next ten addresses.
serve() {
    background in_space "$1" dnsmasq --no-daemon --port 0 --interface "$1" --bind-interfaces --no-resolv --no-hosts --conf-file=/dev/null \
        --dhcp-range "10.1.0.$2,10.1.0.$(($2 + 10)),2m" --dhcp-leasefile="$work/leases.$1" --no-ping --dhcp-authoritative \
        >"$work/dnsmasq.$1" 2>&1
    wait_for "dnsmasq starts" 10 grep -q 'DHCP, IP range' "$work/dnsmasq.$1"
}

# lease SECONDS: prints the address that a client behind s4 gets; nothing if no server answers.
lease() {
    in_space s4 busybox udhcpc -i s4 -n -q -f -t "$1" -T 1 -s "$work/given" 2>"$work/udhcpc" | tail -n 1 || true
}

dhcp() {
    local given
        printf '#!/bin/sh\n[ "$1" != bound ] || echo "$ip"\n' >"$work/given"
    chmod 755 "$work/given"
    serve s1 150
    set_policies s1 guard default
    given=$(lease 10)
    case $given in
    10.1.0.15? | 10.1.0.160) ok "without a guard, a client accepts an attacker's lease ($given)" ;;
    *) fail "without a guard, a client accepts an attacker's lease" "it got '$given'" \
        "$(cat "$work/udhcpc" "$work/dnsmasq.s1")" ;;
    esac
    set_policies s1 guard dhcp
    given=$(lease 3)
    [ -z "$given" ] || fail "with the guard, it gets no lease" "it got '$given'"
    ok "with the guard, it gets no lease"
    check "the answers are dropped" s1 '[.rings[].drops["rogue-dhcp"] // 0] | add >= 1'
    serve s3 200
    given=$(lease 10)
    case $given in
    10.1.0.20? | 10.1.0.210) ok "the right server serves it beside the other ($given)" ;;
    *) fail "the right server serves it beside the other" "it got '$given'" \
        "$(cat "$work/udhcpc" "$work/dnsmasq.s3")" ;;
    esac
    reaches 1 2 "the guarded port works otherwise"
}

start_daemon
station 1 --addresses 02:00:00:00:00:01,10.1.0.1,fe80::1
for n in 2 3 4; do station $n; done
arp
refused bcast spoofed-mac
refused ip spoofed-ip
refused ip6 spoofed-ip
refused nd spoofed-nd
refused ra rogue-ra
before=$(moved s2 out frames)
attack s1 s1 own 20
wait_for "its own datagrams pass" 10 has_got s2 $((before + 20))
ok "its own datagrams pass the full guard"
reaches 1 2 "with the full guard"
reaches 2 1 "with the full guard"
dhcp
finish
