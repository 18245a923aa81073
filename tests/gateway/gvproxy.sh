#!/usr/bin/env bash
# The drop-in for gvproxy, as an ordinary user without capabilities, with guests that speak QEMU's, Hyperkit's,
# User-Mode Linux' and vfkit's forms: the default network, names, the host, ports and sockets exposed from the host and
# from the guest, tunnels, sockets in the guest, notifications, and ends. The answers are those of the real gvproxy,
# which gvproxy-answers.json has.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl dig dnsmasq jq python3 nsenter

ln -s "$NETVALE" "$work/gvproxy"
mkdir -m 755 "$work/u" "$work/www" "$work/own" "$work/bin"
chown 65534:65534 "$work/u"
u=$work/u
api=$u/api.sock
qemu=$u/qemu.sock
echo guest >"$work/www/index.html"
echo own >"$work/own/index.html"
helper=$here/gvproxy.py
# In the place of ssh.
printf '#!/bin/sh\nexec python3 "%s" ssh "$@"\n' "$helper" >"$work/bin/ssh"
chmod 755 "$work/bin/ssh"
echo key >"$u/key"

network
background in_space outside busybox httpd -f -p 192.0.2.2:80 -h "$work/own"
background in_space host busybox httpd -f -p 127.0.0.1:8080 -h "$work/own"
wait_for "the servers answer" 20 in_space host curl -sf -o /dev/null http://192.0.2.2/
wait_for "the server of the host answers" 20 in_space host curl -sf -o /dev/null http://127.0.0.1:8080/

# begin OPTION…: starts the program, another one ends before.
begin() {
    background in_space host "${as_user[@]}" XDG_RUNTIME_DIR="$u" PATH="$work/bin:$PATH" "$work/gvproxy" "$@" \
        >"$work/gvproxy.err" 2>&1
    gvproxy=$!
    wait_for "gvproxy waits for clients" 20 grep -q 'waiting for clients' "$work/gvproxy.err"
}

# ends [SIGNAL]: the program ends, with status 0, and nothing is left.
ends() {
    end_of "$gvproxy" "${1:-TERM}" || fail "gvproxy's status" "$?" "$(cat "$work/gvproxy.err")"
    left=$(find "$u" -name '*.sock*' -o -name 'netvale*')
    [ -z "$left" ] || fail "nothing is left" "$left"
    ok "it ends, and nothing is left"
}

# begin_guest NAME KIND SOCKET MAC
begin_guest() {
    wait_for "the socket for $1" 20 test -S "$3"
    background in_space host "${as_user[@]}" unshare --user --map-root-user --net \
        python3 "$helper" guest "$2" "$3" "$1" "$4" >"$work/$1.out" 2>&1
    guests[$1]=$!
    wait_for "the guest $1 is connected" 20 grep -q attached "$work/$1.out"
    guests[$1]=$(inner "${guests[$1]}")
    inside "$1" ip link set dev lo up
    inside "$1" ip link set dev "$1" up
}

# lease GUEST WANTED
lease() {
    STATE=$work/$1.lease inside "$1" busybox udhcpc -q -n -f -t 5 -T 1 -i "$1" -s "$work/udhcpc.script" -O mtu \
        >"$work/$1.udhcpc" 2>&1 || fail "$1 gets a lease" "$(tail -n 5 "$work/$1.udhcpc" "$work/gvproxy.err")"
    same "$1 gets a lease" "$(cut -d ' ' -f 1-3,5 "$work/$1.lease")" "$2"
}

# same WHAT GOT WANTED
same() {
    [ "$2" = "$3" ] || fail "$1" "got $2, wanted $3" "$(tail -n 5 "$work/gvproxy.err")"
    ok "$1"
}

# asks PATH [BODY]: by the HTTP interface.
asks() {
    in_space host curl -s --max-time 20 --unix-socket "$api" "http://gvproxy$1" ${2:+-d "$2"}
}

resolves() {
    inside vm dig +short +time=2 +tries=2 @192.168.127.1 "$@"
}

fetches() {
    curl -s --max-time 10 "$@"
}

