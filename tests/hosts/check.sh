#!/usr/bin/env bash
# `netvale vtep check`: what it reports about the endpoints of other hosts. Each host is a network namespace; over IPv4
# and IPv6.
#
# The command runs on host a. Also on its network: k with the kernel's VXLAN device, b with netvale (as an ordinary
# user), n where nothing listens, q that answers no echo requests, s behind a switch that silently drops long packets,
# and a router with a route to host h that takes only short packets (it reports this) and rejects everything else.
# measures: no
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
# kernel SPACE V4 V6: creates VXLAN devices of the kernel in that namespace.
kernel() {
    in_space "$1" ip link add vx4 type vxlan id 100 local "$2" dstport 4789 || skip "this kernel has no VXLAN devices"
    in_space "$1" ip link add vx6 type vxlan id 100 local "$3" dstport 4789
    in_space "$1" ip link set vx4 up
    in_space "$1" ip link set vx6 up
}

# behind NAME NUMBER: a host behind the router, with the addresses 10.9.NUMBER.2 and fd09:NUMBER::2. Packets of up to
# 1400 bytes reach it.
behind() {
    space "$1"
    veth "$1" u0 router "d$2" 1400
    address "$1" u0 "10.9.$2.2"
    address router "d$2" "10.9.$2.1"
    six "$1" "fd09:$2::2/64" u0
    six router "fd09:$2::1/64" "d$2"
    in_space "$1" ip route add default via "10.9.$2.1"
    in_space "$1" ip -6 route add default via "fd09:$2::1"
    kernel "$1" "10.9.$2.2" "fd09:$2::2"
}

# asks CODE ARGUMENT…: runs `netvale vtep check` on host a, which must exit with CODE. Its output is in $work/said.
asks() {
    local wanted=$1 got=0
    shift
    in_space a "$NETVALE" --run-dir "$work/a/run" vtep check "$@" >"$work/said" 2>"$work/errors" || got=$?
    [ "$got" = "$wanted" ] || fail "vtep check $*: exit code $got, wanted $wanted" "$(cat "$work/said" "$work/errors")"
}

# says WHAT EXPRESSION: the output must satisfy the jq expression.
says() {
    jq -e "$2" "$work/said" >/dev/null || fail "$1" "not true: $2" "$(cat "$work/said")"
    ok "$1"
}

# finds WHAT CODE TUNNEL VTEP EXPRESSION: the same, for the object of the one VTEP that is checked.
finds() {
    asks "$2" "vale0:$3" "$4" --json
    says "$1" ".vteps | length == 1 and (.[0] | .vtep == \"$4\" and ($5))"
}

# --- hosts

network
host_six a 1
host_six b 2
host_six k 3
host_six n 4
host_six q 5
host_six s 7 1400
host_six router 9
in_space router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
# The test provokes more ICMP errors than the default limit of one a second lets through.
in_space router sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0
behind h 8
kernel k 10.99.0.3 fd99::3
kernel q 10.99.0.5 fd99::5
in_space q sysctl -qw net.ipv4.icmp_echo_ignore_all=1 net.ipv6.icmp.echo_ignore_all=1
kernel s 10.99.0.7 fd99::7
for kind in prohibit:5 unreachable:6; do
    in_space router ip route add "${kind%:*}" "10.9.1${kind#*:}.0/24"
    in_space router ip -6 route add "${kind%:*}" "fd09:1${kind#*:}::/64"
done
for n in 8 15 16; do
    in_space a ip route add "10.9.$n.0/24" via 10.99.0.9
    in_space a ip -6 route add "fd09:$n::/64" via fd99::9
done
host_daemon a
host_daemon b "${as_user[@]}"
"${as_user[@]}" "$NETVALE" --run-dir "$work/b/run" attach vale0 vxlan:100,local=10.99.0.2,remote=10.99.0.1 >/dev/null
"${as_user[@]}" "$NETVALE" --run-dir "$work/b/run" attach vale0 vxlan:101,local=fd99::2,remote=fd99::1 --name six \
    >/dev/null
at a attach vale0 vxlan:100,local=10.99.0.1,remote=10.99.0.3,remote=10.99.0.2 --name four >/dev/null
at a attach vale0 vxlan:100,local=fd99::1 --name six >/dev/null

# --- endpoints that answer

asks 0 vale0:four --json
says "endpoints of the kernel and of netvale answer" '
    .port == "vale0:four" and .vni == 100 and .local == "10.99.0.1" and .udp_port == 4789 and .mtu == 1450
    and ([.vteps[].vtep] | sort) == ["10.99.0.2", "10.99.0.3"]
    and all(.vteps[]; .result == "ok" and .reason == null and .path_mtu == 1500 and .inner_mtu == 1450 and .known_path_mtu == 1500
        and .round_trip_ms > 0 and .round_trip_ms < 1000)'
