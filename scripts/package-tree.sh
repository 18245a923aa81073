#!/usr/bin/env bash
# package-tree.sh RELEASE [NAME PACKAGE…]: creates a small Debian of that release (bookworm, trixie, …), once, and
# prints its folder. booted.sh boots it with systemd in a container; nothing is written to it.
#
# It contains no compiler, and nothing of netvale. With NAME, it also contains these packages: there is a tree for each
# list of packages. Needs root (debootstrap uses chroot), a mirror of Debian's, and about 300 MB of disk.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# To be changed whenever the result of this script changes.
recipe=2
# The packages' own dependencies, so that the tests install without a network; and tools for the tests.
export plain="systemd systemd-sysv libpam-systemd dbus adduser iproute2 iputils-ping libpcap0.8 procps"

[ $# -ge 1 ] || { echo "usage: package-tree.sh RELEASE [NAME PACKAGE…]" >&2; exit 2; }
export release=$1
name=$release-$recipe
shift

# add PACKAGE…: installs packages in the new tree. Their services do not start here.
add() {
    local policy=$work/root/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" &&
        mount -t proc proc "$work/root/proc" &&
        chroot "$work/root" apt-get -q update &&
        chroot "$work/root" env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends "$@" &&
        umount "$work/root/proc" &&
        rm -rf "$policy" "$work"/root/var/lib/apt/lists/*
}

make_plain() {
    # shellcheck disable=SC2086 # words
    debootstrap --variant=minbase "$release" "$work/root" && add $plain && : >"$work/root/etc/machine-id"
}

make_more() {
    # shellcheck disable=SC2086 # words
    cp -a --reflink=auto "$base/." "$work/root" && rm "$work/root/done" && add $more
}

export -f add
base=$(kept_tree "$name" make_plain)
if [ $# -gt 0 ]; then
    name+=-$1
    shift
    more=$(printf '%s\n' "$@" | sort -u | xargs)
    export base more
    base=$(kept_tree "$name-$(sha256sum <<<"$more" | cut -c1-8)" make_more)
fi
echo "$base"
