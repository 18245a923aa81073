#!/usr/bin/env bash
# FRR is the control plane of netvale's VXLAN ports: two hosts with netvale, `netvale evpn` and FRR, one with only the
# kernel's bridge and FRR. All endpoints reach each other; flood lists and addresses match BGP; an address moves between
# hosts during a TCP connection; bgpd, zebra, the daemon and the agent are killed and restarted; what disappears is
# withdrawn.
# measures: yes
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
need iperf3
need_frr

A_MAC=02:00:00:00:00:0a B_MAC=02:00:00:00:00:0b C_MAC=02:00:00:00:00:0c M_MAC=02:00:00:00:00:0d

# --- the hosts

network
host a 1
host b 2
host c 3
# The kernels keep IPv6 neighbours, too.
for name in a b c; do six $name; done
for name in ea eb ec m; do space "$name"; done

ports_of_a() {
    tunnel a 1
    endpoint a ea ea --mac "$A_MAC"
    address ea ea 192.168.7.1
    endpoint a m ma --mac 02:00:00:00:01:0a
}

ports_of_b() {
    tunnel b 2
    endpoint b eb eb --mac "$B_MAC"
    address eb eb 192.168.7.2
    endpoint b m mb --mac 02:00:00:00:01:0b
}

host_daemon a
host_daemon b
agent a --hold 15
agent b --hold 15
ports_of_a
ports_of_b
bridged c 3
bridge_port c ec ec "$C_MAC"
address ec ec 192.168.7.3
frr a 1 2 3
frr b 2 1 3
frr c 3 1 2

# The station that moves: a bridge behind one of two hosts.
m() {
    ip -n m "$@"
}
m link add m0 address "$M_MAC" type bridge forward_delay 0
for tap in ma mb; do
    m link set dev "$tap" down
done
m link set dev ma master m0
m link set dev m0 up
m link set dev ma up
address m m0 192.168.7.4

# --- reachability, flood lists, addresses

wait_for "host a floods to b and c" 30 floods a 2 3
wait_for "host b floods to a and c" 30 floods b 1 3
wait_for "host c floods to a and b" 30 kernel_floods c 1 2
ok "zebra and the daemons have BGP's flood lists"

pairs=0
for from in ea eb ec m; do
    for to in 1 2 3 4; do
        wait_for "$from reaches 192.168.7.$to" 10 ping_from $from 192.168.7.$to
        pairs=$((pairs + 1))
    done
done
ok "all of $pairs pairs reach each other"

wait_for "a has the address of b's endpoint" 10 has a "$B_MAC" 2
wait_for "a has the address of c's endpoint" 10 has a "$C_MAC" 3
wait_for "b has the address of a's endpoint" 10 has b "$A_MAC" 1
wait_for "c has the address of a's endpoint" 10 kernel_has c "$A_MAC" 1
wait_for "c has the address of b's endpoint" 10 kernel_has c "$B_MAC" 2
wait_for "the daemon of a has their addresses" 10 port a '.vxlan.addresses >= 2'
has_not a "$A_MAC" || fail "a does not have its own address as a remote one"
ok "all hosts have the right VTEP for each address"
knows_neighbor() {
    ip -n c neigh show dev br0 | grep -q "^192.168.7.1 lladdr $A_MAC extern_learn"
}
wait_for "c has a neighbour entry for 192.168.7.1" 10 knows_neighbor
ok "IP addresses are announced with their MAC addresses (c could answer ARP)"

# --- routers (RFC 9161 section 3.2)

in_space ea sysctl -q -w net.ipv6.conf.ea.disable_ipv6=0 net.ipv6.conf.ea.forwarding=1
in_space eb sysctl -q -w net.ipv6.conf.eb.disable_ipv6=0
ip -n ea addr add fd07::1/64 dev ea nodad
ip -n eb addr add fd07::2/64 dev eb nodad
wait_for "eb reaches a router" 10 ping_from eb fd07::1
knows_router() {
    in_space "$1" ip -6 neigh show dev "$2" | grep -q "^fd07::1 lladdr $A_MAC .*router"
}
wait_for "zebra of b has the router flag" 10 knows_router b nvb$VNI
wait_for "c, too" 10 knows_router c br0
# ea cannot answer itself now.
ip -n ea link set dev ea down
ip -n eb neigh flush dev eb
ping_from eb fd07::1 >"$work/ping" && fail "ea is down" "$(cat "$work/ping")"
knows_router eb eb ||
    fail "b answers solicitations, with the router flag" "$(in_space eb ip -6 neigh show dev eb)"
ip -n ea link set dev ea up
ok "solicitations are answered on this side of the tunnel, for a router with the router flag"

# --- a sticky address

has_sticky() {
    evpn "$1" "any(.remotes[]; .mac == \"$2\" and .sticky == $3)"
}
at b port set vale0:eb sticky on >/dev/null
wait_for "a sticky port's address is announced as sticky" 20 has_sticky a "$B_MAC" true
ping_from ea 192.168.7.2 >"$work/ping" || fail "it is still reached" "$(cat "$work/ping")"
ok "sticky addresses are announced as such"

# --- an address that moves

# sequence HOST: the number of moves that bgpd counts for the address.
sequence() {
    vty "$1" zebra "show evpn mac vni $VNI mac $M_MAC" |
        sed -n 's/.*Local Seq: \([0-9]*\) Remote Seq: \([0-9]*\).*/\1 \2/p' | tr ' ' '\n' | sort -n | tail -n 1
}

