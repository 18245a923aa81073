#!/usr/bin/env bash
# Captures: 'netvale dump' with filters, several ports, rings of files, a full disk, and readers that stall or
# disappear; ports among tshark's interfaces (extcap), for an ordinary user, and of another host by ssh; 'netvale
# mirror'.
#
# The judges are Debian's tshark, dumpcap and capinfos, which read the captures, list the ports and capture on them, and
# the kernel's VXLAN device, to which a port is mirrored. This test's `ssh` is a script that runs the command locally.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need tshark dumpcap capinfos tcpdump ping mount

extcap=$work/bin/netvale-extcap

# user COMMAND…: runs a command as an ordinary user with a home directory.
user() {
    ${direct:-} "${as_user[@]}" "HOME=$work/home" "NETVALE_RUN_DIR=$run_dir" "WIRESHARK_EXTCAP_DIR=$work/bin" \
        "PATH=$work/path:$PATH" "$@"
}

# frames FILE FIELD…: prints fields of the frames of a capture, as tshark reads them.
frames() {
    local file=$1 field fields=()
    shift
    for field; do fields+=(-e "$field"); done
    tshark -r "$file" -T fields "${fields[@]}" 2>"$work/tshark.err" ||
        fail "tshark reads $file" "$(cat "$work/tshark.err")"
    ! grep -v 'Running as user' "$work/tshark.err" | grep -q . ||
        fail "tshark reads $file to its end" "$(cat "$work/tshark.err")"
}

# all WHAT FILE FIELD PATTERN: the capture must contain frames, and the field of each must match the pattern.
all() {
    local what=$1 file=$2 field=$3 pattern=$4
    frames "$file" "$field" >"$work/fields"
    [ -s "$work/fields" ] || fail "$what" "there are no frames in $file"
    ! grep -Evx "$pattern" "$work/fields" >"$work/others" ||
        fail "$what" "$field is not $pattern:" "$(sort "$work/others" | uniq -c | head)"
    ok "$what ($(wc -l <"$work/fields") frames)"
}

# lists PORT: whether the user's tshark lists the port.
lists() {
    user tshark -D >"$work/interfaces" 2>&1
    grep -qF " $1 (" "$work/interfaces"
}

# A capture file of frames to UDP ports 53 and 99 in turn, 60 to 259 bytes long.
traffic() {
    /usr/bin/python3 - "$1" <<'PYTHON'
import struct, sys

with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
    for n in range(200):
        data = bytes([n]) * (18 + n)
        udp = struct.pack("!HHHH", 1000 + n, 99 if n % 2 else 53, 8 + len(data), 0) + data
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), n, 0, 64, 17, 0, bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2]))
        total = sum(struct.unpack("!10H", head))
        head = head[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + head[12:]
        frame = bytes([2, 0, 0, 0, 9, 2, 2, 0, 0, 0, 9, 1, 8, 0]) + head + udp
        file.write(struct.pack("<IIII", n, 0, len(frame), len(frame)) + frame)
PYTHON
}

# inner FILE HEADERS: whether each datagram of a capture contains a frame of the traffic after that many bytes.
inner() {
    /usr/bin/python3 - "$work/traffic.pcap" "$@" <<'PYTHON'
import struct, sys

def frames(path):
    data = open(path, "rb").read()
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        yield data[at + 16 : at + 16 + length]
        at += 16 + length

sent = set(frames(sys.argv[1]))
got = [frame[int(sys.argv[3]) :] for frame in frames(sys.argv[2])]
wrong = [frame for frame in got if frame not in sent]
sys.exit(f"{len(wrong)} of {len(got)} are none that was sent: {wrong[:1]}" if wrong or not got else 0)
PYTHON
}

