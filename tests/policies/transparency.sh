#!/usr/bin/env bash
# Transparency: a switch without policies passes every frame unchanged, byte for byte, from any kind of port to any
# other.
#
# So it passes what a bridge of IEEE 802.1Q does not forward: LACP, LLDP, STP, 802.1X, PTP, flow control (VALE forwards
# these, too), and every group of 01:80:c2:00:00:0x; and frames with one to four tags, with lengths from 14 to 9000
# bytes, without padding them. The judges are tcpreplay and tcpdump at TAPs and veths, whose kernel restores the tags
# that it had removed, and netvale's own replay and dump for netmap programs. Each frame must arrive once and in order.
# Virtual machines are not tested here, but their device is: vhost, driven by netvale's own virtio driver. Frames longer
# than an AF_XDP buffer are not sent through veths.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need tcpdump tcpreplay ethtool

# frames LONGEST FILE: writes a capture, and prints the number of its frames.
frames() {
    /usr/bin/python3 - "$@" <<'PYTHON'
import random
import struct
import sys

random.seed(4)
longest, frames = int(sys.argv[1]), []
STATION = "02000000%04x"


def add(dst, rest, length=60, fill=None):
    """A frame from an address of its own, of that length: destination, what follows the source address, noise."""
    head = bytes.fromhex(dst.replace(":", "") + STATION % (len(frames) + 0x100) + rest.replace(" ", ""))
    noise = bytes(random.randrange(256) for _ in range(max(0, length - len(head))))
    frames.append((head + noise)[: max(length, 14)])


BRIDGE = "01:80:c2:00:00:%02x"
add(BRIDGE % 0x02, "8809 01 01")  # LACP
add(BRIDGE % 0x02, "8809 03 01")  # OAM
add(BRIDGE % 0x02, "8809 0a 00")  # ESMC
for group in (0x0E, 0x03, 0x00):
    add(BRIDGE % group, "88cc 0207 04 020000000001", 120)  # LLDP
add(BRIDGE % 0x00, "0026 424203 0000 00 00")  # STP
add(BRIDGE % 0x00, "0027 424203 0000 02 02")  # RSTP
add("01:00:0c:cc:cc:cd", "0032 aaaa03 00000c 010b")  # PVST+
add("01:00:0c:cc:cc:cc", "0032 aaaa03 00000c 2000")  # CDP
add(BRIDGE % 0x03, "888e 01 01 0000")  # 802.1X
add("02:00:00:00:77:77", "888e 02 00 0005")
add(BRIDGE % 0x0E, "88f7 12 02")  # PTP, peer delay
add("01:1b:19:00:00:00", "88f7 00 02")  # PTP
add(BRIDGE % 0x01, "8808 0001 ffff")  # flow control
add(BRIDGE % 0x01, "8808 0101 00ff")  # by priority
for group in range(16):
    add(BRIDGE % group, "88b5")
for group in (0x20, 0x21, 0x30):
    add(BRIDGE % group, "88b5")  # GMRP, GVRP, CFM
add(BRIDGE % 0x30, "8902 00 01")
TAGS = ("8100 000a", "8100 6000", "8100 a00a", "8100 1001", "8100 0fff", "88a8 000a", "88a8 e00b 8100 000a", "8100 000a 8100 000b")
TAGS += ("8100 000a 8100 000b 8100 000c", "88a8 0001 8100 0002 8100 0003", "88a8 0001 88a8 0002 8100 0003 8100 0004", "9100 000a 8100 0001")
for tags in TAGS:
    for dst in ("02:00:00:00:77:77", "ff:ff:ff:ff:ff:ff", BRIDGE % 0x0E):
        add(dst, tags + "0800 4500", 100)
    add("02:00:00:00:77:77", tags + "88b5", 1500 + 2 * len(tags.split()))
for type_ in ("0000", "0001", "05dc", "05dd", "05ff", "0600", "0806", "8137", "86dd", "8863", "8847", "22f0", "88e5", "88e7", "8906", "ffff"):
    add("02:00:00:00:77:77", type_, 64)
for length in (14, 15, 17, 18, 20, 33, 34, 42, 46, 59, 60, 61, 63, 64, 65, 127, 128, 129, 255, 256, 511, 512, 1023, 1024, 1499, 1500, 1513, 1514):
    add("02:00:00:00:77:77", "88b5", length)
add("33:33:00:00:00:01", "86dd 6000", 90)
add("01:00:5e:00:00:01", "0800 4600", 60)
# Damaged inside, which a switch does not check: IP lengths and checksums.
add("02:00:00:00:77:77", "0800 45 00 ffff 0000 0000 00 06 0000 0a000001 0a000002", 200)
add("02:00:00:00:77:77", "0800 4f 00 0010 0000 2000 01 11 ffff ffffffff 00000000 0000 0000 0000 0000", 80)
for length in (2000, 2048, 2112, 2113, 4000, 4096, 4097, 8191, 8192, 9000, 9014):
    if length <= longest:
        add("02:00:00:00:77:77", "88b5", length)
        add("ff:ff:ff:ff:ff:ff", "8100 0064 88b5", length)
with open(sys.argv[2], "wb") as file:
    file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
    for number, frame in enumerate(frames):
        file.write(struct.pack("<IIII", 1000, number * 500, len(frame), len(frame)) + frame)
print(len(frames))
PYTHON
}

# swapped CAPTURE TO: swaps the destination and source of each frame.
swapped() {
    /usr/bin/python3 - "$@" <<'PYTHON'
import struct
import sys

with open(sys.argv[1], "rb") as file, open(sys.argv[2], "wb") as to:
    to.write(file.read(24))
    while head := file.read(16):
        frame = file.read(struct.unpack_from("<I", head, 8)[0])
        to.write(head + frame[6:12] + frame[:6] + frame[12:])
PYTHON
}

