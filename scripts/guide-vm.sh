#!/usr/bin/env bash
# guide-vm.sh ARGUMENT…: what stands for `qemu-system-x86_64` on the guide's pages (guide-commands.sh).
#
# A reader has a disk with a system, and a processor that runs it. Here the tests' guest boots without either: `-accel` and
# `-drive file=NAME.qcow2` are left out, everything else is passed on. The guest runs the page's file NAME.commands; what it
# prints is in NAME.console. Succeeds when the commands did. Needs $GUIDE_GUEST, $GUIDE_QEMU and, for ptnet, $GUIDE_DRIVERS: the
# folders that guest-image.sh, newer-debian.sh and guest-driver.sh print.
set -euo pipefail

qemu() {
    "$GUIDE_QEMU/usr/lib64/ld-linux-x86-64.so.2" --library-path "$GUIDE_QEMU/usr/lib/x86_64-linux-gnu" \
        "$GUIDE_QEMU/usr/bin/qemu-system-x86_64" -L "$GUIDE_QEMU/usr/share/qemu" -L "$GUIDE_QEMU/usr/share/seabios" "$@"
}

arguments=()
name=
while [ $# -gt 0 ]; do
    case $1 in
    --version) qemu --version && exit ;;
    -accel) shift ;;
    -drive)
        name=${2#file=} name=${name%%.*}
        shift
        ;;
    *) arguments+=("$1") ;;
    esac
    shift
done

console=$PWD/$name.console
work=$(mktemp -d -p "$PWD")
# The page may come to the block that has them a moment later.
for _ in $(seq 600); do
    [ -e "$name.commands" ] && break
    sleep 0.1
done
cp "$name.commands" "$work/script"
# A guest that only waits for others stays.
grep -q ping "$work/script" || echo 'echo guest: ready; sleep 1000' >>"$work/script"
mkdir "$work/more"
case " ${arguments[*]} " in *ivshmem*) cp "$GUIDE_DRIVERS/nvptnet.ko" "$work/more/" ;; esac
(cd "$work" && find script more | cpio -o -H newc --quiet | gzip -1 | cat "$GUIDE_GUEST/base.cpio.gz" - >initrd)
qemu -accel tcg,thread=multi -M q35 -cpu max -smp 1,maxcpus=2 -nographic -nodefaults -serial stdio -net none -no-reboot \
    -kernel "$GUIDE_GUEST/vmlinux" -initrd "$work/initrd" -append 'console=ttyS0 quiet panic=-1' "${arguments[@]}" >"$console"
grep -q 'guest: exit 0' "$console" || { cat "$console" && exit 1; }
