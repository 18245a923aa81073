#!/usr/bin/env bash
# Tunnels: two hosts and a third one, joined by VXLAN with static remotes. The judges are the kernel's VXLAN device with
# a bridge, tcpdump, ping, iperf3, and raw datagrams.
#
# Each host is a network namespace with addresses on a common network of veths; a station is a namespace behind a host's
# switch or bridge. Hosts a and b have netvale (b as an ordinary user), host k the kernel's device. All reach each other
# in both directions, over IPv4 and IPv6; frames that are too long cause an ICMP error or are fragmented; several VNIs
# share a UDP port; invalid datagrams and those of unknown VNIs or from unknown hosts are dropped with their reason; the
# network between the hosts goes down and up; two tunnels in parallel make no loop; an upgrade loses no connection.
# measures: yes
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
need tcpdump iperf3 ping

# behind HOST NAME ADDRESS: creates a station at the host's switch.
behind() {
    space "$2"
    endpoint "$1" "$2" "$2"
    ip -n "$2" link set "$2" mtu "${mtu:-1450}"
    address "$2" "$2" "$3"
}

tunnel() {
    at "$1" show "vale0:$2" --json
}

# of HOST PORT REASON: the number of frames that the port dropped for the reason.
of() {
    tunnel "$1" "$2" | jq "[.rings[].drops[\"$3\"] // 0] | add"
}
dropped() {
    [ "$(of "$1" "$2" "$3")" -ge "$4" ]
}

reaches() {
    in_space "$1" ping -c 1 -W 1 "$2"
}

network
host_six a 1
host_six b 2
host_six k 3
host_daemon a
# An ordinary user's daemon: all it may do in the host's namespace is use its network.
host_daemon b "${as_user[@]}"
in_space k ip link add bri type bridge
in_space k ip link set bri up
in_space k ip link add vx type vxlan id 100 local 10.99.0.3 dstport 4789
in_space k ip link set vx master bri up
for far in 10.99.0.1 10.99.0.2; do in_space k bridge fdb append 00:00:00:00:00:00 dev vx dst "$far"; done

at a attach vale0 vxlan:100,local=10.99.0.1,remote=10.99.0.2 >/dev/null
"${as_user[@]}" "$NETVALE" --run-dir "$work/b/run" attach vale0 vxlan:100,local=10.99.0.2,remote=10.99.0.1 >/dev/null
behind a sa 192.168.7.1
# The ordinary user cannot open a TAP in another namespace: root, who may use the daemon's socket, passes one in.
behind b sb 192.168.7.2
space sk
veth k sk sk sk
ip -n k link set sk master bri
ip -n sk link set sk mtu 1450
address sk sk 192.168.7.3

wait_for "two hosts of netvale reach each other" 10 reaches sa 192.168.7.2
ok "stations of two hosts reach each other, one of them an ordinary user's"
! reaches sa 192.168.7.3 >/dev/null || fail "a host that is not a remote is not reached"
in_space sk ping -c 3 -i 0.2 -W 1 192.168.7.1 >/dev/null 2>&1 || true
wait_for "frames from a host that is not a remote are dropped" 5 dropped a vxlan100 unknown-vtep 1
ok "frames from a host that is not a remote are dropped with their reason"
at a vtep add vale0:vxlan100 10.99.0.3
at b vtep add vale0:vxlan100 10.99.0.3
wait_for "the kernel's end is reached" 10 reaches sa 192.168.7.3
wait_for "it reaches" 10 reaches sk 192.168.7.2
ok "the kernel's VXLAN device at the other end, in both directions"
at a table vale0 --json >"$work/table"
mac=$(in_space sk cat /sys/class/net/sk/address)
jq -e --arg mac "$mac" '.entries[] | select(.mac == $mac) | .vtep == "10.99.0.3"' "$work/table" >/dev/null ||
    fail "the table shows the VTEP of an address" "$(cat "$work/table")"
tunnel a vxlan100 | jq -e '.vxlan.mtu == 1450 and ([.vxlan.remotes[] | select(.in_frames > 0 and .out_frames > 0)] | length) == 2' >/dev/null ||
    fail "each VTEP has its counters" "$(tunnel a vxlan100)"
ok "the table, and counters by VTEP"

