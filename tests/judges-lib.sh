# shellcheck shell=bash
# Shared by the scripts of judges: two stations, and a program between them that drops long pings. Sourced by bash.
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need ping

# two_stations: creates namespaces a and b, with 10.1.0.1 and 10.1.0.2, cabled to the interfaces na and nb here.
two_stations() {
    local name
    for name in a b; do
        space "$name"
        ip link add "v$name" netns "$name" type veth peer name "n$name"
        ip -n "$name" link set "v$name" up
        ip link set "n$name" up
    done
    ip -n a addr add 10.1.0.1/24 dev va
    ip -n b addr add 10.1.0.2/24 dev vb
}

# drops_long NAME FROM TO: pings from a namespace to an address must be answered, except those of 100 bytes.
drops_long() {
    wait_for "pings pass ($1)" 30 in_space "$2" ping -q -c 1 -W 1 "$3"
    must in_space "$2" ping -q -c 20 -i 0.05 -W 5 "$3"
    ! in_space "$2" ping -q -c 5 -i 0.05 -W 1 -s 100 "$3" >"$work/pings" 2>&1 ||
        fail "long pings are dropped ($1)" "$(cat "$work/pings")"
    grep -q "0 received" "$work/pings" || fail "all long pings are dropped ($1)" "$(cat "$work/pings")"
    ok "$1: pings pass, and long ones do not"
}
