#!/usr/bin/env bash
# VLANs: access ports, trunks, native VLANs, QinQ; compared with a Linux bridge with `vlan_filtering` and the same
# ports.
#
# matrix.c sends each of some hundred frames into a switch and prints the ports at which it came out, and with which
# tags: here on netvale's TAPs, in a guest on the ports of a bridge. Both must print the same. Then a guest with a VLAN
# interface on a trunk talks to an access port over TCP, in segments longer than its MTU.
#
# Not compared, as the two differ:
# - protocols of tags: a bridge has one, netvale one for each port, so that frames can change from one to the other
#   (below, `translated`);
# - frames for 01:80:c2:00:00:01 to 0f (flow control, LLDP): a bridge keeps them, netvale forwards them, as VALE does;
# - frames from address 0 or from a group: a bridge drops them, netvale forwards them, as VALE does;
# - frames of less than 20 bytes that begin with a tag: Linux drops them all, netvale those in which a tag of the port's
#   own protocol is cut.
#   No Ethernet has frames that short.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need qemu-system-x86_64 bridge busybox
guest_image
compiled matrix

# The ports of the switch under test: a name, and policies in netvale's words.
ports() {
    cat <<'LIST'
a access 10
b access 10
c access 20
t trunk 10,20-22
n trunk 10,30 native 30
u trunk 10,20,4000-4094
w trunk 2-4094 native 1
d
LIST
}

# The frames: every shape from every port, to all; then conversations.
frames() {
    local port shape n=0
    for port in $(ports | cut -d' ' -f1); do
        n=$((n + 1))
        while read -r shape; do
            echo "$port all 5$n $shape"
        done <<'SHAPES'

q0
q0p6
q1
q10
q10p5
q10p7d
q20p1
q21
q30p3
q4094
q4095
q4000p2d
q10p4 q20p3
q30 q10
q0p3 q20
q10 q20 q30
q10 q10 q10 q10
s10
s10p6 q20
q20 s10
s4095 q10
s10 s20
len 1514
q10 len 1518
q20 q10 len 1522
cut 16
q10 cut 20
q10 q20 cut 24
SHAPES
        # To a group, to an unknown address, from an unknown address, from a group.
        printf "$port %s\n" 'group 5'"$n" 'group 5'"$n"' q10p1' '33:33:00:00:00:01 5'"$n"' q20' \
            '77 5'"$n" '77 5'"$n"' q10p2' '77 5'"$n"' s20' '77 5'"$n"' q30 q20'
    done
    cat <<'TALKS'
# Learned in both directions, access to access and to trunks.
a all 0a
b 0a 0b
a 0b 0a
t 0a 0c q10p3
a 0c 0a
b 0c 0b q0p5
# The same VLAN's address from another port, tagged and not.
n 0a 0d q10
a 0d 0a
w 0d 0e q10
c 0a 0f
# Known, but in another VLAN: flooded in the sender's.
c 0b 0f
t 0b 0c q20
t 0f 0c q20
t 0f 0c q10
# The same address in two VLANs, behind different ports.
a all aa
c all aa
t aa 1a q10
t aa 1a q20
u aa 1b q10p7
u aa 1b q20p7
w aa 1c q21
# And behind one port in both.
u all bb q10
u all bb q20
a bb 0a
c bb 0f
t bb 1a q10
t bb 1a q20
# It moves.
b all bb
t bb 1a q10
t bb 1a q20
# Without a tag, in the native VLAN; with its number, the same.
n all 2a
w 2a 2b q30
w all 2b q30p2
n 2b 2a
n 2b 2a q30p6
n 2b 2a q0p6
d all 2c
w 2c 2d
w 2c 2d q1
d 2d 2c q1
d 2d 2c q0p1
# To the port it came from.
u all 3a q10
u 3a 3b q10
u all 3b q20
u 3b 3a q20
u 3b 3a q10
# Not allowed at its port, and not learned.
a all 4a q20
c all 4a q10
b 4a 0b
t 4a 1a q20
t all 4b q30
n 4b 2a q30
t all 4c
w 4c 2d q10
# Two tags, between stations that know each other.
t 0a 1a q10p4 q20p3
a 1a 0a q10 q20
a 1a 0a q20 q10
u 1a 3a q20 s10 q30
t 3a 1a q20p5 q30
TALKS
}

# --- the judge

