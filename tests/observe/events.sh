#!/usr/bin/env bash
# Events as `netvale monitor` prints them: ports, programs, links of interfaces, policies, and refused requests; as text
# and as JSON; for a port, a group, a number of events or a time; across an upgrade; until the daemon ends.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"

# monitor NAME [ARGUMENT…]: starts a monitor and waits until it misses no event. Its lines are in $work/NAME, its
# process number in $!.
monitor() {
    local name=$1
    shift
    background nv monitor "$@" >"$work/$name" 2>"$work/$name.err"
    monitors[$name]=$!
    wait_for "monitor $name prints it" 20 grep -q 'events from now on' "$work/$name.err"
}
declare -A monitors=()

# tells NAME PATTERN: waits until a line matches.
tells() {
    wait_for "monitor $1 tells: $2" 20 grep -Eq "$2" "$work/$1"
    ok "monitor $1 tells: $2"
}

time_is='^[0-9-]{10}T[0-9:]{8}\.[0-9]{6}Z'
start_daemon
monitor all
monitor json --json
monitor port vale0:a
monitor groups --events guest,port.policies
monitor three --events switch,port --count 3 --timeout 60

nv attach vale0 a >/dev/null
tells all "$time_is switch\.made vale0$"
tells all "$time_is port\.attached vale0:a kind=local uid=0 pid=[0-9]+$"
nv port set vale0:a rate_in 10mbit >/dev/null
tells all 'port\.policies vale0:a set=\{"rate_in":"10mbit"\} uid=0 pid=[0-9]+$'
tells groups 'port\.policies vale0:a'
ended "monitor three has its events" "${monitors[three]}" 0
[ "$(wc -l <"$work/three")" = 3 ] || fail "three events" "$(cat "$work/three")"

refuses "there is no such port" 4 vale0:nothing show vale0:nothing
tells all 'request\.refused uid=0 pid=[0-9]+ why="port vale0:nothing does not exist"$'

background nv pkt-gen -i vale0:a -f rx >"$work/pkt-gen" 2>&1
program=$!
tells all 'port\.open vale0:a uid=0'
kill "$program"
tells all 'port\.idle vale0:a'

# The carrier of an interface whose other end goes down and comes back.
space one
attach s1 one
tells all 'port\.attached vale0:s1 kind=tap'
nv attach vale0 "tap:nvev" --name host >/dev/null
ip link set nvev up
tells all 'link\.up vale0:host'
ip link set nvev down
tells all 'link\.down vale0:host'
ip -n one link del s1
tells all 'port\.evicted vale0:s1 why="the interface is gone'

nv detach vale0 a >/dev/null
tells port 'port\.detached vale0:a why="requested"'
[ "$(grep -vc ' vale0:a' "$work/port" || true)" = 0 ] || fail "one port's events" "$(cat "$work/port")"
grep -Evq ' (guest\.|port\.policies)' "$work/groups" && fail "a group and a name" "$(cat "$work/groups")"
ok "only the requested events"

# In JSON, the numbers have no gap; the text has the same events.
wait_for "both have as many" 20 bash -c "[ \$(wc -l <'$work/json') = \$(wc -l <'$work/all') ]"
jq -es '[.[].sequence] == [range(1; length + 1)] and ([.[].now_ns] | . == sort) and all(.[]; .time | test("Z$"))' \
    "$work/json" >/dev/null ||
    fail "numbers and times" "$(cat "$work/json")"
diff <(jq -r .name "$work/json") <(cut -d ' ' -f 2 "$work/all") || fail "text and JSON differ"
ok "$(wc -l <"$work/json") events, each with its number"

upgrade
tells all 'daemon\.continued pid=[0-9]+ version='
nv attach vale0 after >/dev/null
tells all 'port\.attached vale0:after'
jq -es '[.[].sequence] == [range(1; length + 1)]' "$work/json" >/dev/null ||
    fail "numbers go on" "$(tail -n 5 "$work/json")"
ok "numbers go on in the successor"

refuses "too few events are a failure" 1 '0 of 1 events' monitor --count 1 --timeout 0.3 --events tunnel
must nv monitor --timeout 0.3 --events tunnel
refuses "an unknown name" 4 'unknown event or group of events "tunel"' monitor --events tunel

# A reader that closes the pipe is no failure, and neither is Ctrl-C.
background bash -c "'$NETVALE' --run-dir '$run_dir' monitor 2>'$work/pipe.err' | head -n 1 >'$work/pipe'; echo \"\${PIPESTATUS[0]}\" >'$work/pipe.status'"
wait_for "one more event is printed" 20 grep -q 'events from now on' "$work/pipe.err"
make_events() {
    nv attach vale2 x >/dev/null && nv detach vale2 x >/dev/null && [ -s "$work/pipe.status" ]
}
wait_for "its end" 20 make_events
[ "$(cat "$work/pipe.status")" = 0 ] && [ "$(wc -l <"$work/pipe.err")" = 1 ] ||
    fail "a closed pipe is no failure" "$(cat "$work/pipe.status" "$work/pipe.err")"
kill -INT "${monitors[groups]}"
wait_for "Ctrl-C" 20 gone "${monitors[groups]}"
[ "$(wc -l <"$work/groups.err")" = 1 ] || fail "Ctrl-C is quiet" "$(cat "$work/groups.err")"
ok "a closed pipe, and Ctrl-C"

nv stop >/dev/null
tells all 'daemon\.ending why="requested"'
ended "monitor all ends with the daemon" "${monitors[all]}" 3
grep -q 'the daemon has ended' "$work/all.err" || fail "it says why" "$(cat "$work/all.err")"
finish
