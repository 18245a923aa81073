#!/usr/bin/env bash
# guide-commands.sh [PAGE…]: runs the commands of the guide (README.md and docs/guide/*.md) exactly as printed, as each
# user that a page is written for, so that what a reader copies works. CONTRIBUTING.md describes what a page has to
# contain, and how its blocks are marked.
#
#   READERS=root,member  only these of a page's readers (root, member, user, rootless)
#   RELEASES=bookworm    only on these releases (bookworm, trixie)
#   DEBS=FOLDER          existing packages; without it, they are made from what PROFILE=test builds
#   JOBS=2               sessions at a time
#   KEEP=FOLDER          keeps the log of each session there
#
# Each page, for each of its readers, is a separate session: a Debian that systemd boots in a container (booted.sh),
# with the packages installed, the daemon running, and the programs that the guide uses. It has no network, and has not
# been used before. The reader's home contains what the page assumes: a checkout, a guest's disk. guide-inside.sh and
# guide-session.sh run in it.
#
# The system is a tree that is built once and kept, not this machine's own root, which may be another Debian, may have a
# netvale of its own, and has services and accounts that no reader has. All sessions run on Debian 12; root's sessions
# with the pages that are read first also run on Debian 13, and pages that need newer programs run there only.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"

# The time limit of a session in seconds: guests are emulated, which takes minutes on a busy machine.
session_limit=1500

# The programs that the guide's pages use. Recommended packages are left out.
programs_bookworm=(dbus-user-session sudo acl curl jq make ethtool iperf3 tcpdump tshark ngrep tcpreplay python3-scapy python3-venv
    python3-setuptools python3-wheel python3-pip gcc libc6-dev pkg-config podman crun uidmap slirp4netns containernetworking-plugins
    qemu-system-x86 qemu-utils libvirt-daemon-system libvirt-clients frr openssh-client
    # These build the guests' disk.
    syslinux mtools dosfstools)
programs_trixie=(dbus-user-session sudo acl curl make iperf3 tcpdump podman crun uidmap netavark passt)
trixie_pages=(README.md docs/guide/{install,first-switch,service}.md)
trixie_only=(docs/guide/podman.md)

# Everything is created in a memory file system that no other process sees and that disappears with the script, however
# it ends.
work=$target_dir/guide
if [ -z "${NETVALE_UNSHARED:-}" ] && [ "$(id -u)" = 0 ]; then
    mkdir -p "$work"
    NETVALE_UNSHARED=1 exec unshare --mount --propagation private "$root/scripts/guide-commands.sh" "$@"
fi

fail() {
    echo "guide-commands.sh: $*" >&2
    exit 1
}

# list PAGE: prints its sessions as READER|STATE|SHELL; fails if the page breaks a rule.
list() {
    awk -f scripts/guide-page.awk "$1"
}

# check_pages PAGE…: checks the rules that need no container.
check_pages() {
    local page name found='' listed broken=0
    for page in "$@"; do
        [ -r "$page" ] || fail "cannot read the page $page"
        listed=$(list "$page") || { grep -v '^[a-z]*|' <<<"$listed" >&2; broken=1; }
        found+=$(cut -d'|' -f1 <<<"$listed")$'\n'
    done
    [ "$broken" = 0 ] || exit 1
    # Together, the pages of the guide must be for all readers.
    [ "$all" = 1 ] || return 0
    for name in root member user rootless; do grep -qx "$name" <<<"$found" || fail "no page is for: $name"; done
}

# is_run PAGE RELEASE READER
is_run() {
    [[ " ${trixie_only[*]} " != *" $1 "* ]] || { [ "$2" = trixie ]; return; }
    [ "$2" = bookworm ] || { [ "$3" = root ] && [[ " ${trixie_pages[*]} " == *" $1 "* ]]; }
}

# sessions PAGE…: all of them, as PAGE|RELEASE|READER|STATE|SHELL. Those with guests take the longest, and come first.
sessions() {
    local page reader state shell release
    for page in $(grep -l 'qcow2' "$@") $(grep -L 'qcow2' "$@"); do
        while IFS='|' read -r reader state shell; do
            case ,${READERS:-$reader}, in *",$reader,"*) ;; *) continue ;; esac
            for release in bookworm trixie; do
                case ,${RELEASES:-$release}, in *",$release,"*) ;; *) continue ;; esac
                is_run "$page" "$release" "$reader" || continue
                echo "$page|$release|$reader|$state|$shell"
            done
        done < <(list "$page")
    done
}

