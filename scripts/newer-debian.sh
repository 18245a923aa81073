#!/usr/bin/env bash
# newer-debian.sh: unpacks QEMU and User-Mode Linux of Debian's development release (sid) into a folder of their own,
# once, and prints that folder. Nothing in it becomes part of this system: the programs are started with their own
# dynamic loader.
#
# The tests' guests run under it because QEMU 7.2 cannot use MSI-X with vhost-user here. Needs root (debootstrap uses
# chroot), and about 730 MB of disk.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# To be changed whenever the result of this script changes.
recipe=1
export packages="qemu-system-x86 user-mode-linux"
make() {
    # shellcheck disable=SC2086 # words
    debootstrap --variant=minbase --include=ca-certificates sid "$work/root" &&
        # None of its services may start.
        printf '#!/bin/sh\nexit 101\n' >"$work/root/usr/sbin/policy-rc.d" &&
        chmod 755 "$work/root/usr/sbin/policy-rc.d" &&
        chroot "$work/root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages
}
kept_tree "sid-$recipe" make