# Ports of the user and of root, one sending to the other.
begin() {
    mkdir -p "$work/home" "$work/bin" "$work/path"
    chown 65534 "$work/home"
    traffic "$work/traffic.pcap"
    start_daemon
    chmod 711 "$run_dir"
    chmod 666 "$run_dir"/*.sock
    # A switch belongs to the user who creates it.
    background user "$NETVALE" replay "$work/traffic.pcap" vale0:mine --rate 1000 --loop 1000000 >"$work/mine.log" 2>&1
    wait_for "the user's port is open" 20 is mine '.state == "open"'
    background nv pkt-gen -i vale0:root -f rx >"$work/root.log" 2>&1
    wait_for "root's port gets frames" 20 has_got root 10
}

dumps() {
    nv dump vale0:mine/rt vale0:root/rt -w "$work/two.pcapng" -f 'udp dst port 53' -s 80 -c 100 --json >"$work/two.json"
    all "the filter's frames only" "$work/two.pcapng" udp.dstport 53
    all "snap length" "$work/two.pcapng" frame.cap_len '[1-7]?[0-9]|80'
    all "which way, and where" "$work/two.pcapng" frame.interface_name 'vale0:(mine|root)'
    frames "$work/two.pcapng" frame.interface_name frame.packet_flags_direction | sort -u >"$work/ways"
    [ "$(cat "$work/ways")" = "$(printf 'vale0:mine\t0x00000002\nvale0:root\t0x00000001')" ] ||
        fail "ways" "$(cat "$work/ways")"
    capinfos "$work/two.pcapng" >"$work/info" 2>/dev/null
    [ "$(grep -c 'Filter string = udp dst port 53' "$work/info")" = 2 ] &&
        [ "$(grep -c 'stat entries = 1' "$work/info")" = 2 ] ||
        fail "interfaces with their filter and statistics" "$(cat "$work/info")"
    jq -e '.frames == 100 and .received > 150 and .dropped == 0' "$work/two.json" >/dev/null ||
        fail "totals" "$(cat "$work/two.json")"
    ok "interfaces with their filter and statistics"
    lines
    refuses "an invalid expression" 2 'syntax error' dump vale0:mine/t -w "$work/x" -f 'foo bar'
    refuses "several ports in pcap" 2 'takes only one port' dump vale0:mine/t vale0:root/r -w "$work/x.pcap"
    refuses "a ring that never turns" 2 'sets no limit' dump vale0:mine/t -w "$work/x.pcapng" -b files:3
    refuses "a ring on standard output" 2 'several files' dump vale0:mine/t -w - -b packets:3
    refuses "an invalid condition" 2 'duration:SECONDS' dump vale0:mine/t -w "$work/x" -a size:3
}

# Ports that other programs have, given by name only; and a port that no program can open. Printed as text.
lines() {
    local line='^[0-9:.]* vale0:(mine Out|root In ) [0-9]+ bytes, [0-9a-f:]* > [0-9a-f:]*, UDP 10\.9\.0\.1:[0-9]+ > 10\.9\.0\.2:53$'
    nv dump vale0:mine vale0:root -f 'udp dst port 53' -c 20 >"$work/lines" 2>"$work/lines.err"
    [ "$(grep -Ec "$line" "$work/lines")" = 20 ] && [ "$(wc -l <"$work/lines")" = 20 ] ||
        fail "lines of text" "$(cat "$work/lines" "$work/lines.err")"
    grep -q 'capturing vale0:mine/rt' "$work/lines.err" && grep -q '^20 frames' "$work/lines.err" ||
        fail "ports and number of frames" "$(cat "$work/lines.err")"
    nv attach vale0 null:sink >/dev/null
    nv dump vale0:sink -c 5 >"$work/lines" 2>"$work/lines.err"
    [ "$(grep -c ' vale0:sink In ' "$work/lines")" = 5 ] || fail "a device" "$(cat "$work/lines" "$work/lines.err")"
    nv detach vale0 sink >/dev/null
    ok "lines of text, of ports that are others'"
}

# The capture waits for a reader of a FIFO until it is ended.
no_reader() {
    local signal dump
    mkfifo "$work/nobody"
    for signal in INT TERM; do
        wait_for "there is no monitor" 20 bash -c "! '$NETVALE' --run-dir '$run_dir' list | grep -q 'vale0:mine/monitor'"
        background nv dump vale0:mine/t -w "$work/nobody" 2>"$work/nobody.err"
        dump=$!
        wait_for "its monitor is attached" 20 bash -c "'$NETVALE' --run-dir '$run_dir' list | grep -q 'vale0:mine/monitor'"
        kill "-$signal" "$dump"
        ended "a capture that nobody reads ends, SIG$signal" "$dump" 0
    done
}

# There are no more files in a ring than asked for and none is longer, and their names are like dumpcap's.
rings() {
    local file
    mkdir "$work/ring"
    nv dump vale0:mine/t -w "$work/ring/odd name.pcapng" -b filesize:20 -b files:3 -a packets:1500 --json \
        >"$work/ring.json"
    jq -e '.frames == 1500 and .files > 3' "$work/ring.json" >/dev/null ||
        fail "totals of a ring" "$(cat "$work/ring.json")"
    [ "$(find "$work/ring" -type f | wc -l)" = 3 ] || fail "three files" "$(ls -l "$work/ring")"
    for file in "$work"/ring/*; do
        [[ $file =~ /odd\ name_000[0-9]{2}_20[0-9]{12}\.pcapng$ ]] || fail "names" "$file"
        [ "$(stat -c %s "$file")" -le 20000 ] || fail "sizes" "$(ls -l "$work/ring")"
        all "a whole file" "$file" frame.interface_name vale0:mine
    done
    nv dump vale0:mine/t -w "$work/ring/b.pcap" -b duration:0.2 -a files:2 >/dev/null
    [ "$(find "$work/ring" -name 'b_*.pcap' | wc -l)" = 2 ] || fail "by time, and two files" "$(ls -l "$work/ring")"
    ok "a ring of files"
}

# on_small_disk FOLDER ARGUMENT…: captures onto a disk of 200 KiB, and copies what is there in the end to FOLDER.
on_small_disk() {
    local folder=$1
    shift
    mkdir "$folder"
    # The disk disappears with its mount namespace.
    unshare -m bash -uc '
        netvale=$1 run_dir=$2 folder=$3
        shift 3
        mount -t tmpfs -o size=200k none /mnt || exit 99
        "$netvale" --run-dir "$run_dir" dump vale0:mine/t -w /mnt/a.pcapng "$@"
        status=$?
        cp /mnt/* "$folder"
        exit "$status"' - "$NETVALE" "$run_dir" "$folder" "$@" >"$work/full" 2>&1
}

full_disk() {
    local status=0 file
    on_small_disk "$work/disk" -b filesize:60 -a duration:60 || status=$?
    [ "$status" = 1 ] && grep -q 'cannot write /mnt/a_.*No space left on device' "$work/full" ||
        fail "a full disk" "$status" "$(cat "$work/full")"
    for file in "$work"/disk/*; do
        [ ! -s "$file" ] || all "a whole file of a full disk" "$file" frame.interface_name vale0:mine
    done
    on_small_disk "$work/fits" -b filesize:60 -b files:2 -a packets:2000 ||
        fail "a ring that fits" "$(cat "$work/full")"
    [ "$(find "$work/fits" -type f | wc -l)" = 2 ] || fail "two files of it" "$(ls -l "$work/fits")"
    ok "a disk that fills up"
}

has_lost() {
    nv list --json | jq -e '[.ports[] | select(.name | startswith("vale1:src/monitor")) | .drops["no-room"] // 0] | add > 0' >/dev/null
}

# A reader that stalls costs the capture its copies, and the port nothing.
stands_still() {
    local reader dump program lost
    nv attach vale1 null:end >/dev/null
    background nv replay "$work/traffic.pcap" vale1:src --rate 20000 --loop 1000000 >"$work/src.log" 2>&1
    program=$!
    wait_for "vale1:src is open" 20 bash -c "'$NETVALE' --run-dir '$run_dir' show vale1:src --json | jq -e '.state == \"open\"'"
    mkfifo "$work/still"
    background cat "$work/still" >"$work/still.pcapng"
    reader=$!
    background nv dump vale1:src/t -w "$work/still" --format pcapng >"$work/still.log" 2>"$work/still.err"
    dump=$!
    wait_for "it captures" 20 test -s "$work/still.pcapng"
    kill -STOP "$reader"
    wait_for "copies are lost" 30 has_lost
    kill -CONT "$reader"
    kill -INT "$dump"
    ended "a reader that stood still" "$dump" 0
    wait "$reader"
    lost=$(sed -n 's/.*; \([0-9]*\) more were lost.*/\1/p' "$work/still.log")
    [ "${lost:-0}" -gt 0 ] || fail "it says how many copies were lost" "$(cat "$work/still.log")"
    all "all that was written is whole" "$work/still.pcapng" frame.interface_name vale1:src
    [ "$(dropped "$work/still.pcapng")" = "$lost" ] ||
        fail "the statistics have the same number" "$(dropped "$work/still.pcapng"), not $lost"
    kill "$program"
    wait "$program" 2>/dev/null || true
    ok "$lost copies were lost, which the statistics report"
    wait_for "all frames reach the other port" 10 no_frame_lost
    ok "and no frame of the port's"
}