# on_bridge PROTOCOL: writes the script of a guest that puts the same ports on a bridge and prints the output of matrix.
on_bridge() {
    local port word value range
    echo "set -e
        echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
        ip link add br0 type bridge vlan_filtering 1 vlan_protocol $1 mcast_snooping 0
        ip link set br0 up"
    while read -r port word value; do
        echo "ip tuntap add dev $port mode tap; ip link set dev $port mtu 1600 master br0 up"
        [ "$word" != access ] ||
            echo "bridge vlan del vid 1 dev $port; bridge vlan add vid $value pvid untagged dev $port"
        [ "$word" = trunk ] || continue
        echo "bridge vlan del vid 1 dev $port"
        for range in $(tr , ' ' <<<"${value%% *}"); do echo "bridge vlan add vid $range dev $port"; done
        [ "${value##*native }" = "$value" ] || echo "bridge vlan add vid ${value##*native } pvid untagged dev $port"
    done < <(ports)
    # shellcheck disable=SC2046
    echo "echo matrix of $1; matrix -t frames" $(ports | cut -d' ' -f1) "; echo end of $1"
    echo "ip link del br0"
    for port in $(ports | cut -d' ' -f1); do echo "ip tuntap del dev $port mode tap"; done
}

start_judge() {
    mkdir "$work/judge"
    guest_takes "$work/judge" "$(command -v ip)" "$(command -v bridge)" "$work/matrix"
    cp "$work/frames" "$work/judge/frames"
    # Otherwise busybox's programs of these names come first.
    { echo 'hash -r; ip() { /bin/iproute2 "$@"; }; cd /' && on_bridge 802.1q &&
        on_bridge 802.1ad; } >"$work/judge/script"
    mv "$work/judge/bin/ip" "$work/judge/bin/iproute2"
    guest judge
}

# judged PROTOCOL: prints what the bridge did.
judged() {
    tr -d '\r' <"$work/judge.console" | sed -n "/^matrix of $1\$/,/^end of $1\$/p" | sed '1d;$d'
}

# --- netvale

# on_netvale PROTOCOL: the same frames on netvale's ports.
on_netvale() {
    local port policies
    space "$1"
    while read -r port policies; do
        # A bridge has one protocol for all ports.
        [ "$1" = 802.1q ] || policies="${policies:-access 1} vlan_protocol $1"
        # shellcheck disable=SC2046
        attach "$port" "$1" --mtu 1600 $(tr _ - <<<"$policies" | sed -E 's/([^ ]+) ([^ ]+)/--\1 \2/g')
    done < <(ports)
}

# compare PROTOCOL: both must print the same.
compare() {
    # shellcheck disable=SC2046
    in_space "$1" "$work/matrix" -e "$work/judged.$1" "$work/frames" $(ports | cut -d' ' -f1) >"$work/ours.$1" ||
        fail "the frames are sent"
    diff "$work/judged.$1" "$work/ours.$1" >"$work/diff" ||
        fail "netvale does with tags of $1 as the bridge does (<: bridge, >: netvale)" "$(cat "$work/diff")"
    ok "$(wc -l <"$work/frames") frames among $(ports | wc -l) ports with tags of $1 came out as on a Linux bridge, $(
        grep -o = "$work/ours.$1" | wc -l) times"
}

# Next to a port of the other protocol: frames that come with one protocol's tag leave with the other's.
translated() {
    space mixed
    attach p mixed --access 10
    attach q mixed --trunk 10,20
    attach s mixed --trunk 10,20 --native 30 --vlan-protocol 802.1ad
    attach x mixed --access 20 --vlan-protocol 802.1ad
    crosses "a frame leaves with the tag of its port's protocol" mixed p q s x <<'LIST'
p all 01 : q=8100000a s=88a8000a
p all 01 q10p5 : q=8100a00a s=88a8a00a
p all 01 s10 : q=8100000a88a8000a s=88a8000a88a8000a
q all 02 q20p3d : s=88a87014 x=none
q all 02 q10 q20 : p=81000014 s=88a8000a81000014
q all 02 s10 :
s all 03 s10p1 q20 : p=81000014 q=8100200a81000014
s all 03 s20 : q=81000014 x=none
s all 03 q10 :
x all 04 q10p6 : q=810000148100c00a s=88a800148100c00a
x all 04 s20p2 q10 : q=810040148100000a s=88a840148100000a
x all 04 s10 :
q 04 02 q20 : x=none
x 02 04 q20 : q=8100001481000014
LIST
    check "a frame without a tag that a trunk drops is counted there" q '[.rings[].drops.vlan // 0] | add == 1'
    check "a frame of a VLAN that is not the port's, too" x '[.rings[].drops.vlan // 0] | add == 1'
    check "all others are not" p '[.rings[].drops.vlan // 0] | add == 0'
}

