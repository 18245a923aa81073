#!/usr/bin/env bash
# guest-driver.sh: builds the guests' drivers (guest/linux) for the kernel that the tests' guests boot, once for each
# version of the sources, and prints the folder of the modules. Needs the package linux-headers-amd64.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

image=$("$(dirname "$0")/guest-image.sh")
release=$(basename "$image")
release=${release#linux-image-}
release=${release%-*}
headers=/usr/src/linux-headers-$release
if [ ! -e "$headers/Makefile" ]; then
    echo "no headers of the guests' kernel at $headers (package linux-headers-amd64)" >&2
    exit 1
fi
sum=$(cat "$root"/guest/linux/* | sha256sum | cut -c1-16)
built=$guests_dir/drivers-$release-$sum
if [ ! -e "$built/done" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cp -r "$root/guest/linux" "$work/"
    make -C "$work/linux" KERNEL="$headers" -j"$(nproc)" >"$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
    strip --strip-debug "$work"/linux/*.ko
    mkdir -p "$built"
    mv "$work"/linux/*.ko "$built/"
    touch "$built/done"
fi
echo "$built"
