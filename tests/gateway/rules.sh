#!/usr/bin/env bash
# What guests may reach: rules with addresses and with names, and changes while the gateway runs. `outside` has a name
# server and the addresses of its names: 192.0.2.2 to 192.0.2.5, and 172.16.0.1 in a private network.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl dig dnsmasq jq nsenter ping python3

servers() {
    local n
    for n in 3 4 5; do ip -n outside addr add "192.0.2.$n/24" dev down0; done
    ip -n outside addr add 172.16.0.1/32 dev down0
    ip -n host route add 172.16.0.0/12 dev up0
    mkdir "$work/www"
    head -c 5000000 /dev/urandom >"$work/www/file"
    # More than all buffers on the way hold.
    truncate -s 100M "$work/www/long"
    for n in 80 81; do background in_space outside busybox httpd -f -p "[::]:$n" -h "$work/www"; done
    background in_space outside dnsmasq -k -C /dev/null --user=root --pid-file= -p 53 --no-resolv --no-hosts \
        --listen-address=192.0.2.2 --bind-interfaces --local-ttl=1 --local=/test/ \
        --host-record=allowed.test,192.0.2.2,2001:db8::2 --txt-record=allowed.test,text \
        --host-record=www.wild.test,192.0.2.3 --host-record=wild.test,192.0.2.3 --host-record=a.b.wild.test,192.0.2.3 \
        --cname=alias.test,real.test --host-record=real.test,192.0.2.4 \
        --host-record=private.test,172.16.0.1 --host-record=host.test,192.0.2.1 --host-record=loop.test,127.0.0.1 \
        --host-record=own.test,10.0.0.1 --host-record=nat.test,64:ff9b::ac10:1 --host-record=other.test,192.0.2.5 \
        >"$work/dnsmasq.err" 2>&1
    echo "nameserver 192.0.2.2" >"$work/resolv.conf"
    chmod 644 "$work/resolv.conf"
    wait_for "the servers answer" 20 in_space host curl -sf -o /dev/null http://192.0.2.2/file
    wait_for "the other server answers" 20 in_space host curl -sf -o /dev/null http://192.0.2.2:81/file
    wait_for "the name server answers" 20 in_space host dig +short +time=1 @192.0.2.2 allowed.test
    background in_space outside python3 "$here/datagrams.py" serve 192.0.2.2,192.0.2.3,192.0.2.4,2001:db8::2 9000,9001 \
        >"$work/datagrams.out" 2>&1
    wait_for "the server for datagrams listens" 20 grep -q ready "$work/datagrams.out"
}

# ask GUEST NAME [TYPE]: what the gateway answers, in one line.
ask() {
    inside "$1" dig +short +time=2 +tries=2 @10.0.0.1 "${@:2}" | tr '\n' ' '
}

# may GUEST URL, may_not GUEST URL
may() {
    fetches "$1 may reach $2" "$1" "$2"
}

may_not() {
    refused "$1 may not reach $2" "$1" 7 "$2"
}

# datagram WHAT GUEST ADDRESS PORT CODE: 0 if it comes back, 2 if it is refused.
datagram() {
    local code=0
    inside "$2" python3 "$here/datagrams.py" ask "$3" "$4" >"$work/datagram" 2>&1 || code=$?
    same "$1$(sed 's/^/ (/; s/$/)/' "$work/datagram")" "$code" "$5"
}

may_ping() {
    inside "$1" ping -q -c 2 -i 0.2 -W 2 "$2" >/dev/null || fail "$1 may ping $2" "$(tail -n 3 "$work/gateway.err")"
    ok "$1 may ping $2"
}

may_not_ping() {
    inside "$1" ping -c 1 -W 2 "$2" >"$work/ping" && fail "$1 may not ping $2" "it does"
    grep -qi "filtered\|prohibited" "$work/ping" || fail "$1 is told that it may not ping $2" "$(cat "$work/ping")"
    ok "$1 is told that it may not ping $2"
}

egress() {
    "${as_user[@]}" "$NETVALE" --run-dir "$work/host/run" egress vale0 "$@"
}

publish() {
    "${as_user[@]}" "$NETVALE" --run-dir "$work/host/run" publish vale0 "$@"
}

flows() {
    ${direct:-} "${as_user[@]}" "$NETVALE" --run-dir "$work/host/run" flows vale0 "$@"
}

