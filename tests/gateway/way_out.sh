#!/usr/bin/env bash
# The way out: a gateway of an ordinary user, at the switch of that user's own daemon, and a guest in a namespace that
# this user has made. Nothing of netvale's has a privilege.
#
# `host` has the daemon and the gateway, and a cable to `outside`, where servers for HTTP, names and datagrams are.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl dhclient dig dnsmasq python3 nsenter ping

# servers: HTTP and names outside, HTTP on the host's loopback.
servers() {
    mkdir "$work/www" "$work/own"
    head -c 5000000 /dev/urandom >"$work/www/file"
    echo own >"$work/own/index.html"
    background in_space outside busybox httpd -f -p '[::]:80' -h "$work/www"
    background in_space host busybox httpd -f -p 127.0.0.1:8080 -h "$work/own"
    background in_space outside dnsmasq -k -C /dev/null --user=root --pid-file= -p 53 --no-resolv --no-hosts \
        --listen-address=192.0.2.2 --bind-interfaces --address=/invalid/ --address=/example.test/192.0.2.2 --address=/example.test/2001:db8::2 \
        --txt-record=long.test,"$(head -c 200 /dev/zero | tr '\0' a)" >"$work/dnsmasq.err" 2>&1
    echo "nameserver 192.0.2.2" >"$work/resolv.conf"
    chmod 644 "$work/resolv.conf"
    wait_for "the servers answer" 20 in_space host curl -sf -o /dev/null http://192.0.2.2/file
    wait_for "the name server answers" 20 in_space host dig +short +time=1 @192.0.2.2 example.test
}

cat >"$work/dhclient.script" <<'SCRIPT'
#!/bin/sh
case $reason in BOUND | RENEW | REBIND | REBOOT)
    ip -4 addr flush dev "$interface" scope global
    ip addr add "$new_ip_address/24" dev "$interface"
    ip route replace default via "$new_routers"
    echo "$reason $new_ip_address" >>"$STATE"
esac
SCRIPT
chmod 755 "$work/dhclient.script"

# isc_lease GUEST: by ISC's client, which asks for its former address when it starts again. The last word of its state is
# what it has done.
isc_lease() {
    inside "$1" timeout 30 dhclient -1 -e "STATE=$work/$1.isc" -sf "$work/dhclient.script" -lf "$work/$1.leases" \
        -pf "$work/$1.pid" "$1" >"$work/$1.dhclient" 2>&1 || fail "$1 gets a lease" "$(tail -n 5 "$work/$1.dhclient")"
    end_of "$(cat "$work/$1.pid")" || true
    ok "$1 has a lease: $(tail -n 1 "$work/$1.isc")"
}

# networkd_lease GUEST: by systemd-networkd, without systemd. If /sys is read-only, it does not wait for udev. It asks for a lease, and makes itself an IPv6 address from router advertisements.
networkd_lease() {
    mkdir -p "$work/$1.run/systemd/network" "$work/$1.run/systemd/netif"/{links,leases,lldp}
    printf '%s\n' '[Match]' "Name=$1" '[Network]' DHCP=ipv4 IPv6AcceptRA=yes '[DHCPv4]' "Hostname=$1" UseMTU=yes \
        >"$work/$1.run/systemd/network/10-$1.network"
    chmod -R a+rX "$work/$1.run"
    chown -R systemd-network: "$work/$1.run/systemd/netif"
    background inside "$1" unshare --mount sh -c \
        "mount -t sysfs -o ro test /sys && mount --bind '$work/$1.run' /run && exec '$networkd'" >"$work/$1.networkd" 2>&1
    wait_for "systemd-networkd has a lease" 60 has_dynamic "$1" inet
    wait_for "… and an IPv6 address" 60 has_v6 "$1"
    ok "systemd-networkd gets a lease, and an IPv6 address"
}

has_dynamic() {
    inside "$1" ip -j addr show dev "$1" | jq -e ".[].addr_info[] | select(.family == \"$2\" and .dynamic)" >/dev/null ||
        { tail -n 5 "$work/$1.networkd" && false; }
}

has_dhcp_route() {
    inside "$1" ip route show default | grep "via 10.0.0.1 .*proto dhcp"
}

is_free() {
    [ "$(status "$1.lan")" = NXDOMAIN ]
}

systemd_client() {
    networkd=/lib/systemd/systemd-networkd
    [ -x "$networkd" ] || { echo "left out: systemd-networkd is not installed" && return; }
    begin_guest c
    networkd_lease c
    local client=$!
    wait_for "it has the default route" 20 has_dhcp_route c
    fetches "… by which it fetches a file" c http://192.0.2.2/file
    answers "… and the name it asked for" "$(inside c ip -4 -j addr show dev c | jq -r '.[0].addr_info[0].local')" c.lan
    end_of "$client" || true
    wait_for "it gives the lease back when it ends" 20 is_free c
    ok "it gives the lease back when it ends"
}

