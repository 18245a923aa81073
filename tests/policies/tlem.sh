#!/usr/bin/env bash
# netvale tlem: two switches joined by an emulated link, with the options of netmap's tlem. The judges are ping and
# iperf3.
# measures: yes
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need iperf3 ping ss

# joined OPTION…: joins the two switches.
joined() {
    background nv tlem -i vale0:left -i vale1:right "$@" >"$work/tlem" 2>&1
    tlem=$!
    wait_for "tlem has its ports" 10 is_joined
    wait_for "1 reaches 2" 20 pings 1 2
}

is_joined() {
    nv list --json | jq -e '[.ports[] | select(.name == "vale0:left" or .name == "vale1:right")] | length == 2'
}

# parted: separates them, and prints the output of tlem.
parted() {
    end_of "$tlem" INT || fail "tlem ends well" "$(cat "$work/tlem")"
    wait_for "its ports are gone" 10 is_parted
}

is_parted() {
    ! is_joined
}

# least: the minimum round-trip time of 20 pings, in milliseconds.
least() {
    in_space s1 ping -q -c 20 -i 0.05 -W 2 10.1.0.2 | sed -n 's,^rtt .*= \([^/]*\)/.*,\1,p'
}

# takes WHAT MILLISECONDS: the fastest of 20 pings must take that long, within 0.7 ms for three processes and their
# wake-ups; none is early. Other load makes pings late, so that there are several attempts.
takes() {
    local got seen=
    for _ in 1 2 3 4 5; do
        got=$(least)
        seen+=" $got"
        jq -en "$got - $2 >= -0.05" >/dev/null || fail "$1: not early" "$got ms"
        ! jq -en "$got - $2 <= 0.7" >/dev/null || { ok "$1: $got ms" && return; }
    done
    fail "$1: $2 ms" "$seen"
}

start_daemon
station 1
switch=vale1 station 2
apart 1 2 "two switches"
joined -D 10ms
takes "10 ms each way" 20
parted
joined -D 5ms -D 25ms
takes "5 ms one way, 25 ms the other" 30
parted
joined -D uniform,5ms,15ms --seed 3
spread=$(in_space s1 ping -q -c 100 -i 0.02 -W 2 10.1.0.2 | sed -n 's,^rtt .*= \([^/]*\)/[^/]*/\([^/]*\)/.*,\1 \2,p')
jq -en "${spread% *} >= 10 and ${spread#* } - ${spread% *} > 5" >/dev/null ||
    fail "5 to 15 ms each way, by chance" "least and most: $spread ms"
ok "5 to 15 ms each way, by chance: least and most ${spread/ / and } ms"
parted

joined -L plr,0 -L plr,0.3 --seed 5
answered=$(in_space s1 ping -q -c 400 -i 0.004 -W 1 10.1.0.2 | sed -n 's/.* \([0-9]*\) received.*/\1/p' || true)
# Three times the standard deviation of 400 decisions with probability 0.7.
jq -en "($answered - 280 | fabs) <= 28" >/dev/null || fail "of 400 answers 30 % are lost" "$answered came"
ok "of 400 answers 30 % are lost: $answered came"
parted
grep -q "^vale1:right -> vale0:left: [0-9]* frames lost as configured" "$work/tlem" ||
    fail "tlem counts the lost frames" "$(cat "$work/tlem")"
ok "tlem counts the lost frames"

joined -B 20m
iperf_server s2
# 1448 of 1514 bytes are TCP's payload. On a busy machine TCP does not always reach its rate.
for _ in $(seq 10); do
    iperf 1 2 -t 4 -O 1
    ! is_near "$(said .end.sum_received.bits_per_second)" 19128000 0.06 || break
done
near "20 Mbit/s" "$(said .end.sum_received.bits_per_second)" 19128000 0.06
parted
refuses "one port" 2 "two ports" tlem -i vale0:a -D 1ms
refuses "an invalid delay" 2 "D" tlem -i vale0:a -i vale1:b -D soon
finish
