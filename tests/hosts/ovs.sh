#!/usr/bin/env bash
# Open vSwitch at the other end of a tunnel: a host with netvale, one with Debian's Open vSwitch, whose userspace datapath needs nothing of the
# kernel. Stations behind both reach each other; files go over TCP both ways; long frames are told of.
# shellcheck source=SCRIPTDIR/lib.sh disable=SC2317
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need ovsdb-tool ovsdb-server ovs-vsctl ovs-vswitchd ovs-appctl iperf3 ethtool
SCHEMA=/usr/share/openvswitch/vswitch.ovsschema

# --- Open vSwitch, in a host's namespace and with all its files in its folder

ovs() {
    on o env OVS_RUNDIR="$work/o" OVS_DBDIR="$work/o" OVS_LOGDIR="$work/o" OVS_SYSCONFDIR="$work/o" "$@"
}

vsctl() {
    ovs ovs-vsctl --db="unix:$work/o/db.sock" --timeout=20 "$@" >"$work/o/said" 2>&1 || fail "ovs-vsctl $*" "$(cat "$work/o/said")"
}

database() {
    exec ip netns exec "$(name_of o)" env OVS_RUNDIR="$work/o" ovsdb-server --remote="punix:$work/o/db.sock" --unixctl="$work/o/db.ctl" "$work/o/conf.db"
}

vswitchd() {
    exec ip netns exec "$(name_of o)" env OVS_RUNDIR="$work/o" OVS_LOGDIR="$work/o" ovs-vswitchd --unixctl="$work/o/switch.ctl" "unix:$work/o/db.sock"
}

start_ovs() {
    ovs ovsdb-tool create "$work/o/conf.db" "$SCHEMA"
    background database >"$work/o/db.log" 2>&1
    wait_for "its database listens" 10 test -S "$work/o/db.sock"
    vsctl --no-wait init
    background vswitchd >"$work/o/daemon.log" 2>&1
    # The address of a tunnel's end is that of a bridge with the interface to the network.
    vsctl add-br phy -- set bridge phy datapath_type=netdev -- add-port phy u0
    vsctl add-br int -- set bridge int datapath_type=netdev -- add-port int vx -- set interface vx type=vxlan options:remote_ip=10.99.0.1 options:key=$VNI
    ip -n "$(name_of o)" addr flush dev u0
    ip -n "$(name_of o)" addr add 10.99.0.2/24 dev phy
    ip -n "$(name_of o)" link set dev phy up
    # A station of its own: the far end of a veth.
    space eo
    ip link add eo netns "$(name_of eo)" mtu 1450 type veth peer name eo netns "$(name_of o)" mtu 1450
    ip -n "$(name_of o)" link set dev eo up
    ip -n "$(name_of eo)" link set dev eo up
    ip -n "$(name_of eo)" addr add 192.168.7.2/24 dev eo
    on eo ethtool -K eo tx off >/dev/null
    vsctl add-port int eo
}

network
host a 1
host o 2
# A virtual interface leaves checksums undone for its far end, and Open vSwitch takes them for wrong: they are computed here, as a card would.
on a ethtool -K u0 tx off >/dev/null
start_ovs
daemon a
nvh a attach vale0 "vxlan:$VNI,local=10.99.0.1,remote=10.99.0.2" --name "vx$VNI" >"$work/attached" 2>&1 || fail "a tunnel" "$(cat "$work/attached")"
space ea
endpoint a ea ea 02:00:00:00:00:0a
ip -n "$(name_of ea)" link set dev ea mtu 1450
ip -n "$(name_of ea)" addr add 192.168.7.1/24 dev ea

wait_for "a station of ours reaches one of Open vSwitch's" 30 ping_from ea 192.168.7.2
wait_for "and the other way" 10 ping_from eo 192.168.7.1
wait_for "with frames as long as fit" 10 on ea ping -c 1 -W 1 -M do -s 1422 192.168.7.2
ok "stations behind netvale and behind Open vSwitch reach each other"
ovs ovs-appctl -t "$work/o/switch.ctl" tnl/neigh/show >"$work/o/neighbours"
grep -q 10.99.0.1 "$work/o/neighbours" || fail "its tunnel is its own, not the kernel's" "$(cat "$work/o/neighbours")"

background ip netns exec "$(name_of eo)" iperf3 -s >"$work/server" 2>&1
listens() {
    on eo ss -Hltn sport = :5201 | grep -q .
}
wait_for "iperf3 listens" 10 listens
for way in "" -R; do
    # shellcheck disable=SC2086 # no word, or one
    on ea iperf3 -c 192.168.7.2 -n 20M $way -J >"$work/iperf.json" || fail "TCP $way" "$(jq -r .error "$work/iperf.json")"
    jq -e '.end.sum_received.bytes >= 15e6' "$work/iperf.json" >/dev/null || fail "what was sent over TCP $way arrives" "$(jq .end "$work/iperf.json")"
done
ok "20 MB over TCP, both ways"
port a '[.vxlan.remotes[] | select(.vtep == "10.99.0.2") | .in_frames, .out_frames] | min > 100' || fail "both ways are counted" "$(nvh a show "vale0:vx$VNI" --json)"
finish
