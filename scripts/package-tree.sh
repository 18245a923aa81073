#!/usr/bin/env bash
# package-tree.sh RELEASE [NAME PACKAGE…]: makes a small Debian of that release (bookworm, trixie, …), once, and prints its folder.
# booted.sh starts it with systemd in a container; nobody writes to it.
#
# There is no compiler in it, and nothing of netvale. With NAME, these packages are in it besides: a tree of its own for each list of
# packages. Needs root (debootstrap uses chroot), a mirror of Debian's, and about 300 MB of disk.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Changes whenever what is made changes.
recipe=2
# The packages' own dependencies are here, so that the tests install without a network; and what tests look with.
export plain="systemd systemd-sysv libpam-systemd dbus adduser iproute2 iputils-ping libpcap0.8 procps"

[ $# -ge 1 ] || { echo "usage: package-tree.sh RELEASE [NAME PACKAGE…]" >&2; exit 2; }
export release=$1
name=$release-$recipe
shift

# add PACKAGE…: to the tree that is being made. Nothing of it starts here.
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
