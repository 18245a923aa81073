#!/usr/bin/env bash
# What a BGP speaker may announce without doing harm: more VTEPs and more addresses than a tunnel takes; addresses that
# cannot be a station's; the address of a sticky port; this host as a VTEP; an address that moves back and forth until
# FRR freezes it. Memory stays bounded, what exceeds the limits is reported, pings to a stable address are answered
# throughout, and a withdrawal frees its place. VTEPS and ADDRESSES (a multiple of 500) set the numbers.
# measures: no
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
need python3
need_frr

VTEPS=${VTEPS:-4600} MOST_VTEPS=4096 ADDRESSES=${ADDRESSES:-265000} MOST_ADDRESSES=262144
# The number of VTEPs that share these addresses.
MANY=50
E_MAC=02:00:00:00:00:01 M_MAC=02:00:00:00:00:02 C_MAC=02:00:00:00:00:03
# The memory, in MiB, that the daemon and the agent may each use at the largest number of addresses.
MOST_MEMORY=256
# Processing this many routes keeps bgpd from serving its other peer for more than ten seconds.
BGP_TIMERS="20 120"

# bounded WHEN: the memory of the daemon and the agent must be within the limit.
bounded() {
    expect "MiB of the daemon $1" "$(($(memory "${daemons[s]}") / 1024))" -le $MOST_MEMORY
    expect "MiB of the agent $1" "$(($(memory "${agents[s]}") / 1024))" -le $MOST_MEMORY
}

network
host s 1
host c 3
host g 9
for name in es ms ec; do space "$name"; done
ip -n s route add 10.98.0.0/16 via 10.99.0.9
host_daemon s
tunnel s 1
endpoint s es es --mac "$E_MAC"
address es es 192.168.7.1
endpoint s ms ms --mac "$M_MAC"
address ms ms 192.168.7.2
bridged c 3
bridge_port c ec ec "$C_MAC"
address ec ec 192.168.7.3
frr s 1 3 9
frr c 3 1
agent s --hold 5
wait_for "s floods to c" 20 floods s 3
wait_for "c's endpoint is reached" 20 ping_from es 192.168.7.3
wait_for "s has its address" 20 has s "$C_MAC" 3

# speaker VTEPS ADDRESSES: starts a BGP speaker, in place of the previous one if there is one.
speaker() {
    rm -f "$work/commands" "$work/said"
    mkfifo "$work/commands"
    exec 8<>"$work/commands"
    background in_space g python3 "$here/bgp.py" 10.99.0.1 10.99.0.9 "$1" "$2" <"$work/commands" >"$work/said" 2>&1
    speaker=$!
    wait_for "the speaker has announced everything" 120 said loaded 1
}

# said WORD TIMES: whether the speaker has printed the word that often.
said() {
    [ "$(grep -c "^$1" "$work/said")" -ge "$2" ]
}

no_speaker() {
    killed "$speaker"
    wait_for "all its announcements are withdrawn" 200 large_port s '.vxlan.addresses == 1 and (.vxlan.remotes | length) == 1'
}

# The number of times the agent has logged that the limits are exceeded.
times_told() {
    grep -c 'beyond the limits of a VNI' "$work/s/agent.log" || true
}

# has_told TIMES: whether the agent has logged it more often than that. The log is read because `evpn --show` takes the
# kernel seconds when there are many addresses.
has_told() {
    [ "$(times_told)" -gt "$1" ]
}

# large_port HOST EXPRESSION: like `port`, for a tunnel with many entries: a query at every attempt would keep the
# daemon from the very work that the script waits for.
large_port() {
    sleep 0.5
    port "$@"
}

# --- more VTEPs than a tunnel takes, each with an address

too_many_vteps() {
    speaker "$VTEPS" "$VTEPS"
    wait_for "the daemon has as many VTEPs as it can" 200 large_port s ".vxlan.remotes | length == $MOST_VTEPS"
    wait_for "the agent logs what exceeds the limit" 60 has_told 0
    wait_for "--show counts what exceeds the limit" 20 evpn s '.beyond > 0'
}
steady es 192.168.7.3 "$VTEPS VTEPs" too_many_vteps
expect "pings lost" "$lost" -eq 0
floods_to_c() {
    port s 'any(.vxlan.remotes[]; .vtep == "10.99.0.3" and .flood)'
}
floods_to_c || fail "s still floods to c"
bounded "with too many VTEPs"

