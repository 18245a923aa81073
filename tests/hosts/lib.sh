# shellcheck shell=bash disable=SC2317
# Shared by the EVPN scripts of this folder: hosts in namespaces on one network, each with FRR, and a netvale daemon with its agent or a bridge of
# the kernel's. Sourced by bash.
# shellcheck source=SCRIPTDIR/../policies/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../policies/lib.sh"

FRR=${FRR:-/usr/lib/frr}
AS=65000
VNI=100
hosts_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
declare -A daemons=() agents=() zebras=() bgpds=()

need_frr() {
    [ -x "$FRR/zebra" ] && [ -x "$FRR/bgpd" ] || skip "frr is not installed (scripts/install-deps.sh test)"
    need bridge vtysh ping
    local device
    ip netns add "nvp$$-try" || skip "network namespaces are not permitted here"
    spaces+=("nvp$$-try")
    for device in "type bridge" "type vxlan id 1 dstport 14789"; do
        # shellcheck disable=SC2086 # words
        ip -n "nvp$$-try" link add try $device 2>/dev/null || skip "this kernel has no devices of '$device'"
        ip -n "nvp$$-try" link del try
    done
    # FRR's daemons have a user of their own, which has to get at their files.
    chmod 711 "$work"
}

name_of() {
    echo "nvp$$-$1"
}

# on HOST COMMAND…
on() {
    local host=$1
    shift
    ip netns exec "$(name_of "$host")" "$@"
}

# --- the network between hosts

# network: a namespace with a bridge, the wire between hosts.
network() {
    space wire
    ip -n "$(name_of wire)" link add br0 type bridge
    ip -n "$(name_of wire)" link set br0 up
}

# host NAME NUMBER: a namespace on the network, with the address 10.99.0.NUMBER.
host() {
    local host=$1 number=$2
    space "$host"
    ip link add "w$number" netns "$(name_of wire)" type veth peer name u0 netns "$(name_of "$host")"
    ip -n "$(name_of wire)" link set "w$number" master br0
    ip -n "$(name_of wire)" link set "w$number" up
    ip -n "$(name_of "$host")" addr add "10.99.0.$number/24" dev u0
    ip -n "$(name_of "$host")" link set u0 up
    mkdir -p "$work/$host/run" "$work/$host/frr"
}

# --- FRR

# frr HOST NUMBER PEER…: zebra and bgpd of the host; peers are numbers of hosts.
frr() {
    local host=$1 number=$2 peer dir=$work/$1/frr
    shift 2
    {
        echo "router bgp $AS"
        echo " bgp router-id 10.99.0.$number"
        echo " no bgp default ipv4-unicast"
        for peer; do
            echo " neighbor 10.99.0.$peer remote-as $AS"
            echo " neighbor 10.99.0.$peer timers ${BGP_TIMERS:-3 9}"
            echo " neighbor 10.99.0.$peer timers connect 1"
        done
        echo " address-family l2vpn evpn"
        for peer; do echo "  neighbor 10.99.0.$peer activate"; done
        echo "  advertise-all-vni"
    } >"$dir/frr.conf"
    chmod 711 "$work/$host"
    chown -R frr:frr "$dir"
    start_zebra "$host"
    start_bgpd "$host"
}

start_zebra() {
    rm -f "$work/$1/frr/zserv.sock"
    background frr_daemon "$1" zebra -s 90000000 >>"$work/$1/zebra.log" 2>&1
    zebras[$1]=$!
    wait_for "zebra of $1 starts" 20 test -S "$work/$1/frr/zserv.sock"
}

start_bgpd() {
    background frr_daemon "$1" bgpd >>"$work/$1/bgpd.log" 2>&1
    bgpds[$1]=$!
    wait_for "bgpd of $1 answers" 20 bgp "$1" "show bgp summary"
}

frr_daemon() {
    local host=$1 program=$2 dir=$work/$1/frr
    shift 2
    exec ip netns exec "$(name_of "$host")" "$FRR/$program" --vty_socket "$dir" -i "$dir/$program.pid" -z "$dir/zserv.sock" \
        -A 127.0.0.1 -f "$dir/frr.conf" "$@"
}

# end_of PROCESS…: kills processes and waits for their end.
end_of() {
    local process
    for process; do
        kill -9 "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
}

# vty HOST DAEMON COMMAND: what zebra or bgpd of a host says.
vty() {
    on "$1" vtysh --vty_socket "$work/$1/frr" -d "$2" -c "$3"
}

bgp() {
    vty "$1" bgpd "$2"
}

# --- netvale

nvh() {
    local host=$1
    shift
    "$NETVALE" --run-dir "$work/$host/run" "$@"
}

# daemon HOST: starts it in the host's namespace, where its UDP socket has to be.
daemon() {
    background daemon_of "$1" >>"$work/$1/daemon.log" 2>&1
    daemons[$1]=$!
    wait_for "the daemon of $1 starts" 20 nvh "$1" list
}

daemon_of() {
    exec ip netns exec "$(name_of "$1")" "$NETVALE" --run-dir "$work/$1/run" up
}

# agent HOST [OPTION…]
agent() {
    local host=$1
    shift
    background agent_of "$host" ${AGENT_LOG:-} "$@" >>"$work/$host/agent.log" 2>&1
    agents[$host]=$!
}