# Everything is refused but what rules allow.
deny_by_default() {
    begin_gateway --deny any --allow allowed.test:80/tcp --allow '*.wild.test' --allow alias.test --allow private.test \
        --allow host.test --allow loop.test --allow own.test --allow nat.test --allow 192.0.2.5:81
    may_not a http://192.0.2.2/file
    same "an allowed name" "$(ask a allowed.test)" "192.0.2.2 "
    may a http://192.0.2.2/file
    may_not b http://192.0.2.2/file
    may_not a http://192.0.2.2:81/file
    wait_for "the guest has made itself an address" 20 has_v6 a
    may_not a 'http://[2001:db8::2]/file'
    same "… by IPv6" "$(ask a allowed.test AAAA)" "2001:db8::2 "
    may a 'http://[2001:db8::2]/file'
    same "another type of an allowed name" "$(ask a allowed.test TXT)" '"text" '
    same "a name below an allowed one" "$(ask a www.wild.test)" "192.0.2.3 "
    may a http://192.0.2.3/file
    same "… and further below" "$(ask b +tcp a.b.wild.test)" "192.0.2.3 "
    may b http://192.0.2.3:81/file
    same "the name itself is another" "$(status wild.test)" REFUSED
    same "an alias" "$(ask a alias.test)" "real.test. 192.0.2.4 "
    may a http://192.0.2.4/file
    same "the alias' other name is another" "$(status real.test)" REFUSED
    same "a name that no rule allows" "$(status other.test)" REFUSED
    same "… by TCP" "$(status +tcp other.test)" REFUSED
    same "… in any case of letters and of any type" "$(status Data.Other.Test TXT)" REFUSED
    may_not a http://192.0.2.5/file
    may a http://192.0.2.5:81/file
    answers "names of the network" 10.0.0.1 gateway.lan
    expect "refused names are recorded" "$(record '.reason == "name" and .name == "other.test"')" -ge 2
    expect "flows are recorded with their names" "$(record '.event == "closed" and .name == "allowed.test"')" -ge 2
}

has_v6() {
    inside "$1" ip -6 -j addr show dev "$1" scope global | jq -e '[.[].addr_info[]? | select(.local and (.tentative | not))] != []'
}

# A name opens no private network, and nothing of the host, whatever it resolves to.
names_of_forbidden_addresses() {
    same "a name of a private address" "$(ask a private.test)" "172.16.0.1 "
    may_not a http://172.16.0.1/file
    same "… translated" "$(ask a nat.test AAAA)" "64:ff9b::ac10:1 "
    may_not a 'http://[64:ff9b::ac10:1]/file'
    same "a name of the host's address" "$(ask a host.test)" "192.0.2.1 "
    may_not a http://192.0.2.1/file
    expect "… for that reason" "$(record '.reason == "host-address" and .name == "host.test"')" -ge 1
    same "a name of the gateway's address" "$(ask a own.test)" "10.0.0.1 "
    may_not a http://10.0.0.1:80/file
    same "a name of the loopback" "$(ask a loop.test)" "127.0.0.1 "
    egress allow 172.16.0.1:80
    may a http://172.16.0.1/file
}

# Rules with names hold for UDP and for pings as they do for TCP.
datagrams_and_pings() {
    in_space host sysctl -qw net.ipv4.ping_group_range="0 2147483647"
    begin_gateway --deny any --allow allowed.test:9000/udp --allow '*.wild.test/icmp' --allow alias.test
    datagram "a datagram to an address without a name" a 192.0.2.2 9000 2
    may_not_ping a 192.0.2.3
    same "a name for UDP" "$(ask a allowed.test)" "192.0.2.2 "
    same "… by IPv6" "$(ask a allowed.test AAAA)" "2001:db8::2 "
    datagram "a datagram to an allowed name" a 192.0.2.2 9000 0
    datagram "… by IPv6" a 2001:db8::2 9000 0
    datagram "… to another port" a 192.0.2.2 9001 2
    datagram "… by a guest that has not asked" b 192.0.2.2 9000 2
    may_not a http://192.0.2.2/file
    may_not_ping a 192.0.2.2
    same "a name for pings" "$(ask a www.wild.test)" "192.0.2.3 "
    may_ping a 192.0.2.3
    may_not_ping b 192.0.2.3
    datagram "a name for pings allows no datagrams" a 192.0.2.3 9000 2
    same "a name for all protocols" "$(ask b alias.test)" "real.test. 192.0.2.4 "
    datagram "… allows datagrams" b 192.0.2.4 9001 0
    may_ping b 192.0.2.4
    expect "refusals are recorded with protocol" "$(record '.reason == "policy" and .transport != "tcp"')" -ge 6
    inside a python3 "$here/datagrams.py" ask 192.0.2.2 9000
    expect "flows are listed with their names" \
        "$(flows --json | jq '[.flows[] | select(.transport == "udp" and .name == "allowed.test")] | length')" -ge 1
    background inside a python3 "$here/datagrams.py" keep 192.0.2.2 9000 >"$work/kept" 2>&1
    local kept=$!
    wait_for "datagrams come back" 20 grep -q back "$work/kept"
    background inside a ping -i 0.2 192.0.2.3 >"$work/pinged" 2>&1
    local pinging=$!
    wait_for "pings are answered" 20 grep -q "bytes from" "$work/pinged"
    must egress remove allow allowed.test:9000/udp
    ended "datagrams end with the rule" "$kept" 2
    must egress remove allow '*.wild.test/icmp'
    wait_for "pings end with the rule" 20 grep -qi "filtered\|prohibited" "$work/pinged"
    ok "pings end with the rule"
    end_of "$pinging" INT || true
    expect "ends are recorded" "$(record '.event == "closed" and .reason == "policy" and .transport == "udp"')" -ge 1
}

