#!/usr/bin/env bash
# How fast other hosts follow an address that moves back and forth between a host with netvale and one with the kernel's
# bridge. Two hosts follow the same moves: one with the kernel's devices and FRR, one with netvale, `netvale evpn` and
# FRR. MOVES sets the number of moves in each direction (40 for a measurement); the figures, medians and spreads in
# milliseconds, are printed, and written to the file $FIGURES as JSON.
# measures: yes
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
need python3
need_frr

# How many milliseconds the median may be behind the kernel's: an agent that waited for its next periodic check, or for
# further withdrawals, would be half a second behind. Smaller differences cannot be measured on a shared machine:
# docs/reference/performance.md has figures of many moves on a dedicated one.
MOVES=${MOVES:-5} LIMIT=${LIMIT:-400}

network
host a 1
host c 2
host k 3
host n 4
for name in m pn; do space "$name"; done
for host in a n; do host_daemon $host; done
tunnel a 1
tunnel n 4
endpoint a m ma --mac 02:00:00:00:01:0a
endpoint n pn pn --mac 02:00:00:00:00:0e
bridged c 2
bridged k 3
bridge_port c m mc
frr a 1 2 3 4
frr c 2 1 3 4
frr k 3 1 2 4
frr n 4 1 2 3
for host in a n; do agent $host; done
wait_for "a floods to all" 30 floods a 2 3 4
wait_for "n floods to all" 30 floods n 1 2 3
wait_for "c floods to all" 30 kernel_floods c 1 3 4
wait_for "k floods to all" 30 kernel_floods k 1 2 4
# FRR would take this many moves for an error (duplicate addresses).
for host in a c k n; do
    vty $host bgpd "configure terminal
router bgp $AS
address-family l2vpn evpn
no dup-addr-detection" >"$work/configured" || fail "$host does not count moves" "$(cat "$work/configured")"
done

python3 "$here/convergence.py" "$MOVES" >"$work/moves" || fail "all moves arrive" "$(tail -n 3 "$work/moves")"
# For each time the median, minimum and maximum; `later` and `agent` are differences within one move.
figures=$(jq -c 'def at(f): sort | .[(length - 1) * f | round];
    def spread: map(. * 100 | round / 100) | {median: at(0.5), least: min, most: max};
    map_values({moves: length, advertised: map(.advertised) | spread, kernel: map(.kernel) | spread, mirror: map(.mirror) | spread,
        netvale: map(.netvale) | spread, later: map(.netvale - .kernel) | spread, agent: map(.netvale - .mirror) | spread})' "$work/moves")
# tell TO WHAT MEANING: prints the figures of one time.
tell() {
    ok "$(jq -r ".$1.$2 | \"\(.median) ms (\(.least) to \(.most))\"" <<<"$figures") $3"
}
for to in kernel netvale; do
    ok "$(jq ".$to.moves" <<<"$figures") moves to a host with $to:"
    tell $to advertised "until FRR of that host has the address from the kernel"
    tell $to kernel "until a host with the kernel and FRR has the new VTEP"
    tell $to netvale "until a host with netvale and FRR forwards to it"
    tell $to later "later than the kernel, of the same move"
    tell $to agent "of that since FRR has told the agent"
    expect "ms later, rounded up" "$(jq ".$to.later.median | ceil | if . <= 0 then 0 else . end" <<<"$figures")" -le \
        "$LIMIT"
done
[ -z "${FIGURES:-}" ] || echo "$figures" >"$FIGURES"
finish
