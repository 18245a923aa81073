#!/usr/bin/env bash
# Programs that carry data in names, iodine and dns2tcp, in a guest that may reach only some names: nothing of theirs
# leaves the gateway. Where the gateway resolves their names, they work, so that the test would notice a tunnel.
#
# `outside` has a name server that forwards to the far ends: iodined for tunnel.test, at 192.0.2.9, and dns2tcpd for
# stream.test, at 192.0.2.10.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl dig dnsmasq dns2tcpc dns2tcpd iodine iodined jq nsenter ping

servers() {
    local n
    for n in 9 10; do ip -n outside addr add "192.0.2.$n/24" dev down0; done
    mkdir "$work/www"
    echo "through the tunnel" >"$work/www/file"
    background in_space outside busybox httpd -f -p 127.0.0.1:8080 -h "$work/www"
    background in_space outside iodined -f -c -P secret -l 192.0.2.9 10.99.0.1/24 tunnel.test >"$work/iodined.err" 2>&1
    printf '%s\n' 'listen = 192.0.2.10' 'port = 53' 'user = root' 'chroot = /' 'domain = stream.test' 'key = secret' \
        'resources = web:127.0.0.1:8080' >"$work/dns2tcpd.conf"
    background in_space outside dns2tcpd -F -f "$work/dns2tcpd.conf" -p "$work/dns2tcpd.pid" >"$work/dns2tcpd.err" 2>&1
    background in_space outside dnsmasq -k -C /dev/null --user=root --pid-file= -p 53 --no-resolv --no-hosts \
        --listen-address=192.0.2.2 --bind-interfaces --cache-size=0 --log-queries --log-facility="$work/queries" \
        --host-record=allowed.test,192.0.2.3 --server=/tunnel.test/192.0.2.9 --server=/stream.test/192.0.2.10 \
        >"$work/dnsmasq.err" 2>&1
    echo "nameserver 192.0.2.2" >"$work/resolv.conf"
    chmod 644 "$work/resolv.conf"
    wait_for "the name server answers" 20 in_space host dig +short +time=1 @192.0.2.2 allowed.test
}

# iodine_comes_up [OPTION…] SERVER: whether iodine in the guest `a` has a tunnel, through which the far end answers.
iodine_comes_up() {
    local tunnel works=1
    background inside a iodine -f -P secret -d dns0 "$@" tunnel.test >"$work/iodine.out" 2>&1
    tunnel=$!
    for _ in $(seq 40); do
        ! gone "$tunnel" || break
        ! inside a ping -q -c 1 -W 1 -I dns0 10.99.0.1 >/dev/null 2>&1 || { works=0 && break; }
        sleep 0.5
    done
    end_of "$tunnel" INT || true
    return "$works"
}

# dns2tcp_comes_up SERVER: whether a page comes through dns2tcp.
dns2tcp_comes_up() {
    local tunnel works=1
    background inside a dns2tcpc -z stream.test -k secret -r web -l 9999 "$@" >"$work/dns2tcp.out" 2>&1
    tunnel=$!
    for _ in $(seq 10); do
        ! gone "$tunnel" || break
        [ "$(inside a curl -s --max-time 3 http://127.0.0.1:9999/file)" != "through the tunnel" ] ||
            { works=0 && break; }
        sleep 0.5
    done
    end_of "$tunnel" || true
    return "$works"
}

# up WHAT COMMAND…, down WHAT COMMAND…
up() {
    "${@:2}" || fail "$1" "$(tail -n 5 "$work/iodine.out" "$work/dns2tcp.out" 2>&1)"
    ok "$1"
}

down() {
    ! "${@:2}" || fail "$1" "the tunnel works"
    ok "$1"
}

# asked NAME: how many queries for names below it have reached the name server outside.
asked() {
    grep -c "query\[.*\.$1 from" "$work/queries" || true
}

# Only by the rules can it fail that succeeds here.
control() {
    begin_gateway
    up "without rules, iodine tunnels through the gateway's name service" iodine_comes_up -r 10.0.0.1
    up "… and dns2tcp" dns2tcp_comes_up 10.0.0.1
    begin_gateway --deny any --allow '*.tunnel.test' --allow '*.stream.test'
    up "who allows the far end's names allows the tunnel: iodine" iodine_comes_up -r 10.0.0.1
    up "… and dns2tcp" dns2tcp_comes_up 10.0.0.1
}

denied() {
    begin_gateway --deny any --allow allowed.test --allow '*.other.test'
    : >"$work/queries"
    same "an allowed name is resolved" "$(inside a dig +short +time=2 +tries=2 @10.0.0.1 allowed.test)" 192.0.2.3
    down "with --deny any, iodine has no tunnel" iodine_comes_up -r 10.0.0.1
    for kind in NULL TXT CNAME A; do
        down "… with queries of type $kind only" iodine_comes_up -r -T "$kind" 10.0.0.1
    done
    down "… nor one by the name server outside" iodine_comes_up 192.0.2.2
    down "… nor by the far end itself" iodine_comes_up 192.0.2.9
    down "dns2tcp has no tunnel" dns2tcp_comes_up 10.0.0.1
    down "… nor one with queries of type KEY" dns2tcp_comes_up -T KEY 10.0.0.1
    down "… nor by its far end" dns2tcp_comes_up 192.0.2.10
    expect "none of iodine's queries leaves the gateway" "$(asked tunnel.test)" -eq 0
    expect "none of dns2tcp's does" "$(asked stream.test)" -eq 0
    expect "both are recorded: iodine" "$(record '.reason == "name" and (.name | endswith(".tunnel.test"))')" -ge 1
    expect "… and dns2tcp" "$(record '.reason == "name" and (.name | endswith(".stream.test"))')" -ge 1
}

network
servers
host_daemon host "${as_user[@]}"
begin_gateway
begin_guest a
lease a
control
expect "the name server counts their queries" "$(asked tunnel.test)" -ge 1
denied
finish
