#!/usr/bin/env bash
# guest-image.sh: builds, once, what the tests' guests boot from, and prints its folder: `vmlinux` (uncompressed: it
# boots in half the time), `vmlinuz` (for boot loaders), `base.cpio.gz` (busybox, virtio modules, an /init that runs
# /script), and in `more`, `netem`, `cards`, `console`, `pktgen` and `uio` modules that only some guests need.
#
# The kernel is Debian's own package, only unpacked, never installed. Needs the packages busybox-static, cpio, kmod,
# lz4, zstd, xz-utils.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# To be changed whenever the result of this script changes.
recipe=11
meta=linux-image-amd64
package=$(apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*-amd64\)$/\1/p' | sed -n 1p)
if [ -z "$package" ]; then
    echo "no kernel package: $meta is not known to apt here" >&2
    exit 1
fi
image=$guests_dir/$package-$recipe
if [ -e "$image/done" ]; then
    echo "$image"
    exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq "$package" 2>/dev/null || { apt-get update -qq && apt-get download -qq "$package"; } >&2
dpkg -x "$package"_*.deb tree
release=$(basename tree/lib/modules/*)

# unpack OFFSET COMMAND…: whether the kernel's payload begins there.
unpack() {
    tail -c "+$(($1 + 1))" "tree/boot/vmlinuz-$release" | "${@:2}" >vmlinux 2>/dev/null || true
    [ "$(head -c 4 vmlinux | od -An -tx1 | tr -d ' \n')" = 7f454c46 ]
}

# offsets MAGIC (as grep -P writes it): prints the offsets at which MAGIC occurs.
offsets() {
    LC_ALL=C grep -aobP "$1" "tree/boot/vmlinuz-$release" | cut -d: -f1
}

extract() {
    local at
    for at in $(offsets '\x28\xb5\x2f\xfd'); do unpack "$at" zstd -dc && return; done
    for at in $(offsets '\xfd7zXZ\x00'); do unpack "$at" xz -dc --single-stream && return; done
    for at in $(offsets '\x02\x21\x4c\x18'); do unpack "$at" lz4 -dc && return; done
    for at in $(offsets '\x1f\x8b\x08'); do unpack "$at" gzip -dc && return; done
    echo "cannot find the kernel in $package" >&2
    return 1
}
extract

mkdir -p root/{bin,proc,sys,dev,tmp,run,modules}
cp /bin/busybox root/bin/
for name in sh mount ip ping insmod mkdir basename readlink poweroff reboot cat echo sleep ls dmesg grep cut seq nc ifconfig taskset wc head md5sum dd; do
    ln -s busybox "root/bin/$name"
done
depmod -b tree "$release"

# modules FOLDER NAME…: copies modules and their dependencies, numbered in the order in which they are loaded.
modules() {
    local folder=$1 n=10 file
    shift
    mkdir -p "$folder"
    for module in "$@"; do
        modprobe -d tree -S "$release" --show-depends "$module" 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p'
    done | awk '!seen[$0]++' | while read -r file; do
        cp "$file" "$folder/$n-$(basename "$file")"
        n=$((n + 1))
    done
}
modules root/modules virtio_net virtio_pci e1000 af_packet
modules more vfio-pci vfio_iommu_type1 tun 8021q bridge
modules netem veth sch_netem
modules cards e1000e igb
modules console virtio_console
modules pktgen pktgen
modules uio uio_pci_generic

cat >root/init <<'INIT'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
# A kernel given by the caller has its own modules.
modules=/modules
[ -d /own ] && modules=/own
for module in "$modules"/* $(ls -d /more/* 2>/dev/null); do insmod "$module" || echo "insmod $module failed"; done
echo "guest: up"
sh /script
echo "guest: exit $?"
poweroff -f
INIT
chmod 755 root/init
(cd root && find . | sort | cpio -o -H newc --quiet) | gzip -1 >base.cpio.gz

mkdir -p "$image"
mv vmlinux base.cpio.gz more netem cards console pktgen uio "$image/"
cp "tree/boot/vmlinuz-$release" "$image/vmlinuz"
touch "$image/done"
echo "$image"
