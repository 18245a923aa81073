#!/usr/bin/env bash
# guide-commands.sh [PAGE…]: runs the commands of the guide (README.md and docs/guide/*.md) as they are printed, by those that each page is
# for, so that what a reader copies works. CONTRIBUTING.md says what a page has to say, and how its blocks are marked.
#
#   READERS=root,member  only these of a page's readers (root, member, user, rootless)
#   DEBS=FOLDER          packages that are there already; otherwise they are made of what PROFILE=test builds
#   JOBS=2               sessions at a time
#   KEEP=FOLDER          what each session wrote stays there
#
# Each page, for each of its readers, is a session of its own: a Debian 12 that systemd boots in a container (booted.sh), with the packages
# installed, the daemon running, and the programs that the guide uses. It has no network, and nobody has used it before. The reader's
# home has what the page says that its reader has: a checkout, a guest's disk. What runs in it is in guide-inside.sh and guide-session.sh.
#
# The system is a tree that is made once and kept, not this machine's own root: that one may be another Debian, may have a netvale of its
# own, and has services and accounts that no reader has.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"

# Seconds for a session; a page with guests that are emulated takes minutes on a busy machine.
session_limit=600

# What the guide's pages use. Recommended packages are left out.
programs=(dbus-user-session sudo acl curl jq make ethtool iperf3 tcpdump tshark ngrep tcpreplay python3-scapy python3-venv python3-setuptools
    python3-wheel python3-pip gcc libc6-dev pkg-config podman crun uidmap slirp4netns containernetworking-plugins
    qemu-system-x86 qemu-utils libvirt-daemon-system libvirt-clients frr nfdump nfdump-sflow openssh-client)
# For the guests' disk.
programs+=(syslinux mtools dosfstools)

# Mounts that nobody else sees, and that end with the script.
if [ -z "${NETVALE_UNSHARED:-}" ] && [ "$(id -u)" = 0 ]; then
    NETVALE_UNSHARED=1 exec unshare --mount --propagation private "$root/scripts/guide-commands.sh" "$@"
fi

fail() {
    echo "guide-commands.sh: $*" >&2
    exit 1
}

# check_pages PAGE…: the rules that need no container. Writes to $work/readers: PAGE|READER|STATE|SHELL.
check_pages() {
    local page name broken=0
    for page in "$@"; do
        [ -r "$page" ] || fail "there is no page $page"
        if awk -f scripts/guide-page.awk "$page" >"$work/checked"; then
            sed "s|^|$page\||" "$work/checked" >>"$work/readers"
        else
            grep -v '|' "$work/checked" || true
            broken=1
        fi
    done
    [ "$broken" = 0 ] || exit 1
    # The whole guide is for all of them.
    if [ "$all" = 1 ]; then
        for name in root member user rootless; do
            cut -d'|' -f2 "$work/readers" | grep -qx "$name" || fail "no page is for: $name"
        done
    fi
}

make_debs() {
    debs=${DEBS:-}
    [ -z "$debs" ] || return 0
    debs=$work/debs
    PROFILE=test scripts/package.sh deb "$debs" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "no packages"; }
}

