#!/usr/bin/env bash
# Links: delay, jitter, loss, duplicates, corruption, reordering, rate and limit, in the words of netem.
#
# The judges are ping, iperf3, tcpdump and statistics: numbered frames leave station 1, and those that reach station 2
# show how many were lost, duplicated, corrupted or overtaken. Links have seeds, so that the random decisions are the
# same each time; the tolerance is three times the standard deviation. Other processes may use the processors, which
# makes some frames late, but none early: so a delay is the minimum and the median of some frames, in the best of some
# attempts, and results about many frames are given by their quartiles. Where tenths of a millisecond matter, times are
# the kernel's time stamps, as a ping's own times include how fast ping wakes up.
#
# TCP under delay and loss is compared with the kernel's own netem in netem.sh.
# measures: yes
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need iperf3 ping tcpdump ss
need_scapy
go_before_others

link() {
    local port=$1
    shift
    must nv link "vale0:$port" "$@"
}

# --- times

# The tolerance in milliseconds. Most of it is the time in which a processor wakes up for the frame and loads the code
# for it, which is large in a debug build: some 0.1 ms.
SLACK=0.2

# median FROM TO COUNT INTERVAL: the median round-trip time in milliseconds. Only ping's summary has more than three
# digits, so each ping is a process of its own.
median() {
    local n
    for n in $(seq "$3"); do
        [ "$n" = 1 ] || sleep "$4"
        in_space "s$1" ping -q -c 1 -W 2 "10.1.0.$2" || fail "ping from $1 to $2"
    done >"$work/ping"
    sed -n 's,^rtt .*= [^/]*/\([^/]*\)/.*,\1,p' "$work/ping" | sort -n |
        awk '{ t[NR] = $1 } END { print t[int((NR + 1) / 2)] }'
}

# crossing FROM TO COUNT INTERVAL: how long pings take from one station's interface to the other's: minimum and median
# in milliseconds, by the kernel's time stamps. The times that ping itself reports, which include its wake-ups, are in
# $work/rtt.
crossing() {
    local side dumpers=()
    for side in "$1" "$2"; do
        tcpdump_in "s$side" "side$side" -i "s$side" -U 'icmp[icmptype] = icmp-echo'
        dumpers+=("$capture")
    done
    in_space "s$1" ping -c "$3" -i "$4" -W 2 "10.1.0.$2" >"$work/ping" ||
        fail "ping from $1 to $2" "$(cat "$work/ping")"
    sed -n 's,^rtt .*= [^/]*/\([^/]*\)/.*,\1,p' "$work/ping" >"$work/rtt"
    sleep 0.2
    kill -INT "${dumpers[@]}"
    wait "${dumpers[@]}" || true
    for side in "$1" "$2"; do
        tcpdump -tt -n -r "$work/side$side" 2>/dev/null | sed 's/^\([0-9.]*\) .* seq \([0-9]*\),.*/\2 \1/' |
            sort >"$work/times$side"
    done
    join "$work/times$1" "$work/times$2" | awk '{ printf "%.3f\n", ($3 - $2) * 1000 }' | sort -n |
        awk '{ t[NR] = $1 } END { print t[1], t[int((NR + 1) / 2)] }'
}

# late WHAT PORT MILLISECONDS WORDS…: the fastest frame from 1 to 2, or from $from to $to, and the median must take that
# much longer with a link than without it, within $SLACK.
late() {
    local what=$1 port=$2 wanted=$3 count=${count:-11} interval=${interval:-0.1} without with seen=
    shift 3
    for _ in 1 2 3 4 5 6 7 8; do
        link "$port" both off
        without=$(crossing "${from:-1}" "${to:-2}" "$count" "$interval")
        link "$port" "$@"
        with=$(crossing "${from:-1}" "${to:-2}" "$count" "$interval")
        seen+=" $with-$without"
        jq -en "[${with% *} - ${without% *}, ${with#* } - ${without#* }] | all(. - $wanted | fabs <= $SLACK)" \
            >/dev/null || continue
        link "$port" both off
        ok "$what: $with ms (shortest, median), $without without it (there and back, ping says $(cat "$work/rtt"))"
        return
    done
    fail "$what: $wanted ms more than without, within $SLACK" "attempts:$seen"
}