addresses_and_names() {
    lease a
    same "the gateway is router and name server" "$(cut -d ' ' -f 2-5 "$work/a.lease")" "10.0.0.1 10.0.0.1 lan 1500"
    begin_guest b
    touch "$work/b.leases"
    isc_lease b
    isc_lease b
    same "… and the same again after a restart" "$(cut -d ' ' -f 2 "$work/b.isc" | uniq | wc -l)" 1
    tail -n 1 "$work/b.isc" | grep -q REBOOT || fail "it asks for its former address" "$(cat "$work/b.isc")"
    lease b
    inside a ping -q -c 1 -W 2 10.0.0.1 >/dev/null || fail "the gateway answers to a ping"
    ok "the gateway answers to a ping"
    answers "a name from outside" 192.0.2.2 example.test
    answers "… by TCP" 192.0.2.2 +tcp example.test
    answers "… in any case of letters" 192.0.2.2 eXamPle.TEST
    answers "a type of many bytes" "\"$(head -c 200 /dev/zero | tr '\0' a)\"" TXT long.test
    answers "another guest's name" "$(cut -d ' ' -f 1 "$work/b.lease")" b.lan
    answers "… and back" b.lan. -x "$(cut -d ' ' -f 1 "$work/b.lease")"
    same "no such name in the network" "$(status c.lan)" NXDOMAIN
    same "no such name outside" "$(status nothing.invalid)" NXDOMAIN
    same "no data is another answer" "$(status b.lan MX)" NOERROR
    inside a ping -q -c 1 -W 2 "$(cut -d ' ' -f 1 "$work/b.lease")" >/dev/null || fail "guests reach each other"
    ok "guests reach each other"
}

way_out() {
    fetches "5 MB by HTTP" a http://192.0.2.2/file
    wait_for "the guest has made itself an address" 20 has_v6 a
    fetches "5 MB by IPv6" a 'http://[2001:db8::2]/file'
    refused "a closed port is refused" a 7 http://192.0.2.2:81/
    refused "an address to which there is no way" a 7 http://198.51.100.1/
    same "a datagram there and back" "$(inside a dig +short +time=2 @192.0.2.2 example.test)" 192.0.2.2
    background in_space outside python3 "$root/tests/hosts/transfer.py" serve 192.0.2.2 9090 >"$work/server.out" 2>&1
    local server=$!
    wait_for "the server listens" 20 grep -q ready "$work/server.out"
    inside a python3 "$root/tests/hosts/transfer.py" fetch 192.0.2.2 9090 $((10 << 20)) >"$work/client.out" 2>&1 ||
        fail "10 MiB each way, and datagrams" "$(cat "$work/client.out")" "$(tail -n 3 "$work/gateway.err")"
    ended "10 MiB each way, and datagrams" "$server" 0
}

# narrow ADDRESS [FLAG]: to this address, the path has a smaller MTU than the guest's network.
narrow() {
    ip -n outside addr add "$1" dev down0 "${@:2}"
    ip -n host route add "$1" dev up0 mtu 1300
}

narrow_path() {
    narrow 192.0.2.9
    narrow 2001:db8::9 nodad
    background in_space outside python3 "$here/datagrams.py" serve 192.0.2.9,2001:db8::9 9009 >"$work/narrow.out" 2>&1
    wait_for "the server for datagrams listens" 20 grep -q ready "$work/narrow.out"
    local address
    for address in 192.0.2.9 2001:db8::9; do
        same "the guest learns the MTU of the path to $address" "$(inside a python3 "$here/datagrams.py" mtu "$address" 9009)" \
            1300
        inside a python3 "$here/datagrams.py" long "$address" 9009 >"$work/long" 2>&1 ||
            fail "datagrams that may be fragmented pass" "$(cat "$work/long")"
        ok "… and datagrams that may be fragmented pass"
    done
}

has_v6() {
    inside "$1" ip -6 -j addr show dev "$1" scope global | jq -e '[.[].addr_info[]? | select(.local and (.tentative | not))] != []'
}