# make_checkout FOLDER: what a reader has who has cloned the repository, and made the packages, the image, and what `make build` makes.
make_checkout() {
    mkdir -p "$1/target/packages"
    git ls-files -z | tar --null --files-from=- --create --ignore-failed-read 2>/dev/null | tar -x -C "$1"
    cp "$debs"/*.deb "$1/target/packages/"
    local file
    mkdir "$1/target/release"
    for file in netvale netvale-cni libnetmap.so libnetmap.a libnetvale_pcap.so; do
        cp "$target_dir/debug/$file" "$1/target/release/"
        strip --strip-debug "$1/target/release/$file"
    done
    NETVALE=$target_dir/debug/netvale scripts/package-image.sh "$(realpath "$1")/target/packages/netvale-image.tar" >/dev/null
}

# make_disk MACHINE: puts a disk there that boots by itself, as the disks of a reader's guests do: a kernel and a small system, with a shell on
# the serial line. The machine has the programs that make it.
make_disk() {
    local guest drivers dir=$1/tmp/disk
    guest=$(scripts/guest-image.sh) || fail "no kernel for guests"
    drivers=$(scripts/guest-driver.sh) || fail "no driver for guests"
    mkdir -p "$dir/more"
    # QEMU 7.2 crashes under emulation when a vhost-user device has interrupts by message.
    printf 'default linux\nlabel linux\nkernel vmlinuz\nappend initrd=initrd console=ttyS0 quiet panic=-1 pci=nomsi\n' >"$dir/syslinux.cfg"
    printf 'export PS1="guest# "\necho "the guest is up"\nexec busybox setsid busybox cttyhack sh -i\n' >"$dir/script"
    cp "$drivers/nvptnet.ko" "$dir/"
    (cd "$dir" && find script nvptnet.ko | cpio -o -H newc --quiet | gzip -1 | cat "$guest/base.cpio.gz" - >initrd)
    cp "$guest/vmlinuz" "$dir/"
    mount -t proc proc "$1/proc"
    chroot "$1" sh -ec 'cd /tmp/disk; truncate -s 64M raw; mkfs.vfat raw; syslinux --install raw; mcopy -i raw syslinux.cfg vmlinuz initrd ::
        qemu-img convert -O qcow2 raw /usr/share/guide/guest.qcow2' >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "no disk for guests"; }
    umount "$1/proc"
    rm -rf "$dir"
}

# layer NAME LOWER…: a folder $work/NAME over other ones, the upper ones first. (The kernel lets overlays lie on overlays once, which
# booted.sh does.)
layer() {
    local name=$1
    shift
    mkdir -p "$work/$name" "$work/layers/$name" "$work/layers/$name-work"
    mount -t overlay -o "lowerdir=$(IFS=: && echo "$*"),upperdir=$work/layers/$name,workdir=$work/layers/$name-work" overlay "$work/$name"
}

# The two machines: $work/bare, and $work/installed with the packages.
make_machines() {
    local new=$work/bare
    layer bare "$tree"
    chroot "$new" useradd --create-home --uid 1000 --shell /bin/bash reader
    echo 'reader ALL=(ALL) NOPASSWD: ALL' >"$new/etc/sudoers.d/reader"
    echo guide >"$new/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 guide\n::1 localhost ip6-localhost\n' >"$new/etc/hosts"
    # The container's control groups may have no controllers: those of this machine's are wherever its own systemd has them.
    printf '[containers]\npids_limit = 0\n' >"$new/etc/containers/containers.conf"
    # Overlays as podman makes them do not lie on the container's own one.
    printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' >"$new/etc/containers/storage.conf"
    # Debian's packages start these. Who reads a page that needs one finds it running, or starts it.
    rm -f "$new"/etc/systemd/system/multi-user.target.wants/{libvirtd,libvirt-guests,frr,nfdump,podman*}.service
    mkdir -p "$new/usr/share/guide"
    make_checkout "$new/usr/share/guide/netvale"
    make_disk "$new"
    layer installed "$work/layers/bare" "$tree"
    new=$work/installed
    cp "$debs"/{netvale,libnetmap0,libnetmap-dev}_*.deb "$new/tmp/"
    chroot "$new" sh -c 'DEBIAN_FRONTEND=noninteractive dpkg -i /tmp/*.deb && rm /tmp/*.deb' >"$work/log" 2>&1 </dev/null ||
        { cat "$work/log" >&2; fail "the packages cannot be installed"; }
}

# has PAGE: what its reader has, by what it says.
has() {
    grep -q 'a checkout' "$1" && echo netvale
    grep -o '[a-z0-9]*\.qcow2' "$1" | sort -u
    grep -q 'QEMU 10.1 or newer' "$1" && echo qemu
    true
}

# session PAGE READER STATE SHELL
session() {
    local folder start=$SECONDS options=() status=0 name things
    name=$(basename "$1" .md)-$2
    folder=$work/sessions/$name
    mkdir -p "$folder/page"
    awk -v folder="$folder/page" -v user="$2" -f scripts/guide-page.awk "$1" >"$folder/log" || { cat "$folder/log"; return 1; }
    things=$(has "$1" | xargs)
    case " $things " in *" qemu "*) options+=(--bind-ro "$(scripts/newer-debian.sh):/opt/qemu") ;; esac
    # shellcheck disable=SC2086 # names
    scripts/booted.sh --limit "$session_limit" --bind-ro "$folder/page:/guide/page" --bind-ro "$root/scripts/guide-session.sh:/guide/session" \
        --nspawn --capability=all --nspawn '--system-call-filter=@keyring bpf landlock_create_ruleset landlock_add_rule landlock_restrict_self' "${options[@]}" "$work/$3" scripts/guide-inside.sh "$2" "$4" $things \
        >"$folder/log" 2>&1 </dev/null || status=$?
    [ -z "${KEEP:-}" ] || cp "$folder/log" "$KEEP/$name.log"
    if [ "$status" = 0 ]; then
        echo "$1 as $2: $(grep -E '^[0-9]+ blocks$' "$folder/log"), $((SECONDS - start)) s"
    else
        sed 's/^/    /' "$folder/log"
        echo "$1 as $2: FAILED (status $status) after $((SECONDS - start)) s"
        touch "$work/failed"
    fi
}

work=$(mktemp -d)
finish() {
    trap '' INT TERM
    kill $(jobs -p) 2>/dev/null || true
    wait || true
    umount "$work/installed" "$work/bare/proc" "$work/bare" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

all=0
[ $# -gt 0 ] || { all=1 && set -- README.md docs/guide/*.md; }
check_pages "$@"
[ "$(id -u)" = 0 ] || skip "booting a container takes root; the pages keep to the rules"
have systemd-nspawn && have debootstrap || skip "systemd-container and debootstrap are not installed (scripts/install-deps.sh test)"
tree=$(scripts/package-tree.sh bookworm guide "${programs[@]}")
make_debs
make_machines

running=0
while IFS='|' read -r -u 8 page reader state shell; do
    case ,${READERS:-$reader}, in *",$reader,"*) ;; *) continue ;; esac
    if [ "$running" -ge "${JOBS:-2}" ]; then
        wait -n || true
        running=$((running - 1))
    fi
    session "$page" "$reader" "$state" "$shell" &
    running=$((running + 1))
done 8<"$work/readers"
wait
# What is not run, once for all readers.
sort -u "$work"/sessions/*/page/ignored 2>/dev/null | wc -l | sed 's/^/blocks not run, for the reasons that stand beside them: /'
[ ! -e "$work/failed" ]
