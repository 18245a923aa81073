#!/usr/bin/env bash
# DHCPv6: ISC's dhclient and, where it is there, busybox' udhcpc6 get addresses and settings from a gateway, keep them
# over its restart, and give them back. Guests make themselves no address where the gateway gives some.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl dhclient jq nsenter python3

cat >"$work/dhclient6.script" <<'SCRIPT'
#!/bin/sh
case $reason in
BOUND6 | RENEW6 | REBIND6)
    ip -6 addr replace "$new_ip6_address/128" dev "$interface" nodad
    ;;
RELEASE6 | EXPIRE6)
    ip -6 addr del "$old_ip6_address/128" dev "$interface"
    ;;
esac
echo "$reason ${new_ip6_address:-$old_ip6_address} $new_dhcp6_name_servers $new_dhcp6_domain_search" >>"$STATE"
SCRIPT
cat >"$work/udhcpc6.script" <<'SCRIPT'
#!/bin/sh
[ "$1" != bound ] || echo "$1 $ipv6 $dns" >>"$STATE"
SCRIPT
chmod 755 "$work/dhclient6.script" "$work/udhcpc6.script"

# isc GUEST OPTION…: runs ISC's client. What it has got is the last line of $work/GUEST.isc.
isc() {
    local guest=$1
    shift
    touch "$work/$guest.leases6"
    inside "$guest" timeout 40 dhclient -6 "$@" -e "STATE=$work/$guest.isc" -sf "$work/dhclient6.script" \
        -lf "$work/$guest.leases6" -pf "$work/$guest.pid6" "$guest" >"$work/$guest.dhclient" 2>&1 ||
        fail "dhclient -6 $* in $guest" "$(tail -n 5 "$work/$guest.dhclient" "$work/gateway.err")"
}

got() {
    tail -n 1 "$work/$1.isc"
}

stop_isc() {
    end_of "$(cat "$work/$1.pid6")" || true
}

# ready GUEST: its link-local address can be used, and it has a default route.
ready() {
    inside "$1" ip -6 -j addr show dev "$1" scope link | jq -e '[.[].addr_info[]? | select(.local and (.tentative | not))] != []' &&
        inside "$1" ip -6 -j route show default | jq -e 'length > 0'
}

# asked REQUEST: the gateway's answer at its control socket.
asked() {
    python3 - "$work/host/run/gateway-vale0:gateway.sock" "$1" <<'PYTHON'
import socket, sys
control = socket.socket(socket.AF_UNIX)
control.connect(sys.argv[1])
control.sendall(sys.argv[2].encode() + b"\n")
print(control.makefile().readline(), end="")
PYTHON
}

# leased: the addresses that are leased.
leased() {
    asked '{"do":"leases"}' | jq -r '[.ok.leases[].ip] | join(" ")'
}

made_addresses() {
    inside "$1" ip -6 -j addr show dev "$1" scope global | jq '[.[].addr_info[]? | select(.prefixlen == 64)] | length'
}

addresses() {
    wait_for "a guest has a router" 20 ready a
    isc a -1
    same "a guest has an address, name server and domains" "$(got a)" "BOUND6 fd00::1000 fd00::1 lan. lab.test."
    same "the gateway lists the lease" "$(leased)" fd00::1000
    same "the guest has made itself no address" "$(made_addresses a)" 0
    fetches "it reaches the outside" a 'http://[2001:db8::2]/1' "$work/www/1"
    begin_guest b
    wait_for "another guest has a router" 20 ready b
    isc b -1
    same "another guest has another address" "$(got b | cut -d ' ' -f 2)" fd00::1001
    inside a ping -q -c 1 -W 2 fd00::1001 >/dev/null || fail "guests reach each other"
    ok "guests reach each other"
}

# A client that starts again asks whether its address is still right.
again() {
    stop_isc a
    isc a -1
    got a | grep -q fd00::1000 || fail "the same address after the client's restart" "$(cat "$work/a.isc")"
    ok "the same address after the client's restart"
    stop_isc a
    begin_gateway --dhcpv6 addresses --search lab.test
    isc a -1
    got a | grep -q fd00::1000 || fail "the same address after the gateway's restart" "$(cat "$work/a.isc")"
    ok "the same address after the gateway's restart"
}

release() {
    stop_isc b
    isc b -1
    same "both leases" "$(leased | tr ' ' '\n' | sort | xargs)" "fd00::1000 fd00::1001"
    isc b -r
    same "a lease ends when it is given back" "$(leased)" fd00::1000
}

other_client() {
    busybox udhcpc6 --help >/dev/null 2>&1 || { ok "this busybox has no udhcpc6: dhclient is the only client" && return; }
    STATE=$work/b.udhcpc6 inside b timeout 20 busybox udhcpc6 -q -n -f -i b -s "$work/udhcpc6.script" \
        >"$work/b.udhcpc6.out" 2>&1 || fail "udhcpc6" "$(cat "$work/b.udhcpc6.out")"
    same "udhcpc6 has an address" "$(tail -n 1 "$work/b.udhcpc6" | cut -d ' ' -f 1-2)" "bound fd00::1001"
}

# The default: guests make addresses, and get settings.
settings() {
    begin_gateway --search lab.test
    wait_for "the guest has made itself an address" 30 made_one b
    isc b -1 -S
    same "settings without an address" "$(got b | cut -d ' ' -f 2- | xargs)" "fd00::1 lan. lab.test."
    ! timeout 6 nsenter --net="/proc/${guests[b]}/ns/net" dhclient -6 -1 -d -sf "$work/dhclient6.script" \
        -lf "$work/none.leases6" -pf "$work/none.pid6" b >"$work/none.dhclient" 2>&1 || fail "no address is given"
    ok "no address is given"
}

made_one() {
    [ "$(made_addresses "$1")" -ge 1 ]
}

network_with_v6
pages 1

host_daemon host "${as_user[@]}"
begin_gateway --dhcpv6 addresses --search lab.test
begin_guest a
addresses
again
release
other_client
settings
finish
