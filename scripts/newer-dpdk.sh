#!/usr/bin/env bash
# newer-dpdk.sh [SUITE…]: unpacks DPDK of newer Debian releases (by default trixie and sid) into folders of their own,
# once, and prints those folders. Nothing in them becomes part of this system: testpmd is started with its tree's own
# dynamic loader.
#
# netvale-bench measures them beside the system's. Needs root (debootstrap uses chroot), and about 500 MB of disk for
# each.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# To be changed whenever the result of this script changes.
recipe=1
make() {
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$work/root" &&
        # None of its services may start.
        printf '#!/bin/sh\nexit 101\n' >"$work/root/usr/sbin/policy-rc.d" &&
        chmod 755 "$work/root/usr/sbin/policy-rc.d" &&
        chroot "$work/root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends dpdk-dev &&
        # Only programs are run in it.
        find "$work/root/usr/lib" -name 'librte_*.a' -delete &&
        ls "$work"/root/usr/lib/*/dpdk/pmds-*/librte_net_vhost.so "$work"/root/usr/lib/*/dpdk/pmds-*/librte_net_virtio.so
}
[ $# -gt 0 ] || set -- trixie sid
for suite; do
    export suite
    kept_tree "dpdk-$suite-$recipe" make
done