half=$((VTEPS / 2))
room_for_all() {
    echo "leave 0 $half" >&8
    wait_for "the speaker has withdrawn them" 30 said left 1
    # c is a VTEP, too, with one address.
    wait_for "there is room for all others" 120 large_port s \
        "(.vxlan.remotes | length) == $((VTEPS - half + 1)) and .vxlan.addresses == $((VTEPS - half + 1))"
    wait_for "nothing exceeds the limit any more" 20 evpn s '.beyond == 0'
}
steady es 192.168.7.3 "half of them are withdrawn" room_for_all
expect "pings lost" "$lost" -eq 0
no_speaker
ok "VTEPs beyond the limit are refused and logged, and accepted once there is room"

# --- more addresses

too_many_addresses() {
    local before
    before=$(times_told)
    speaker "$MANY" "$ADDRESSES"
    wait_for "the daemon has as many addresses as it can" 200 large_port s ".vxlan.addresses == $MOST_ADDRESSES"
    wait_for "the agent logs what exceeds the limit" 60 has_told "$before"
}
steady es 192.168.7.3 "$ADDRESSES addresses" too_many_addresses
expect "pings lost" "$lost" -eq 0
bounded "with too many addresses"
# Nine VTEPs of ten leave, but not the one whose addresses were partly left out. If fewer left, the kernel would take
# seconds to list the rest.
room_for_rest() {
    echo "leave 0 $((MANY * 9 / 10))" >&8
    wait_for "the speaker has withdrawn them" 60 said left 1
    wait_for "the rest is accepted" 200 large_port s ".vxlan.addresses == $((ADDRESSES / 10 + 1))"
}
steady es 192.168.7.3 "nine tenths are withdrawn" room_for_rest
expect "pings lost" "$lost" -eq 0
no_speaker
bounded "afterwards"
ok "addresses beyond the limit are refused and logged, and accepted once there is room"

# --- lies

LIAR=10.98.0.1 MARK=02:00:00:00:00:99
words=0 marks=0
# say WORDS…: has the speaker announce something, and waits until s has received that and a marker sent after it.
say() {
    words=$((words + 1)) marks=$((marks + 1))
    echo "$*" >&8
    echo "say ${MARK%99}$(printf '%02x' $((100 + marks))) $LIAR 0" >&8
    wait_for "the speaker has announced $*" 30 said said $((2 * words))
    wait_for "s has received it" 30 hears "${MARK%99}$(printf '%02x' $((100 + marks)))"
}

hears() {
    evpn s "any(.remotes[]; .mac == \"$1\" and .vtep == \"$LIAR\")" && [ "$(place_of "$1")" = "vale0:vx$VNI $LIAR" ]
}

# place_of MAC: the port and the VTEP at which the daemon has the address.
place_of() {
    at s table vale0 --json | jq -r ".entries[] | select(.mac == \"$1\") | \"\\(.port) \\(.vtep // \"\")\""
}

# The daemon has refused some of the addresses that exceeded the limit.
refusals() {
    grep -ci refuse "$work/s/agent.log" || true
}
refused=$(refusals)
speaker 1 1
at s port set vale0:es sticky on >/dev/null
zebra_has_sticky() {
    vty s zebra "show evpn mac vni $VNI mac $E_MAC" | grep -qi sticky
}
wait_for "zebra knows that es is sticky" 20 zebra_has_sticky