# sends KIND NAME CAPTURE: sends a capture from a port of that kind.
sends() {
    case $1 in
    tap | veth) must in_space "$2" tcpreplay -q --pps 1000 -i "$2" "$3" ;;
    program) must nv replay -R 1000 "$3" "vale0:$2" ;;
    esac
}

# begins KIND NAME, and ends KIND NAME WANTED WHAT: start and end a capture of what a port of that kind receives.
begins() {
    case $1 in
    tap | veth) begin_capture "$2" "$2" ;;
    program)
        rm -f "$work/got.pcap"
        background nv dump -w "$work/got.pcap" -c "$count" --seconds 20 "vale0:$2" >"$work/capture" 2>&1
        capture=$!
        wait_for "a program reads vale0:$2" 10 is "$2" '.state == "open"'
        ;;
    esac
}

ends() {
    case $1 in
    tap | veth) end_capture "$3" "$4" ;;
    program)
        # The reader ends with the last frame.
        wait "$capture" || true
        same_frames "$3" "$work/got.pcap" >"$work/same" || fail "$4" "$(cat "$work/same")" "$(cat "$work/capture")"
        ;;
    esac
}

# carries KIND:NAME KIND:NAME CAPTURE [WANTED]: the frames of the capture must arrive as those of WANTED, by default the
# same.
carries() {
    local from=$1 to=$2 sent=$3 wanted=${4:-$3} what
    what="from $1 to $2"
    begins "${to%%:*}" "${to#*:}"
    sends "${from%%:*}" "${from#*:}" "$sent"
    ends "${to%%:*}" "${to#*:}" "$wanted" "$what"
    ok "$what: $(cat "$work/same") frames, byte for byte"
}

# interface NAME: creates a veth, whose other end is an AF_XDP port of the switch.
interface() {
    space "$1"
    ip link add "end$1" mtu 1600 up type veth peer name "$1" mtu 1600 netns "$1"
    in_space "$1" ethtool -K "$1" tx off >/dev/null
    ip -n "$1" link set dev "$1" up promisc on
    must nv attach vale0 "netmap:end$1" --name "$1"
}

# tap NAME: creates one in a namespace of its own, for frames of 9000 bytes.
tap() {
    space "$1"
    attach "$1" "$1" --mtu 9100
    ip -n "$1" link set dev "$1" promisc on
}

# The daemon opens the captures that are ports.
start_daemon --allow-dir "$work"
count=$(frames 1600 "$work/short.pcap")
all=$(frames 9014 "$work/long.pcap")
[ "$all" -gt "$count" ] || fail "there are long frames"
tap a
tap b
count=$all
carries tap:a tap:b "$work/long.pcap"
carries tap:b tap:a "$work/long.pcap"

# Programs: a sender and a reader, each with rings of its own.
nv attach vale0 p --buf-size 10048 >/dev/null
carries tap:a program:p "$work/long.pcap"
carries program:p tap:b "$work/long.pcap"
nv detach vale0:p >/dev/null
nv attach vale0 p >/dev/null
# 2112 bytes a buffer: longer frames take several.
carries program:p tap:b "$work/long.pcap"
carries tap:b program:p "$work/long.pcap"
nv attach vale0 q >/dev/null
carries program:p program:q "$work/long.pcap"
detach p q

# A capture that the switch itself replays, and one that it writes.
begin_capture b b
must nv attach vale0 "pcap:in=$work/long.pcap" --name file
end_capture "$work/long.pcap" "from a capture file to a TAP"
ok "from a capture file to a TAP: $(cat "$work/same") frames, byte for byte"
nv detach vale0:file >/dev/null 2>&1 || true
must nv attach vale0 "pcap:out=$work/written.pcap" --name file
sends tap a "$work/long.pcap"
wait_for "the capture has all frames" 10 has_got file "$all"
nv detach vale0:file >/dev/null
/usr/bin/python3 - "$work/written.pcap" <<'PYTHON' || fail "the capture is one of microseconds or nanoseconds"
import sys
sys.exit(open(sys.argv[1], "rb").read(4) not in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"))
PYTHON
same_frames "$work/long.pcap" "$work/written.pcap" >"$work/same" ||
    fail "from a TAP to a capture file" "$(cat "$work/same")"
ok "from a TAP to a capture file: $(cat "$work/same") frames, byte for byte"

# An echo port sends each frame back to its sender.
detach b
nv attach vale0 echo: --name echo >/dev/null
swapped "$work/short.pcap" "$work/back.pcap"
carries tap:a tap:a "$work/short.pcap" "$work/back.pcap"
detach echo

# A vhost device and its driver, which is a port of another switch.
switch=vale1 attach b b --mtu 9100
ip -n b link set dev b promisc on
must nv attach vale0 "vhost:$work/vhost" --name v --mtu 9100
must nv attach vale1 "virtio:$work/vhost" --name w
count=$(frames 1600 "$work/short.pcap")
sleep 1
carries tap:a tap:b "$work/long.pcap"
carries tap:b tap:a "$work/long.pcap"
detach v
nv detach vale1:w >/dev/null

# AF_XDP.
interface x
interface y
count=$(frames 1600 "$work/short.pcap")
carries tap:a veth:x "$work/short.pcap"
carries veth:x tap:a "$work/short.pcap"
carries veth:y veth:x "$work/short.pcap"
nv attach vale0 p >/dev/null
carries veth:y program:p "$work/short.pcap"
carries program:p veth:y "$work/short.pcap"

nv list --json | jq -e '[.ports[].counters.drops] | add == 0' >/dev/null || fail "nothing was dropped" "$(nv list)"
ok "nothing was dropped at any port"
finish
