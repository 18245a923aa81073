#!/usr/bin/env bash
# Limits of guests: rates each way and connections, of a gateway that runs, and what one guest's limit is to another. And
# the gateway in `netvale metrics` and `netvale monitor`, also while it hangs.
# measures: yes
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl jq nsenter python3

go_before_others

# own COMMAND…: of netvale, as the gateway's user.
own() {
    "${as_user[@]}" "$NETVALE" --run-dir "$work/host/run" "$@"
}

egress() {
    own egress vale0 "$@"
}

station() {
    inside "$1" ip -j link show dev "$1" | jq -r .[0].address
}

# speed GUEST: bytes a second of a download.
speed() {
    fetch "$1" -o /dev/null -w '%{speed_download}' http://192.0.2.2/long || fail "$1 downloads" "curl: $?"
}

# metric NAME: the value of the metric with this beginning.
metric() {
    own metrics | grep -F "$1" | sed 's/.* //'
}

# A limited guest's download has its rate; another guest's beside it has many times as much.
download() {
    egress limit "$(station a)" received 8mbit
    speed a >"$work/a.speed" &
    local limited=$!
    speed b >"$work/b.speed"
    wait "$limited" || fail "the limited guest downloads"
    is_near "$(cat "$work/a.speed")" 1000000 0.1 || fail "a download has the guest's rate" "$(cat "$work/a.speed") bytes/s"
    ok "a download at 8 mbit: $(cat "$work/a.speed") bytes/s"
    jq -en "$(cat "$work/b.speed") > 10 * $(cat "$work/a.speed")" >/dev/null ||
        fail "another guest is not limited" "$(cat "$work/b.speed") bytes/s"
    ok "another guest beside it: $(cat "$work/b.speed") bytes/s"
    expect "the record has how long the flow waited" \
        "$(record '.event == "closed" and .received > 3000000 and .waited > 2')" -eq 1
    expect "the waits are counted" "$(metric 'netvale_gateway_limited_waits_total{')" -gt 10
}

# Two connections of a guest share its rate evenly.
shares() {
    egress limit received 8mbit
    speed b >"$work/1.speed" &
    local first=$!
    speed b >"$work/2.speed"
    wait "$first" || fail "both download"
    is_near "$(cat "$work/1.speed")" "$(cat "$work/2.speed")" 0.15 ||
        fail "connections of a guest share its rate" "$(cat "$work/1.speed" "$work/2.speed")"
    ok "connections of a guest share its rate: $(cat "$work/1.speed") and $(cat "$work/2.speed") bytes/s"
}

upload() {
    egress limit "$(station a)" sent 8mbit
    background in_space outside python3 -u -c '
import socket, time
server = socket.create_server(("192.0.2.2", 9000))
print("ready")
client, _ = server.accept()
begin, got = time.monotonic(), 0
while data := client.recv(1 << 16):
    got += len(data)
print(got, got / (time.monotonic() - begin))' >"$work/server.out"
    local server=$!
    wait_for "the server listens" 20 grep -q ready "$work/server.out"
    inside a python3 -c '
import socket
client = socket.create_connection(("192.0.2.2", 9000))
client.sendall(bytes(3000000))' || fail "an upload"
    ended "an upload arrives" "$server" 0
    local bytes rate
    read -r bytes rate < <(tail -n 1 "$work/server.out")
    same "no byte is lost" "$bytes" 3000000
    is_near "$rate" 1000000 0.1 || fail "an upload has the guest's rate" "$rate bytes/s"
    ok "an upload at 8 mbit: $rate bytes/s"
}