make_debs() {
    debs=${DEBS:-}
    [ -z "$debs" ] || return 0
    debs=$work/debs
    PROFILE=test scripts/package.sh deb "$debs" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "no packages"; }
}

# make_checkout FOLDER: what a reader has who has cloned the repository, built the packages and the image, and run
# `make build`.
make_checkout() {
    local file
    mkdir -p "$1/target/packages" "$1/target/release"
    git ls-files -z | tar --null --files-from=- --create --ignore-failed-read 2>/dev/null | tar -x -C "$1"
    cp "$debs"/*.deb "$1/target/packages/"
    for file in netvale netvale-cni libnetmap.so libnetmap.a libnetvale_pcap.so; do
        strip --strip-debug -o "$1/target/release/$file" "$target_dir/debug/$file"
    done
    NETVALE=$target_dir/debug/netvale scripts/package-image.sh "$1/target/packages/netvale-image.tar" >/dev/null
}

# make_disk MACHINE: creates a disk in the machine that boots by itself, as the disks of a reader's guests do: a kernel
# and a small system, with a shell on the serial line; and a second one for a guest without message-signalled
# interrupts. The machine has the programs that create them.
make_disk() {
    local guest drivers dir=$1/tmp/disk
    guest=$(scripts/guest-image.sh) || fail "no kernel for guests"
    drivers=$(scripts/guest-driver.sh) || fail "no driver for guests"
    mkdir -p "$dir"
    printf 'default linux\nlabel linux\nkernel vmlinuz\nappend initrd=initrd console=ttyS0 quiet panic=-1 no_timer_check\n' >"$dir/syslinux.cfg"
    printf 'export PS1="guest# "\nexec busybox setsid busybox cttyhack sh -i\n' >"$dir/script"
    cp "$drivers/nvptnet.ko" "$guest/vmlinuz" "$dir/"
    (cd "$dir" && find script nvptnet.ko | cpio -o -H newc --quiet | gzip -1 | cat "$guest/base.cpio.gz" - >initrd)
    mount -t proc proc "$1/proc"
    chroot "$1" sh -ec 'cd /tmp/disk; truncate -s 64M raw; mkfs.vfat raw; syslinux --install raw; mcopy -i raw syslinux.cfg vmlinuz initrd ::
        qemu-img convert -O qcow2 raw /usr/share/guide/guest.qcow2
        sed -i "s/quiet/& pci=nomsi/" syslinux.cfg; mcopy -o -i raw syslinux.cfg ::
        qemu-img convert -O qcow2 raw /usr/share/guide/nomsi.qcow2' >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "no disk for guests"; }
    umount "$1/proc"
    rm -rf "$dir"
}

# layer NAME LOWER…: mounts an overlay $work/NAME over other folders, the upper ones first. (The kernel allows one
# overlay on another, and booted.sh adds it.)
layer() {
    local name=$1
    shift
    mkdir -p "$work/$name" "$work/layers/$name" "$work/layers/$name-work"
    mount -t overlay -o "lowerdir=$(IFS=: && echo "$*"),upperdir=$work/layers/$name,workdir=$work/layers/$name-work" overlay "$work/$name"
}

# make_machines RELEASE: creates the folders $work/bare-RELEASE, and $work/installed-RELEASE with the packages.
make_machines() {
    local new=$work/bare-$1 tree programs="programs_$1[@]"
    tree=$(scripts/package-tree.sh "$1" guide "${!programs}")
    layer "bare-$1" "$tree"
    chroot "$new" useradd --create-home --uid 1000 --shell /bin/bash reader
    echo 'reader ALL=(ALL) NOPASSWD: ALL' >"$new/etc/sudoers.d/reader"
    echo guide >"$new/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 guide\n::1 localhost ip6-localhost\n' >"$new/etc/hosts"
    # The container's control groups have no controllers if this machine's own systemd uses them.
    printf '[containers]\npids_limit = 0\n' >"$new/etc/containers/containers.conf"
    # podman cannot mount overlays on the container's own overlay.
    printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' >"$new/etc/containers/storage.conf"
    # Debian's packages start these at boot. A page that needs one starts it itself; libvirt's sockets start libvirt.
    rm -f "$new"/etc/systemd/system/multi-user.target.wants/{libvirtd,libvirt-guests,frr,podman*}.service
    mkdir -p "$new/usr/share/guide"
    cp -r "$work/checkout" "$new/usr/share/guide/netvale"
    [ "$1" != bookworm ] || make_disk "$new"
    layer "installed-$1" "$work/layers/bare-$1" "$tree"
    new=$work/installed-$1
    cp "$debs"/{netvale,libnetmap0,libnetmap-dev}_*.deb "$new/tmp/"
    chroot "$new" sh -c 'DEBIAN_FRONTEND=noninteractive dpkg -i /tmp/*.deb && rm /tmp/*.deb' >"$work/log" 2>&1 </dev/null ||
        { cat "$work/log" >&2; fail "the packages cannot be installed"; }
}

# has PAGE: prints what the reader has, according to the page.
has() {
    grep -q 'a checkout' "$1" && echo netvale
    grep -o '[a-z0-9]*\.qcow2' "$1" | sort -u
    grep -q 'pci=nomsi' "$1" && echo nomsi
    grep -q 'QEMU 10.1 or newer' "$1" && echo qemu
    true
}

# session PAGE RELEASE READER STATE SHELL: runs a session in a process of its own, which ends with the script, and the
# container with it.
session() {
    local folder start=$SECONDS options=() status=0 name what things container
    name=$(basename "$1" .md)-$3-$2
    what="$1 as $3"
    [ "$2" = bookworm ] || what+=" on $2"
    folder=$work/sessions/$name
    mkdir -p "$folder/page"
    awk -v folder="$folder/page" -v user="$3" -f scripts/guide-page.awk "$1"
    things=$(has "$1" | xargs)
    case " $things " in *" qemu "*) options+=(--bind-ro "$(scripts/newer-debian.sh):/opt/qemu") ;; esac
    # The container's privileges: in it root is root, a sandbox works, and users can run containers of their own.
    options+=(--nspawn --capability=all
        --nspawn '--system-call-filter=@keyring bpf landlock_create_ruleset landlock_add_rule landlock_restrict_self')
    # shellcheck disable=SC2086 # names
    scripts/booted.sh --limit "$session_limit" --bind-ro "$folder/page:/guide/page" --bind-ro "$root/scripts/guide-session.sh:/guide/session" \
        "${options[@]}" "$work/$4-$2" scripts/guide-inside.sh "$3" "$5" $things >"$folder/log" 2>&1 </dev/null &
    container=$!
    trap 'kill "$container" 2>/dev/null; wait; exit 143' TERM INT HUP
    wait "$container" || status=$?
    [ -z "${KEEP:-}" ] || cp "$folder/log" "$KEEP/$name.log"
    if [ "$status" = 0 ]; then
        echo "$what: $(grep -E '^[0-9]+ blocks$' "$folder/log"), $((SECONDS - start)) s"
    else
        sed 's/^/    /' "$folder/log"
        echo "$what: FAILED (status $status) after $((SECONDS - start)) s"
        exit 1
    fi
}

if [ "${1:-}" = --session ]; then
    shift
    session "$@"
    exit
fi

all=0
[ $# -gt 0 ] || { all=1 && set -- README.md docs/guide/*.md; }
check_pages "$@"
[ "$(id -u)" = 0 ] || skip "booting a container requires root; the pages follow the rules"
have systemd-nspawn && have debootstrap || skip "systemd-container and debootstrap are not installed (scripts/install-deps.sh test)"

finish() {
    trap '' INT TERM HUP
    # shellcheck disable=SC2046 # numbers
    kill $(jobs -p) 2>/dev/null || true
    wait || true
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mount -t tmpfs -o mode=755 tmpfs "$work"
sessions "$@" >"$work/sessions-todo"
[ -s "$work/sessions-todo" ] || fail "no session for these pages with the given READERS and RELEASES"
make_debs
make_checkout "$work/checkout"
for release in $(cut -d'|' -f2 "$work/sessions-todo" | sort -u); do make_machines "$release"; done

running=0 failed=0
while IFS='|' read -r -u 8 page release reader state shell; do
    if [ "$running" -ge "${JOBS:-2}" ]; then
        wait -n || failed=$((failed + 1))
        running=$((running - 1))
    fi
    setpriv --pdeathsig TERM scripts/guide-commands.sh --session "$page" "$release" "$reader" "$state" "$shell" 8<&- &
    running=$((running + 1))
done 8<"$work/sessions-todo"
while [ "$running" -gt 0 ]; do
    wait -n || failed=$((failed + 1))
    running=$((running - 1))
done
echo "sessions: $(wc -l <"$work/sessions-todo"), of which $failed failed"
sort -u "$work"/sessions/*/page/ignored 2>/dev/null | sed 's/^/not run: /' || true
[ "$failed" = 0 ]