# ends CLIENT: ends a client that is still running.
ends() {
    kill "$1" 2>/dev/null || fail "iperf3 still runs at the end" "$(cat "$work/other")"
    wait "$1" || true
}

delays() {
    count=5 interval=1 late "delay 70ms, a ping a second" s1 70 delay 70ms
    late "delay 10ms of what a port gets" s2 10 out delay 10ms
    late "both directions: there" s1 12 both delay 12ms
    from=2 to=1 late "and back" s1 12 both delay 12ms
    background in_space s3 iperf3 -c 10.1.0.4 -t 500 -b 300M >"$work/other"
    local other=$!
    late "delay 70ms beside iperf3 between two others" s1 70 delay 70ms
    ends "$other"
    # The same link carries a flood, too.
    background in_space s1 iperf3 -u -c 10.1.0.2 -b 50M -l 1400 -t 500 >"$work/other"
    other=$!
    late "delay 70ms, beside a flood on the same link" s1 70 delay 70ms
    ends "$other"
}

# The median includes what a ping takes without a link, some 0.3 ms.
jitter() {
    link s1 delay 20ms 5ms distribution normal seed 3
    local median spread
    for _ in 1 2 3 4 5 6; do
        in_space s1 ping -i 0.002 -c 1000 -W 2 10.1.0.2 >"$work/ping" ||
            fail "ping under jitter" "$(tail -n 3 "$work/ping")"
        # Half of a normal distribution is within 0.6745 standard deviations.
        read -r median spread < <(sed -n 's/.* time=\([0-9.]*\) ms/\1/p' "$work/ping" | sort -n |
            awk '{ t[NR] = $1 } END { print t[int(NR / 2)], (t[int(NR * 3 / 4)] - t[int(NR / 4)]) / 2 / 0.6745 }')
        ! { is_near "$median" 20.3 0.05 && is_near "$spread" 5 0.1; } || break
    done
    near "delay 20ms 5ms distribution normal: median of 1000 pings" "$median" 20.3 0.05
    near "and their standard deviation, by the quartiles" "$spread" 5 0.1
    link s1 off
}

# A sender to a port behind a slow link reaches other ports without delay.
nobody_waits() {
    local flood others=
    link s2 out delay 200ms
    background in_space s1 iperf3 -u -c 10.1.0.2 -b 20M -l 1400 -t 500 >"$work/other"
    flood=$!
    wait_for "the flood has begun" 10 has_got s2 1000
    for _ in 1 2 3 4 5 6; do
        others=$(median 1 3 50 0.02)
        ! jq -en "$others < 1" >/dev/null || break
    done
    jq -en "$others < 1" >/dev/null ||
        fail "a port behind 200 ms delays no other port" "a ping to another port takes $others ms"
    ok "a port behind 200 ms delays no other port: a ping to another takes $others ms"
    ends "$flood"
    link s2 out off
}

# --- chances

cat >"$work/numbered.py" <<'PYTHON'
"""numbered.py send INTERFACE COUNT PPS: sends numbered frames of 100 bytes.
numbered.py KIND CAPTURE COUNT [EXPECTED]: what came of them, as JSON."""

import errno
import json
import socket
import struct
import sys
import time


def frame(number):
    # To an unknown address, from an unknown address, even with a flipped bit: all other ports get the frame.
    head = bytes.fromhex("0677777777770a888888888888b5")
    return (head + struct.pack("!I", number) * 4).ljust(100, b"\x5a")


def send(interface, count, pps):
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    out.setsockopt(263, 20, 1)  # SOL_PACKET, PACKET_QDISC_BYPASS: otherwise losses are silent
    out.bind((interface, 0))
    begin = time.monotonic()
    for number in range(count):
        if pps:
            time.sleep(max(0, begin + number / pps - time.monotonic()))
        while True:
            try:
                out.send(frame(number))
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                time.sleep(0.0005)


