# shellcheck shell=bash
# Programs that Debian builds without netmap, built with it from the sources of the development release (sid). Sourced
# by bash after lib.sh.

# The packages that every build needs.
tools="gcc libc6-dev make pkgconf patchelf dpkg-dev ca-certificates"

# from_source NAME PACKAGE FUNCTION TOOL…: prints the kept folder of that name. The first time, the function builds a
# source package's programs in the folder of its sources, in a tree of sid with these tools, the usual ones, and this
# project's netmap headers; tests/judges is at $judges there. The folder's `bin` contains the programs passed to `keep`.
# The tree is removed.
from_source() {
    export source_package=$2 build=$3 packages="$tools ${*:4}" judges=/root/judges
    export root
    export -f "${3?}" make_in_tree build_sources keep
    kept_tree "$1" make_in_tree
}

# Runs outside the tree.
make_in_tree() {
    local tree=$work/tree
    # shellcheck disable=SC2086 # words
    debootstrap --variant=minbase --include=ca-certificates sid "$tree" &&
        # None of its services may start.
        printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d" &&
        chmod 755 "$tree/usr/sbin/policy-rc.d" &&
        printf 'deb-src http://deb.debian.org/debian %s main\n' sid testing stable \
            >"$tree/etc/apt/sources.list.d/sources.list" &&
        # Libraries that only older sources need.
        echo 'deb http://deb.debian.org/debian stable main' >"$tree/etc/apt/sources.list.d/stable.list" &&
        # Mirrors may lag behind, and nothing of this is installed on the system.
        chroot "$tree" apt-get -q -o Acquire::Check-Valid-Until=false update &&
        chroot "$tree" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $packages &&
        cp -r "$root/crates/programs/capi/include/net" "$root/crates/programs/capi/include/libnetmap.h" "$tree/usr/include/" &&
        cp -r "$root/tests/judges" "$tree$judges" &&
        mount -t proc proc "$tree/proc" && mount --rbind /dev "$tree/dev" &&
        # The caller's folder for temporary files does not exist in the tree.
        place=${work%.making} chroot "$tree" env -u TMPDIR bash -c build_sources &&
        umount -R "$tree/dev" "$tree/proc" && mv "$tree/out" "$work/root"
}

# Runs inside the tree.
build_sources() {
    set -euo pipefail
    cd /root
    # Mirrors that lag behind list sources that no longer exist: takes the newest one that does.
    for version in $(apt-cache showsrc "$source_package" | sed -n 's/^Version: //p' | sort -Vru); do
        apt-get -q source --download-only "$source_package=$version" && break
        rm -f ./*.dsc
    done
    if compgen -G "*.dsc" >/dev/null; then
        dpkg-source --extract ./*.dsc sources
    else
        # Or only upstream's part of the sources, without Debian's patches.
        apt-get -q source --tar-only --download-only "$source_package"
        mkdir sources
        tar -x --strip-components 1 -C sources -f ./*.orig.tar.*
    fi
    cd sources
    mkdir -p /out/bin /out/lib
    "$build"
}

# keep PROGRAM…: keeps programs, with their libraries and the dynamic loader, which may be newer than the system's.
keep() {
    local program
    for program; do
        cp "$program" /out/bin/
        # shellcheck disable=SC2046 # words
        cp -L $(ldd "$program" | grep -o '/[^ ]*') /lib/*-linux-gnu*/libgcc_s.so.1 /out/lib/
        patchelf --set-interpreter "$place/lib/$(basename /out/lib/ld-*.so*)" --force-rpath --set-rpath "$place/lib" \
            "/out/bin/$(basename "$program")"
    done
}