closed() {
    local code=0
    in_space host curl -s --max-time 5 -o /dev/null "$1" || code=$?
    [ "$code" = 7 ]
}

# --- parts

default_network() {
    begin_guest vm qemu "$qemu" 5a:94:ef:e4:0c:ee
    lease vm "192.168.127.2 192.168.127.1 192.168.127.1 1500"
    for zone in containers.internal docker.internal; do
        same "gateway.$zone" "$(resolves gateway.$zone)" 192.168.127.1
        same "host.$zone" "$(resolves host.$zone)" 192.168.127.254
    done
    same "no other name in a zone" "$(inside vm dig +time=2 @192.168.127.1 x.docker.internal |
        sed -n 's/.*status: \([A-Z]*\).*/\1/p')" NXDOMAIN
    same "the host's loopback is at the host's address" "$(inside vm curl -s --max-time 10 \
        http://192.168.127.254:8080/)" own
    ! inside vm curl -s --max-time 5 -o /dev/null http://192.168.127.1:8080/ || fail "not at the gateway's"
    ok "… not at the gateway's"
    same "the Internet" "$(inside vm curl -s --max-time 10 http://192.0.2.2/)" own
    inside vm ping -q -c 1 -W 2 192.168.127.254 >/dev/null || fail "the host's address answers to a ping"
    ok "the host's address answers to a ping"
    background inside vm busybox httpd -f -p 22 -h "$work/www"
    background inside vm busybox httpd -f -p 8080 -h "$work/www"
    wait_for "port 2222 leads to the guest's SSH" 20 in_space host curl -sf -o "$work/got" http://127.0.0.1:2222/
    same "port 2222 leads to the guest's SSH" "$(cat "$work/got")" guest
    same "the leases" "$(asks /services/dhcp/leases)" \
        '{"192.168.127.1":"5a:94:ef:e4:0c:dd","192.168.127.2":"5a:94:ef:e4:0c:ee"}'
    same "the guest's station" "$(asks /cam)" '{"5a:94:ef:e4:0c:ee":0}'
    expect "bytes are counted" "$(asks /stats | jq '[.BytesSent, .BytesReceived] | min')" -gt 1000
}

ports() {
    asks /services/forwarder/expose '{"local":"127.0.0.1:9090","remote":"192.168.127.2:8080"}'
    same "an exposed port" "$(in_space host curl -s --max-time 10 http://127.0.0.1:9090/)" guest
    asks /services/forwarder/unexpose '{"local":"127.0.0.1:9090"}'
    closed http://127.0.0.1:9090/ || fail "an unexposed one is closed"
    ok "an unexposed one is closed"
    same "… exposed by the guest, which names only its port" "$(inside vm curl -s \
        http://192.168.127.1/services/forwarder/expose -d '{"local":":9090","remote":":8080"}')" ""
    same "… from outside" "$(in_space outside curl -s --max-time 10 http://192.0.2.1:9090/)" guest
    same "the guest sees exposed ports" \
        "$(inside vm curl -s http://192.168.127.1/services/forwarder/all | jq -c '.[1]')" \
        '{"local":":9090","remote":"192.168.127.2:8080","protocol":"tcp"}'
    same "… and nothing else" "$(inside vm curl -s -o /dev/null -w '%{http_code}' \
        http://192.168.127.1/services/dns/all)" 404
    same "it cannot make sockets on the host" "$(inside vm curl -s -o /dev/null -w '%{http_code}' \
        http://192.168.127.1/services/forwarder/expose \
        -d '{"protocol":"unix","local":"'"$u"'/bad.sock","remote":"tcp://192.168.127.2:80"}')" 400
    inside vm curl -s http://192.168.127.1/services/forwarder/unexpose -d '{"local":":9090"}'
    closed http://127.0.0.1:9090/ || fail "unexposed by the guest"
    ok "unexposed by the guest"
    background inside vm dnsmasq -k -C /dev/null --user=root --pid-file= -p 53 --no-resolv --no-hosts \
        --listen-address=192.168.127.2 --bind-interfaces --address=/foobar/1.2.3.4 >"$work/dnsmasq.err" 2>&1
    wait_for "the guest's name server" 20 inside vm dig +short +time=1 @192.168.127.2 foobar
    asks /services/forwarder/expose '{"local":":1053","remote":"192.168.127.2:53","protocol":"udp"}'
    same "an exposed UDP port" "$(in_space host dig +short +time=2 -p 1053 @127.0.0.1 foobar)" 1.2.3.4
    asks /services/forwarder/unexpose '{"local":":1053","protocol":"udp"}'
    same "an exposed socket is made" "$(asks /services/forwarder/expose \
        '{"protocol":"unix","local":"'"$u"'/guest.sock","remote":"tcp://192.168.127.2:8080"}')" ""
    same "… and leads to the guest" "$(in_space host curl -s --max-time 10 --unix-socket "$u/guest.sock" \
        http://x/)" guest
    asks /services/forwarder/unexpose '{"protocol":"unix","local":"'"$u"'/guest.sock"}'
    [ ! -e "$u/guest.sock" ] || fail "… and is gone"
    ok "… and is gone"
    same "a tunnel" "$(in_space host python3 "$helper" tunnel "$api" 192.168.127.2 8080 /)" guest
}