def captured(path):
    with open(path, "rb") as file:
        file.read(24)
        while len(head := file.read(16)) == 16:
            yield file.read(struct.unpack_from("<I", head, 8)[0])


def main():
    if sys.argv[1] == "send":
        return send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    count, sent = int(sys.argv[3]), {}
    for number in range(count):
        sent[frame(number)] = number
    frames = list(captured(sys.argv[2]))
    numbers = [sent.get(data) for data in frames]
    known = [n for n in numbers if n is not None]
    arrived = set(known)
    # Losses in bursts.
    lost = [n for n in range(count) if n not in arrived]
    bursts = sum(1 for n in lost if n - 1 not in set_of(lost))
    # A frame that overtakes arrives before one with a lower number.
    overtakers, seen, least = 0, set(), 0
    for n in known:
        overtakers += n > least
        seen.add(n)
        while least in seen:
            least += 1
    damaged = [data for data, n in zip(frames, numbers) if n is None]
    # Without losses and duplicates, each frame is at its original position.
    bits = [sum((a ^ b).bit_count() for a, b in zip(data, frame(i))) for i, data in enumerate(frames) if numbers[i] is None]
    print(json.dumps({
        "frames": len(frames), "lost": len(lost), "bursts": bursts, "again": len(known) - len(arrived), "overtakers": overtakers,
        "damaged": len(damaged), "one_bit": bits.count(1), "in_order": known == sorted(known),
    }))


CACHE = {}


def set_of(numbers):
    return CACHE.setdefault(id(numbers), set(numbers))


main()
PYTHON

# numbered COUNT PPS WORDS…: sends frames from 1 to 2 over a link with a fresh state. The result is in $work/came. When
# other processes use the processors, the kernel may lose frames between the interface and tcpdump: then it tries again.
numbered() {
    local count=$1 pps=$2 before came
    shift 2
    for _ in 1 2 3 4 5; do
        link s1 off
        link s1 "$@"
        tcpdump_in s2 got.pcap -i s2 -Q in -s 200 -B 65536 greater 90
        before=$(received)
        in_space s1 /usr/bin/python3 "$work/numbered.py" send s1 "$count" "$pps" || fail "numbered frames are sent"
        quiet
        end_of "$capture" INT || true
        came=$(($(received) - before))
        /usr/bin/python3 "$work/numbered.py" came "$work/got.pcap" "$count" >"$work/came" || fail "the capture is read"
        [ "$(jq .frames "$work/came")" != "$came" ] || return 0
    done
    fail "tcpdump captures all frames at the interface" "$came came, $(cat "$work/came")"
}

# The frames that reached station 2's interface.
received() {
    frames_to s2 s2
}

# Until no frame has arrived for half a second.
quiet() {
    local last=-1 now
    for _ in $(seq 60); do
        now=$(received)
        [ "$now" != "$last" ] || return 0
        last=$now
        sleep 0.5
    done
    fail "frames come to an end"
}

# share WHAT FIGURE COUNT SHARE: the number of frames affected must be that share, within three standard deviations.
share() {
    local got
    got=$(jq "$2" "$work/came")
    jq -en "($got - $3 * $4 | fabs) <= 3 * ($3 * $4 * (1 - $4) | sqrt)" >/dev/null ||
        fail "$1: $4 of $3 frames" "$got: $(cat "$work/came")" "$(shown s1 | jq -c .rings)" "$(shown s2 | jq -c .rings)" \
            "$(in_space s1 ip -s -j link show s1 | jq -c '.[].stats64')" \
            "$(in_space s2 ip -s -j link show s2 | jq -c '.[].stats64')"
    ok "$1: $got of $3 frames"
}

# came WHAT EXPRESSION: the expression must hold for the result.
came() {
    jq -e "$2" "$work/came" >/dev/null || fail "$1" "not true: $2" "$(cat "$work/came")"
    ok "$1"
}

