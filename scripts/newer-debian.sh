#!/usr/bin/env bash
# newer-debian.sh: unpacks QEMU and User-Mode Linux of Debian's development release (sid) into a folder of their own, once, and prints that
# folder. What is in it never becomes part of this system: it is started by its own dynamic loader.
#
# Guests of the tests run under it because QEMU 7.2 cannot use MSI-X with vhost-user here. Needs root (debootstrap uses chroot), and
# about 730 MB of disk.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Changes whenever what is made changes.
recipe=1
export packages="qemu-system-x86 user-mode-linux"
make() {
    # shellcheck disable=SC2086 # words
    debootstrap --variant=minbase --include=ca-certificates sid "$work/root" &&
        # No service of it is to start.
        printf '#!/bin/sh\nexit 101\n' >"$work/root/usr/sbin/policy-rc.d" &&
        chmod 755 "$work/root/usr/sbin/policy-rc.d" &&
        chroot "$work/root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages
}
kept_tree "sid-$recipe" make
