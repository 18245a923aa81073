# shellcheck shell=bash
# Shared by the scripts of this folder: hosts (namespaces on one network) with a netvale daemon or the kernel's devices,
# and FRR on them for EVPN, with netvale's agent. Sourced by bash.
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

FRR=${FRR:-/usr/lib/frr}
AS=65000
VNI=100
declare -A agents=() zebras=() bgpds=()

# --- the network between hosts

# network: creates a namespace with a bridge, which joins the hosts.
network() {
    space wire
    ip -n wire link add br0 type bridge
    ip -n wire link set br0 mtu 9000 up
}

# host NAME NUMBER [MTU]: creates a namespace on the network with the address 10.99.0.NUMBER. Packets to it that are
# longer than MTU are lost.
host() {
    local host=$1 number=$2
    space "$host"
    veth "$host" u0 wire "w$number"
    ip -n wire link set "w$number" mtu "${3:-1500}" master br0
    ip -n "$host" addr add "10.99.0.$number/24" dev u0
    mkdir -p "$work/$host/frr"
}

# six HOST [ADDRESS DEVICE]: enables IPv6 on the host, and adds the address if one is given.
six() {
    in_space "$1" sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0
    [ $# = 1 ] || ip -n "$1" addr add "$2" dev "$3" nodad
}

# host_six NAME NUMBER [MTU]: a host that also has the address fd99::NUMBER.
host_six() {
    host "$@"
    six "$1" "fd99::$2/64" u0
}

# --- switches

# tunnel HOST NUMBER: creates the VXLAN port.
tunnel() {
    must at "$1" attach vale0 "vxlan:$VNI,local=10.99.0.$2" --name "vx$VNI" --evpn
}

# endpoint HOST SPACE TAP [OPTION…]: attaches a TAP in a namespace to the host's switch vale0, or $switch, under its own
# name.
endpoint() {
    must at "$1" attach "${switch:-vale0}" "tap:$3" --name "$3" --netns "/run/netns/$2" "${@:4}"
    ip -n "$2" link set dev "$3" up
}

# address SPACE DEVICE IP: adds the address to the device.
address() {
    ip -n "$1" addr add "$3/24" dev "$2"
}

# bridged HOST NUMBER: creates the kernel's bridge and VXLAN device.
bridged() {
    ip -n "$1" link add br0 type bridge
    ip -n "$1" link set br0 addrgenmode none up
    ip -n "$1" link add "vx$VNI" type vxlan id $VNI local "10.99.0.$2" dstport 4789 nolearning
    ip -n "$1" link set "vx$VNI" addrgenmode none master br0 up
}

# bridge_port HOST SPACE DEVICE [MAC [MTU]]: attaches a device of the namespace to that bridge.
bridge_port() {
    veth "$2" "$3" "$1" "$3" "${5:-}"
    [ -z "${4:-}" ] || ip -n "$2" link set dev "$3" address "$4"
    ip -n "$1" link set dev "$3" addrgenmode none master br0
}

ping_from() {
    in_space "$1" ping -q -c 1 -W 1 "$2"
}

# --- FRR

need_frr() {
    [ -x "$FRR/zebra" ] && [ -x "$FRR/bgpd" ] || skip "frr is not installed (scripts/install-deps.sh test)"
    need bridge vtysh ping
    local device
    space try
    for device in "type bridge" "type vxlan id 1 dstport 14789"; do
        # shellcheck disable=SC2086 # words
        ip -n try link add try $device 2>/dev/null || skip "this kernel has no devices of '$device'"
        ip -n try link del try
    done
    # FRR keeps folders here, named by process numbers. The numbers are the same in each script.
    mkdir -p /var/tmp/frr
    mount -t tmpfs test /var/tmp/frr
}

# frr HOST NUMBER PEER…: starts zebra and bgpd on the host; the peers are numbers of hosts.
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
    chown -R frr:frr "$dir"
    start_zebra "$host"
    start_bgpd "$host"
}

start_zebra() {
    rm -f "$work/$1/frr/zserv.sock"
    frr_daemon "$1" zebra -s 90000000
    zebras[$1]=$!
    wait_for "zebra of $1 starts" 20 test -S "$work/$1/frr/zserv.sock"
}

start_bgpd() {
    frr_daemon "$1" bgpd
    bgpds[$1]=$!
    wait_for "bgpd of $1 answers" 20 bgp "$1" "show bgp summary"
}

# frr_daemon HOST PROGRAM [OPTION…]: starts one of FRR's daemons.
frr_daemon() {
    local dir=$work/$1/frr
    background in_space "$1" "$FRR/$2" --vty_socket "$dir" -i "$dir/$2.pid" -z "$dir/zserv.sock" -A 127.0.0.1 -f "$dir/frr.conf" "${@:3}" \
        >>"$work/$1/$2.log" 2>&1
}