no_frame_lost() {
    nv show vale1:end --json >"$work/end.json"
    nv list --json | jq -e '.ports[] | select(.name == "vale1:end") | .counters | .out_frames > 0 and .drops == 0' \
        >/dev/null
}

# dropped FILE: the isb_ifdrop of the capture's statistics.
dropped() {
    /usr/bin/python3 - "$1" <<'PYTHON'
import struct, sys

data = open(sys.argv[1], "rb").read()
at = 0
while at < len(data):
    kind, length = struct.unpack_from("<II", data, at)
    option = at + 20
    while kind == 5 and option < at + length - 4:
        code, size = struct.unpack_from("<HH", data, option)
        if code == 5:
            print(struct.unpack_from("<Q", data, option + 4)[0])
        option += 4 + (size + 3) // 4 * 4
    at += length
PYTHON
}

# An ordinary user's tshark lists that user's ports as interfaces.
interfaces() {
    local text
    nv extcap --install "$work/bin" >/dev/null
    wait_for "tshark lists the user's port" 20 lists netvale-vale0:mine
    ! lists netvale-vale0:root || fail "and no other user's" "$(cat "$work/interfaces")"
    lists netvale-ssh || fail "and other hosts'" "$(cat "$work/interfaces")"
    ok "tshark lists the user's ports, and no other"
    user timeout 100 tshark -i netvale-vale0:mine -f 'udp dst port 53' -c 20 -w "$work/home/t.pcapng" >"$work/t.err" \
        2>&1 ||
        fail "tshark captures" "$(cat "$work/t.err")"
    all "tshark captures, with its filter" "$work/home/t.pcapng" udp.dstport 53
    text=$(user timeout 100 tshark -i netvale-vale0:mine -f 'foo bar' -c 1 2>&1) && fail "a wrong filter" "$text"
    grep -q 'syntax error' <<<"$text" || fail "the message names the error in the filter" "$text"
    text=$(user timeout 100 tshark -i netvale-vale0:gone -c 1 2>&1) && fail "a port that does not exist" "$text"
    ok "an invalid filter, a port that does not exist"
    [ -n "$(user "$extcap" --extcap-interface netvale-vale0:mine --extcap-capture-filter 'foo bar')" ] ||
        fail "a filter is checked"
    [ -z "$(user "$extcap" --extcap-interface netvale-vale0:mine --extcap-capture-filter 'tcp port 80')" ] ||
        fail "a valid filter"
    user "$extcap" --capture --extcap-interface netvale-vale0:root --fifo "$work/home/x" >"$work/x.log" 2>&1 &&
        fail "another user's port"
    grep -qi 'belongs to' "$work/x.log" || fail "it says why" "$(cat "$work/x.log")"
    ok "another user's port is refused"
    # The name of such a pipe contains a brace.
    background user "$NETVALE" pkt-gen -i 'netmap:odd{1' -f rx >"$work/pipe.log" 2>&1
    background user "$NETVALE" pkt-gen -i 'netmap:odd}1' -f tx -R 1000 >"$work/pipe.log" 2>&1
    wait_for "a pipe with a brace" 20 lists netvale-netmap:odd%7B1
    user timeout 100 tshark -i netvale-netmap:odd%7B1 -c 5 -w "$work/home/p.pcapng" >"$work/p.err" 2>&1 ||
        fail "a pipe" "$(cat "$work/p.err")"
    all "names with odd characters" "$work/home/p.pcapng" frame.interface_name '.*odd.*'
}