# A million frames, counted by the kernel at both interfaces.
million() {
    local sent got
    link s1 loss 1% seed 14
    sent=$(in_space s1 ip -s -j link show s1 | jq '.[].stats64.tx.packets')
    got=$(received)
    in_space s1 /usr/bin/python3 "$work/numbered.py" send s1 1000000 0 || fail "a million frames are sent"
    quiet
    sent=$(($(in_space s1 ip -s -j link show s1 | jq '.[].stats64.tx.packets') - sent))
    got=$(($(received) - got))
    link s1 off
    expect "frames that left the interface of 1" "$sent" -ge 1000000
    jq -en "($sent - $got - $sent * 0.01 | fabs) <= 3 * ($sent * 0.01 * 0.99 | sqrt)" >/dev/null ||
        fail "loss 1% of $sent frames, within three standard deviations" "$((sent - got)) were lost" \
        "$(shown s1 | jq -c .rings)"
    ok "loss 1%: $((sent - got)) of $sent frames"
    expect "frames that were lost otherwise" "$(shown s2 | jq '[.rings[].drops[]] | add // 0')" -eq 0
}

losses() {
    local before seed
    numbered 100000 0 loss 10% seed 5
    share "loss 10%" .lost 100000 0.1
    came "the others come in order, once, as they were" '.in_order and .again == 0 and .damaged == 0'
    before=$(drops s1 link-loss)
    numbered 10000 0 loss 10% seed 5
    expect "they are counted as link-loss" "$((($(drops s1 link-loss) - before) % $(jq .lost "$work/came")))" -eq 0

    numbered 100000 0 loss gemodel 1% 10% seed 6
    # One of eleven frames, in bursts of ten. The standard deviation depends on the number of bursts, some 900.
    near "loss gemodel 1% 10%: share" "$(jq '.lost / 100000' "$work/came")" 0.0909 0.14
    near "and mean of bursts" "$(jq '.lost / .bursts' "$work/came")" 10 0.1

    for seed in 7:a 7:b 8:c; do
        numbered 3000 0 loss 20% seed "${seed%:*}"
        tcpdump -xx -t -r "$work/got.pcap" >"$work/${seed#*:}" 2>/dev/null
    done
    cmp "$work/a" "$work/b" >"$work/compared" || fail "the same seed loses the same frames" "$(cat "$work/compared")"
    ! cmp -s "$work/a" "$work/c" || fail "another seed loses others"
    ok "the same seed loses the same frames, another one others ($(jq .frames "$work/came") of 3000 came)"
}

others() {
    numbered 20000 0 duplicate 10% seed 9
    share "duplicate 10%" .again 20000 0.1
    came "nothing is lost or damaged" '.lost == 0 and .damaged == 0'
    link s1 duplicate 100%
    in_space s1 ping -c 3 -i 0.2 10.1.0.2 >"$work/ping" || true
    grep -q 'DUP!' "$work/ping" || fail "ping sees duplicates" "$(cat "$work/ping")"
    ok "ping sees duplicates"

    numbered 20000 0 corrupt 20% seed 10
    share "corrupt 20%" .damaged 20000 0.2
    came "one bit of each is wrong, nothing is lost" '.one_bit == .damaged and .frames == 20000'

    numbered 4000 1500 delay 20ms reorder 25% seed 11
    share "reorder 25%" .overtakers 4000 0.25
    came "nothing is lost" '.lost == 0 and .again == 0'
    numbered 2000 1500 delay 20ms
    came "without it order is kept" '.in_order and .lost == 0'
    numbered 20000 8000 delay 10ms 4ms loss 5% duplicate 5% corrupt 5% reorder 10% rate 100mbit seed 12
    # Each frame arrives 0, 1 or 2 times; the standard deviation of that is 0.304.
    came "all together: about as many as were sent" '(.frames - 20000 * 0.9975 | fabs) <= 3 * 0.304 * (20000 | sqrt)'
    numbered 5000 0 both off
    came "off is a good link" '.frames == 5000 and .in_order and .damaged == 0'
}

# --- rates, room

