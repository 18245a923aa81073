#!/usr/bin/env bash
# What happens to frames, as `netvale trace` prints it: a ping that passes, and frames that are dropped for several
# reasons; as text and as JSON; with a filter, only drops, at one of several ports; across an upgrade; and wrong
# arguments.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need ping /usr/bin/python3

# trace NAME ARGUMENT…: starts a trace. Its lines are in $work/NAME, its process number in $!.
trace() {
    local name=$1
    shift
    background nv trace "$@" >"$work/$name" 2>"$work/$name.err"
    traces[$name]=$!
    wait_for "trace $name begins" 20 grep -q '^tracing ' "$work/$name.err"
}
declare -A traces=()

# tells NAME PATTERN [COMMAND…]: waits until a line matches, and repeats the command until then.
tells() {
    local name=$1 pattern=$2
    shift 2
    wait_for "trace $name tells: $pattern" 20 told "$name" "$pattern" "$@"
    ok "trace $name tells: $pattern"
}

told() {
    local name=$1 pattern=$2
    shift 2
    [ $# = 0 ] || "$@" >/dev/null 2>&1 || true
    grep -Eq "$pattern" "$work/$name" || { tail -n 5 "$work/$name" && false; }
}

ping_once() {
    in_space s1 ping -q -c 1 -W 1 "$@"
}

# sends HEX…: sends a frame from station 1.
sends() {
    in_space s1 /usr/bin/python3 -c 'import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("s1", 0))
s.send(bytes.fromhex("".join(sys.argv[1:])))' "$@"
}

time_is='^[0-9]{2}(:[0-9]{2}){2}\.[0-9]{6}'
start_daemon
station 1
station 2
reaches 1 2

trace all vale0:s1
trace drops vale0 --drops
trace json vale0:s1 --json
trace filtered vale0:s1 icmp and dst host 10.1.0.2
trace sampled vale0:s1 --one-of 4
reaches 1 2 "while it is traced"
tells all "$time_is vale0:s1/0 98 bytes, 02:00:00:00:00:01 > 02:00:00:00:00:02, ICMP 10\.1\.0\.1 > 10\.1\.0\.2: delivered to vale0:s2/0$"
tells filtered 'ICMP 10\.1\.0\.1 > 10\.1\.0\.2: delivered to vale0:s2/0$'
tells all 'ARP: .*to all, delivered to vale0:s2/0$' ping_once 10.1.0.77
[ ! -s "$work/drops" ] || fail "nothing was dropped" "$(cat "$work/drops")"

# Reasons for drops: a rule of the sender's, and one of the receiver's.
nv filter vale0:s1 in drop 'icmp and dst host 10.1.0.2' >/dev/null
tells drops 'ICMP 10\.1\.0\.1 > 10\.1\.0\.2: vale0:s1 in rule 1 drops, dropped: filter$' ping_once 10.1.0.2
nv filter vale0:s1 in delete 1 >/dev/null
nv filter vale0:s2 out drop icmp >/dev/null
tells drops 'ICMP 10\.1\.0\.1 > 10\.1\.0\.2: vale0:s2 out rule 1 drops, dropped: filter$' ping_once 10.1.0.2
nv filter vale0:s2 out delete 1 >/dev/null
# A guard, isolated ports, VLANs.
set_policies s1 guard ip addresses 10.1.0.1
in_space s1 ip addr add 10.1.0.99/24 dev s1
tells drops 'ICMP 10\.1\.0\.99 > 10\.1\.0\.2: .*dropped: spoofed-ip$' ping_once -I 10.1.0.99 10.1.0.2
set_policies s1 guard default addresses default
set_policies s1 isolated on
set_policies s2 isolated on
tells drops 'ICMP 10\.1\.0\.1 > 10\.1\.0\.2: for vale0:s2, dropped: isolated$' ping_once 10.1.0.2
set_policies s1 isolated default
set_policies s2 isolated default
set_policies s1 access 7
tells drops 'tag 9, ARP: dropped: vlan$' sends ffffffffffff 020000000001 81000009 0806 "$(printf '%092d' 0)"
set_policies s1 access default

as_many() {
    [ "$(wc -l <"$work/json")" = "$(wc -l <"$work/all")" ] || { tail -n 20 "$work/all" "$work/json" && false; }
}
wait_for "text and JSON have as many lines" 20 as_many
jq -es 'length > 2 and all(.[]; .time_ns > 0 and .port == "vale0:s1" and (.steps | length > 0))' "$work/json" \
    >/dev/null ||
    fail "as JSON" "$(cat "$work/json")"
grep -Ev 'ICMP .* > 10\.1\.0\.2:' "$work/filtered" && fail "only frames that match"
[ $((4 * $(wc -l <"$work/sampled"))) -le $(($(wc -l <"$work/all") + 4)) ] ||
    fail "one of four" "$(wc -l "$work/sampled" "$work/all")"
ok "JSON, a filter, one of four"

upgrade
wait_for "the trace begins anew" 20 grep -q 'the daemon was upgraded' "$work/all.err"
: >"$work/all"
tells all 'ICMP 10\.1\.0\.1 > 10\.1\.0\.2: .*delivered to vale0:s2/0$' ping_once 10.1.0.2

background nv trace vale0:s1 --count 1 --seconds 20 >"$work/one" 2>&1
one=$!
wait_for "one frame" 20 told one ': ' ping_once 10.1.0.2
ended "--count" "$one" 0
[ "$(grep -c ': ' "$work/one")" = 1 ] || fail "--count" "$(cat "$work/one")"
refuses "a port that cannot be" 4 'port vale0:no thing does not exist' trace 'vale0:no thing'
refuses "no filter" 2 'syntax error' trace vale0:s1 'icmp and and'

# What is added during the trace: a switch, a port on a switch, a port that comes back. No frame is missed.
trace switch vale4
trace port vale4:late
grep -q 'does not exist yet' "$work/switch.err" || fail "a switch that does not exist" "$(cat "$work/switch.err")"
trace whole vale0
nv detach vale0 s1 >/dev/null
wait_for "the port is removed" 20 grep -q 'vale0:s1 has ended' "$work/all.err"
: >"$work/all"
must nv pkt-gen -i vale4:late -f tx -n 1
must nv pkt-gen -i vale4:later -f tx -n 1
must nv pkt-gen -i vale0:s1 -f tx -n 1
tells switch 'vale4:late/0 60 bytes'
tells switch 'vale4:later/0 60 bytes'
tells port 'vale4:late/0 60 bytes'
tells all 'vale0:s1/0 60 bytes'
tells whole 'vale0:s1/0 60 bytes'
! grep -q 'vale4:later' "$work/port" || fail "another port is traced" "$(cat "$work/port")"
for name in switch port all whole; do
    end_of "${traces[$name]}" INT || fail "trace $name ends" "$(cat "$work/$name.err")"
done
ok "traces include what is added later, and end on request"
finish