# --- a guest's VLAN interface

start_talker() {
    mkdir "$work/talker"
    nv attach vale0 "vhost:$run_dir/talker.sock" --name talker --trunk 10,20 >/dev/null
    cat >"$work/talker/script" <<'SCRIPT'
echo ready
read line </dev/ttyS0
ip link set eth0 up
for vlan in 10 20; do
    ip link add link eth0 name eth0.$vlan type vlan id $vlan || exit 1
    ip addr add 10.$vlan.0.1/24 dev eth0.$vlan; ip link set eth0.$vlan up
done
ping -c 3 -W 5 10.10.0.2 || exit 2
ping -c 1 -W 2 10.20.0.2 && exit 3
busybox wget -q -O /tmp/got http://10.10.0.2:5001/file || exit 4
echo "got $(md5sum /tmp/got)"
dd if=/dev/urandom of=/tmp/file bs=64k count=64 2>/dev/null
busybox httpd -f -p 10.10.0.1:5000 -h /tmp &
echo "serves $(md5sum /tmp/file)"
read line </dev/ttyS0
SCRIPT
    guest talker -chardev "socket,id=c0,path=$run_dir/talker.sock" -netdev vhost-user,id=n0,chardev=c0 \
        -device virtio-net-pci,netdev=n0,vectors=0,romfile=,mac=02:00:00:00:00:10
}

talk() {
    local bytes frames
    space here
    attach here here --access 10
    ip -n here addr add 10.10.0.2/24 dev here
    ip -n here addr add 10.20.0.2/24 dev here
    # A server sends its file in large pieces, which the kernel turns into large segments.
    mkdir "$work/www"
    busybox dd if=/dev/urandom of="$work/www/file" bs=64k count=64 2>/dev/null
    background in_space here busybox httpd -f -p 10.10.0.2:5001 -h "$work/www"
    says talker ready 120
    echo >"$work/talker.typed"
    says talker 'got ' 60
    ok "a guest's eth0.10 on a trunk reaches an access port of VLAN 10; its eth0.20 does not"
    arrived to "$work/www/file" "$(talked got)"
    large out 0 0
    says talker 'serves ' 60
    bytes=$(moved talker in bytes) frames=$(moved talker in frames)
    wait_for "the guest's server answers" 60 in_space here timeout 30 busybox wget -q -O "$work/received" \
        http://10.10.0.1:5000/file
    arrived from "$work/received" "$(talked serves)"
    large in "$bytes" "$frames"
    echo >"$work/talker.typed"
    says talker 'guest: exit 0' 30
    check "the port at the other end is unchanged" here '.policies == {"access": 10} and .state == "open"'
}

# arrived DIRECTION FILE SUM: our file must be the guest's.
arrived() {
    local sum
    sum=$(md5sum <"$2")
    [ "${sum%% *}" = "$3" ] ||
        fail "4 MiB $1 eth0.10 arrive unchanged" \
        "$(stat -c '%s bytes' "$2") with the sum $sum; the guest's is $3"
    ok "4 MiB $1 eth0.10 arrive unchanged"
}

# The checksum that the guest printed.
talked() {
    tr -d '\r' <"$work/talker.console" | sed -n "s/^$1 \([0-9a-f]*\) .*/\1/p"
}

# large DIRECTION BYTES FRAMES: the mean size of what crossed the trunk since it had these counts must be large.
large() {
    local bytes frames
    bytes=$(($(moved talker "$1" bytes) - $2)) frames=$(($(moved talker "$1" frames) - $3))
    expect "through the trunk" "$bytes" -gt $((4 << 20))
    expect "in frames longer than the MTU, on average" $((bytes / frames)) -gt 1600
}

# --- what to do

frames | grep '^[^#]' >"$work/frames"
start_judge
start_daemon
# It boots meanwhile.
start_talker
translated
detach p q s x
says judge 'end of 802.1ad' 120
for protocol in 802.1q 802.1ad; do
    judged "$protocol" >"$work/judged.$protocol"
    [ "$(wc -l <"$work/judged.$protocol")" = "$(wc -l <"$work/frames")" ] ||
        fail "the judge speaks" "$(tail "$work/judge.console")"
    on_netvale "$protocol"
    compare "$protocol"
    # shellcheck disable=SC2046
    detach $(ports | cut -d' ' -f1)
done
talk
finish
