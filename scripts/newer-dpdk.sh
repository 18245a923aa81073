#!/usr/bin/env bash
# newer-dpdk.sh [SUITE…]: unpacks DPDK of newer Debian releases (trixie and sid, unless others are named) into folders of their own, once, and
# prints those folders. Nothing in them becomes part of this system: testpmd is started by its tree's own dynamic loader.
#
# netvale-bench measures them beside the system's. Needs root (debootstrap uses chroot), and about 500 MB of disk for each.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Changes whenever what is made changes.
recipe=1
make() {
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$work/root" &&
        # No service of it is to start.
        printf '#!/bin/sh\nexit 101\n' >"$work/root/usr/sbin/policy-rc.d" &&
        chmod 755 "$work/root/usr/sbin/policy-rc.d" &&
        chroot "$work/root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends dpdk-dev &&
        # Programs are only run there.
        find "$work/root/usr/lib" -name 'librte_*.a' -delete &&
        ls "$work"/root/usr/lib/*/dpdk/pmds-*/librte_net_vhost.so "$work"/root/usr/lib/*/dpdk/pmds-*/librte_net_virtio.so
}
[ $# -gt 0 ] || set -- trixie sid
for suite; do
    export suite
    kept_tree "dpdk-$suite-$recipe" make
done