# What tcpdump reports about the packets: each is VXLAN with a correct checksum.
background in_space k tcpdump -lnvi u0 -c 20 udp dst port 4789 and src host 10.99.0.1 >"$work/dump" 2>"$work/dump.err"
wait_for "tcpdump listens" 10 grep -q listening "$work/dump.err"
in_space sa ping -c 20 -i 0.02 192.168.7.3 >/dev/null
wait_for "tcpdump has seen them" 10 grep -q "20 packets captured" "$work/dump.err"
[ "$(grep -c 'VXLAN, flags \[I\] (0x08), vni 100' "$work/dump")" = 20 ] ||
    fail "tcpdump decodes them as VXLAN" "$(cat "$work/dump")"
ok "tcpdump decodes them"

# TCP in both directions, with each kind of far end, at a rate that any machine reaches.
tcp() {
    local from=$1 to=$2 far=$3
    background in_space "$from" iperf3 -s -1 --forceflush >"$work/iperf" 2>&1
    wait_for "iperf3 listens" 10 grep -q listening "$work/iperf"
    in_space "$to" iperf3 -c "$far" -n 40M --json >"$work/tcp" || fail "TCP from $to to $from" "$(cat "$work/tcp")"
    jq -e '.end.sum_received.bytes >= 30000000' "$work/tcp" >/dev/null ||
        fail "TCP from $to to $from" "$(cat "$work/tcp")"
}
tcp sb sa 192.168.7.2
tcp sk sa 192.168.7.3
tcp sa sk 192.168.7.1
ok "TCP between netvale's ends, and to and from the kernel's"

# Packets that are too long: their sender gets an ICMP error and sends shorter ones.
in_space sa ip link set sa mtu 1500
in_space sb ip link set sb mtu 1500
! in_space sa ping -c 1 -W 1 -M "do" -s 1472 192.168.7.2 >"$work/ping" 2>&1 ||
    fail "a packet of 1500 bytes passes" "$(cat "$work/ping")"
wait_for "its sender gets an error" 5 dropped a vxlan100 too-long 1
in_space sa ip route get 192.168.7.2 | grep -q "mtu 1450" ||
    fail "the sender has learned the MTU" "$(in_space sa ip route get 192.168.7.2)"
# The echo reply is as long, and its sender gets an error in turn.
wait_for "it sends fragments then" 10 in_space sa ping -c 1 -W 1 -s 1472 192.168.7.2
tcp sb sa 192.168.7.2
ok "senders of too long packets get an error, and reach the other end"
at a detach vale0 vxlan100 >/dev/null
at b detach vale0 vxlan100 >/dev/null
at a attach vale0 vxlan:100,local=10.99.0.1,remote=10.99.0.2,remote=10.99.0.3 --fragment --no-udp-checksum >/dev/null
at b attach vale0 vxlan:100,local=10.99.0.2,remote=10.99.0.1 --fragment >/dev/null
in_space sa ip route flush cache
wait_for "they pass in fragments" 10 in_space sa ping -c 1 -W 1 -M "do" -s 1472 192.168.7.2
tcp sb sa 192.168.7.2
ok "with fragments, and without checksums, packets of 1500 bytes pass"
for n in 1 2; do ip -n wire link set "w$n" mtu 9000; done
for host in a b; do ip -n $host link set u0 mtu 9000; done

# Over IPv6, on a network with jumbo frames; and another VNI at the same address and port.
at a attach vale6 vxlan:6,local=fd99::1,remote=fd99::2 >/dev/null
at b attach vale6 vxlan:6,local=fd99::2,remote=fd99::1 >/dev/null
at a attach vale6 vxlan:7,local=10.99.0.1,remote=10.99.0.2 --isolated on >/dev/null
tunnel_mtu() { at a show vale6:vxlan6 --json | jq .vxlan.mtu; }
[ "$(tunnel_mtu)" = 8930 ] || fail "the MTU over IPv6 is 8930" "$(tunnel_mtu)"
switch=vale6 mtu=8930 behind a ja 192.168.8.1
switch=vale6 mtu=8930 behind b jb 192.168.8.2
wait_for "they reach each other over IPv6, with jumbo frames" 10 in_space ja ping -c 1 -W 1 -M "do" -s 8900 192.168.8.2
ok "over IPv6, with jumbo frames, and several VNIs on one UDP port"
! at a attach vale7 vxlan:100,local=10.99.0.1 2>"$work/refused" || fail "a VNI twice"
grep -q "VNI 100 is in use by another netvale port" "$work/refused" || fail "the refusal names the reason" "$(cat "$work/refused")"
! at a attach vale7 vxlan:9,local=10.99.0.77 2>"$work/refused" || fail "an address of another host"
grep -q "10.99.0.77 is not an address of this host" "$work/refused" || fail "the refusal names the reason" "$(cat "$work/refused")"
in_space k ip link del vx
in_space k ip link add vx type vxlan id 100 local 10.99.0.3 dstport 4789
in_space k ip link set vx up
ok "impossible tunnels are refused with the reason"

