#!/usr/bin/env bash
# Suricata as an intrusion prevention system on netmap, under `netvale run`: between two interfaces, and between an
# interface and its host rings, where it sees and drops traffic by its rules, including the host's own.
# measures: no
# shellcheck source=SCRIPTDIR/../judges-lib.sh
. "$(dirname "$0")/../judges-lib.sh"
tree=$(nsenter "--net=/proc/self/fd/$outside" "$root/scripts/netmap-judges.sh" suricata 2>"$work/tree.log") ||
    skip "no Suricata with netmap: $(tail -n 1 "$work/tree.log")"

# Pings of 100 bytes are dropped, and all pings are logged.
cat >"$work/rules" <<'RULES'
drop icmp any any -> any any (msg:"long ping"; itype:8; dsize:100; sid:1;)
alert icmp any any -> any any (msg:"ping"; itype:8; sid:2;)
RULES

# suricata NAME A B: starts Suricata between two netmap ports.
suricata() {
    local folder=$work/$1
    mkdir "$folder"
    cat >"$folder/suricata.yaml" <<YAML
%YAML 1.1
---
default-log-dir: $folder
classification-file: $tree/etc/classification.config
reference-config-file: $tree/etc/reference.config
threshold-file: $tree/etc/threshold.config
stats: {enabled: no}
outputs:
  - fast: {enabled: yes, filename: fast.log}
netmap:
  - {interface: "$2", threads: 1, copy-mode: ips, copy-iface: "$3"}
  - {interface: "$3", threads: 1, copy-mode: ips, copy-iface: "$2"}
YAML
    background nv run -- "$tree/bin/suricata" -c "$folder/suricata.yaml" -S "$work/rules" --netmap -l "$folder" \
        >"$folder/said" 2>&1
    engine=$!
    wait_for "Suricata starts ($1)" 120 grep -q "Engine started" "$folder/said"
}

# drops NAME FROM TO: what a rule drops must also be logged.
drops() {
    drops_long "Suricata, $1" "$2" "$3"
    grep -q "\[Drop\].*long ping" "$work/$1/fast.log" || fail "drops are logged ($1)" "$(tail "$work/$1/fast.log")"
    gone "$engine" && fail "Suricata still runs ($1)" "$(tail "$work/$1/said")"
    end_of "$engine" INT || true
}

start_daemon
two_stations
suricata "between two interfaces" na nb
drops "between two interfaces" a 10.1.0.2

ip addr add 10.1.0.3/24 dev na
suricata "with host rings" na "na^"
drops "with host rings" a 10.1.0.3
finish
