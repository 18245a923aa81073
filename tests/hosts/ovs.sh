#!/usr/bin/env bash
# Open vSwitch at the other end of a tunnel: one host with netvale, one with Debian's Open vSwitch, whose userspace
# datapath needs no kernel module. Stations behind both reach each other; files are sent over TCP in both directions;
# senders of frames that are too long get an ICMP error.
# measures: no
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
need ovsdb-tool ovsdb-server ovs-vsctl ovs-vswitchd ovs-appctl iperf3 ethtool
SCHEMA=/usr/share/openvswitch/vswitch.ovsschema

# --- Open vSwitch, in a host's namespace and with all its files in its folder

ovs() {
    in_space o env "OVS_RUNDIR=$work/o" "OVS_DBDIR=$work/o" "OVS_LOGDIR=$work/o" "OVS_SYSCONFDIR=$work/o" "$@"
}

vsctl() {
    must ovs ovs-vsctl --db="unix:$work/o/db.sock" --timeout=20 "$@"
}

start_ovs() {
    ovs ovsdb-tool create "$work/o/conf.db" "$SCHEMA"
    background ovs ovsdb-server --remote="punix:$work/o/db.sock" --unixctl="$work/o/db.ctl" "$work/o/conf.db" \
        >"$work/o/db.log" 2>&1
    wait_for "its database listens" 10 test -S "$work/o/db.sock"
    vsctl --no-wait init
    background ovs ovs-vswitchd --unixctl="$work/o/switch.ctl" "unix:$work/o/db.sock" >"$work/o/daemon.log" 2>&1
    # The tunnel's local address belongs to a bridge that has the network interface as a port.
    vsctl add-br phy -- set bridge phy datapath_type=netdev -- add-port phy u0
    vsctl add-br int -- set bridge int datapath_type=netdev -- add-port int vx -- set interface vx type=vxlan \
        options:remote_ip=10.99.0.1 options:key=$VNI
    ip -n o addr flush dev u0
    ip -n o addr add 10.99.0.2/24 dev phy
    ip -n o link set dev phy up
    # A station at Open vSwitch: the far end of a veth.
    space eo
    veth o eo eo eo 1450
    address eo eo 192.168.7.2
    in_space eo ethtool -K eo tx off >/dev/null
    vsctl add-port int eo
}

network
host a 1
host o 2
# A virtual interface leaves checksums for its peer to complete, and Open vSwitch takes them for wrong. They are
# computed here, as a network card would do.
in_space a ethtool -K u0 tx off >/dev/null
start_ovs
host_daemon a
must at a attach vale0 "vxlan:$VNI,local=10.99.0.1,remote=10.99.0.2" --name "vx$VNI"
space ea
endpoint a ea ea --mac 02:00:00:00:00:0a
ip -n ea link set dev ea mtu 1450
address ea ea 192.168.7.1

wait_for "a station behind netvale reaches one behind Open vSwitch" 30 ping_from ea 192.168.7.2
wait_for "and in the other direction" 10 ping_from eo 192.168.7.1
wait_for "with frames of the maximum length" 10 in_space ea ping -c 1 -W 1 -M "do" -s 1422 192.168.7.2
ok "stations behind netvale and behind Open vSwitch reach each other"
ovs ovs-appctl -t "$work/o/switch.ctl" tnl/neigh/show >"$work/o/neighbours"
grep -q 10.99.0.1 "$work/o/neighbours" || fail "the tunnel is Open vSwitch's, not the kernel's" "$(cat "$work/o/neighbours")"

iperf_server eo
for way in "" -R; do
    # shellcheck disable=SC2086 # no word, or one
    iperf_client ea 192.168.7.2 -n 20M $way
    jq -e '.end.sum_received.bytes >= 15e6' "$work/iperf.json" >/dev/null ||
        fail "everything sent over TCP $way arrives" "$(jq .end "$work/iperf.json")"
done
ok "20 MB over TCP in both directions"
port a '[.vxlan.remotes[] | select(.vtep == "10.99.0.2") | .in_frames, .out_frames] | min > 100' ||
    fail "both directions are counted" "$(at a show "vale0:vx$VNI" --json)"
finish