names() {
    asks /services/dns/add '{"Name":"dynamic.internal.","Records":[{"Name":"test","IP":"192.168.127.254"}]}'
    same "an added name" "$(resolves test.dynamic.internal)" 192.168.127.254
    asks /services/dns/add '{"Name":"dynamic.internal.","Records":[{"Name":"test","IP":"192.168.127.253"}]}'
    same "… changed" "$(resolves test.dynamic.internal)" 192.168.127.253
    asks /services/dns/add '{"Name":"dynamic.testing.","DefaultIP":"192.168.127.2"}'
    asks /services/dns/add '{"Name":"testing.","Records":[{"Name":"gateway","IP":"192.168.127.1"},
        {"Regexp":"^w[0-9]$","IP":"192.168.127.9"}]}'
    same "a zone's default address" "$(resolves any.dynamic.testing)" 192.168.127.2
    same "the zone around it" "$(resolves gateway.testing)" 192.168.127.1
    same "a regular expression" "$(resolves w5.testing)" 192.168.127.9
}

has_notices() {
    [ "$(wc -l <"$u/notices")" -ge "$1" ]
}

first_notices() {
    wait_for "the notifications" 20 has_notices 2
    same "it notifies of the network, and of the guest" "$(cat "$u/notices")" "$(printf '%s\n' \
        '{"notification_type":"ready"}' \
        '{"notification_type":"connection_established","mac_address":"5a:94:ef:e4:0c:ee"}')"
}

# The only guest's end is the network's.
guest_leaves() {
    kill -KILL "${guests[vm]}"
    wait_for "gvproxy ends with its guest" 20 gone "$gvproxy"
    wait "$gvproxy" || fail "gvproxy's status" "$?"
    grep -q 'gvproxy exiting: cannot receive packets' "$work/gvproxy.err" ||
        fail "it says why" "$(cat "$work/gvproxy.err")"
    ok "it ends with its guest, and says why"
    wait_for "it notifies of the guest's end" 20 grep -q connection_closed "$u/notices"
    [ ! -e "$qemu" ] && [ ! -e "$api" ] && [ ! -e "$u/pid" ] || fail "nothing is left" "$(ls "$u")"
    ok "nothing is left"
}

forwards() {
    same "a socket in the guest" "$(in_space host curl -s --max-time 20 --unix-socket "$u/forward.sock" \
        http://x/)" guest
}

