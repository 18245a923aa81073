#!/usr/bin/env bash
# Multicast snooping: frames for a group go to its members and to routers, and to all ports while there is no querier.
#
# The hosts use the kernel's own IGMP (versions 2 and 3) and MLD, in five namespaces on TAP ports. The judge is a Linux
# bridge with mcast_snooping, with five other hosts on its ports that do the same: the same stations must get each
# group.
# measures: yes
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need bridge
FRAMES=60

# --- the judge

linux_bridge() {
    space judge
    in_space judge sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0 || true
    ip -n judge link add br0 type bridge mcast_snooping 0 mcast_querier 0 || skip "there is no Linux bridge"
    ip -n judge link set br0 up
    local n
    for n in 1 2 3 4 5; do
        space "l$n"
        veth judge "l$n" "l$n" "l$n"
        ip -n judge link set "l$n" master br0
        ip -n "l$n" addr add "10.1.0.$n/24" dev "l$n"
    done
}

mdb() {
    in_space judge bridge -j -d mdb show
}

# --- hosts of both

# both_join NUMBER GROUP: the stations of that number join a group, and stay members until both_leave.
both_join() {
    local kind station
    for kind in s l; do
        station=$kind$1
        background in_space "$station" "$here/mcast.py" join "$station" "$2" >"$work/joined.$station.$2"
        member["$station.$2"]=$!
    done
    wait_for "both switches know that $1 wants $2" 20 both_know "$1" "$2"
}

declare -A member=()

both_leave() {
    local kind
    for kind in s l; do
        end_of "${member["$kind$1.$2"]}" || true
    done
    wait_for "both switches forget that $1 wants $2" 20 both_forgot "$1" "$2"
}

knows() {
    nv table vale0 --groups --json |
        jq -e --arg port "vale0:s$1" --arg group "$2" 'any(.groups[]; .port == $port and .group == $group)'
}

both_know() {
    knows "$1" "$2" && mdb | jq -e --arg port "l$1" --arg group "$2" 'any(.[].mdb[]; .port == $port and .grp == $group)'
}

both_forgot() {
    ! knows "$1" "$2" && mdb |
        jq -e --arg port "l$1" --arg group "$2" 'all(.[].mdb[]; .port != $port or .grp != $group)'
}

# got KIND FROM GROUP: the numbers of the stations of that kind that get frames of a group.
got() {
    local kind=$1 from=$2 group=$3 n
    declare -A before
    for n in 1 2 3 4 5; do before[$n]=$(frames_to "$kind$n" "$kind$n"); done
    in_space "$kind$from" "$here/mcast.py" send "$kind$from" "$group" "$FRAMES" || fail "frames are sent to $group"
    # The frames arrive soon, and at all receivers at once: a switch that sends to one sends to all.
    sleep 0.3
    for n in 1 2 3 4 5; do
        [ $(($(frames_to "$kind$n" "$kind$n") - before[$n])) -lt "$FRAMES" ] || printf ' %s' "$n"
    done
}

# goes WHAT FROM GROUP STATIONS: frames for a group must go to these stations, at both switches.
goes() {
    local ours theirs wanted
    # shellcheck disable=SC2086 # each number by itself
    wanted=$(printf ' %s' $4)
    ours=$(got s "$2" "$3")
    theirs=$(got l "$2" "$3")
    [ "$theirs" = "$wanted" ] || fail "$1: the Linux bridge sends $3 to$wanted" "to$theirs" "$(mdb)"
    [ "$ours" = "$theirs" ] || fail "$1: $3 goes to$theirs" "to$ours" "$(nv table vale0 --groups)"
    ok "$1: $3 goes to$ours"
}

# --- what is looked at

domain() {
    nv table vale0 --groups --json | jq -e ".domains[] | select(.family == \"$1\") | $2"
}

is_settled() {
    domain ipv4 .active && domain ipv6 .active
}

figure() {
    nv table vale0 --groups --json | jq ".$1"
}

settling() {
    goes "without snooping" 1 239.1.1.1 "2 3 4 5"
    local n
    for n in 1 2 3 4 5; do set_policies "s$n" mcast_snooping on; done
    set_policies s1 mcast_querier on
    set_policies s5 mcast_router 2
    in_space judge ip link set br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_mld_version 2
    in_space judge bridge link set dev l5 mcast_router 2
    goes "before hosts had time to answer the first query" 1 239.1.1.1 "2 3 4 5"
    wait_for "groups are kept apart" 40 is_settled
    # The same waiting time for the Linux bridge, which does not report its state.
    wait_for "the Linux bridge keeps groups apart" 40 judge_is_settled
}

judge_is_settled() {
    [ "$(got l 1 239.9.9.9)" = " 5" ] && [ "$(got l 1 ff15::9)" = " 5" ]
}

judge_has_querier() {
    [ "$(got l 1 239.9.9.9)" = " 4 5" ]
}