# As root, in the extcap folder of all users: in a copy, mounted in this namespace.
for_all() {
    unshare -m bash -euc '
        folder=$(tshark -G folders 2>/dev/null | sed -n "s/^.*xtcap path:[[:space:]]*//p" | tail -n 1)
        mount -t tmpfs none "$folder"
        "$1" extcap --install
        NETVALE_RUN_DIR=$2 tshark -D' - "$NETVALE" "$run_dir" >"$work/root" 2>&1 || fail "root installs it for all" "$(cat "$work/root")"
    grep -qF netvale-vale0:mine "$work/root" && grep -qF netvale-vale0:root "$work/root" ||
        fail "root sees all ports" "$(cat "$work/root")"
    ok "in the folder for all users"
}

# extcap_into FIFO ARGUMENT…: captures in the background. Its process number is in $!.
extcap_into() {
    local fifo=$1
    shift
    user mkfifo "$fifo"
    background user "$extcap" --capture --fifo "$fifo" "$@" 2>"$fifo.err"
}

readers() {
    local process
    extcap_into "$work/home/f1" --extcap-interface netvale-vale0:mine
    process=$!
    user timeout 100 dumpcap -q -i "$work/home/f1" -c 20 -w "$work/home/d.pcapng" >"$work/d.err" 2>&1 ||
        fail "dumpcap captures" "$(cat "$work/d.err")"
    all "dumpcap captures" "$work/home/d.pcapng" ip.dst 10.9.0.2
    ended "its reader goes away" "$process" 0
    # There is no traffic, so the capture cannot notice by a failed write.
    extcap_into "$work/home/f2" --extcap-interface netvale-vale0:mine --extcap-capture-filter 'tcp port 9'
    process=$!
    head -c 28 "$work/home/f2" >/dev/null
    ended "a reader goes away while no frame comes" "$process" 0
    extcap_into "$work/home/f3" --extcap-interface netvale-vale0:mine
    process=$!
    background cat "$work/home/f3" >"$work/f3.pcapng"
    wait_for "it captures" 20 test -s "$work/f3.pcapng"
    kill -TERM "$process"
    ended "SIGTERM" "$process" 0
    wait_for "the reader has all" 10 gone "$!"
    all "a whole capture" "$work/f3.pcapng" ip.dst 10.9.0.2
}

