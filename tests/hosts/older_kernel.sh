#!/usr/bin/env bash
# netvale on an older kernel, Debian 12's, in a guest: a sandboxed daemon and a switch with a TAP and an interface
# (AF_XDP). VLAN tags must come out of the interface as they were sent, wherever the stack at the other end keeps them.
# measures: no
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
need ip ethtool
guest_image

mkdir -p "$work/old/more" "$work/old/lib64"
strip -o "$work/netvale" "$NETVALE"
guest_takes "$work/old" "$work/netvale" "$(command -v ip)" "$(command -v ethtool)"
# The guest already has another program named `ip`.
mv "$work/old/bin/ip" "$work/old/bin/iproute2"
cp /lib64/ld-linux-* "$work/old/lib64/" 2>/dev/null || true
cp "$image"/netem/*veth* "$work/old/more/"
cat >"$work/old/script" <<'SCRIPT'
echo "kernel $(busybox uname -r)"
mkdir -p /run /tmp /etc
echo 'root:x:0:0::/:/bin/sh' >/etc/passwd
ip() { /bin/iproute2 "$@"; }
nv() { netvale --run-dir /run/nv "$@"; }
ip link set lo up
netvale --run-dir /run/nv up --cpu 0 >/tmp/log 2>&1 &
n=0; until nv list >/tmp/list 2>&1 || [ $n = 100 ]; do n=$((n + 1)); sleep 0.1; done
txvlan() { /bin/ethtool -k va2 | grep '^tx-vlan-offload'; }
ip link add va1 type veth peer name va2
ip link set va1 up; ip link set va2 up
ip link add va3 link va2 type vlan id 10
ip addr add 10.1.0.1/24 dev va3; ip link set va3 up
echo "before: $(txvlan)"
nv attach vale0 tap:in0 && ip link set in0 up
mkdir -p /run/netns
ip netns add b && ip link set in0 netns b
ip -n b link set in0 up
ip -n b link add in10 link in0 type vlan id 10
ip -n b addr add 10.1.0.2/24 dev in10; ip -n b link set in10 up
nv attach vale0 netmap:va1
echo "while it is open: $(txvlan)"
ping -c 3 -W 5 10.1.0.2 >/tmp/ping && echo "tagged frames pass"
nv detach vale0 va1
echo "afterwards: $(txvlan)"
nv list
cat /tmp/log /tmp/ping
SCRIPT
guest old
says old "^kernel " 60
# Newer kernels report the tag of a frame.
is_older=$(sed -n 's/^kernel \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' "$work/old.console" |
    awk '{ print ($1 < 6 || ($1 == 6 && $2 < 8)) ? "off" : "on" }')
says old "^before: tx-vlan-offload: on" 60
says old "^while it is open: tx-vlan-offload: $is_older" 30
says old "^tagged frames pass" 30
says old "^afterwards: tx-vlan-offload: on" 30
says old "guest: exit 0" 30
ok "an older kernel: VLAN tags arrive unchanged"
finish