finds "the kernel's, over IPv6" 0 six fd99::3 '.result == "ok" and .path_mtu == 1500 and .inner_mtu == 1430'
finds "netvale's, over IPv6" 0 six fd99::2 '.result == "ok" and .inner_mtu == 1430'
asks 0 vale0:four
grep -qE '^10\.99\.0\.3 +[0-9.]+ ms +1500 +1450  ok$' "$work/said" || fail "the table lists it" "$(cat "$work/said")"
ok "the table lists it"
[ "$(in_space k bridge fdb show dev vx4 | grep -vc permanent)" = 0 ] ||
    fail "the kernel's endpoint has learned no address from it" "$(in_space k bridge fdb show dev vx4)"
ok "the kernel's endpoint has learned no address from it"

# --- others

four_and_six() {
    local what=$1 code=$2 host=$3 expression=$4
    finds "$what" "$code" four "10.9.$host" "$expression"
    finds "$what, over IPv6" "$code" six "fd09:${host%.*}::${host#*.}" "$expression"
}
# in_net WHAT CODE NUMBER EXPRESSION: for a host on a's own network, over IPv4 and IPv6 (fd99::NUMBER).
in_net() {
    finds "$1" "$2" four "10.99.0.$3" "$4"
    finds "$1, over IPv6" "$2" six "fd99::$3" "$4"
}
in_net "a host where nothing listens" 1 4 \
    '.result == "port-unreachable" and (.reason | contains("4789")) and .path_mtu == null'
in_net "a host that does not answer" 1 5 '.result == "no-answer" and .round_trip_ms == null'
four_and_six "a router's firewall" 1 15.1 '.result == "prohibited" and (.reason | contains("9"))'
finds "a router without a route reports it" 1 four 10.9.16.1 \
    '.result == "host-unreachable" and (.reason | endswith("says 10.99.0.9"))'
finds "an address without a route" 1 four 10.77.0.1 '.result == "no-route"'
finds "an address without a route, over IPv6" 1 six fd77::1 '.result == "no-route"'
asks 1 vale0:four 10.99.0.99 --json --timeout 0.2
says "an address without a host" '.vteps[0].result == "no-answer"'

# --- lengths

four_and_six "a router that reports its MTU" 0 8.2 \
    '.result == "ok" and .known_path_mtu == 1500 and .path_mtu == 1400'
finds "the kernel knows the path MTU now" 0 four 10.9.8.2 '.known_path_mtu == 1400 and .path_mtu == 1400 and .inner_mtu == 1350'
asks 0 vale0:four 10.9.8.2
grep -q "ok; the tunnel's MTU is 1450" "$work/said" && grep -q -- '--mtu 1350' "$work/said" ||
    fail "a too large MTU of the tunnel is reported" "$(cat "$work/said")"
ok "a too large MTU of the tunnel is reported"
in_net "long packets are lost silently" 1 7 '.result == "black-hole" and .known_path_mtu == 1500 and .path_mtu == 1400 and (.reason | contains("longer than 1400 bytes"))'
at a attach vale0 vxlan:102,local=10.99.0.1,remote=10.99.0.7 --name short --mtu 1350 >/dev/null
finds "for a tunnel with a smaller MTU, that is no error" 0 short 10.99.0.7 \
    '.result == "black-hole" and .inner_mtu == 1350'
at a vtep add vale0:four 10.99.0.4
asks 1 vale0:four --json
says "one of several fails" '[.vteps[].result] | sort == ["ok", "ok", "port-unreachable"]'

# --- who may ask, and where

refuses_in() {
    ends_with "$2" "$3" "$4" in_space "$1" "${@:5}"
}
as_b=("${as_user[@]}" "$NETVALE" --run-dir "$work/b/run" vtep check)
in_space b sysctl -qw net.ipv4.ping_group_range='1 0'
refuses_in b "an ordinary user may not ping" 1 ping_group_range "${as_b[@]}" vale0:vxlan100
in_space b sysctl -qw net.ipv4.ping_group_range='0 2147483647'
for port in vxlan100 six; do
    in_space b "${as_b[@]}" "vale0:$port" --json >"$work/said" || fail "an ordinary user checks" "$(cat "$work/said")"
    says "an ordinary user checks ($port)" '.vteps | length == 1 and .[0].result == "ok" and .[0].path_mtu == 1500'
done
refuses_in k "another network namespace is named" 1 'another network namespace' "$NETVALE" --run-dir "$work/a/run" \
    vtep check vale0:four
refuses_in a "IPv6 from IPv4" 2 'vtep list' "$NETVALE" --run-dir "$work/a/run" vtep check vale0:four fd99::3
refuses_in a "a tunnel without endpoints" 1 'has no endpoint' "$NETVALE" --run-dir "$work/a/run" vtep check \
    vale0:six
refuses_in a "a port that does not exist" 4 'does not exist' "$NETVALE" --run-dir "$work/a/run" vtep check vale0:none
finish
