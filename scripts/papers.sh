#!/usr/bin/env bash
# papers.sh [ARGUMENT…]: runs the papers' experiments (netvale-bench papers) with everything that they compare: Debian's
# packages, newer releases of DPDK and QEMU beside the system's, a QEMU with its netmap back end, guests. What is not
# available is left out, and the page says so.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

need_rust
scripts/install-deps.sh bench || exit
cargo build --release --package netvale-cli --package netvale-capi --package netvale-pcap --package netvale-bench || exit
cargo build --release --package netvale --example firewall || exit
for made in guest-image.sh guest-driver.sh newer-debian.sh newer-dpdk.sh qemu-netmap.sh; do
    log=$(mktemp)
    "scripts/$made" >"$log" 2>&1 || {
        echo "scripts/$made failed: experiments that need it are left out"
        tail -5 "$log"
    }
    rm -f "$log"
done
exec "$target_dir/release/netvale-bench" papers "$@"
