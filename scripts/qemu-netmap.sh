#!/usr/bin/env bash
# qemu-netmap.sh: builds QEMU of Debian's development release with its netmap back end and with liburing, once (this
# takes minutes), and prints the folder that contains it in `bin`. Debian's own package has no netmap.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/source-lib.sh"

# To be changed whenever the result of this script changes.
recipe=1
# The machine type of the tests' guests, and the network cards for which their kernel has drivers.
export devices="Q35 VIRTIO_PCI VIRTIO_NET E1000_PCI E1000E_PCI_EXPRESS IGB_PCI_EXPRESS CXL CXL_MEM_DEVICE PCIE_PORT PXB"

build_qemu() {
    # shellcheck disable=SC2086 # words
    printf 'CONFIG_%s=y\n' $devices >configs/devices/x86_64-softmmu/few.mak
    mkdir ../build
    cd ../build
    # Its speed is not measured, so optimization is not needed.
    ../sources/configure --target-list=x86_64-softmmu --without-default-features --without-default-devices \
        --with-devices-x86_64=few --enable-system --enable-tcg --enable-netmap --enable-linux-io-uring \
        --disable-docs --disable-install-blobs --disable-werror --disable-debug-info -Doptimization=1
    ninja qemu-system-x86_64
    keep qemu-system-x86_64
}
from_source "qemu-netmap-$recipe" qemu build_qemu ninja-build meson python3 python3-venv python3-setuptools \
    libglib2.0-dev zlib1g-dev libfdt-dev liburing-dev