# A port of another host.
other_host() {
    local process
    cat >"$work/path/ssh" <<'SSH'
#!/bin/bash
printf '%s\n' "$@" >"$HOME/ssh.args"
[ "$7" = host.example ] || { echo "ssh: no such host" >&2; exit 255; }
exec bash -c "$8"
SSH
    chmod 755 "$work/path/ssh"
    extcap_into "$work/home/s1" --extcap-interface netvale-ssh --remote-host host.example --remote-port 2222 --remote-username me \
        --remote-interface vale0:mine --remote-command "$NETVALE" --direction t --extcap-capture-filter \
        "udp dst port 53"
    process=$!
    user timeout 100 dumpcap -q -i "$work/home/s1" -c 20 -w "$work/home/s.pcapng" >"$work/s.err" 2>&1 ||
        fail "by ssh" "$(cat "$work/s.err" "$work/home/s1.err")"
    all "by ssh, with a filter" "$work/home/s.pcapng" udp.dstport 53
    ended "its reader goes away" "$process" 0
    [ "$(head -n 7 "$work/home/ssh.args" | paste -sd ' ')" = "-T -p 2222 -l me -- host.example" ] ||
        fail "how ssh is called" "$(cat "$work/home/ssh.args")"
    user "$extcap" --capture --extcap-interface ssh://me@wrong.example:22/vale0:mine --fifo "$work/home/x" \
        >"$work/x.log" 2>&1 &&
        fail "no such host"
    grep -q 'ssh: no such host' "$work/x.log" && grep -q 'ssh to wrong.example' "$work/x.log" ||
        fail "ssh's message is shown" "$(cat "$work/x.log")"
    ok "a host that ssh does not reach"
}