rates() {
    local got
    link s1 rate 10mbit
    for _ in 1 2 3 4 5; do
        iperf 1 2 -t 4 -O 1
        got=$(said .end.sum_received.bits_per_second)
        ! is_near "$got" "$(carried 10000000)" 0.03 || break
    done
    near "rate 10mbit, of TCP" "$got" "$(carried 10000000)" 0.03
    local before
    before=$(drops s1 link-full)
    # 20 frames wait, and others are accepted as these leave; a frame takes 0.8 ms.
    until_few 200 rate 1mbit limit 20
    came "limit 20: the first 20 of 500 come, and those that are sent as they leave" '.frames >= 20 and .frames <= 200'
    expect "the rest is dropped as link-full" "$(($(drops s1 link-full) - before))" -ge "$(jq .lost "$work/came")"
    before=$(drops s1 link-full)
    until_few 99 delay 300ms bytes 10kb
    came "bytes 10kb: less than 100 frames of 100 bytes" '.frames >= 40 and .frames < 100'
    expect "the rest is dropped as link-full" "$(($(drops s1 link-full) - before))" -ge "$(jq .lost "$work/came")"
    link s1 off
}

# until_few MOST WORDS…: sends 500 frames, again if the sender was delayed so that more than MOST arrived.
until_few() {
    local most=$1
    shift
    for _ in 1 2 3 4 5; do
        numbered 500 0 "$@"
        [ "$(jq .frames "$work/came")" -gt "$most" ] || return 0
    done
}

# The number of frames in flight is bounded, whatever is requested, and other ports continue.
bounded() {
    local before after
    refuses "more memory than a link may have" 4 "link_in: .*under way" link vale0:s1 delay 10s bytes 100gb
    refuses "more frames than a link may have" 4 "link_in: .*under way" link vale0:s1 delay 10s limit 4000000000
    check "nothing has changed" s1 '(.policies // {}) == {}'
    link s1 delay 100s
    before=$(memory "$daemon")
    in_space s1 /usr/bin/python3 "$work/numbered.py" send s1 200000 0 || fail "frames are sent"
    wait_for "200,000 frames do not fit" 30 has_dropped s1 link-full 1000
    ok "200,000 frames with 100 s of delay do not fit: what does not is dropped as link-full ($(drops s1 link-full))"
    after=$(memory "$daemon")
    # 64 MiB of frames, and the state for 100,000 of them.
    expect "KiB that the daemon takes for them" "$((after - before))" -lt $((80 << 10))
    reaches 2 3 "meanwhile"
    before=$(received)
    link s1 off
    quiet
    expect "all that were under way arrived at once: frames" "$(($(received) - before))" -ge 10000
    reaches 1 2 "afterwards"
}

words() {
    refuses "an unknown word" 2 "delya" link vale0:s1 delya 7ms
    refuses "an invalid delay" 2 "delay" link vale0:s1 delay soon
    refuses "more than all" 2 "loss" link vale0:s1 loss 101%
    refuses "netem's slot" 2 "slot" link vale0:s1 slot 1ms 2ms
    refuses "a port that there is not" 4 "vale0:nobody" link vale0:nobody delay 1ms
    link s1 delay 70000 loss 1%
    check "it is shown in canonical words" s1 '.policies.link_in == "delay 70ms loss 1%"'
    link s1 both delay 1ms
    nv link --json vale0:s1 | jq -e '.link_in == "delay 1ms" and .link_out == "delay 1ms"' >/dev/null ||
        fail "both are shown"
    link s1 in off
    check "one direction is off" s1 '.policies | keys == ["link_out"]'
    link s1 both off
    check "both are" s1 '(.policies // {}) == {}'
}

# Other load must not change the result.
start_daemon --rt-priority 10
for n in 1 2; do station "$n"; done
# So that station 2 has room for all that the daemon delivers at once.
ip -n s1 link set s1 txqueuelen 256
iperf_server s2
reaches 1 2
# No ARP requests while frames are counted.
in_space s1 ip neigh replace 10.1.0.2 lladdr 02:00:00:00:00:02 dev s1
in_space s2 ip neigh replace 10.1.0.1 lladdr 02:00:00:00:00:01 dev s2
words
million
losses
others
rates
for n in 3 4; do station "$n"; done
iperf_server s4
reaches 3 4
reaches 1 3
jitter
nobody_waits
bounded
delays
finish