# moves TO FROM: moves the station behind the other host. The link to the old host stays up: if it went down, the
# address would be withdrawn before the new host announces it, and FRR would see no move.
moves() {
    m link set dev "$2" nomaster
    m link set dev "$1" master m0 up
}

is_behind() {
    has "$1" "$M_MAC" "$2" && kernel_has c "$M_MAC" "$2"
}

to_b_and_back() {
    moves mb ma
    wait_for "the address is at b, for a and c" 10 is_behind a 2
    wait_for "b announces it" 5 announces b "$M_MAC"
    moves ma mb
    wait_for "the address is at a, for b and c" 10 is_behind b 1
    wait_for "a announces it" 5 announces a "$M_MAC"
}

iperf_server ec
wait_for "a announces the address that moves" 10 announces a "$M_MAC"
background in_space m iperf3 -c 192.168.7.3 -t 8 -b 50M -J >"$work/iperf.json"
traffic=$!
steady m 192.168.7.3 "an address moves from a to b and back" to_b_and_back
expect "pings lost in two moves" "$lost" -le 50
expect "moves are counted" "$(sequence a)" -ge 2
wait "$traffic" || fail "TCP continues while the address moves" "$(jq -r .error "$work/iperf.json")"
ok "TCP continues while the address moves ($(jq '.end.sum_received.bits_per_second / 1e6 | floor' "$work/iperf.json") Mbit/s of 50)"

# --- restarts

bgpd_killed() {
    killed "${bgpds[a]}"
    start_bgpd a
    wait_for "a floods again" 30 floods a 2 3
    wait_for "a has b's address again" 30 has a "$B_MAC" 2
    wait_for "b has a's address again" 30 has b "$A_MAC" 1
}
steady ea 192.168.7.2 "bgpd of a is killed" bgpd_killed
expect "pings lost" "$lost" -eq 0
wait_for "c is reached again" 30 ping_from ea 192.168.7.3

frr_killed() {
    killed "${zebras[a]}" "${bgpds[a]}"
    start_zebra a
    start_bgpd a
    wait_for "zebra has b's address again" 30 zebra_has a "$B_MAC"
    wait_for "b has a's address again" 30 has b "$A_MAC" 1
}
zebra_has() {
    vty "$1" zebra "show evpn mac vni $VNI mac $2" | grep -q 'Remote VTEP'
}
steady ea 192.168.7.2 "all FRR daemons of a are killed" frr_killed
expect "pings lost" "$lost" -eq 0
floods a 2 3 || fail "a floods as before"
wait_for "c is reached again" 30 ping_from ea 192.168.7.3

agent_restarts() {
    killed "${agents[b]}"
    agent b --hold 15
    wait_for "the agent of b has continued" 10 grep -q 'mirror continued' "$work/b/agent.log"
}
steady ea 192.168.7.2 "the agent of b is killed" agent_restarts
expect "pings lost" "$lost" -eq 0
has a "$B_MAC" 2 || fail "nothing was withdrawn"

# The daemon is killed: its TAPs disappear with it and are created again.
background bridge -n b monitor fdb >"$work/monitor"
monitor=$!
killed "${daemons[a]}"
tap_is_gone() {
    ! ip -n ea link show dev ea
}
wait_for "the TAP is gone" 10 tap_is_gone
host_daemon a
ports_of_a
m link set dev ma master m0
m link set dev ma up
wait_for "a floods again" 20 floods a 2 3
wait_for "the endpoint is reached again" 20 ping_from eb 192.168.7.1
wait_for "the new daemon has b's address" 10 port a '.vxlan.addresses >= 2'
announces a "$A_MAC" || fail "a still announces it"
killed "$monitor"
! grep "^Deleted $A_MAC" "$work/monitor" || fail "b has a's address all the time"
ok "the daemon of a is killed: its announcements stay, and the new daemon gets all entries"

# --- withdrawals

at b detach vale0:eb >/dev/null
wait_for "the address of a removed endpoint is withdrawn" 10 has_not a "$B_MAC"
wait_for "for the kernel's host, too" 10 kernel_lacks c "$B_MAC"
wait_for "for the daemon of a, too: c's endpoint is the only one" 10 port a '.vxlan.addresses == 1'
ok "a removed endpoint is withdrawn"

at b detach "vale0:vx$VNI" >/dev/null
wait_for "a removed port leaves c's flood list" 10 kernel_floods c 1
wait_for "and a's, after the hold time" 30 floods a 3
[ -z "$(in_space b ip -br link show type vxlan)" ] || fail "b's devices are removed" "$(in_space b ip -br link)"
ok "a removed port is withdrawn, and its devices are removed"

killed "${agents[a]}"
in_space a "$NETVALE" evpn --clean >"$work/cleaned"
grep -q "^VNI $VNI" "$work/cleaned" || fail "--clean prints what it removed" "$(cat "$work/cleaned")"
[ -z "$(in_space a ip -br link show type vxlan)$(in_space a ip -br link show type bridge)" ] ||
    fail "--clean removes all" "$(in_space a ip -br link)"
wait_for "the announcements are withdrawn" 10 kernel_lacks c "$A_MAC"
ok "--clean removes the devices, and FRR withdraws"
finish