# Datagrams that are not VXLAN, of unknown VNIs, short and empty ones.
in_space k ip link del vx
in_space k /usr/bin/python3 - <<'PYTHON'
import socket

out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.bind(("10.99.0.3", 0))
frame = bytes.fromhex("ffffffffffff 020000000099 88b5") + bytes(46)
header = bytes.fromhex("0800000000006400")
datagrams = [b"", b"x", header, header[:7], header + frame[:13], b"\0" + header[1:] + frame]
datagrams += [bytes.fromhex("0800000000999900") + frame, header + frame]
for datagram in datagrams * 10:
    out.sendto(datagram, ("10.99.0.1", 4789))
PYTHON
# The frames are counted at the tunnel that read them: any tunnel of the UDP port.
both() {
    local other
    other=$(at a show vale6:vxlan7 --json | jq "[.rings[].drops[\"$1\"] // 0] | add")
    [ $(($(of a vxlan100 "$1") + other)) -ge "$2" ]
}
wait_for "datagrams without a header are dropped" 5 both bad-vxlan 40
wait_for "so are those without a frame" 5 both runt 20
wait_for "so are those of an unknown VNI" 5 both unknown-vni 10
ok "invalid datagrams are dropped with their reason"

# The network between the hosts goes down and comes back.
in_space a ip link set u0 down
goes_nowhere() {
    reaches sa 192.168.7.2 || true
    dropped a vxlan100 unreachable 1
}
wait_for "frames that cannot be sent are dropped with their reason" 10 goes_nowhere
in_space a ip link set u0 up
in_space a ip addr add fd99::1/64 dev u0 nodad
wait_for "the other host is reached again" 20 reaches sa 192.168.7.2
wait_for "over IPv6, too" 20 in_space ja ping -c 1 -W 1 192.168.8.2
ok "after a network failure, tunnels recover by themselves"

# A second tunnel between the same switches makes no loop if both are isolated.
for on in a b; do at $on port set vale0:vxlan100 isolated on >/dev/null; done
at a attach vale0 vxlan:200,local=10.99.0.1,remote=10.99.0.2 --isolated on >/dev/null
at b attach vale0 vxlan:200,local=10.99.0.2,remote=10.99.0.1 --isolated on >/dev/null
# The number of frames that have come out of all tunnels.
came() {
    local on port sum=0
    for on in a b; do
        for port in vxlan100 vxlan200; do sum=$((sum + $(tunnel $on $port | jq '[.rings[] | select(.dir == "in") | .frames] | add'))); done
    done
    echo "$sum"
}
before=$(came)
in_space sa ip neigh flush dev sa
reaches sa 192.168.7.2 >"$work/ping" || fail "with two ways" "$(cat "$work/ping")"
goes_both_ways() {
    [ "$(tunnel b vxlan200 | jq '[.rings[] | select(.dir == "in") | .frames] | add')" -ge 1 ]
}
wait_for "frames for all go both ways" 10 goes_both_ways
sleep 0.5
expect "frames that a few pings make of two ways" "$(($(came) - before))" -le 100
for on in a b; do
    at $on detach vale0:vxlan200 >/dev/null
    at $on port set vale0:vxlan100 isolated default >/dev/null
done
ok "two ways between the same switches are no loop where both are isolated"

# An upgrade: a connection survives, and learned addresses are kept.
before=$(at a vtep list vale0:vxlan100 --json | jq .addresses)
background in_space sb iperf3 -s -1 --forceflush >"$work/iperf" 2>&1
wait_for "iperf3 listens" 10 grep -q listening "$work/iperf"
background in_space sa iperf3 -c 192.168.7.2 -t 4 -b 50M --json >"$work/tcp" 2>&1
client=$!
wait_for "the connection is established" 10 eval '[ "$(in_space sb ss -tnH state established | wc -l)" -ge 2 ]'
upgrade a
wait "$client" || fail "TCP across an upgrade" "$(cat "$work/tcp")"
jq -e '.end.sum_received.bits_per_second > 40e6' "$work/tcp" >/dev/null ||
    fail "TCP across an upgrade" "$(tail -n 30 "$work/tcp")"
after=$(at a vtep list vale0:vxlan100 --json | jq .addresses)
[ "$after" -ge "$before" ] || fail "learned addresses are kept across the upgrade" "$before before, $after after"
ok "an upgrade keeps connections and learned addresses"
finish
