#!/usr/bin/env bash
# sFlow: 'netvale sflow' and unmodified collectors.
#
# The judges are sfcapd and nfdump, which compute from the samples how many packets iperf3 sent, and between which
# ports, and tshark, which must find no malformed datagram, and the counters of 'netvale show' in them. Collectors and
# daemons stop and start again; ports are added; samples that another user sends contain none of these ports.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need sfcapd nfdump tshark iperf3 ping

COLLECTOR=127.0.0.1

# samples [OPTION…]: starts sending samples to the collectors. The process number is in $agent.
samples() {
    # The log of this agent, without that of a previous one.
    rm -f "$work/sflow.log"
    background in_space watch "$NETVALE" --run-dir "$run_dir" sflow --target "$COLLECTOR" --target "$COLLECTOR:6344" --sampling 10 --polling 1 "$@" \
        >"$work/sflow.log" 2>&1
    agent=$!
    wait_for "the agent runs" 10 grep -q "sending samples as agent $COLLECTOR" "$work/sflow.log"
}

# Captures what arrives at the second target, for tshark.
listen() {
    # Datagrams without a receiver are answered by ICMP errors, which the agent must tolerate.
    background in_space watch tshark -q -i lo -f 'udp dst port 6344' -w "$work/samples.pcapng" >"$work/tshark.log" 2>&1
    wait_for "tshark captures" 20 grep -q "Capturing on" "$work/tshark.log"
}

collect() {
    mkdir -p "$work/flows"
    background in_space watch sfcapd -w "$work/flows" -b "$COLLECTOR" -p 6343 -t 60 >"$work/sfcapd.log" 2>&1
    collector=$!
    wait_for "sfcapd listens" 20 listens_udp 6343
}

listens_udp() {
    in_space watch ss -lun "sport = :$1" | grep -q ":$1"
}

# read_samples FILTER FIELD…: prints fields of the datagrams that match.
read_samples() {
    local filter=$1 fields=() field
    shift
    for field; do fields+=(-e "$field"); done
    # The file is still being written, so its end may be incomplete.
    tshark -r "$work/samples.pcapng" -d udp.port==6344,sflow -Y "$filter" -T fields "${fields[@]}" 2>/dev/null || true
}

# counted PORT FIGURE: whether the newest counters of a port equal those of 'netvale show'.
counted() {
    local bytes
    bytes=$(moved "$1" in bytes)
    read_samples "sflow_245.ifinoct == $bytes" sflow_245.numsamples | grep -q .
}

datagrams() {
    read_samples sflow frame.number | wc -l
}

more_than() {
    [ "$(datagrams)" -gt "$1" ]
}

# Every sampled packet stands for ten.
flows() {
    local sent got bytes
    reaches 1 2
    iperf 1 2 -u -b 16M -l 1000 -t 5
    sent=$(jq .end.sum.packets "$work/iperf.json")
    wait_for "counters are those of 'netvale show'" 20 counted s1
    ok "counters are those of 'netvale show'"
    end_of "$agent" || true
    end_of "$collector" || true
    nfdump -q -R "$work/flows" -N -o 'fmt:%pkt %byt %in %out' 'proto udp and src ip 10.1.0.1 and dst ip 10.1.0.2' \
        >"$work/nfdump" 2>"$work/nfdump.err" ||
        fail "nfdump reads what sfcapd wrote" "$(cat "$work/nfdump.err")"
    read -r got bytes < <(awk '{packets += $1; bytes += $2} END {print packets + 0, bytes + 0}' "$work/nfdump")
    is_near "$got" "$sent" 0.03 || fail "nfdump counts the packets that iperf3 sent within 3 %" "$got of $sent"
    is_near "$bytes" "$((sent * 1042))" 0.05 || is_near "$bytes" "$((sent * 1046))" 0.05 ||
        fail "and their bytes" "$bytes of $((sent * 1042))"
    ok "nfdump has $got packets of $sent that iperf3 sent"
    [ "$(awk '{print $3, $4}' "$work/nfdump" | sort -u | wc -l)" = 1 ] ||
        fail "all have the same input and output port" "$(sort -u "$work/nfdump" | head)"
    ok "all from one port to another"
}

# Dropped frames are sampled with their reason.
discards() {
    nv filter vale0:s1 in drop udp port 7 >/dev/null
    first=$(datagrams)
    samples --port-sampling vale0:s2=7
    wait_for "a sample of a frame that a rule dropped" 20 drop_is_sampled
    ok "drops are sampled with their reason"
    wait_for "samples at a port's own rate" 20 has_own_rate
    ok "a port may have a rate of its own"
}