agent_of() {
    local host=$1
    shift
    exec ip netns exec "$(name_of "$host")" "$NETVALE" --run-dir "$work/$host/run" evpn "$@"
}

# tunnel HOST NUMBER: the VXLAN port.
tunnel() {
    nvh "$1" attach vale0 "vxlan:$VNI,local=10.99.0.$2" --name "vx$VNI" --evpn >"$work/attached" 2>&1 ||
        fail "host $1 has a tunnel" "$(cat "$work/attached")"
}

# endpoint HOST SPACE TAP MAC: a TAP in a namespace, on the host's switch.
endpoint() {
    nvh "$1" attach vale0 "tap:$3" --name "$3" --netns "/run/netns/$(name_of "$2")" --mac "$4" >"$work/attached" 2>&1 ||
        fail "host $1 has an endpoint $3" "$(cat "$work/attached")"
    ip -n "$(name_of "$2")" link set dev "$3" up
}

# bridged HOST NUMBER: the kernel's bridge and VXLAN device.
bridged() {
    local name
    name=$(name_of "$1")
    ip -n "$name" link add br0 type bridge
    ip -n "$name" link set br0 addrgenmode none up
    ip -n "$name" link add "vx$VNI" type vxlan id $VNI local "10.99.0.$2" dstport 4789 nolearning
    ip -n "$name" link set "vx$VNI" addrgenmode none master br0 up
}

# --- what is there

# evpn HOST EXPRESSION: whether it is true of what the agent's devices hold for the VNI.
evpn() {
    on "$1" "$NETVALE" evpn --show --json | jq -e ".vnis[] | select(.vni == $VNI) | $2" >/dev/null
}

# port HOST EXPRESSION: whether it is true of the daemon's tunnel.
port() {
    nvh "$1" show "vale0:vx$VNI" --json | jq -e "$2" >/dev/null
}

# floods HOST NUMBER…: whether the host's VNI floods to just those, for the daemon, too.
floods() {
    local host=$1 list
    shift
    list=$(printf '"10.99.0.%s",' "$@")
    evpn "$host" ".flood == [${list%,}]" && port "$host" "[.vxlan.remotes[] | select(.flood) | .vtep] | sort == [${list%,}]"
}

# kernel_floods HOST NUMBER…: the same of a host with the kernel's devices.
kernel_floods() {
    local host=$1 got wanted
    shift
    got=$(bridge -n "$(name_of "$host")" fdb show dev "vx$VNI" | sed -n 's/^00:00:00:00:00:00 dst \([^ ]*\) .*/\1/p' | sort | tr '\n' ' ')
    wanted=$(printf '10.99.0.%s ' "$@")
    [ "$got" = "$wanted" ] || { echo "floods to $got, wanted $wanted" && return 1; }
}

# kernel_has HOST MAC NUMBER: whether the kernel's devices have the address behind that host.
kernel_has() {
    bridge -n "$(name_of "$1")" fdb show dev "vx$VNI" | grep -q "^$2 dst 10.99.0.$3 "
}

kernel_lacks() {
    ! bridge -n "$(name_of "$1")" fdb show dev "vx$VNI" | grep -q "^$2 dst"
}

# has HOST MAC NUMBER: whether zebra's devices have the address behind that host, and the daemon, too.
has() {
    evpn "$1" "any(.remotes[]; .mac == \"$2\" and .vtep == \"10.99.0.$3\")"
}

has_not() {
    ! evpn "$1" "any(.remotes[]; .mac == \"$2\")"
}

# announces HOST MAC
announces() {
    evpn "$1" "any(.locals[]; .mac == \"$2\")"
}

ping_from() {
    ip netns exec "$(name_of "$1")" ping -q -c 1 -W 1 "$2"
}

# steady FROM TO WHAT COMMAND…: while pings go from a namespace to an address, one each 20 ms; the number of those that were lost is in $lost.
steady() {
    local from=$1 to=$2 what=$3 pinger sent got
    shift 3
    background ip netns exec "$(name_of "$from")" ping -i 0.02 -W 2 "$to" >"$work/pings"
    pinger=$!
    wait_for "pings before: $what" 5 grep -q 'icmp_seq=10 ' "$work/pings"
    "$@"
    local last
    last=$(sed -n 's/.* icmp_seq=\([0-9]*\) .*/\1/p' "$work/pings" | tail -n 1)
    wait_for "pings after: $what" 15 answered $((last + 25))
    kill -INT "$pinger"
    wait "$pinger" || true
    last=$(sed -n 's/.* icmp_seq=\([0-9]*\) .*/\1/p' "$work/pings" | sort -n | tail -n 1)
    got=$(grep -c 'icmp_seq=[0-9]* ttl' "$work/pings")
    sent=$last
    lost=$((sent - got))
    ok "$what: $got of $sent pings are answered"
}

answered() {
    [ "$(sed -n 's/.* icmp_seq=\([0-9]*\) .*/\1/p' "$work/pings" | tail -n 1)" -ge "$1" ]
}

tell_state() {
    local host
    for host in "${!zebras[@]}"; do
        echo "--- $host"
        tail -n 5 "$work/$host"/*.log
        on "$host" "$NETVALE" evpn --show 2>&1 | head -n 20
        bridge -n "$(name_of "$host")" fdb show | grep -v permanent | head -n 20
    done >&2 2>/dev/null || true
}