liars_words() {
    say "say $E_MAC $LIAR 77"
    has_not s "$E_MAC" || fail "the address of a sticky port is not remote"
    announces s "$E_MAC" || fail "the address of a sticky port is still announced"
    expect "the daemon's place of it" "$(place_of "$E_MAC")" = "vale0:es "
    say "say 01:00:5e:00:00:05 $LIAR 0"
    say "say ff:ff:ff:ff:ff:ff $LIAR 0"
    say "say 00:00:00:00:00:00 10.98.0.7 0"
    say "say 02:00:00:00:00:77 10.99.0.1 0"
    for mac in 01:00:5e:00:00:05 ff:ff:ff:ff:ff:ff 00:00:00:00:00:00 02:00:00:00:00:77; do
        has_not s "$mac" || fail "$mac is nowhere" "$(in_space s "$NETVALE" evpn --show)"
        expect "the daemon's place of $mac" "$(place_of "$mac")" = ""
    done
}
steady ec 192.168.7.1 "a sticky port's address, groups' addresses and none, behind a VTEP, and one behind this host" \
    liars_words
expect "pings lost" "$lost" -eq 0
port s '[.vxlan.remotes[].vtep] | contains(["10.99.0.1"]) | not' || fail "this host is no VTEP of its own"
floods_to_c || fail "s still floods to c"
[ "$(refusals)" = "$refused" ] ||
    fail "the daemon has refused none of these" "$(grep -i refuse "$work/s/agent.log" | tail -n 3)"
ok "false announcements of addresses change nothing"

# --- an address that FRR freezes (RFC 7432 section 15.1)

vty s bgpd "configure terminal
router bgp $AS
address-family l2vpn evpn
dup-addr-detection max-moves 3 time 120
dup-addr-detection freeze permanent" >"$work/configured" || fail "FRR detects duplicates" "$(cat "$work/configured")"
wait_for "ms reaches c" 30 ping_from ms 192.168.7.3
wait_for "s announces the address of ms" 30 announces s "$M_MAC"
is_duplicate() {
    vty s zebra "show evpn mac vni $VNI mac $M_MAC" | grep -qi 'duplicate, detected'
}
sequence=10
for move in 1 2 3 4 5 6; do
    if is_duplicate; then break; fi
    sequence=$((sequence + 10))
    say "say $M_MAC $LIAR $sequence"
    if is_duplicate; then break; fi
    evpn s "any(.remotes[]; .mac == \"$M_MAC\" and .vtep == \"$LIAR\")" ||
        fail "move $move: the address is at the liar's"
    in_space ms ping -q -c 1 -W 1 192.168.7.3 >/dev/null || true
    wait_for "move $move: it is back" 30 announces s "$M_MAC"
done
is_duplicate || fail "FRR takes the address for a duplicate" "$(vty s zebra "show evpn mac vni $VNI mac $M_MAC")"

# zebra and the agent agree on the kernel's tables; the daemon must match them.
as_the_kernel() {
    case $(bridge -n s fdb get "$M_MAC" br nvb$VNI 2>&1) in
    *nvl$VNI*) [ "$(place_of "$M_MAC")" = "vale0:ms " ] ;;
    *nvx$VNI*) [ "$(place_of "$M_MAC")" = "vale0:vx$VNI $LIAR" ] ;;
    *) return 1 ;;
    esac
}
wait_for "the daemon's place of the frozen address is the kernel's" 30 as_the_kernel
frozen=$(place_of "$M_MAC")
spent=$(cpu_time "${agents[s]}")
steady es 192.168.7.3 "the liar goes on about a frozen address" say "say $M_MAC $LIAR 500"
expect "pings lost" "$lost" -eq 0
as_the_kernel || fail "the daemon's place of the frozen address is the kernel's"
expect "the place of the frozen address" "$(place_of "$M_MAC")" = "$frozen"
expect "hundredths of a second of the agent's for that" $(($(cpu_time "${agents[s]}") - spent)) -le 100
say "unsay $M_MAC $LIAR"
vty s zebra "clear evpn dup-addr vni all" >/dev/null
back() {
    ping_from ms 192.168.7.3 && announces s "$M_MAC" && [ "$(place_of "$M_MAC")" = "vale0:ms " ]
}
wait_for "the address is local, and announced, once FRR forgets that" 60 back
ok "an address that FRR has frozen stays where it was, and is free again when FRR says so"
finish