# Samples of s2 stand for 7 frames each, those of other ports for 10 as before.
has_own_rate() {
    local own
    in_space s2 ping -q -f -c 50 -W 1 10.1.0.1 >/dev/null || true
    # The rate and source of each sample of this agent. A datagram lists each kind of field in the same order.
    own=$(read_samples "sflow.flow_sample.sampling_rate && frame.number > $first" sflow.flow_sample.sampling_rate sflow.flow_sample.input_interface |
        awk '{n = split($1, rate, ","); split($2, from, ","); for (i = 1; i <= n; i++) print rate[i], from[i]}' |
            sort -u)
    # Exactly one port has rate 7, and no port has both.
    [ "$(grep -c '^7 ' <<<"$own")" = 1 ] && [ "$(awk '{print $2}' <<<"$own" | sort | uniq -d | wc -l)" = 0 ] &&
        grep -q '^10 ' <<<"$own"
}

# Drops go on until one is sampled: the agent has only just started.
drop_is_sampled() {
    in_space s1 bash -c 'for i in {1..20}; do echo x >/dev/udp/10.1.0.2/7; done'
    has_output 0x40000102
}

# has_output VALUE: whether a sample has that output.
has_output() {
    read_samples "sflow.flow_sample.output_interface == $1" frame.number | grep -q .
}

# A port that is attached later is sampled, too, and so is one of a daemon that started later.
later() {
    local before
    station 3
    wait_for "a port that is attached later" 20 sampled_from 3 10.1.0.2
    ok "ports that are attached later are sampled"
    end_of "$daemon" || true
    wait_for "the agent notices" 20 grep -q "no samples" "$work/sflow.log"
    start_daemon
    wait_for "the agent notices" 20 grep -q "the daemon answers again" "$work/sflow.log"
    before=$(datagrams)
    station 4
    station 5
    wait_for "counters of another daemon's ports" 20 more_than "$((before + 1))"
    wait_for "another daemon's frames" 20 sampled_from 4 10.1.0.5
    ok "a daemon that stops and starts again"
    kill -0 "$agent" || fail "the agent runs on"
}

# sampled_from N TO: whether there is a sample from station N, which sends to that address: repeatedly, until the agent
# has noticed its port.
sampled_from() {
    in_space "s$1" ping -q -f -c 200 -W 1 "$2" >/dev/null || true
    read_samples "eth.src == 02:00:00:00:00:0$1" frame.number | grep -q .
}

# Since sfcapd ended, nobody listened at the first target. A new collector gets samples, as the second target does.
collectors() {
    rm -rf "$work/flows"
    collect
    station 6
    wait_for "samples go on" 20 sampled_from 6 10.1.0.5
    end_of "$agent" || true
    end_of "$collector" || true
    nfdump -q -R "$work/flows" -N -o 'fmt:%pkt' 'src ip 10.1.0.6 and dst ip 10.1.0.5' | grep -q . ||
        fail "a collector that starts later gets samples"
    ok "collectors that go and come"
}

strangers() {
    local before
    chmod 711 "$run_dir"
    chmod 666 "$run_dir/control.sock"
    background in_space watch "${as_user[@]}" "$NETVALE" --run-dir "$run_dir" sflow --target "$COLLECTOR:6344" \
        --sampling 1 --polling 1 --sub-agent 7 >"$work/theirs.log" 2>&1
    wait_for "a stranger's agent runs" 10 grep -q "sending samples" "$work/theirs.log"
    in_space s4 ping -q -c 20 -i 0.1 -W 1 10.1.0.5 >/dev/null
    end_of "$!" || true
    # Samples written after this line were sent after it.
    before=$(datagrams)
    samples
    wait_for "samples from a user who may see the ports" 20 more_than "$before"
    end_of "$agent" || true
    expect "datagrams from a user who may see no port" \
        "$(read_samples "sflow_245.sub_agent_id == 7" frame.number | wc -l)" -eq 0
    expect "those of others" "$(read_samples "sflow_245.sub_agent_id == 0" frame.number | wc -l)" -gt "$before"
}

start_daemon
space watch
for n in 1 2; do station "$n"; done
iperf_server s2
listen
collect
samples
flows
discards
later
collectors
strangers
expect "malformed datagrams" "$(read_samples _ws.malformed frame.number | wc -l)" -eq 0
expect "datagrams" "$(datagrams)" -ge 10
finish