# The kernel has sockets for pings for those groups that it is told.
pings() {
    in_space host sysctl -qw net.ipv4.ping_group_range="1 0"
    ! inside a ping -q -c 1 -W 1 192.0.2.2 >/dev/null || fail "a ping without a socket is not answered"
    grep -q ping_group_range "$work/gateway.err" || fail "the log says why" "$(tail -n 3 "$work/gateway.err")"
    ok "a ping without a socket is not answered, and the log says why"
    in_space host sysctl -qw net.ipv4.ping_group_range="0 2147483647"
    inside a ping -q -c 2 -i 0.2 -W 2 192.0.2.2 >/dev/null || fail "a ping of a host outside"
    inside a ping -q -c 2 -i 0.2 -W 2 -s 4000 192.0.2.2 >/dev/null || fail "a long ping of a host outside"
    inside a ping -q -c 2 -i 0.2 -W 2 2001:db8::2 >/dev/null || fail "a ping of a host outside, by IPv6"
    ok "pings of a host outside"
    local address
    narrow 192.0.2.8
    narrow 2001:db8::8 nodad
    for address in 192.0.2.8 2001:db8::8; do
        wait_for "a ping that must not be fragmented learns the MTU of the path to $address" 20 learns_mtu "$address"
        ok "a ping that must not be fragmented learns the MTU of the path to $address"
    done
    inside a ping -q -c 1 -W 2 -M dont -s 1400 192.0.2.8 >/dev/null || fail "a ping that may be fragmented passes"
    ok "a ping that may be fragmented passes"
    ! inside a ping -q -c 1 -W 1 192.0.2.77 >/dev/null || fail "a host that is not there does not answer"
    ok "a host that is not there does not answer"
}

# The kernel's own message has "mtu=1300", the gateway's error "mtu = 1300".
learns_mtu() {
    { inside a ping -c 3 -i 0.2 -W 1 -M do -s 1400 "$1" 2>&1 || true; } | grep 'mtu \?[=:] \?1300'
}

policy() {
    refused "the host's loopback" a 7 http://10.0.0.1:8080/
    refused "an address of the host" a 7 http://192.0.2.1/
    ip -n host route add 172.16.0.0/12 dev up0
    refused "a private network" a 7 http://172.16.0.1/
    begin_gateway --allow 127.0.0.1:8080 --deny any --allow 192.0.2.2:80/tcp
    fetches "what is allowed of the loopback" a http://10.0.0.1:8080/ "$work/own/index.html"
    fetches "what is allowed outside" a http://192.0.2.2/file
    refused "what is not" a 7 'http://[2001:db8::2]/file'
    ! inside a dig +time=1 +tries=1 @192.0.2.2 example.test >/dev/null || fail "names from another server"
    ok "names from another server"
    same "names of which no rule allows anything are refused" "$(status example.test)" REFUSED
    answers "names of the network are not" 10.0.0.1 gateway.lan
    expect "refusals are recorded" "$(record '.event == "refused" and .reason == "policy"')" -ge 4
    expect "flows are recorded with their bytes" "$(record '.event == "closed" and .received > 5000000')" -ge 3
}

way_in() {
    begin_gateway --publish 127.0.0.1:2222:a:22 --publish 192.0.2.1:8081:a:80 --publish 192.0.2.1:9010:a:9010/udp
    lease a
    background inside a busybox httpd -f -p 80 -h "$work/www"
    wait_for "a published port, from the guest's first listen" 20 in_space outside curl -sf -o "$work/got" \
        http://192.0.2.1:8081/file
    cmp "$work/got" "$work/www/file" || fail "a published port" "other bytes"
    ok "a published port, from the guest's first listen"
    local code=0
    in_space host curl -s --max-time 10 http://127.0.0.1:2222/ >/dev/null || code=$?
    # 7 if the reset comes before curl has looked at its connection, else 56.
    case $code in 7 | 56) ok "a port on which the guest does not listen is reset" ;; *) fail "a reset" "curl: $code" ;; esac
    # The guest's kernel sets DF in answers until it learns that the path is narrower; then it fragments them.
    narrow 192.0.2.7
    ip -n outside route add 192.0.2.1 dev down0 src 192.0.2.7
    background inside a python3 "$here/datagrams.py" serve 0.0.0.0 9010 >"$work/answers.out" 2>&1
    wait_for "the guest's server for datagrams listens" 20 grep -q ready "$work/answers.out"
    in_space outside python3 "$here/datagrams.py" long 192.0.2.1 9010 >"$work/long" 2>&1 ||
        fail "long answers from a published port" "$(cat "$work/long")"
    inside a ip route get 192.0.2.7 | grep -q 'mtu 1300' ||
        fail "the guest learns the MTU of the path to a client" "$(inside a ip route get 192.0.2.7)"
    ok "answers from a published port learn the MTU of the path to the client"
}

# A gateway that is killed takes its flows with it, and nothing opens.
death() {
    kill -KILL "$gateway"
    wait "$gateway" 2>/dev/null || true
    gateway=
    local code=0
    inside a curl -s --connect-timeout 2 -o /dev/null http://192.0.2.2/file || code=$?
    expect "without a gateway there is no way out: curl says $code" "$code" -ge 7
    begin_gateway
    fetches "a new one is the way out again" a http://192.0.2.2/file
}

network_with_v6
servers
host_daemon host "${as_user[@]}"
begin_gateway
begin_guest a
addresses_and_names
systemd_client
way_out
narrow_path
pings
policy
way_in
death
finish
