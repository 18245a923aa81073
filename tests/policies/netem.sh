#!/usr/bin/env bash
# Links compared with the kernel's own netem: TCP under the same words must reach the same rate, within 15 %.
#
# A guest has two pairs of network interfaces: a veth with netem, and its two virtio devices, which are ports of netvale
# with a link. Each pair connects two namespaces. iperf3 runs over both at once, so that other load on the machine
# affects both, with the same TCP of the guest: Reno, in segments of one frame each, so that a loss is one segment on
# both sides.
#
# The rate of a connection under random losses varies: with N losses in all, by about 0.5 / sqrt(N) of it. Ten
# connections lose some 215 segments in a round of 15 s. After two rounds the standard deviation of the ratio of both
# sides is thus 0.5 * sqrt(2 / 430), 3.4 %, and 15 % is four times that. The delay is so long that the milliseconds
# which an emulated guest on a slow machine adds to netvale's side are a small part of it. More rounds follow only if
# two are not enough.
# measures: yes
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need qemu-system-x86_64 tc iperf3 ethtool
go_before_others
guest_image
[ -d "$image/netem" ] || skip "the guests' image has no netem"

WORDS='delay 100ms loss 1%'
FLOWS=10
SECONDS_EACH=15
ROUNDS=5

start_judge() {
    mkdir -p "$work/judge/more"
    cp "$image"/netem/* "$work/judge/more/"
    guest_takes "$work/judge" "$(command -v ip)" "$(command -v tc)" "$(command -v iperf3)" "$(command -v ethtool)"
    # Otherwise busybox's programs of these names come first.
    mv "$work/judge/bin/ip" "$work/judge/bin/iproute2"
    cat >"$work/judge/script" <<SCRIPT
ip() { /bin/iproute2 "\$@"; }
in_space() { space=\$1; shift; /bin/iproute2 netns exec "\$space" "\$@"; }
mkdir -p /var/run/netns /tmp
for space in a b; do ip netns add \$space || exit 1; ip -n \$space link set lo up; done
ip link add ka type veth peer name kb || exit 2
ip link set ka netns a; ip link set kb netns b
ip link set eth0 netns a; ip link set eth1 netns b
# end SPACE DEVICE ADDRESS: sets up one end.
end() {
    in_space \$1 ethtool -K \$2 tso off gso off gro off || exit 3
    # TCP makes large segments nevertheless, which netem would lose as a whole.
    ip -n \$1 link set \$2 gso_max_segs 1 || exit 3
    ip -n \$1 addr add \$3/24 dev \$2; ip -n \$1 link set \$2 up
    in_space \$1 busybox sysctl -qw net.ipv4.tcp_no_metrics_save=1
}
end a ka 10.2.0.1; end b kb 10.2.0.2
end a eth0 10.1.0.1; end b eth1 10.1.0.2
in_space a tc qdisc add dev ka root netem $WORDS || exit 4
for port in 5201 5202; do in_space b iperf3 -s -p \$port >/tmp/server\$port 2>&1 & done
# runs OF ADDRESS PORT: runs iperf3. A server listens anew after each client, and resets a connection that arrives in
# between.
runs() {
    for _ in 1 2 3; do
        in_space a iperf3 -f k -c \$2 -p \$3 -t $SECONDS_EACH -O 1 -P $FLOWS -C reno >/tmp/\$1 2>&1 && return
        grep -q 'control message' /tmp/\$1 || return 1
    done
    return 1
}
sleep 1
for net in 1 2; do
    in_space a busybox ping -c 5 10.\$net.0.2 || exit 5
done
for round in \$(seq $ROUNDS); do
    runs kernel 10.2.0.2 5201 & other=\$!
    runs netvale 10.1.0.2 5202 && wait \$other || { cat /tmp/kernel /tmp/netvale; exit 6; }
    for of in kernel netvale; do echo "\$of got \$(grep 'SUM.*receiver' /tmp/\$of)"; done
    echo "round \$round is over"
    [ \$round = 1 ] || { read answer </dev/ttyS0; [ "\$answer" = more ] || break; }
done
SCRIPT
    guest judge -chardev "socket,id=c0,path=$run_dir/a.sock" -netdev vhost-user,id=n0,chardev=c0 \
        -device virtio-net-pci,netdev=n0,vectors=0,romfile=,mac=02:00:00:00:00:01 \
        -chardev "socket,id=c1,path=$run_dir/b.sock" -netdev vhost-user,id=n1,chardev=c1 \
        -device virtio-net-pci,netdev=n1,vectors=0,romfile=,mac=02:00:00:00:00:02
}

# got SIDE: the mean rate of a side, in kbit/s.
got() {
    tr -d '\r' <"$work/judge.console" | sed -n "s,^$1 got .* \([0-9.]*\) Kbits/sec.*,\1,p" |
        awk '{ sum += $1 } END { print sum / NR }'
}

start_daemon
for port in a b; do nv attach vale0 "vhost:$run_dir/$port.sock" --name "$port" >/dev/null; done
# shellcheck disable=SC2086 # words
nv link vale0:a $WORDS seed 4 >/dev/null
start_judge
says judge 'round 1 is over' $((150 + SECONDS_EACH))
for round in $(seq 2 $ROUNDS); do
    says judge "round $round is over" $((20 + 2 * SECONDS_EACH))
    ! is_near "$(got netvale)" "$(got kernel)" 0.15 || break
    echo more >"$work/judge.typed"
done
echo enough >"$work/judge.typed"
ok "segments lost in $round rounds: $(drops a link-loss)"
near "TCP under $WORDS: the rate of netvale's link in kbit/s, compared with netem's $(got kernel)" "$(got netvale)" \
    "$(got kernel)" 0.15
expect "segments that the link lost" "$(drops a link-loss)" -gt 200
finish
