#!/usr/bin/env bash
# Virtual machines of an ordinary user at a gateway: `vde`, `stream` and `vhost` (QEMU) are named after the kinds of
# their ports; `space` is a namespace. Each gets its addresses, finds the others by name, fetches a file from outside,
# and is reached by published ports. Nothing of netvale's or QEMU's has a privilege.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl dig dnsmasq jq nsenter python3
guest_image
compiled echoes

MACHINES="vde stream vhost"

servers() {
    mkdir "$work/www" "$work/own"
    head -c 1000000 /dev/urandom >"$work/www/file"
    echo "this is space" >"$work/own/index.html"
    background in_space outside busybox httpd -f -p '[::]:80' -h "$work/www"
    background in_space outside dnsmasq -k -C /dev/null --user=root --pid-file= -p 53 --no-resolv --no-hosts \
        --listen-address=192.0.2.2 --bind-interfaces --address=/example.test/192.0.2.2 >"$work/dnsmasq.err" 2>&1
    echo "nameserver 192.0.2.2" >"$work/resolv.conf"
    chmod 644 "$work/resolv.conf"
    wait_for "the server answers" 20 in_space host curl -sf -o /dev/null http://192.0.2.2/file
    wait_for "the name server answers" 20 in_space host dig +short +time=1 @192.0.2.2 example.test
}

# machine_files NAME: a machine that serves HTTP and echoes datagrams. It looks around once it reads a line.
machine_files() {
    mkdir "$work/$1"
    guest_takes "$work/$1" "$(command -v curl)" "$work/echoes"
    cat >"$work/$1/lease" <<'SCRIPT'
[ "$1" = bound ] || exit 0
ip addr add "$ip/$mask" dev "$interface"
ip route add default via "$router"
printf 'nameserver %s\nsearch %s\n' "$dns" "$domain" >/etc/resolv.conf
SCRIPT
    chmod 755 "$work/$1/lease"
    cat >"$work/$1/script" <<SCRIPT
mkdir -p /etc /www
echo "this is $1" >/www/index.html
ip link set lo up
ip link set eth0 up
busybox udhcpc -q -n -f -t 20 -T 1 -i eth0 -s /lease -x hostname:$1 -O domain >/dev/null 2>&1
until ip -6 addr show dev eth0 scope global | grep 'inet6 fd00::' | grep -qv tentative; do sleep 0.1; done
busybox httpd -p 80 -h /www
echoes &
echo "$1 is ready"
read line </dev/ttyS0
for other in $MACHINES space; do curl -s --max-time 20 http://\$other.lan/; done
for at in example.test '[2001:db8::2]'; do
    echo "\$at has \$(curl -s --max-time 60 "http://\$at/file" | md5sum)"
done
read line </dev/ttyS0
SCRIPT
    guest_initrd "$1"
}

# machine NAME MAC ARGUMENT…: boots it as the ordinary user, on the port of that name. QEMU crashes on vectors of a
# vhost-user device without KVM.
machine() {
    must "${as_user[@]}" "$NETVALE" --run-dir "$work/host/run" attach vale0 "$1:$work/host/run/$1.sock" --name "$1"
    machine_files "$1"
    guest_boots "$1" -device "virtio-net-pci,netdev=n0,vectors=0,romfile=,mac=$2" "${@:3}"
}

network_with_v6
servers
host_daemon host "${as_user[@]}"
published=()
n=0
for name in $MACHINES; do
    published+=(--publish "127.0.0.1:$((8001 + n)):$name:80" --publish "127.0.0.1:$((7001 + n)):$name:7/udp")
    n=$((n + 1))
done
begin_gateway "${published[@]}"
begin_guest space
lease space
background inside space busybox httpd -f -p 80 -h "$work/own"

# A VDE switch is a folder.
"${as_user[@]}" mkdir "$work/host/run/vde.sock"
# The user's QEMU may not enter the folder of the image.
mkdir "$work/image"
mount --bind "$image" "$work/image"
image=$work/image
vmm=("${as_user[@]}" qemu-system-x86_64)
machine vde 02:00:00:00:00:01 -netdev "vde,id=n0,sock=$work/host/run/vde.sock"
machine stream 02:00:00:00:00:02 -netdev "stream,id=n0,server=off,addr.type=unix,addr.path=$work/host/run/stream.sock"
machine vhost 02:00:00:00:00:03 -chardev "socket,id=c0,path=$work/host/run/vhost.sock" \
    -netdev vhost-user,id=n0,chardev=c0
for name in $MACHINES; do says "$name" "^$name is ready" 120; done
ok "machines by vde, stream and vhost-user get addresses by DHCP and from router advertisements"

for name in $MACHINES; do echo >"$work/$name.typed"; done
for name in $MACHINES; do
    for other in $MACHINES space; do says "$name" "^this is $other" 60; done
    ok "$name reaches all others by their names"
    for at in example.test '\[2001:db8::2\]'; do
        says "$name" "^$at has $(md5sum <"$work/www/file")" 60
    done
    ok "$name fetches a file from outside, by its server's name and by IPv6"
done
for name in $MACHINES; do
    address=$(inside space dig +short +time=2 +tries=2 @10.0.0.1 "$name.lan")
    same "the namespace reaches $name" "$(fetch space "http://$address/")" "this is $name"
done

n=0
for name in $MACHINES; do
    same "$name is reached by a published TCP port" \
        "$(in_space host curl -s --max-time 20 "http://127.0.0.1:$((8001 + n))/")" "this is $name"
    in_space host python3 "$here/datagrams.py" ask 127.0.0.1 $((7001 + n)) >"$work/datagram" ||
        fail "$name is reached by a published UDP port" "$(cat "$work/datagram")" \
            "$(tail -n 3 "$work/$name.console" "$work/gateway.err")"
    ok "$name is reached by a published UDP port"
    n=$((n + 1))
done
expect "published flows are recorded" \
    "$(record '.event == "opened" and .direction == "in" and .transport == "udp"')" -eq 3
for name in $MACHINES; do echo >"$work/$name.typed"; done
for name in $MACHINES; do says "$name" "^guest: exit 0" 30; done
finish