groups() {
    goes "nobody joined, but 5 is a router's" 1 239.9.9.9 "5"
    goes "a group that needs no members" 1 224.0.0.251 "2 3 4 5"
    both_join 2 239.1.1.1
    in_space s3 sysctl -qw net.ipv4.conf.s3.force_igmp_version=2
    in_space l3 sysctl -qw net.ipv4.conf.l3.force_igmp_version=2
    both_join 3 239.1.1.1
    goes "2 joined by IGMPv3, 3 by IGMPv2" 1 239.1.1.1 "2 3 5"
    # The Linux bridge distinguishes the groups by their IP address, netvale by the destination MAC address, which is
    # the same for all of them.
    [ "$(got s 1 239.129.1.1)" = " 2 3 5" ] ||
        fail "239.129.1.1 has the Ethernet address of 239.1.1.1" "$(got s 1 239.129.1.1)"
    ok "239.129.1.1, which has the same Ethernet address, goes to 2 3 5"
    goes "from a member" 2 239.1.1.1 "3 5"
    both_leave 3 239.1.1.1
    goes "3 left" 1 239.1.1.1 "2 5"
    set_policies s2 mcast_fast_leave on
    in_space judge ip link set dev l2 type bridge_slave mcast_fast_leave on
    local begun=$SECONDS
    both_leave 2 239.1.1.1
    expect "with fast_leave it is gone soon" "$((SECONDS - begun))" -le 2
    both_join 4 ff15::1234
    goes "4 joined by MLD" 1 ff15::1234 "4 5"
    goes "nobody joined" 1 ff15::9 "5"
    both_leave 4 ff15::1234
    goes "4 left" 1 ff15::1234 "5"
}

routers() {
    local before
    for n in s4 l4; do in_space "$n" "$here/mcast.py" query "$n" 10.1.0.4; done
    wait_for "the querier at 4 is known" 10 domain ipv4 \
        '.querier == "10.1.0.4" and (.queries | not) and any(.routers[]; . == "vale0:s4")'
    # The Linux bridge waits until hosts had time to answer the new querier, although they have answered the old one.
    wait_for "the Linux bridge forwards again" 20 judge_has_querier
    goes "a querier is at 4" 1 239.9.9.9 "4 5"
    before=$(drops s3 rogue-query)
    set_policies s3 mcast_router 0
    in_space s3 "$here/mcast.py" query s3 10.1.0.3
    wait_for "a query from a port that is not a router's is dropped" 10 has_dropped s3 rogue-query $((before + 1))
    domain ipv4 '.querier == "10.1.0.4"' >/dev/null || fail "the querier is still 10.1.0.4" "$(nv table vale0 --groups)"
    ok "a query from a port with mcast_router 0 is dropped, and changes nothing"
}

# A station that joins more groups than it may gets all of them; others keep theirs.
attacks() {
    both_join 2 239.1.1.1
    in_space s3 "$here/mcast.py" joins s3 10.1.0.3 1100
    wait_for "joins beyond the limit are refused" 20 is_refused
    knows 2 239.1.1.1 >/dev/null || fail "2 is still a member"
    expect "memberships of 3 are limited" "$(nv table vale0 --groups --json | jq '[.groups[] | select(.port == "vale0:s3")] | length')" -le 1024
    [ "$(got s 1 239.9.9.9)" = " 3 4 5" ] || fail "3 gets all groups, others do not" "$(got s 1 239.9.9.9)"
    ok "3, which joined too many, gets all groups; others do not"
    [ "$(got s 1 239.1.1.1)" = " 2 3 4 5" ] || fail "2 gets what it joined" "$(got s 1 239.1.1.1)"
    ok "2 gets what it joined"
    local before
    before=$(figure malformed)
    in_space s3 "$here/mcast.py" broken s3 40
    wait_for "messages that cannot be read are counted" 10 has_malformed $((before + 20))
    ok "messages that cannot be read are counted: $(figure malformed)"
}

is_refused() {
    [ "$(figure refused_joins)" -gt 0 ]
}

has_malformed() {
    [ "$(figure malformed)" -ge "$1" ]
}

# The same address in two VLANs is two groups.
vlans() {
    local n
    for n in 1 2; do set_policies "s$n" access 10; done
    for n in 3 4; do set_policies "s$n" access 20; done
    set_policies s5 trunk 10,20
    set_policies s3 mcast_router default
    # Members report when they are queried, in their VLAN.
    wait_for "2 is known as a member in VLAN 10" 40 is_in_vlan 2 10
    wait_for "groups are kept apart in both VLANs" 40 are_apart 10 20
    [ "$(got s 1 239.1.1.1)" = " 2 5" ] ||
        fail "in VLAN 10, a member and the router" "$(got s 1 239.1.1.1)" "$(nv table vale0 --groups)"
    [ "$(got s 3 239.1.1.1)" = " 5" ] ||
        fail "in VLAN 20, the router" "$(got s 3 239.1.1.1)" "$(nv table vale0 --groups)"
    ok "in VLAN 10 the group goes to its member and the router, in VLAN 20 to the router"
}

is_in_vlan() {
    nv table vale0 --groups --json |
        jq -e ".groups[] | select(.port == \"vale0:s$1\" and .vlan == $2 and .group == \"239.1.1.1\")"
}

are_apart() {
    nv table vale0 --groups --json |
        jq -e "[.domains[] | select(.active and .family == \"ipv4\") | .vlan] | contains([$1, $2])"
}

start_daemon
linux_bridge
for n in 1 2 3 4 5; do station "$n"; done
for n in s1 s2 s3 s4 s5 l1 l2 l3 l4 l5; do
    in_space "$n" sysctl -qw "net.ipv6.conf.all.disable_ipv6=0" "net.ipv6.conf.$n.disable_ipv6=0"
done
refuses "an invalid mcast_router" 2 "mcast_router" port set vale0:s1 mcast_router 3
settling
groups
routers
attacks
vlans
for n in 1 2 3 4 5; do set_policies "s$n" mcast_snooping default mcast_querier default mcast_router default; done
nv table vale0 --groups | grep -q 'does not snoop' || fail "the switch snoops no more" "$(nv table vale0 --groups)"
ok "without policies it does not snoop"
finish
