#!/usr/bin/env bash
# packages-test.sh: makes the packages and tries them: in a small Debian 12 (package-tree.sh) that systemd boots in a container, without
# a compiler and without a network; on a disk that is full; as an image under podman.
#
#   PROFILE=test         the build profile of what is packed
#   DEBS=FOLDER          packages that are there already
#   NETVALE=FILE         the program in the image; without it, a static one is built
#
# What runs in the container is in packages-inside.sh. Nothing of this machine is changed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"

# Mounts that nobody else sees, and that end with the script.
if [ -z "${NETVALE_UNSHARED:-}" ] && [ "$(id -u)" = 0 ]; then
    NETVALE_UNSHARED=1 exec unshare --mount --propagation private "$root/scripts/packages-test.sh" "$@"
fi
export PROFILE=${PROFILE:-test}
work=$(mktemp -d)
undo=()
# Mounts and groups go in the order opposite to that in which they came.
cleanup() {
    local i
    for ((i = ${#undo[@]} - 1; i >= 0; i--)); do eval "${undo[i]}" || true; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '%s: %s\n' "$1" "$2"; }
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# older DEB VERSION FOLDER: the same package, as of an older version.
older() {
    dpkg-deb -R "$1" "$work/older"
    sed -i "s/^Version: .*/Version: $2/; s/libnetmap0 (= [^)]*)/libnetmap0 (= $2)/" "$work/older/DEBIAN/control"
    mkdir -p "$3"
    dpkg-deb --root-owner-group -Zgzip -b "$work/older" "$3" >/dev/null
    rm -rf "$work/older"
}

make_debs() {
    [ -z "${DEBS:-}" ] || { mkdir "$work/debs"; cp "$DEBS"/*.deb "$work/debs/"; }
    [ -n "${DEBS:-}" ] || scripts/package.sh deb "$work/debs" >/dev/null
    older "$work"/debs/netvale_*.deb 0.0.9-1 "$work/older-debs"
    older "$work"/debs/libnetmap0_*.deb 0.0.9-1 "$work/older-debs"
}

test_lintian() {
    have lintian || fail "lintian is not installed (scripts/install-deps.sh test)"
    # Nobody has filed a bug to be closed by the first upload.
    lintian --allow-root --fail-on error --suppress-tags initial-upload-closes-no-bugs --profile debian "$work"/debs/*.deb ||
        fail "lintian has errors"
    say lintian "$(find "$work/debs" -name '*.deb' | wc -l) packages without errors"
}

# A program compiled with what libnetmap-dev has is linked to what libnetmap0 has.
test_development() {
    local dir=$work/dev tuple
    tuple=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    dpkg-deb -x "$work"/debs/libnetmap-dev_*.deb "$dir"
    dpkg-deb -x "$work"/debs/libnetmap0_*.deb "$dir"
    printf '#include <libnetmap.h>\nint main(void) { return nmport_open("netmap:nothing") != 0; }\n' >"$work/program.c"
    cc -o "$work/program" "$work/program.c" -I"$dir/usr/include" -L"$dir/usr/lib/$tuple" -lnetmap
    readelf -d "$work/program" | grep -q 'NEEDED.*\[libnetmap\.so\.0\]' || fail "the program needs another library than libnetmap.so.0"
    grep -qx "libdir=\${prefix}/lib/$tuple" "$dir/usr/lib/$tuple/pkgconfig/libnetmap.pc" || fail "libnetmap.pc names another folder"
    LD_LIBRARY_PATH=$dir/usr/lib/$tuple "$work/program" 2>/dev/null || fail "the program opened a port that does not exist"
    say development "a program is linked to libnetmap.so.0"
}

# dkms builds the packed sources for the guests' kernel.
test_dkms() {
    local dir=$work/dkms kernel
    dpkg-deb -x "$work"/debs/netvale-dkms_*.deb "$dir"
    kernel=$(basename "$(find /usr/src -maxdepth 1 -name 'linux-headers-*-amd64' | sort -V | tail -n 1)")
    kernel=${kernel#linux-headers-}
    mkdir "$work/dkms-tree"
    dkms build -m nvptnet -v 0.1.0 -k "$kernel" --kernelsourcedir "/usr/src/linux-headers-$kernel" \
        --sourcetree "$dir/usr/src" --dkmstree "$work/dkms-tree" >"$work/dkms.log" 2>&1 || { cat "$work/dkms.log" >&2; fail "dkms cannot build the drivers"; }
    [ "$(find "$work/dkms-tree" -name 'nv*.ko*' | wc -l)" -ge 2 ] || fail "dkms built no modules"
    say dkms "both drivers are built for $kernel"
}

# own_group: puts this shell into control groups of its own, in which systemd-nspawn then makes its own; where systemd runs the machine,
# systemd does that.
own_group() {
    local hierarchy
    [ ! -d /run/systemd/system ] || return 0
    for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        [ -e "$hierarchy/cgroup.procs" ] || continue
        mkdir "$hierarchy/netvale-test-$$"
        echo "$BASHPID" >"$hierarchy/netvale-test-$$/cgroup.procs"
    done
}

remove_groups() {
    find /sys/fs/cgroup/*/netvale-test-$$ /sys/fs/cgroup/netvale-test-$$ -depth -type d -exec rmdir {} + 2>/dev/null || true
}

# test_container: systemd boots the tree, over which a memory file system lies, and runs packages-inside.sh as a service.
test_container() {
    local out=$work/out register=(--register=no --keep-unit)
    [ ! -d /run/systemd/system ] || register=(--register=no)
    mkdir "$out"
    cat >"$work/netvale-test.service" <<'UNIT'
[Unit]
Description=tests of the packages
[Service]
ExecStart=/bin/bash /test/inside
ExecStopPost=/bin/sh -c 'echo $EXIT_STATUS >/out/status; systemctl exit'
StandardOutput=append:/out/log
StandardError=append:/out/log
TimeoutStopSec=60
UNIT
    printf '[Unit]\nWants=netvale-test.service\n' >"$work/wants.conf"
    undo+=(remove_groups)
    (
        own_group
        exec timeout -k 10 400 systemd-nspawn --quiet --directory "$tree" --volatile=overlay --machine "netvale-$$" --boot \
            --private-network --console=pipe --capability=CAP_BPF "${register[@]}" --bind-ro="$work/debs:/test/debs" \
            --bind-ro="$work/older-debs:/test/older" --bind-ro="$root/scripts/packages-inside.sh:/test/inside" --bind="$out:/out" \
            --bind-ro="$work/netvale-test.service:/etc/systemd/system/netvale-test.service" \
            --bind-ro="$work/wants.conf:/etc/systemd/system/multi-user.target.d/wants.conf" \
            </dev/null >"$work/console" 2>&1
    ) || true
    if [ "$(cat "$out/status" 2>/dev/null)" != 0 ]; then
        tail -n 40 "$work/console" >&2
        cat "$out/log" >&2
        fail "packages-inside.sh"
    fi
    grep '^container: ' "$out/log"
}

# The disk is full in the middle of an upgrade, and of an installation: what was there stays usable, and the next attempt succeeds.
test_full_disk() {
    local disk=$work/disk new=$work/disk/root
    mkdir "$disk"
    mount -t tmpfs -o size=200m tmpfs "$disk"
    undo+=("umount '$disk'")
    mkdir "$disk/upper" "$disk/work" "$new"
    mount -t overlay -o "lowerdir=$tree,upperdir=$disk/upper,workdir=$disk/work" overlay "$new"
    undo+=("umount '$new'")
    cp "$work"/debs/{netvale_,libnetmap0_}*.deb "$new/tmp/"
    in_root() { chroot "$new" env DEBIAN_FRONTEND=noninteractive "$@"; }
    # install VERSION: with the names as the tree has them.
    install() { chroot "$new" sh -c "DEBIAN_FRONTEND=noninteractive dpkg -i /tmp/libnetmap0_$1* /tmp/netvale_$1*" >"$work/full.log" 2>&1; }
    leave() { mount -o "remount,size=$(($(df -k --output=used "$disk" | tail -n 1) + $1))k" "$disk"; }
    space() { mount -o remount,size=200m "$disk"; }
    status() { in_root dpkg-query -W -f='${db:Status-Status} ${Version}' netvale 2>/dev/null || true; }

    leave 5000
    ! install 0.1 || fail "there was room for all"
    grep -q 'No space left' "$work/full.log" || { cat "$work/full.log" >&2; fail "another reason than the disk"; }
    [ ! -e "$new/usr/bin/netvale" ] || fail "a program was left by an installation that failed"
    case $(status) in 'installed '* | *half*) fail "dpkg thinks: $(status)" ;; esac
    space
    cp "$work"/older-debs/*.deb "$new/tmp/"
    install 0.0.9 || { cat "$work/full.log" >&2; fail "no second attempt"; }
    leave 5000
    ! install 0.1 || fail "there was room for an upgrade"
    in_root netvale --version >/dev/null || fail "an upgrade that failed left no program"
    [ -z "$(find "$new/usr" -name '*.dpkg-new')" ] || fail "halves of files were left"
    space
    install 0.1 || { cat "$work/full.log" >&2; fail "the upgrade does not go on"; }
    [ -z "$(in_root dpkg --audit)" ] || fail "$(in_root dpkg --audit)"
    case $(status) in 'installed 0.1'*) ;; *) fail "dpkg thinks: $(status)" ;; esac
    say disk "full in the middle of an installation and of an upgrade"
}

# test_rpm: what is in the packages, and what they leave in a tree of their own.
test_rpm() {
    local dir=$work/rpm-root file
    NO_BUILD=1 scripts/package.sh rpm "$work/rpms" >/dev/null
    mkdir -p "$dir"
    # The scripts need a shell in the tree; what they do is tried with the other packages.
    rpm --root "$dir" --install --nodeps --noscripts --ignorearch "$work"/rpms/*.rpm 2>"$work/rpm.log" || { cat "$work/rpm.log" >&2; fail "rpm --install"; }
    for file in usr/bin/netvale usr/bin/netvale-bench usr/lib/netvale/libnetmap.so.0 usr/lib64/libnetmap.so.0 usr/include/libnetmap.h \
        usr/share/man/man1/netvale.1.gz usr/lib/systemd/system/netvale.socket usr/lib/sysusers.d/netvale.conf etc/netvale.toml; do
        [ -e "$dir/$file" ] || fail "the rpms lack $file"
    done
    [ "$(rpm -qp --configfiles "$work"/rpms/netvale-[0-9]*.rpm)" = /etc/netvale.toml ] || fail "the configuration is no configuration file"
    ! rpm -qp --requires "$work"/rpms/*.rpm | grep -q libpcap-system || fail "the rpm requires what it makes itself"
    "$dir/usr/bin/netvale" --version >/dev/null
    say rpm "$(find "$work/rpms" -name '*.rpm' | wc -l) packages are complete"
}

# frames_in_image PODMAN…: a daemon in a container, and two programs in it.
frames_in_image() {
    local name=netvale-test-$$ end=$((SECONDS + 90)) receiver
    stop_image() { "$@" rm --force --time 5 "$name" >/dev/null 2>&1 || true; }
    "$@" load --quiet --input "$image_file" >/dev/null
    "$@" run --detach --name "$name" --network none --cgroups=disabled --cap-drop all --read-only --tmpfs /run/netvale \
        --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "$image" >/dev/null
    until "$@" exec "$name" netvale list >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { "$@" logs "$name" >&2; stop_image "$@"; fail "no daemon in the container"; }
        sleep 0.1
    done
    "$@" exec "$name" netvale pkt-gen -i vale0:rx -f rx -n 1000 >"$work/image.log" 2>&1 &
    receiver=$!
    while kill -0 "$receiver" 2>/dev/null; do
        [ "$SECONDS" -lt "$end" ] || { "$@" logs "$name" >&2; stop_image "$@"; fail "no frames: $(cat "$work/image.log")"; }
        "$@" exec "$name" netvale pkt-gen -i vale0:tx -f tx -n 1000 >/dev/null 2>&1 || true
    done
    wait "$receiver" || fail "the receiver in a container: $(cat "$work/image.log")"
    stop_image "$@"
}

# The image runs under podman, of root and of an ordinary user, without a capability and without a network.
test_image() {
    local image image_file=$work/image.tar user=65534 home
    image=localhost/netvale:$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    scripts/package-image.sh "$image_file" >/dev/null
    # crun knows control groups of one kind or the other, not both.
    [ ! -d /sys/fs/cgroup/unified ] || { umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup; }
    undo+=("umount '$work'/podman/root/overlay/*/merged 2>/dev/null; umount '$work/podman/root/overlay' 2>/dev/null")
    frames_in_image podman --root "$work/podman/root" --runroot "$work/podman/run"
    # A user's files, where that user may look.
    home=$(mktemp -d /tmp/netvale-podman.XXXXXX)
    undo+=("rm -rf '$home'")
    mkdir "$home/run"
    cp "$image_file" "$home/image.tar"
    chown -R "$user:$user" "$home"
    image_file=$home/image.tar
    cd "$home"
    frames_in_image setpriv --reuid "$user" --regid "$user" --clear-groups env -i PATH="$PATH" HOME="$home" \
        XDG_RUNTIME_DIR="$home/run" podman --root "$home/storage" --runroot "$home/run/storage" --storage-driver vfs \
        --storage-opt vfs.ignore_chown_errors=true
    cd "$root"
    say image "frames between programs in a container, root's and an ordinary user's"
}

[ "$(id -u)" = 0 ] || { echo "skipped: installing packages needs root"; exit "$SKIPPED"; }
have systemd-nspawn || fail "systemd-nspawn is not installed (scripts/install-deps.sh test)"
tree=$(scripts/package-tree.sh)
make_debs
tests=("$@")
[ $# -gt 0 ] || tests=(lintian development dkms container full_disk rpm image)
for name in "${tests[@]}"; do "test_$name"; done
