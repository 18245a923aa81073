#!/usr/bin/env bash
# QEMU's own netmap back end, under `netvale run`, as the other end of ports: a guest receives and sends 10 MiB over
# TCP, undamaged, with each of its network cards, at an MTU of 1500 and of 9000. This QEMU would wait with io_uring, and
# falls back as that is refused. Its e1000e and igb do not segment large frames, and their ports must report that.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need busybox
guest_image
tree=$(nsenter "--net=/proc/self/fd/$outside" "$root/scripts/qemu-netmap.sh" 2>"$work/qemu.log") ||
    skip "no QEMU with netmap: $(tail -n 1 "$work/qemu.log")"
newer=$(nsenter "--net=/proc/self/fd/$outside" "$root/scripts/newer-debian.sh" 2>"$work/newer.log") ||
    skip "no firmware for it: $(tail -n 1 "$work/newer.log")"
vmm=(nv run -- "$tree/bin/qemu-system-x86_64" -L "$newer/usr/share/qemu" -L "$newer/usr/share/seabios")
BYTES=$((10 << 20)) MTUS="1500 9000"

# transfers: the guest's script. nc must not read from the console, hence its silent input.
transfers() {
    cat <<SCRIPT
ip link set eth0 up; ip addr add 10.1.0.2/24 dev eth0
mkfifo /tmp/mute
head -c $BYTES /dev/urandom >/tmp/own
echo "own \$(md5sum </tmp/own)"
for mtu in $MTUS; do
    ip link set eth0 mtu \$mtu
    echo "mtu \$mtu"
    nc -l -p 5000 0<>/tmp/mute | md5sum >/tmp/sum
    echo "got \$mtu \$(cat /tmp/sum)"
    nc -l -p 5001 </tmp/own
done
SCRIPT
}

# sends: sends the file `sent` to the guest; gets: stores the guest's own file as `got`. Both are for `wait_for`, until
# the guest listens. If nc here closed its sending side, the guest's nc would end before it has sent; hence the silent
# input of `gets`.
sends() {
    in_space inside timeout 60 busybox nc 10.1.0.2 5000 <"$work/sent"
}

gets() {
    in_space inside timeout 60 busybox nc 10.1.0.2 5001 0<>"$work/mute" >"$work/got"
}

sum_of() {
    md5sum <"$work/$1" | cut -d ' ' -f 1
}

# card NAME DEVICE: boots a guest with that card.
card() {
    local name=$1 device=$2 mtu
    mkdir -p "$work/$name/more"
    cp "$image"/cards/* "$work/$name/more/"
    transfers >"$work/$name/script"
    guest "$name" -netdev "netmap,id=n0,ifname=vale0:$name" -device "$device,netdev=n0,romfile=,mac=02:00:00:00:00:02"
    for mtu in $MTUS; do
        says "$name" "^mtu $mtu" 60
        ip -n inside link set dev in0 mtu "$mtu"
        wait_for "the guest with $name gets 10 MiB, MTU $mtu" 60 sends
        says "$name" "^got $mtu $(sum_of sent)" 20
        wait_for "the guest with $name sends 10 MiB, MTU $mtu" 60 gets
        grep -q "^own $(sum_of got)" "$work/$name.console" ||
            fail "what the guest with $name sends" "$(grep ^own "$work/$name.console")" "$(sum_of got)"
    done
    [ -z "$(find "/proc/${guests[$name]}/fd" -lname '*io_uring*')" ] || fail "QEMU falls back from io_uring"
    says "$name" "guest: exit 0" 30
    end_of "${guests[$name]}" || true
    ok "a guest with $name: 10 MiB each way, MTU ${MTUS/ / and }"
}

mkfifo "$work/mute"
start_daemon
space inside
attach in0 inside --mtu 9000
ip -n inside addr add 10.1.0.1/24 dev in0
head -c "$BYTES" /dev/urandom >"$work/sent"
ls "$tree"/lib/liburing.so.* >"$work/uring" 2>&1 || fail "QEMU is built with liburing"
for name in e1000e igb; do must nv attach vale0 "$name" --no-segments; done
card virtio virtio-net-pci
card e1000 e1000
card e1000e e1000e
card igb igb
finish