allow_by_default() {
    begin_gateway --deny '*.wild.test' --deny allowed.test:80
    same "names of which no rule says anything" "$(ask a other.test)" "192.0.2.5 "
    may a http://192.0.2.5/file
    same "a name that a rule denies" "$(status www.wild.test)" REFUSED
    same "… only at a port" "$(ask a allowed.test)" "192.0.2.2 "
    may_not a http://192.0.2.2/file
    may a http://192.0.2.2:81/file
    may b http://192.0.2.2/file
}

# slow GUEST URL: begins to fetch, slowly; $slow is its process.
slow() {
    rm -f "$work/slow"
    background inside "$1" curl -s --limit-rate 100k --max-time 60 -o "$work/slow" "$2"
    slow=$!
    wait_for "bytes come" 20 test -s "$work/slow"
}

changes() {
    begin_gateway --deny any --allow allowed.test --allow 192.0.2.4
    same "the rules are listed" "$(egress | tr '\n' ';')" "allow allowed.test;allow 192.0.2.4;deny any;"
    same "a name" "$(ask a allowed.test)" "192.0.2.2 "
    background flows --follow --json >"$work/events" 2>"$work/events.err"
    wait_for "events are followed" 20 grep -q "from now on" "$work/events.err"
    slow a http://192.0.2.2/long
    local first=$slow
    slow a http://192.0.2.4/long
    flows | grep -q '192.0.2.2:80 *allowed.test' || fail "open flows are listed with their names" "$(flows)"
    ok "open flows are listed with their names"
    same "a change ends what is no longer allowed" "$(egress remove allow allowed.test)" "1 open flow ended"
    ended "… by a reset" "$first" 56
    ! gone "$slow" || fail "the other flow goes on"
    ok "the other flow goes on"
    wait_for "who follows gets the event" 20 jq -e 'select(.event == "closed" and .reason == "policy" and .name == "allowed.test")' "$work/events"
    may_not a http://192.0.2.2/file
    same "the name is refused, too" "$(status allowed.test)" REFUSED
    egress allow allowed.test:80
    same "a new rule holds at once" "$(ask a allowed.test)" "192.0.2.2 "
    may a http://192.0.2.2/file
    printf '# nothing\ndeny any\n' >"$work/rules"
    chmod 644 "$work/rules"
    same "a file replaces all rules" "$(egress set "$work/rules")" "1 open flow ended"
    ended "… and ends the other flow" "$slow" 56
    same "… whole" "$(egress)" "deny any"
    ! egress allow 'all' 2>"$work/said" || fail "a wrong rule is refused"
    grep -q 'invalid rule "all"' "$work/said" || fail "a wrong rule is refused by name" "$(cat "$work/said")"
    ok "a wrong rule is refused by name"
}

others() {
    local code=0
    chmod 666 "$work/host/run/gateway-vale0:gateway.sock"
    setpriv --reuid=65533 --clear-groups "$NETVALE" --run-dir "$work/host/run" egress vale0 allow any 2>"$work/said" || code=$?
    expect "another user is refused: $(head -n 1 "$work/said")" "$code" -ge 3
    same "… and changes nothing" "$(egress)" "deny any"
    same "root is not" "$(at host egress vale0)" "deny any"
}

publishing() {
    lease a
    background inside a busybox httpd -f -p 80 -h "$work/www"
    publish 127.0.0.1:8080:a:80
    same "published ports are listed" "$(publish)" "127.0.0.1:8080:a:80"
    wait_for "a port that is published later" 20 in_space host curl -sf -o "$work/got" http://127.0.0.1:8080/file
    cmp "$work/got" "$work/www/file" || fail "a port that is published later" "other bytes"
    publish 8080 --remove
    local code=0
    in_space host curl -s --max-time 5 -o /dev/null http://127.0.0.1:8080/file || code=$?
    same "… is closed when it is removed" "$code" 7
}

# A gateway that is killed leaves nothing open, and nothing that is in the way of the next one.
death() {
    publish 127.0.0.1:8081:a:80
    egress allow 192.0.2.2
    slow a http://192.0.2.2/long
    kill -KILL "$gateway"
    wait "$gateway" 2>/dev/null || true
    gateway=
    local code=0
    in_space host curl -s --max-time 5 -o /dev/null http://127.0.0.1:8081/file || code=$?
    same "published ports end with it" "$code" 7
    code=0
    inside a curl -s --connect-timeout 2 -o /dev/null http://192.0.2.2/file || code=$?
    expect "without a gateway there is no way out: curl says $code" "$code" -ge 7
    code=0
    egress 2>"$work/said" || code=$?
    same "no gateway answers" "$code" 3
    begin_gateway --deny any
    same "a new one has its own rules" "$(egress)" "deny any"
    may_not a http://192.0.2.2/file
    end_of "$slow" || true
}

network_with_v6
servers
host_daemon host "${as_user[@]}"
begin_gateway
for name in a b; do
    begin_guest "$name"
    lease "$name"
done
deny_by_default
names_of_forbidden_addresses
datagrams_and_pings
allow_by_default
changes
others
publishing
death
finish
