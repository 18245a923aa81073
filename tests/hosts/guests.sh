#!/usr/bin/env bash
# Guests and containers on several hosts: two with netvale, `netvale evpn` and FRR, one with only the kernel's bridge
# and FRR. Containers get their interfaces from the CNI plugin, guests (QEMU) theirs by vhost-user. All reach each
# other; a guest moves from one host to the other and back during a TCP connection, and each time its new host announces
# it.
# measures: no
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
need python3
need_frr
guest_image
CNI=$(dirname "$NETVALE")/netvale-cni
[ -x "$CNI" ] || skip "there is no netvale-cni beside netvale"
[ -x /usr/lib/cni/host-local ] || skip "host-local is not installed (scripts/install-deps.sh test)"

M_MAC=02:00:00:00:00:21
# The MTU of a tunnel over a network with an MTU of 1500.
MTU=1450
ADDRESSES="192.168.7.11 192.168.7.12 192.168.7.3 192.168.7.21 192.168.7.22"

# --- endpoints

# container HOST NAME LAST: a namespace that the plugin gets as if from a container runtime, with the address
# 192.168.7.LAST.
container() {
    local host=$1 name=$2 address=192.168.7.$3
    space "$name"
    CNI_COMMAND=ADD CNI_CONTAINERID=$name CNI_IFNAME=eth0 CNI_NETNS=/run/netns/$name CNI_PATH=/usr/lib/cni "$CNI" \
        >"$work/added" 2>&1 <<JSON ||
{"cniVersion": "1.0.0", "name": "net", "type": "netvale-cni", "runDir": "$work/$host/run", "mtu": $MTU, "ipam": {"type": "host-local",
 "dataDir": "$work/$host/addresses", "ranges": [[{"subnet": "192.168.7.0/24", "rangeStart": "$address", "rangeEnd": "$address"}]]}}
JSON
        fail "host $host has the container $name" "$(cat "$work/added")"
}

# port_for HOST NAME: attaches a vhost port for a guest.
port_for() {
    must at "$1" attach vale0 "vhost:$work/$1/run/$2.sock" --name "$2" --mtu $MTU
}

# nic HOST NAME MAC: prints QEMU's arguments for that port.
nic() {
    echo "-chardev socket,id=c0,path=$work/$1/run/$2.sock -netdev vhost-user,id=n0,chardev=c0"
    echo "-device virtio-net-pci,netdev=n0,vectors=0,romfile=,mac=$3"
}

# The guest that stays on b.
start_staying() {
    port_for b n
    mkdir "$work/n"
    cat >"$work/n/script" <<SCRIPT
ip link set lo up; ip link set eth0 mtu $MTU up; ip addr add 192.168.7.22/24 dev eth0
read line </dev/ttyS0
for address in $ADDRESSES; do ping -c 1 -W 5 \$address >/dev/null && echo "reached \$address"; done
read line </dev/ttyS0
SCRIPT
    # shellcheck disable=SC2046 # words
    guest n $(nic b n 02:00:00:00:00:22)
}

# The guest that moves: it receives a stream to its end. nc must not read from the console, hence its silent input.
make_moving() {
    local host
    for host in a b; do port_for $host m; done
    mkdir "$work/m"
    cat >"$work/m/script" <<SCRIPT
ip link set eth0 mtu $MTU up; ip addr add 192.168.7.21/24 dev eth0
mkfifo /tmp/mute
nc -l -p 5000 0<>/tmp/mute | md5sum >/tmp/sum &
echo ready
read line </dev/ttyS0
wait
echo "the sum is \$(cat /tmp/sum)"
SCRIPT
    guest_initrd m
}

# qemu TURN HOST [ARGUMENT…]: starts a QEMU on a host, which runs the guest or waits for its migration.
qemu() {
    local name=m$1 host=$2
    shift 2
    ln "$work/m.initrd" "$work/$name.initrd"
    # shellcheck disable=SC2046 # words
    guest_boots "$name" -qmp "unix:$work/$name.qmp,server=on,wait=off" $(nic "$host" m $M_MAC) "$@"
}

# --- hosts

network
host a 1
host b 2
host c 3
host_daemon a
host_daemon b
agent a
agent b
tunnel a 1
tunnel b 2
bridged c 3
space ec
bridge_port c ec ec "" $MTU
address ec ec 192.168.7.3
frr a 1 2 3
frr b 2 1 3
frr c 3 1 2
container a ca 11
container b cb 12
make_moving
qemu 0 a
start_staying
wait_for "host a floods to b and c" 30 floods a 2 3
wait_for "host b floods to a and c" 30 floods b 1 3
wait_for "host c floods to a and b" 30 kernel_floods c 1 2
says m0 ready 120

# --- reachability

for from in ca cb ec; do
    for to in $ADDRESSES; do wait_for "$from reaches $to" 60 ping_from $from "$to"; done
done
ok "containers of both hosts and the kernel's endpoint reach each other, and guests of both hosts"
echo >"$work/n.typed"
for to in $ADDRESSES; do says n "reached $to" 60; done
ok "a guest reaches all of them"
echo >"$work/n.typed"
says n "guest: exit 0" 30

# --- a guest that moves

sent() {
    cat "$work/count" 2>/dev/null || echo 0
}

has_sent_since() {
    [ "$(sent)" -gt $(($1 + 5)) ]
}

# move FROM TO HOST NUMBER: migrates the guest from one QEMU to the next one, on that host.
move() {
    qemu "$2" "$3" -incoming "unix:$work/m$2.channel"
    wait_for "QEMU waits for the guest" 30 test -S "$work/m$2.channel"
    must python3 "$here/move.py" "$work/m$1.qmp" "$work/m$2.channel"
    wait_for "host $3 announces the guest" 20 announces "$3" "$M_MAC"
    wait_for "host c follows" 10 kernel_has c "$M_MAC" "$4"
    killed "${guests[m$1]}"
    wait_for "the stream continues" 60 has_sent_since "$(sent)"
}

background in_space ec python3 "$here/stream.py" 192.168.7.21 "$work" >"$work/streamed" 2>&1
stream=$!
wait_for "the stream flows" 30 has_sent_since 0
wait_for "host a announces the guest" 20 announces a $M_MAC
steady ca 192.168.7.21 "a guest moves from a to b" move 0 1 b 2
has a $M_MAC 2 || fail "host a has it behind b"
steady cb 192.168.7.21 "and back" move 1 2 a 1
has b $M_MAC 1 || fail "host b has it behind a"
touch "$work/stop"
wait "$stream" || fail "the stream ends" "$(cat "$work/streamed")"
echo >"$work/m2.typed"
says m2 "the sum is $(cat "$work/streamed")" 60
ok "the guest receives all data over TCP, $(sent) blocks"
finish