others() {
    local kind address
    begin -listen "unix://$api" -ssh-port -1
    begin_guest vm hyperkit "$api" 02:00:00:00:00:07
    lease vm "192.168.127.3 192.168.127.1 192.168.127.1 1500"
    same "a guest by /connect reaches the host" "$(inside vm curl -s --max-time 10 http://192.168.127.254:8080/)" own
    kill -KILL "${guests[vm]}"
    same "the next one finds the network" "$(asks /services/forwarder/all)" "[]"
    ends
    for kind in bess:seqpacket:unixpacket vfkit:unixgram:unixgram; do
        IFS=: read -r option kind scheme <<<"$kind"
        begin "-listen-$option" "$scheme://$u/guest.sock" -ssh-port -1 -mtu 1400
        begin_guest vm "$kind" "$u/guest.sock" 5a:94:ef:e4:0c:ee
        lease vm "192.168.127.2 192.168.127.1 192.168.127.1 1400"
        same "a guest by $kind reaches the host" "$(inside vm curl -s --max-time 10 http://192.168.127.254:8080/)" own
        kill -KILL "${guests[vm]}"
        wait_for "gvproxy ends with its guest" 20 gone "$gvproxy"
        wait "$gvproxy" || fail "gvproxy's status" "$?"
        rm -f "$u/guest.sock.guest"
    done
    cat >"$u/config.yaml" <<'YAML'
log-level: info
stack:
    subnet: 10.5.0.0/16
    dns:
    - name: lab.test.
      records:
      - name: host
        ip: 10.5.255.254
    forwards:
        127.0.0.1:7080: 10.5.0.9:8080
    dhcpStaticLeases:
        10.5.0.9: 02:00:00:00:00:09
YAML
    begin -config "$u/config.yaml" -listen-qemu "unix://$qemu" -listen "unix://$api"
    begin_guest vm qemu "$qemu" 02:00:00:00:00:09
    lease vm "10.5.0.9 10.5.0.1 10.5.0.1 1500"
    same "names of the file" "$(inside vm dig +short +time=2 @10.5.0.1 host.lab.test)" 10.5.255.254
    background inside vm busybox httpd -f -p 8080 -h "$work/www"
    wait_for "ports of the file" 20 in_space host curl -sf -o "$work/got" http://127.0.0.1:7080/
    same "ports of the file" "$(cat "$work/got")" guest
    ends
}

lines() {
    local status=0
    in_space host "$work/gvproxy" -version | grep -q '^gvproxy version v' || fail "the version"
    "$work/gvproxy" -nosuch >"$work/said" 2>&1 || status=$?
    same "an unknown option" "$status $(head -n 1 "$work/said")" "2 flag provided but not defined: -nosuch"
    status=0
    "$work/gvproxy" -ssh-port 80 >"$work/said" 2>&1 || status=$?
    same "a port that cannot be" "$status $(sed 's/.*level=/level=/' "$work/said")" \
        '1 level=fatal msg="ssh-port value must be between 1024 and 65535"'
}

# A killed program takes its processes with it, and leaves nothing in the way of the next one.
killed() {
    begin -listen-qemu "unix://$qemu" -services "unix://$api"
    kill -KILL "$gvproxy"
    wait "$gvproxy" 2>/dev/null || true
    wait_for "port 2222 is closed" 20 closed http://127.0.0.1:2222/
    rm -f "$qemu" "$api"
    begin -listen-qemu "unix://$qemu" -services "unix://$api"
    same "services have no /connect" "$(in_space host curl -s -o /dev/null -w '%{http_code}' --unix-socket "$api" \
        -X POST http://x/connect)" 404
    ok "killed: the next one has the same place"
}

background in_space host "${as_user[@]}" python3 "$helper" notices "$u/notify" "$u/notices" >"$work/notices.out"
wait_for "a listener for notifications" 20 grep -q ready "$work/notices.out"
lines
begin -listen "unix://$api" -listen-qemu "unix://$qemu" -notification "unix://$u/notify" -pid-file "$u/pid" \
    -forward-sock "$u/forward.sock" -forward-dest /run/guest.sock -forward-user core -forward-identity "$u/key"
same "the file with the process ID" "$(cat "$u/pid")" "$gvproxy"
must in_space host python3 "$helper" answers "$api" "$here/gvproxy-answers.json"
ok "$(tail -n 1 "$work/must")"
default_network
first_notices
ports
names
forwards
guest_leaves
others
killed
finish
