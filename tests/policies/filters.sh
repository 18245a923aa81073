#!/usr/bin/env bash
# Filters: rules in the language of pcap-filter(7), in order, for what a port sends and receives.
#
# The judge is tcpdump: some 300 different frames are sent by tcpreplay into port p and captured at port q. Those that
# `tcpdump -r` selects from the file with the same expression must arrive, byte for byte and in order. The frames
# include ARP, IPv4 and IPv6, fragments, VLANs, LLC, unusual types, short and long ones.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need tcpdump tcpreplay
need_scapy

# --- the frames

cat >"$work/frames.py" <<'PYTHON'
"""frames.py FILE: different frames of all sorts; writes how many."""

import random
import sys

from scapy.all import ARP, ICMP, IP, LLC, STP, TCP, UDP, Dot1AD, Dot1Q, Dot3, Ether, IPv6, Raw, SNAP, wrpcap
from scapy.all import ICMPv6EchoRequest, IPv6ExtHdrFragment

random.seed(7)
frames = []


def eth(n, **fields):
    """An Ethernet header that no other frame has."""
    dst = ("02:00:00:00:00:02", "02:00:00:00:00:63", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:05")[n % 4]
    return Ether(src="02:00:00:00:%02x:%02x" % (n // 256 + 1, n % 256), dst=dst, **fields)


def bytes_of(length):
    return Raw(bytes(random.randrange(256) for _ in range(length)))


def add(make, count):
    for _ in range(count):
        n = len(frames)
        frames.append(make(n))


HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.77", "192.168.1.1", "224.0.0.5")
PORTS = (53, 80, 443, 67, 68, 5353, 33000)
TAGS = (1, 10, 20, 4094)


def ip(n, **fields):
    return IP(src=HOSTS[n % 4], dst=HOSTS[n // 2 % 5], id=n, ttl=1 + n % 255, tos=n % 3 * 4, **fields)


def ip6(n):
    return IPv6(src="fd00::%x" % (n % 5 + 1), dst="ff02::1" if n % 3 == 0 else "fd00::%x" % (n % 7 + 1))


def udp(n):
    return UDP(sport=PORTS[n % 7], dport=PORTS[n // 3 % 7])


def tcp(n):
    return TCP(sport=PORTS[n % 7], dport=PORTS[n // 3 % 7], flags=("S", "SA", "A", "PA", "FA", "R")[n % 6], seq=n)


def deep(n):
    body = bytearray(random.randrange(256) for _ in range(1358))
    # udp[1000] is byte 992 of the payload.
    body[992] = 7 if n % 3 == 0 else n % 256
    return eth(n) / ip(n) / udp(n) / Raw(bytes(body))


add(lambda n: eth(n) / ARP(op=1 + n % 2, psrc=HOSTS[n % 3], pdst=HOSTS[n % 4]) / bytes_of(18), 30)
add(lambda n: eth(n) / ip(n) / udp(n) / bytes_of(18 + n % 200), 60)
add(lambda n: eth(n) / ip(n) / tcp(n) / bytes_of(n % 300), 60)
add(lambda n: eth(n) / ip(n) / ICMP(type=8 * (n % 2), id=n) / bytes_of(32), 15)
add(lambda n: eth(n) / ip(n, frag=n % 4 * 10, flags=n % 2) / udp(n) / bytes_of(64), 16)
# With IP options, so that the offsets of what follows differ.
add(lambda n: eth(n) / ip(n, options=[b"\x01" * (4 * (n % 10))]) / udp(n) / bytes_of(40), 16)
add(lambda n: eth(n) / ip6(n) / udp(n) / bytes_of(20 + n % 100), 20)
add(lambda n: eth(n) / ip6(n) / tcp(n) / bytes_of(20), 15)
add(lambda n: eth(n) / ip6(n) / ICMPv6EchoRequest(id=n) / bytes_of(20), 8)
add(lambda n: eth(n) / ip6(n) / IPv6ExtHdrFragment(offset=n % 2 * 5, id=n) / udp(n) / bytes_of(30), 6)
add(lambda n: eth(n) / Dot1Q(vlan=TAGS[n % 4], prio=n % 8) / ip(n) / udp(n) / bytes_of(30), 24)
add(lambda n: eth(n) / Dot1AD(vlan=TAGS[n % 4]) / Dot1Q(vlan=TAGS[n // 4 % 4]) / ip(n) / tcp(n) / bytes_of(30), 12)
add(lambda n: eth(n) / Dot1Q(vlan=TAGS[n % 4]) / ARP(pdst=HOSTS[n % 3]) / bytes_of(18), 8)
add(lambda n: Dot3(src="02:00:00:00:09:%02x" % n, dst="01:80:c2:00:00:00") / LLC() / STP() / bytes_of(8), 6)
add(lambda n: Dot3(src="02:00:00:00:08:%02x" % (n % 256), dst="01:00:0c:cc:cc:cc") / LLC() / SNAP() / bytes_of(40), 6)
add(lambda n: eth(n, type=(0x88CC, 0x8809, 0x88B5, 0x0801, 0x888E, 0x8863)[n % 6]) / bytes_of(46 + n % 1400), 18)
add(deep, 24)
wrpcap(sys.argv[1], frames)
print(len(frames))
PYTHON

# rule DIRECTION ACTION EXPRESSION…: adds a rule.
rule() {
    must nv filter vale0:p "$@"
}

# arrive FROM WANTED WHAT: sends the frames from a port's interface; the other one must receive those of the capture
# WANTED.
arrive() {
    local from=$1 wanted=$2 what=$3 to=q
    [ "$from" = p ] || to=p
    begin_capture wire "$to"
    must in_space wire tcpreplay -q --pps 3000 -i "$from" "$work/sent.pcap"
    end_capture "$wanted" "$what"
}

picked() {
    tcpdump -r "$work/sent.pcap" -w "$work/$1.pcap" "$2" 2>"$work/dumper" ||
        fail "tcpdump takes $2" "$(cat "$work/dumper")"
}

# decided NUMBER: the number of frames that p's rule NUMBER, counted from 0, has decided.
decided() {
    nv filter vale0:p --json | jq ".[$1].frames"
}

# same_as_tcpdump EXPRESSION: as a rule that passes, as one that drops, and as both for received frames.
same_as_tcpdump() {
    local expression=$1 before kept rest
    picked fits "$expression"
    same_frames "$work/sent.pcap" "$work/fits.pcap" "$work/rest.pcap"
    rule in drop "$expression"
    before=$(drops p filter)
    arrive p "$work/rest.pcap" "drop $expression: the rest arrives"
    rest=$(cat "$work/same")
    [ "$(decided 0)" = "$((count - rest))" ] || fail "drop $expression: the rule counts" "$(nv filter vale0:p --json)"
    [ "$(drops p filter)" = "$((before + count - rest))" ] || fail "drop $expression: drops" "$(shown p | jq -c .rings)"
    rule in delete all
    rule out pass "$expression"
    rule out drop greater 0
    arrive q "$work/fits.pcap" "pass $expression: these arrive"
    kept=$(cat "$work/same")
    rule out delete all
    ok "$expression: $kept of $count frames, as tcpdump says"
}

judged() {
    local expression
    while read -r expression; do
        same_as_tcpdump "$expression"
    done <<'LIST'
not (host 10.0.0.1 or udp port 53)
arp
ether host 02:00:00:00:00:02
ether proto 0x88cc or ether[20] & 3 = 1
ip and not udp
vlan
vlan 10 and ip
vlan 20 or (vlan and arp)
tcp[tcpflags] & (tcp-syn|tcp-fin) != 0
ip[8] > 64 and ip[0] & 0xf > 5
udp portrange 50-100 and src net 10.0.0.0/24
ip6 and (tcp or icmp6)
greater 300
less 60
multicast and not broadcast
stp or llc
ip[6:2] & 0x3fff != 0
icmp[icmptype] = icmp-echo
ether[6:4] = 0x02000000 and len % 7 = 3
udp[1000] = 7
(ip[2:2] - ((ip[0] & 0xf) << 2)) / 4 > 20
LIST
}

# --- order, counters, changes

order() {
    # Frames that the first rule passes are not matched further.
    rule in drop ip
    rule in drop ip6
    rule in pass 'udp port 53' --before 1
    picked wanted 'udp port 53 or not (ip or ip6)'
    arrive p "$work/wanted.pcap" "pass before drop"
    picked first 'udp port 53'
    picked second 'ip and not udp port 53'
    picked third 'ip6 and not udp port 53'
    local name n=0
    for name in first second third; do
        expect "rule $((n + 1)) counts the frames that it decides" "$(decided $n)" -eq \
            "$(tcpdump -r "$work/$name.pcap" 2>/dev/null | wc -l)"
        n=$((n + 1))
    done
    check "show has the same counters" p '[.rules[].frames] | length == 3 and all(. > 0)'

    local before
    before=$(decided 1)
    rule in delete 1
    expect "a counter continues when another rule is deleted" "$(decided 0)" -eq "$before"
    picked wanted 'not (ip or ip6)'
    arrive p "$work/wanted.pcap" "the deleted rule does nothing"
    ok "a deleted rule does nothing"
    rule in pass arp
    picked wanted 'not (ip or ip6)'
    arrive p "$work/wanted.pcap" "a rule at the end"
    check "rules are in order" p '[.rules[].expression] == ["ip", "ip6", "arp"]'
    rule in delete all
    check "all are gone" p '(.policies // {}) == {} and (.rules // []) == []'
    arrive p "$work/sent.pcap" "without rules all frames arrive"
    ok "without rules all $count frames arrive, byte for byte"
}

both_directions() {
    rule in drop arp
    rule out drop tcp
    picked wanted 'not arp'
    arrive p "$work/wanted.pcap" "a rule for what p sends"
    picked wanted 'not tcp'
    arrive q "$work/wanted.pcap" "a rule for what p gets"
    expect "the rule for frames to p counts" "$(nv filter vale0:p --json | jq '.[] | select(.dir == "out") | .frames')" -eq \
        "$(tcpdump -r "$work/sent.pcap" tcp 2>/dev/null | wc -l)"
    # Frames to p have to pass p's rules and the sender's.
    nv filter vale0:q in drop ip6 >/dev/null
    picked wanted 'not tcp and not ip6'
    arrive q "$work/wanted.pcap" "the sender's rules and the receiver's"
    nv filter vale0:q in delete all >/dev/null
    rule in delete all
    rule out delete all
    ok "in and out are two lists"
}

attached_with_rules() {
    detach p
    attach p wire --filter-in 'pass udp port 53' --filter-in 'drop not arp' --filter-out 'drop ip'
    ip -n wire link set p promisc on
    picked wanted 'udp port 53 or arp'
    arrive p "$work/wanted.pcap" "--filter-in"
    picked wanted 'not ip'
    arrive q "$work/wanted.pcap" "--filter-out"
    ok "rules given to netvale attach"
    refuses "netvale attach refuses an invalid expression" 2 nonsense \
        attach vale0 tap:x --name x --netns /run/netns/wire --filter-in 'drop nonsense word'
    refuses "the port does not exist then" 4 vale0:x show vale0:x
    rule in delete all
    rule out delete all
}

# Rules that pass every frame are replaced all the time: each frame is decided by the old rules or by the new ones, and
# none is dropped.
changing() {
    local n pinged
    attach r wire
    ip -n far addr add 10.1.0.2/24 dev t
    ip -n near addr add 10.1.0.1/24 dev s
    background in_space near ping -q -i 0.005 -c 1000 -W 5 10.1.0.2 >"$work/ping"
    pinged=$!
    for n in $(seq 30); do
        nv port set vale0:s filter_in "drop 2,$((n % 2 == 0 ? 40 : 48)) 0 0 12,6 0 0 0" >/dev/null
        nv filter vale0:s in pass 'icmp or arp' --before 1 >/dev/null
        nv filter vale0:s in drop "udp port $n" --before 1 >/dev/null
        nv filter vale0:s in delete 3 >/dev/null
    done
    wait "$pinged" || fail "pings beside changes of rules" "$(cat "$work/ping")"
    expect "120 changes of rules beside 1000 pings: answered" \
        "$(sed -n 's/.* transmitted, \([0-9]*\) received.*/\1/p' "$work/ping")" -eq 1000
}

# --- programs that are refused

cat >"$work/ask.py" <<'PYTHON'
"""ask.py SOCKET: programs that must be refused, and some that must be taken, over the control socket itself."""

import json
import socket
import sys

control = socket.socket(socket.AF_UNIX)
control.connect(sys.argv[1])
lines = control.makefile("rw")


def asked(rules):
    request = {"jsonrpc": "2.0", "id": 1, "method": "port.set", "params": {"port": "vale0:p", "set": {"filter_in": rules}}}
    print(json.dumps(request), file=lines, flush=True)
    return json.loads(lines.readline())


def program(*insns):
    return "drop %d,%s" % (len(insns), ",".join(insns))


RETURN = "6 0 0 1"
MANY = ["0 0 0 1"] * 4095
REFUSED = {
    "a jump backward": program("0 0 0 1", "5 0 0 4294967295", RETURN),
    "a jump to itself": program("5 0 0 4294967295", RETURN),
    "a jump behind the end": program("5 0 0 1", RETURN),
    "a jump that overflows": program("5 0 0 2147483647", RETURN),
    "a condition's jump behind the end, if true": program("21 1 0 0", RETURN),
    "a condition's jump behind the end, if false": program("21 0 1 0", RETURN),
    "a division by zero": program("52 0 0 0", RETURN),
    "a remainder of zero": program("148 0 0 0", RETURN),
    "4097 instructions": program(*MANY, "0 0 0 1", RETURN),
    "an unknown opcode": program("255 0 0 0", RETURN),
    "an unknown code of 16 bits": program("32769 0 0 0", RETURN),
    "a cell that was not written": program("96 0 0 3", RETURN),
    "a cell that was written on one way only": program("48 0 0 0", "21 0 1 5", "2 0 0 3", "96 0 0 3", "22 0 0 0"),
    "a cell that there is not, stored to": program("2 0 0 16", RETURN),
    "a cell that there is not, loaded": program("96 0 0 16", RETURN),
    "a shift by 32": program("100 0 0 32", RETURN),
    "no return at the end": program("0 0 0 1"),
    "no instruction": "drop 0",
    "fewer instructions than it says": "drop 3,0 0 0 1,6 0 0 1",
    "more instructions than it says": "drop 1,0 0 0 1,6 0 0 1",
    "half an instruction": "drop 1,6 0 0",
    "a number that is too large": "drop 1,6 0 0 4294967296",
    "a negative number": "drop 1,6 0 0 -1",
    "a jump of 256": "drop 2,21 256 0 0,6 0 0 1",
    "what only a kernel knows (the interface)": program("32 0 0 4294963208", RETURN),
    "words that were not compiled": "drop udp port 53",
    "another action": "reject 1,6 0 0 1",
    "an expression with a line end": "drop 1,6 0 0 1 # a\nb",
    "a number": 7,
    "an object": {"drop": True},
}
TAKEN = {
    "4096 instructions": program(*MANY, RETURN),
    "the least": program(RETURN),
    "a cell that was written on both ways": program("2 0 0 3", "96 0 0 3", "22 0 0 0"),
}

wrong = 0
before = asked(["pass 1,6 0 0 0"])["result"]["policies"]
for name, rule in REFUSED.items():
    answer = asked([rule])
    if "error" not in answer:
        print(f"taken: {name}: {str(rule)[:100]}")
        wrong += 1
    # A valid rule before the invalid one makes no difference: all are set or none.
    if "error" not in asked([program(RETURN), rule]):
        print(f"taken behind a good rule: {name}")
        wrong += 1
print(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "port.show", "params": {"port": "vale0:p"}}), file=lines, flush=True)
after = json.loads(lines.readline())["result"]["policies"]
if before != after:
    print(f"the rules are others than before: {str(after)[:200]}")
    wrong += 1
for name, rule in TAKEN.items():
    answer = asked([rule])
    if "error" in answer:
        print(f"refused: {name}: {answer['error']}")
        wrong += 1
asked(None)
print(f"{len(REFUSED)} refused, {len(TAKEN)} taken")
sys.exit(wrong != 0)
PYTHON

refused() {
    /usr/bin/python3 "$work/ask.py" "$run_dir/control.sock" >"$work/asked" ||
        fail "programs are verified" "$(cat "$work/asked")"
    ok "programs over the control socket: $(cat "$work/asked")"
    refuses "an invalid expression is refused" 2 "can't parse" filter vale0:p in drop 'udp prot 53'
    refuses "a rule that there is not" 2 "invalid rule" filter vale0:p in delete 1
    refuses "a place that there is not" 2 "invalid rule" filter vale0:p in drop arp --before 3
    refuses "a port that there is not" 4 "vale0:nobody" filter vale0:nobody in drop arp
    arrive p "$work/sent.pcap" "after all that, all frames arrive"
}

start_daemon
space wire
attach p wire
attach q wire
for port in p q; do
    ip -n wire link set "$port" promisc on
done
space near
space far
attach s near
attach t far
count=$(/usr/bin/python3 "$work/frames.py" "$work/sent.pcap") || fail "scapy makes frames"
echo "frames: $count"
arrive p "$work/sent.pcap" "without rules all frames arrive"
judged
order
both_directions
attached_with_rules
refused
changing
finish