connections() {
    egress set - <<<"limit new 5/s"
    local n refused=0
    for n in $(seq 20); do
        fetch a -o /dev/null http://192.0.2.2/1 || refused=$((refused + 1))
    done
    expect "connections refused of 20" "$refused" -ge 5
    expect "… and recorded with the reason" "$(record '.event == "refused" and .reason == "rate"')" -eq "$refused"
    same "… and counted" "$(metric 'netvale_gateway_flows_refused_total{port="vale0:gateway",switch="vale0",reason="rate"}')" "$refused"
    egress set - <<<"limit open 1"
    background inside a python3 -c '
import socket, time
held = socket.create_connection(("192.0.2.2", 80))
print("open", flush=True)
time.sleep(600)' >"$work/held"
    local held=$!
    wait_for "a connection is open" 20 grep -q open "$work/held"
    refused "a second connection at a time" a 7 http://192.0.2.2/1
    fetches "… is another guest's first" b http://192.0.2.2/1 "$work/www/1"
    kill "$held"
    egress set - </dev/null
    same "no rule is left" "$(egress)" ""
    fetches "without limits, all is as before" a http://192.0.2.2/1 "$work/www/1"
}

monitored() {
    background own monitor --json >"$work/events" 2>"$work/monitor.err"
    local monitor=$!
    wait_for "events from now on" 20 grep -q "from now on" "$work/monitor.err"
    fetches "a page" a http://192.0.2.2/1 "$work/www/1"
    refused "a refused connection" a 7 http://10.9.9.9/
    wait_for "the flow was closed" 20 has_event '.name == "flow.closed" and .remote == "192.0.2.2:80" and .received > 0'
    has_event '.name == "flow.opened" and .port == "vale0:gateway" and .switch == "vale0"' || fail "opened" "$(cat "$work/events")"
    wait_for "the refused flow" 20 has_event '.name == "flow.refused" and .reason == "policy" and .remote == "10.9.9.9:80"'
    kill "$monitor"
    ok "flows are events"
    background own monitor vale0 >"$work/events" 2>"$work/monitor.err"
    monitor=$!
    wait_for "events from now on" 20 grep -q "from now on" "$work/monitor.err"
    inside a python3 -c '
import socket
for _ in range(400):
    try: socket.create_connection(("10.9.9.9", 80))
    except OSError: pass'
    wait_for "all refusals are printed or counted" 20 all_counted
    expect "printed ones" "$(grep -c ' flow.refused ' "$work/events")" -lt 200
    kill "$monitor"
    ok "events beyond 20 a second are counted: $(grep -c ' flow.refused ' "$work/events") of 400 are printed"
}

has_event() {
    jq -se "any(.[]; $1)" "$work/events" >/dev/null
}

all_counted() {
    local lost
    lost=$(sed -n 's/.* flow.lost .*lost=//p' "$work/events" | paste -sd + | sed 's/^$/0/')
    [ $(($(grep -c ' flow.refused ' "$work/events") + lost)) = 400 ]
}

# A gateway that hangs delays nobody for long.
hangs() {
    same "the gateway answers" "$(metric 'netvale_gateway_up{')" 1
    kill -STOP "$gateway"
    local begin end
    begin=$(date +%s%N)
    same "one that hangs is down" "$(metric 'netvale_gateway_up{')" 0
    end=$(date +%s%N)
    expect "milliseconds until the metrics are there" $(((end - begin) / 1000000)) -lt 2000
    same "its counters are not there" "$(metric 'netvale_gateway_leases{')" ""
    expect "those of the daemon are" "$(own metrics | grep -c '^netvale_port_frames_total')" -ge 2
    kill -CONT "$gateway"
    wait_for "it answers again" 20 answers_again
    same "leases" "$(metric 'netvale_gateway_leases{')" 2
    ok "a gateway that hangs"
}

answers_again() {
    [ "$(metric 'netvale_gateway_up{')" = 1 ]
}

network
pages 1
# Some seconds at 8 mbit.
head -c 4000000 /dev/urandom >"$work/www/long"
host_daemon host "${as_user[@]}"
begin_gateway
for guest_name in a b; do
    begin_guest "$guest_name"
    lease "$guest_name"
done
download
shares
upload
connections
monitored
hangs
finish
