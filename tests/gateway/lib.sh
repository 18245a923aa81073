# shellcheck shell=bash
# Shared by the scripts of this folder: a gateway of an ordinary user, at the switch of that user's own daemon, and guests
# in namespaces that this user has made. Nothing of netvale's has a privilege.
#
# `host` has the daemon and the gateway, and a cable to `outside`, where a script has its servers. Sourced after
# ../lib.sh.

# --- the network

with_v6() {
    in_space "$1" sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0
}

network() {
    space host
    space outside
    veth host up0 outside down0
    ip -n host addr add 192.0.2.1/24 dev up0
    ip -n outside addr add 192.0.2.2/24 dev down0
}

network_with_v6() {
    network
    with_v6 host
    with_v6 outside
    ip -n host addr add 2001:db8::1/64 dev up0 nodad
    ip -n outside addr add 2001:db8::2/64 dev down0 nodad
}

# pages COUNT: a server outside, whose page N says "for N".
pages() {
    local n
    mkdir "$work/www"
    for n in $(seq "$1"); do echo "for $n" >"$work/www/$n"; done
    background in_space outside busybox httpd -f -p 80 -h "$work/www"
    wait_for "the server answers" 20 in_space host curl -sf -o /dev/null http://192.0.2.2/1
    echo "nameserver 192.0.2.2" >"$work/resolv.conf"
}

# --- the gateway and its guests

# begin_gateway [OPTION…]: another one ends before.
begin_gateway() {
    [ -z "${gateway:-}" ] || end_of "$gateway" || true
    : >"$work/gateway.err"
    background in_space host "${as_user[@]}" "$NETVALE" --run-dir "$work/host/run" gateway vale0 \
        10.0.0.1/24,fd00::1/64 --resolv-conf "$work/resolv.conf" --flows "$work/host/flows" "$@" \
        >>"$work/gateway.err" 2>&1
    gateway=$!
    wait_for "the gateway is ready" 20 grep -q ready "$work/gateway.err"
}

# begin_private_gateway COUNT [GUEST]: of root, for private ports vm1 to vmCOUNT. Port 2200 + N of the host leads to the
# server of GUEST at vmN.
begin_private_gateway() {
    local n rules=()
    for n in $(seq "$1"); do rules+=(--publish "$((2200 + n)):${2:-}@vm$n:80"); done
    background in_space host "$NETVALE" --run-dir "$run_dir" gateway vale0 10.0.0.1/24 --private \
        --resolv-conf "$work/resolv.conf" --flows "$work/flows" "${rules[@]}" 2>"$work/gateway.err"
    gateway=$!
    wait_for "the gateway is ready" 20 grep -q ready "$work/gateway.err"
}

# begin_guest NAME: a user's own namespaces, with a TAP of the switch in them.
begin_guest() {
    background in_space host "${as_user[@]}" unshare --user --map-root-user --net --mount bash -c "
        '$NETVALE' --run-dir '$work/host/run' attach vale0 tap:$1 --name $1 --netns /proc/self/ns/net && echo attached &&
        exec sleep infinity" >"$work/$1.out" 2>&1
    guest=$!
    wait_for "the guest $1 is on the switch" 20 grep -q attached "$work/$1.out"
    guests[$1]=$(inner "$guest")
    inside "$1" ip link set dev lo up
    inside "$1" ip link set dev "$1" up
}

# The process of a guest: the one in namespaces of its own.
inner() {
    local pid=$1 child
    while child=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null) && [ -n "${child// /}" ]; do
        pid=${child%% *}
    done
    echo "$pid"
}

# inside GUEST COMMAND…
inside() {
    ${direct:-} nsenter --net="/proc/${guests[$1]}/ns/net" "${@:2}"
}

declare -A guests=()
cat >"$work/udhcpc.script" <<'SCRIPT'
#!/bin/sh
case $1 in bound | renew)
    ip -4 addr flush dev "$interface" scope global
    ip addr add "$ip/$mask" dev "$interface"
    ip route replace default via "$router"
    echo "$ip $router $dns $domain $mtu" >"$STATE"
esac
SCRIPT
chmod 755 "$work/udhcpc.script"

# lease GUEST: by busybox' client.
lease() {
    STATE=$work/$1.lease inside "$1" busybox udhcpc -q -n -f -t 5 -T 1 -i "$1" -s "$work/udhcpc.script" -x "hostname:$1" \
        -O mtu -O domain >"$work/$1.udhcpc" 2>&1 || fail "$1 gets a lease" "$(tail -n 5 "$work/$1.udhcpc" "$work/gateway.err")"
    ok "$1 gets a lease: $(cat "$work/$1.lease")"
}

# --- checks

# same WHAT GOT WANTED
same() {
    [ "$2" = "$3" ] || fail "$1" "got $2, wanted $3"
    ok "$1"
}

fetch() {
    inside "$1" curl -s --max-time 20 "${@:2}"
}

fetches() {
    fetch "$2" -o "$work/got" "$3" || fail "$1" "curl: $?" "$(tail -n 3 "$work/gateway.err")"
    cmp "$work/got" "${4:-$work/www/file}" || fail "$1" "other bytes"
    ok "$1"
}

# refused WHAT GUEST CODE URL: within two seconds.
refused() {
    local code=0 begin=$SECONDS
    fetch "$2" -o /dev/null "$4" || code=$?
    same "$1" "$code" "$3"
    expect "… without waiting" $((SECONDS - begin)) -le $((2 * patience))
}

answers() {
    local what=$1 wanted=$2
    shift 2
    same "$what" "$(inside a dig +short +time=2 +tries=2 @10.0.0.1 "$@" | tr '\n' ' ')" "$wanted "
}

status() {
    inside a dig +time=2 +tries=2 @10.0.0.1 "$@" | sed -n 's/.*status: \([A-Z]*\).*/\1/p'
}

# record FILTER: how many lines of the flows' record it is true of.
record() {
    jq -c "select($1)" "$work/host/flows" | wc -l
}