# killed PROCESS…: kills processes and waits until they have ended.
killed() {
    local process
    for process; do end_of "$process" KILL || true; done
}

# vty HOST DAEMON COMMAND: prints the answer of the host's zebra or bgpd to a command.
vty() {
    in_space "$1" vtysh --vty_socket "$work/$1/frr" -d "$2" -c "$3"
}

bgp() {
    vty "$1" bgpd "$2"
}

# agent HOST [OPTION…]: starts `netvale evpn`.
agent() {
    background in_space "$1" "$NETVALE" --run-dir "$work/$1/run" evpn "${@:2}" >>"$work/$1/agent.log" 2>&1
    agents[$1]=$!
}

# --- what is there

# evpn HOST EXPRESSION: whether the expression holds for the VNI as `netvale evpn --show` lists it.
evpn() {
    in_space "$1" "$NETVALE" evpn --show --json | jq -e ".vnis[] | select(.vni == $VNI) | $2" >/dev/null
}

# port HOST EXPRESSION: whether the expression holds for the tunnel port of the host's daemon.
port() {
    at "$1" show "vale0:vx$VNI" --json | jq -e "$2" >/dev/null
}

# floods HOST NUMBER…: whether the host floods the VNI to exactly these hosts, in the kernel's tables and in the
# daemon's.
floods() {
    local host=$1 list
    shift
    list=$(printf '"10.99.0.%s",' "$@")
    evpn "$host" ".flood == [${list%,}]" &&
        port "$host" "[.vxlan.remotes[] | select(.flood) | .vtep] | sort == [${list%,}]"
}

# kernel_floods HOST NUMBER…: the same for a host with the kernel's devices.
kernel_floods() {
    local host=$1 got wanted
    shift
    got=$(bridge -n "$host" fdb show dev "vx$VNI" | sed -n 's/^00:00:00:00:00:00 dst \([^ ]*\) .*/\1/p' | sort | tr '\n' ' ')
    wanted=$(printf '10.99.0.%s ' "$@")
    [ "$got" = "$wanted" ] || { echo "floods to $got, wanted $wanted" && return 1; }
}

# kernel_has HOST MAC NUMBER: whether the kernel's devices have the address behind host NUMBER.
kernel_has() {
    bridge -n "$1" fdb show dev "vx$VNI" | grep -q "^$2 dst 10.99.0.$3 "
}

kernel_lacks() {
    ! bridge -n "$1" fdb show dev "vx$VNI" | grep -q "^$2 dst"
}

# has HOST MAC NUMBER: whether both the agent's devices and the daemon have the address behind host NUMBER.
has() {
    evpn "$1" "any(.remotes[]; .mac == \"$2\" and .vtep == \"10.99.0.$3\")"
}

has_not() {
    ! evpn "$1" "any(.remotes[]; .mac == \"$2\")"
}

# announces HOST MAC: whether the host announces the address.
announces() {
    evpn "$1" "any(.locals[]; .mac == \"$2\")"
}

# --- pings that go on

# steady FROM TO WHAT COMMAND…: runs the command while pings go from a namespace to an address, one every 20 ms. The
# number of lost pings is in $lost.
steady() {
    local from=$1 to=$2 what=$3 pinger sent got
    shift 3
    background in_space "$from" ping -i 0.02 -W 2 "$to" >"$work/pings"
    pinger=$!
    wait_for "pings before: $what" 5 answered 10
    "$@"
    wait_for "pings after: $what" 15 answered $(($(last_answered) + 25))
    end_of "$pinger" INT || true
    sent=$(last_answered)
    got=$(grep -c 'icmp_seq=[0-9]* ttl' "$work/pings")
    lost=$((sent - got))
    ok "$what: $got of $sent pings are answered"
}

last_answered() {
    sed -n 's/.* icmp_seq=\([0-9]*\) .*/\1/p' "$work/pings" | sort -n | tail -n 1
}

answered() {
    [ "$(last_answered)" -ge "$1" ]
}

tell_state() {
    local host
    for host in "${!zebras[@]}" "${!daemons[@]}"; do
        echo "--- $host"
        tail -n 5 "$work/$host"/*.log
        [ -z "${daemons[$host]:-}" ] || at "$host" metrics | grep '_drop.* [1-9]'
        [ -z "${zebras[$host]:-}" ] || in_space "$host" "$NETVALE" evpn --show 2>&1 | head -n 20
        bridge -n "$host" fdb show | grep -v permanent | awk 'NR <= 20; END { print NR " entries of the kernel" }'
    done >&2 2>/dev/null || true
}
