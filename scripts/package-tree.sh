#!/usr/bin/env bash
# package-tree.sh: makes a small Debian 12 for the tests of packages, once, and prints its folder. The tests work on copies.
#
# There is no compiler in it, and nothing of netvale. systemd is there, to be started in a container. Needs root (debootstrap uses
# chroot), and about 300 MB of disk.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Changes whenever what is made changes.
recipe=1
# The packages' own dependencies are here, so that the tests install without a network.
packages=systemd,systemd-sysv,libpam-systemd,dbus,iproute2,libpcap0.8
make() {
    debootstrap --variant=minbase --include="$packages" bookworm "$work/root" &&
        rm -rf "$work"/root/var/lib/apt/lists/*
}
kept_tree "bookworm-$recipe" make