# mirrored NAME BYTES FILTER TARGET: captures on the loopback interface, to $work/NAME.pcap, the mirrored frames, each
# after BYTES bytes of headers.
mirrored() {
    local name=$1 bytes=$2 filter=$3 target=$4
    tcpdump_in mirror "$name.pcap" -i lo -U -s 10000 -c 40 "$filter"
    in_space mirror "$NETVALE" --run-dir "$run_dir" mirror vale0:mine/t --to "$target" -c 40 --json \
        >"$work/$name.json" 2>"$work/$name.mirror" ||
        fail "mirrors to $target" "$(cat "$work/$name.mirror")"
    ended "mirrors to $target" "$capture" 0
    inner "$work/$name.pcap" "$bytes" >"$work/inner" 2>&1 ||
        fail "the frames are those that were sent" "$(cat "$work/inner")"
    jq -e '.frames == 40' "$work/$name.json" >/dev/null || fail "how many" "$(cat "$work/$name.json")"
}

mirrors() {
    space mirror
    # The lengths of Ethernet, IP, UDP or GRE, and the encapsulation's own header.
    mirrored vxlan 50 'udp dst port 4789' vxlan:77,remote=127.0.0.1
    all "tshark decodes VXLAN" "$work/vxlan.pcap" vxlan.vni 77
    all "and the frame in it" "$work/vxlan.pcap" udp.dstport '4789,(53|99)'
    mirrored erspan 50 'ip proto gre' erspan:5,remote=127.0.0.1
    all "tshark decodes ERSPAN" "$work/erspan.pcap" erspan.spanid 5
    all "and the frame in it" "$work/erspan.pcap" udp.dstport '53|99'
    mirrored tzsp 47 'udp dst port 37008' udp:127.0.0.1:37008
    all "tshark decodes TZSP" "$work/tzsp.pcap" tzsp.encap '0x0*1|1'
    all "and the frame in it" "$work/tzsp.pcap" udp.dstport '37008,(53|99)'
    ends_with "ERSPAN takes a capability" 1 CAP_NET_RAW user "$NETVALE" mirror vale0:mine --to erspan:5,remote=127.0.0.1
    must user "$NETVALE" mirror vale0:mine --to udp:127.0.0.1:9 -c 3
    ok "an ordinary user mirrors the own port, but not by ERSPAN"
    refuses "an invalid target" 2 'udp:HOST:PORT' mirror vale0:mine --to gre:1
    refuses "another kind of name" 2 'is not a mirror' mirror "vale0:'mine'-0" --to udp:127.0.0.1:9
}

# A mirror whose datagrams leave through the mirrored port does not mirror these. The kernel's VXLAN device is at the
# other end.
own_datagrams() {
    local mirror
    station 1
    station 2
    in_space s2 ip link add vx type vxlan id 7 dstport 4789 local 10.1.0.2 dev s2 ||
        skip "there is no VXLAN in this kernel"
    in_space s2 ip link set vx up
    begin_capture s2 vx
    background in_space s1 "$NETVALE" --run-dir "$run_dir" mirror vale0:s1/t --to vxlan:7,remote=10.1.0.2 -f ip --json \
        >"$work/own.json" 2>"$work/own.err"
    mirror=$!
    wait_for "it mirrors" 20 grep -q 'from now on' "$work/own.err"
    in_space s1 ping -q -c 5 -i 0.2 10.1.0.2 >/dev/null || fail "5 answers"
    kill -INT "$mirror"
    ended "a mirror through the mirrored port" "$mirror" 0
    jq -e '.frames == 5 and .own == 5' "$work/own.json" >/dev/null ||
        fail "5 pings, and 5 datagrams of its own" "$(cat "$work/own.json")"
    wait_for "the kernel's VXLAN device receives them" 10 has_echoes 5
    end_of "$capture" INT || true
    ok "the kernel's VXLAN has the frames"
}

# has_echoes NUMBER: whether the capture contains that many echo requests.
has_echoes() {
    [ "$(tcpdump -nr "$work/got.pcap" 'icmp[0] == 8' 2>/dev/null | wc -l)" = "$1" ]
}

begin
dumps
rings
full_disk
no_reader
stands_still
interfaces
for_all
readers
other_host
mirrors
own_datagrams
finish
