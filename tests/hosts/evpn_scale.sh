#!/usr/bin/env bash
# A VNI with 200 VTEPs and 100,000 addresses that a BGP speaker announces to FRR, and a second VNI with a thousand
# through GoBGP (a route reflector, which would take minutes for more). Measured are the time until the daemon has them
# and the memory that they take. Then a thousand moves a second and the withdrawal of a tenth, during pings to a host
# with the kernel's devices, of which none may be lost; and a restart of the agent. VTEPS and ADDRESSES set the numbers;
# figures are printed, and written to the file $FIGURES as JSON.
# measures: no
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
need gobgpd python3
need_frr

VTEPS=${VTEPS:-200} ADDRESSES=${ADDRESSES:-100000} REFLECTED=1000 RATE=${RATE:-1000} \
    SECONDS_OF_MOVES=${SECONDS_OF_MOVES:-10}
figures='{}'

# figure NAME VALUE: records a figure.
figure() {
    figures=$(jq -c --arg name "$1" --argjson value "$2" '.[$name] = $value' <<<"$figures")
    ok "$1: $2"
}

now() {
    date +%s.%N
}

since() {
    jq -n "$(now) - $1 | . * 100 | round / 100"
}

# mebibytes PROCESS: the memory of a process.
mebibytes() {
    echo $(($(memory "$1") / 1024))
}

# The processor time of a process in seconds.
processor() {
    jq -n "$(cpu_time "$1") / 100"
}

network
host s 1
host c 3
host g 9
for name in es ec; do space "$name"; done
for number in 7 8; do ip -n g addr add 10.99.0.$number/24 dev u0; done
ip -n s route add 10.98.0.0/16 via 10.99.0.9
host_daemon s
tunnel s 1
endpoint s es es --mac 02:00:00:00:00:01
address es es 192.168.7.1
bridged c 3
bridge_port c ec ec 02:00:00:00:00:03
address ec ec 192.168.7.3
frr s 1 3 8 9
frr c 3 1
agent s --hold 20
wait_for "s floods to c" 20 floods s 3
wait_for "c's endpoint is reached" 20 ping_from es 192.168.7.3

# --- a route reflector, and the speaker behind it

neighbor() {
    cat <<TOML
[[neighbors]]
  [neighbors.config]
    neighbor-address = "10.99.0.$1"
    peer-as = $AS
  [neighbors.transport.config]
    passive-mode = true
  [neighbors.route-reflector.config]
    route-reflector-client = true
    route-reflector-cluster-id = "10.99.0.9"
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "l2vpn-evpn"
TOML
}
{
    printf '[global.config]\n  as = %s\n  router-id = "10.99.0.9"\n  local-address-list = ["10.99.0.9"]\n' $AS
    neighbor 1
    neighbor 7
} >"$work/gobgp.toml"
background in_space g gobgpd -f "$work/gobgp.toml" >"$work/gobgpd.log" 2>&1
gobgpd=$!

mkfifo "$work/commands" "$work/silence"
exec 8<>"$work/commands" 9<>"$work/silence"
begin=$(now)
# speaker PEER NUMBER ADDRESSES FIRST: starts a BGP speaker.
speaker() {
    in_space g python3 "$here/bgp.py" "10.99.0.$1" "10.99.0.$2" "$VTEPS" "$3" "$4"
}
background speaker 1 8 "$ADDRESSES" 0 <"$work/commands" >"$work/said" 2>&1
background speaker 9 7 "$REFLECTED" "$ADDRESSES" <"$work/silence" >"$work/reflected" 2>&1

said_by_speaker() {
    grep -q "^$1" "$work/said"
}

given() {
    at s show "vale0:vx$VNI" --json | jq .vxlan.addresses
}

has_given() {
    test "$(given)" "$1" "$2"
}

# c is a VTEP, too.
all=$((ADDRESSES + REFLECTED + 1))
wait_for "the daemon has all addresses" 120 has_given -eq $all
figure "seconds until the daemon has $all addresses" "$(since "$begin")"
wait_for "and all VTEPs" 20 port s "[.vxlan.remotes[] | select(.flood)] | length == $VTEPS + 1"
figure "MiB of the agent" "$(mebibytes "${agents[s]}")"
figure "MiB of the daemon" "$(mebibytes "${daemons[s]}")"
figure "MiB of zebra" "$(mebibytes "${zebras[s]}")"
figure "MiB of bgpd" "$(mebibytes "${bgpds[s]}")"
figure "MiB of gobgpd" "$(mebibytes $gobgpd)"
figure "seconds of processor time of the agent" "$(processor "${agents[s]}")"
! grep -i refuse "$work/s/agent.log" || fail "neither the daemon nor the kernel has refused anything"

# --- moves

moved() {
    echo "move $RATE $SECONDS_OF_MOVES" >&8
    wait_for "addresses move" $((SECONDS_OF_MOVES + 30)) said_by_speaker moved
    begin=$(now)
    wait_for "the kernel has the last move" 60 has_last_move
    figure "seconds after the last of $(sed -n 's/^moved //p' "$work/said") moves until it has arrived" \
        "$(since "$begin")"
}

# The speaker prints the new place of the address that moved last.
has_last_move() {
    local mac at
    read -r _ mac at <<<"$(grep '^last' "$work/said")"
    bridge -n s fdb get "$mac" dev "nvx$VNI" self 2>/dev/null | grep -q "dst $at "
}
spent=$(processor "${agents[s]}")
steady es 192.168.7.3 "$RATE moves a second for $SECONDS_OF_MOVES s" moved
expect "pings lost" "$lost" -eq 0
figure "seconds of processor time of the agent for that" \
    "$(jq -n "$(processor "${agents[s]}") - $spent | . * 100 | round / 100")"
wait_for "the daemon still has all" 30 has_given -eq $all

# --- a restart of the agent

restarted() {
    killed "${agents[s]}"
    begin=$(now)
    agent s --hold 20
    wait_for "the agent has passed on everything" 30 grep -q "sending everything again.*entries=$((all + VTEPS + 1))" "$work/s/agent.log"
    figure "seconds until a restarted agent has read all" "$(since "$begin")"
}
steady es 192.168.7.3 "a restart of the agent" restarted
expect "pings lost" "$lost" -eq 0
wait_for "the daemon has all" 30 has_given -eq $all

# --- withdrawals

withdrawn() {
    echo withdraw >&8
    begin=$(now)
    wait_for "a tenth is withdrawn" 60 has_given -eq $((all - ADDRESSES / 10))
    figure "seconds until a tenth is withdrawn" "$(since "$begin")"
}
steady es 192.168.7.3 "a tenth is withdrawn" withdrawn
expect "pings lost" "$lost" -eq 0
[ -z "${FIGURES:-}" ] || echo "$figures" >"$FIGURES"
finish
