#!/usr/bin/env bash
# Clones of a virtual machine, restored from one snapshot: each has a private port of the switch, its own way out and
# its own published port. A connection from before the snapshot is reset as soon as a clone uses it.
#
# `host` has the daemon and the gateway, and a cable to `outside`, where servers are.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl jq python3 qemu-system-x86_64
guest_image

CLONES=4

# The guest takes commands from its console, and has a connection open that ends when the other side resets it.
guest_files() {
    mkdir "$work/vm"
    cat >"$work/vm/script" <<'SCRIPT'
ip link set lo up
ip link set eth0 up
ip addr add 10.0.0.5/24 dev eth0
ip route add default via 10.0.0.1
mkdir /www
busybox httpd -p 80 -h /www
busybox mkfifo /words
(
    nc 192.0.2.2 9090 <>/words >/said 2>/dev/null
    echo "the connection ended"
) &
echo hello >/words
until grep -q hello /said; do sleep 0.1; done
echo "guest: connected"
sh
SCRIPT
    guest_initrd vm
}

# machine N OPTION…: a virtual machine on the private port vmN.
machine() {
    must nv attach vale0 "stream:$run_dir/vm$1.sock" --name "vm$1" --private on
    mkfifo "$work/vm$1.typed"
    # Open for both, so that the console never ends.
    exec {typed[$1]}<>"$work/vm$1.typed"
    background qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 128 -smp 1,maxcpus=2 -nodefaults -display none \
        -no-reboot -M q35 -kernel "$image/vmlinux" -initrd "$work/vm.initrd" \
        -append "console=ttyS0 quiet panic=-1 no_timer_check" -serial stdio \
        -monitor "unix:$work/vm$1.mon,server,nowait" \
        -device virtio-net-pci,netdev=n0,mac=02:00:00:00:00:09 \
        -netdev "stream,id=n0,server=off,addr.type=unix,addr.path=$run_dir/vm$1.sock" "${@:2}" \
        <"$work/vm$1.typed" >"$work/vm$1.console" 2>&1
}

# monitor N COMMAND: says it to the machine's monitor.
monitor() {
    python3 - "$work/vm$1.mon" "$2" <<'PYTHON'
import socket, sys
monitor = socket.socket(socket.AF_UNIX)
monitor.settimeout(60)
monitor.connect(sys.argv[1])
def read():
    text = b""
    while not text.endswith(b"(qemu) ") and (more := monitor.recv(4096)):
        text += more
    return text.decode()
read()
monitor.sendall(sys.argv[2].encode() + b"\n")
print(read())
PYTHON
}

is_saved() {
    monitor 0 "info migrate" | grep -q "Migration status: completed"
}

# has_said N EXPRESSION: whether the machine's console has a line that matches.
has_said() {
    grep -q "$2" "$work/vm$1.console" || { tail -n 5 "$work/vm$1.console" && false; }
}

snapshot() {
    machine 0
    wait_for "the guest has a connection" 60 has_said 0 "^guest: connected"
    monitor 0 "migrate -d \"exec:cat >$work/snapshot\"" >/dev/null
    wait_for "the snapshot is written" 60 is_saved
    monitor 0 quit >/dev/null 2>&1 || true
    must nv detach vale0:vm0
    ok "a snapshot of a guest with an open connection"
}

types() {
    echo "$2" >&"${typed[$1]}"
}

is_running() {
    monitor "$1" "info status" | grep "VM status: running"
}

is_reached() {
    local got
    got=$(in_space host curl -sS --max-time 5 "http://127.0.0.1:$((2200 + $1))/n" 2>&1) || true
    [ "$got" = "from $1" ] || { echo "$got" && tail -n 5 "$work/vm$1.console" "$work/gateway.err" && false; }
}

declare -A typed=()
network
pages "$CLONES"
background in_space outside busybox nc -ll -p 9090 -e /bin/cat 2>"$work/nc.err"
start_daemon
begin_private_gateway "$CLONES" 10.0.0.5
guest_files
snapshot
for n in $(seq "$CLONES"); do machine "$n" -incoming "exec:cat $work/snapshot"; done
for n in $(seq "$CLONES"); do wait_for "clone $n runs" 60 is_running "$n"; done
for n in $(seq "$CLONES"); do types "$n" "echo from $n >/www/n; busybox wget -q -O - http://192.0.2.2/$n"; done
for n in $(seq "$CLONES"); do wait_for "clone $n has its way out" 30 has_said "$n" "^for $n"; done
ok "each clone has its way out"
for n in $(seq "$CLONES"); do wait_for "clone $n is reached by its port" 30 is_reached "$n"; done
ok "each is reached by its published port"
for n in $(seq "$CLONES"); do types "$n" "echo again >/words"; done
for n in $(seq "$CLONES"); do
    wait_for "clone $n's former connection is reset" 5 has_said "$n" "the connection ended"
done
ok "connections from before the snapshot are reset"
finish
