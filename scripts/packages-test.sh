#!/usr/bin/env bash
# packages-test.sh [TEST…]: builds the packages and tests them as users get them: in a Debian 12 and a Debian 13 that
# systemd boots in a container (booted.sh), without a compiler and without a network; on a full disk; as an image under
# podman; and `make install`.
#
#   PROFILE=test         the build profile of the packaged programs
#   DEBS=FOLDER          existing packages
#   NETVALE=FILE         the program for the image; without it, a static one is built
#   RELEASES=…           other Debian releases than "bookworm trixie"
#
# packages-inside.sh runs in the containers. Nothing on this machine is changed, and nothing is left, however the script
# ends. Two may run at once.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"

# remove_after FOLDER LEADER: waits for the end of the script that holds the other end of the pipe, kills the tests'
# processes, and removes the folder. Mounts are the tests' own.
remove_after() {
    trap '' INT TERM HUP
    cat >/dev/null
    kill -KILL -- "-$(cat "$1/leader" 2>/dev/null)" 2>/dev/null || true
    until rm -rf "$1" 2>/dev/null; do sleep 0.1; done
}

# supervise TEST…: runs the tests in a session and with mounts of their own, which end with this script.
supervise() {
    local cleaner tests status=0
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    exec {alive}> >(exec setsid "$BASH" -c "$(declare -f remove_after); remove_after '$1'")
    cleaner=$!
    trap 'exec {alive}>&-; wait "$cleaner" || true' EXIT
    NETVALE_WORK=$1 setpriv --pdeathsig KILL setsid unshare --mount --propagation private "$root/scripts/packages-test.sh" "${@:2}" \
        {alive}>&- </dev/null &
    tests=$!
    wait "$tests" || status=$?
    exit "$status"
}

export PROFILE=${PROFILE:-test}
if [ -z "${NETVALE_WORK:-}" ]; then
    [ "$(id -u)" = 0 ] || skip "installing packages requires root"
    supervise "$(mktemp -d)" "$@"
fi
work=$NETVALE_WORK
unset NETVALE_WORK
echo $$ >"$work/leader"
case $PROFILE in dev | test) built=$target_dir/debug ;; *) built=$target_dir/$PROFILE ;; esac

say() { printf '%s: %s\n' "$1" "$2"; }
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# older DEB VERSION FOLDER: creates the same package with an older version.
older() {
    dpkg-deb -R "$1" "$work/older"
    sed -i "s/^Version: .*/Version: $2/; s/libnetmap0 (= [^)]*)/libnetmap0 (= $2)/" "$work/older/DEBIAN/control"
    mkdir -p "$3"
    dpkg-deb --root-owner-group -Zgzip -z1 -b "$work/older" "$3" >/dev/null
    rm -rf "$work/older"
}

# What `make install` installs, without debugging symbols, as it is copied often.
strip_built() {
    mkdir "$work/built"
    cp "$built"/{netvale,netvale-cni,libnetmap.so,libnetmap.a,libnetvale_pcap.so} "$work/built/"
    strip --strip-debug "$work"/built/*
    built=$work/built
}

make_debs() {
    [ -z "${DEBS:-}" ] || { mkdir "$work/debs"; cp "$DEBS"/*.deb "$work/debs/"; }
    [ -n "${DEBS:-}" ] || scripts/package.sh deb "$work/debs" >/dev/null
    older "$work"/debs/netvale_*.deb 0.0.9-1 "$work/older-debs"
    older "$work"/debs/libnetmap0_*.deb 0.0.9-1 "$work/older-debs"
}

test_lintian() {
    have lintian || fail "lintian is not installed (scripts/install-deps.sh test-system)"
    # There is no bug that the first upload could close.
    lintian --allow-root --fail-on error --suppress-tags initial-upload-closes-no-bugs --profile debian "$work"/debs/*.deb ||
        fail "lintian has errors"
    say lintian "$(find "$work/debs" -name '*.deb' | wc -l) packages without errors"
}

# A program compiled with libnetmap-dev must link to the library of libnetmap0.
test_development() {
    local dir=$work/dev tuple libraries
    tuple=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    dpkg-deb -x "$work"/debs/libnetmap-dev_*.deb "$dir"
    dpkg-deb -x "$work"/debs/libnetmap0_*.deb "$dir"
    printf '#include <libnetmap.h>\n#include <netvale.h>\nint main(void) { return nmport_open("netmap:nothing") != 0; }\n' >"$work/program.c"
    cc -o "$work/program" "$work/program.c" -I"$dir/usr/include" -L"$dir/usr/lib/$tuple" -lnetmap
    readelf -d "$work/program" | grep 'NEEDED.*\[libnetmap\.so\.0\]' >/dev/null || fail "the program is not linked to libnetmap.so.0"
    grep -qx "libdir=\${prefix}/lib/$tuple" "$dir/usr/lib/$tuple/pkgconfig/libnetmap.pc" || fail "libnetmap.pc names another folder"
    LD_LIBRARY_PATH=$dir/usr/lib/$tuple "$work/program" 2>/dev/null || fail "the program opened a port that does not exist"
    # The static library in the program, with the libraries that pkg-config lists.
    libraries=$(PKG_CONFIG_SYSROOT_DIR=$dir PKG_CONFIG_LIBDIR=$dir/usr/lib/$tuple/pkgconfig pkg-config --cflags --libs --static libnetmap)
    # shellcheck disable=SC2086 # words
    cc -o "$work/static" "$work/program.c" ${libraries/-lnetmap/-l:libnetmap.a} || fail "no program with the static library"
    ! readelf -d "$work/static" | grep netmap >/dev/null || fail "the program needs libnetmap.so.0"
    "$work/static" 2>/dev/null || fail "the program with the static library opened a port that does not exist"
    say development "programs are linked to libnetmap.so.0, and to libnetmap.a"
}

# dkms builds the packaged sources for the guests' kernel.
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

# inside RELEASE: runs packages-inside.sh in that Debian, with its output in a file.
inside() {
    local tree limit=600
    tree=$(scripts/package-tree.sh "$1") || return 1
    setpriv --pdeathsig KILL scripts/booted.sh --limit "$limit" --console "$work/console-$1" --bind-ro "$work/debs:/test/debs" \
        --bind-ro "$work/older-debs:/test/older" --bind-ro "$root/scripts/packages-kinds.sh:/test/kinds.sh" \
        --bind-ro "$root/scripts/packages-kinds.txt:/test/kinds.txt" --bind-ro "$root:/src" --bind-ro "$built:/built" \
        "$tree" scripts/packages-inside.sh >"$work/log-$1" 2>&1
}

# The containers run in parallel, and beside other tests.
begin_containers() {
    local release
    for release in $releases; do
        { inside "$release" && echo fine >"$work/outcome-$release"; } &
        containers+=("$!")
    done
}

test_container() {
    local release container failed=0
    [ ${#containers[@]} -gt 0 ] || begin_containers
    for release in $releases; do
        container=${containers[0]} containers=("${containers[@]:1}")
        # If its process number has been reused, the shell no longer knows the container.
        wait "$container" 2>/dev/null || true
        if [ -e "$work/outcome-$release" ]; then
            sed -n "s/^container:/$release:/p" "$work/log-$release"
        else
            cat "$work/log-$release" >&2
            echo "FAILED: packages-inside.sh in $release" >&2
            failed=1
        fi
    done
    [ "$failed" = 0 ]
}

# listing FOLDER: lists all files in it, with modes, links and contents.
listing() {
    (cd "$1" && find . -printf '%y %m %p %l\n' | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

# names_in FOLDER…: the names of netvale's files, without their folders: packages use other folders for some, and
# compress manual pages.
names_in() {
    (cd "$1" && find . ! -type d -printf '%f\n') | sed 's/\.gz$//' | sort -u
}

# `make install` twenty times, on a machine with many libraries: each run completes and installs the same, which is
# everything that the packages contain.
test_install() {
    local dir=$work/install tools=$work/tools run program package lacks
    mkdir -p "$tools" "$dir/packed"
    # Root often has no Rust.
    for program in bash sh sed awk mktemp rm mkdir install chmod ln dirname cat env uname; do ln -s "$(command -v $program)" "$tools/"; done
    cat >"$tools/ldconfig" <<'PROGRAM'
#!/bin/sh
echo "	libpcap.so.0.8 (libc6,x86-64) => /usr/lib/libpcap.so.0.8"
exec awk 'BEGIN { for (i = 0; i < 20000; i++) print "\tlibother" i ".so.1 (libc6,x86-64) => /usr/lib/libother.so." i }'
PROGRAM
    chmod 755 "$tools/ldconfig"
    for run in {1..20}; do
        PATH=$tools scripts/install.sh "$dir/$run" /usr/local "$built" >"$work/install.log" 2>&1 ||
            fail "install.sh, run $run: status $?: $(cat "$work/install.log")"
        listing "$dir/$run" >"$dir/$run.list"
        cmp "$dir/1.list" "$dir/$run.list" || fail "run $run installs something else: $(diff "$dir/1.list" "$dir/$run.list")"
        [ "$run" = 1 ] || rm -rf "${dir:?}/$run"
    done
    for package in netvale libnetmap0 libnetmap-dev; do dpkg-deb -x "$work"/debs/${package}_*.deb "$dir/packed"; done
    # Only a package contains changelogs and a copyright file.
    lacks=$(comm -13 <(names_in "$dir/1") <(names_in "$dir/packed") | grep -vx -e changelog -e changelog.Debian -e copyright || true)
    [ -z "$lacks" ] || fail "make install lacks files of the packages: $lacks"
    lacks=$(comm -23 <(names_in "$dir/1") <(names_in "$dir/packed"))
    [ -z "$lacks" ] || fail "the packages lack files of make install: $lacks"
    # In the scripts, the reader of a pipe must read to its end.
    ! grep -nE '\| *(head\b|grep (-[A-Za-z]+ )*-[A-Za-z]*[qm])|\|.*\bexit *\}' scripts/install*.sh scripts/package*.sh scripts/booted.sh scripts/lib.sh \
        dist/rpm/* dist/debian/*/* || fail "these end before the writer of their pipe, which SIGPIPE then kills"
    say install "twenty identical runs, with everything that the packages contain"
}

# When interrupted at any moment, booted.sh leaves nothing behind.
test_interrupted() {
    local tree signal after process left until
    tree=$(scripts/package-tree.sh bookworm)
    echo 'sleep 60' >"$work/sleeps"
    for signal in INT TERM KILL; do
        for after in 0.05 0.3 2; do
            # In a session of its own, it reacts to Ctrl-C.
            env --default-signal=INT setsid scripts/booted.sh "$tree" "$work/sleeps" >/dev/null 2>&1 &
            process=$!
            sleep "$after"
            kill "-$signal" "$process"
            wait "$process" 2>/dev/null || true
            until=$((SECONDS + 60))
            until left=$(left_of "$process") && [ -z "$left" ]; do
                [ "$SECONDS" -lt "$until" ] || fail "SIG$signal after $after s leaves: $left"
                sleep 0.1
            done
        done
    done
    say interrupted "containers leave nothing behind"
}

# left_of PID: prints what is left of that booted.sh.
left_of() {
    find /sys/fs/cgroup -maxdepth 2 -name "netvale-booted-$1"
    pgrep -af -- "netvale-booted-$1" || true
    grep -l "netvale-booted-$1" /proc/[0-9]*/mounts 2>/dev/null || true
}

# The disk is full in the middle of an upgrade and of an installation: the old version stays usable, and the next
# attempt succeeds.
test_full_disk() {
    local disk=$work/disk new=$work/disk/root
    mkdir "$disk"
    mount -t tmpfs -o size=200m tmpfs "$disk"
    mkdir "$disk/upper" "$disk/work" "$new"
    mount -t overlay -o "lowerdir=$tree,upperdir=$disk/upper,workdir=$disk/work" overlay "$new"
    cp "$work"/debs/{netvale_,libnetmap0_}*.deb "$new/tmp/"
    in_root() { chroot "$new" env DEBIAN_FRONTEND=noninteractive "$@"; }
    # install VERSION: installs the packages with that version from the tree's /tmp.
    install() { chroot "$new" sh -c "DEBIAN_FRONTEND=noninteractive dpkg -i /tmp/libnetmap0_$1* /tmp/netvale_$1*" >"$work/full.log" 2>&1; }
    leave() { mount -o "remount,size=$(($(df -k --output=used "$disk" | tail -n 1) + $1))k" "$disk"; }
    space() { mount -o remount,size=200m "$disk"; }
    status() { in_root dpkg-query -W -f='${db:Status-Status} ${Version}' netvale 2>/dev/null || true; }

    leave 5000
    ! install 0.1 || fail "the installation did not fill the disk"
    grep -q 'No space left' "$work/full.log" || { cat "$work/full.log" >&2; fail "the installation failed for a reason other than the disk"; }
    [ ! -e "$new/usr/bin/netvale" ] || fail "a failed installation left the program"
    case $(status) in 'installed '* | *half*) fail "dpkg thinks: $(status)" ;; esac
    space
    cp "$work"/older-debs/*.deb "$new/tmp/"
    install 0.0.9 || { cat "$work/full.log" >&2; fail "the second attempt failed"; }
    leave 5000
    ! install 0.1 || fail "the upgrade did not fill the disk"
    in_root netvale --version >/dev/null || fail "after a failed upgrade, the program does not run"
    [ -z "$(find "$new/usr" -name '*.dpkg-new')" ] || fail "incomplete files were left"
    space
    install 0.1 || { cat "$work/full.log" >&2; fail "the second attempt at the upgrade failed"; }
    [ -z "$(in_root dpkg --audit)" ] || fail "$(in_root dpkg --audit)"
    case $(status) in 'installed 0.1'*) ;; *) fail "dpkg thinks: $(status)" ;; esac
    say disk "full in the middle of an installation and of an upgrade"
}

# outside PATH TARGET: prints the output of a make that no other make has started.
outside() {
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS PATH="$1" make "$2" 2>&1
}

# Before they install anything, targets report that Rust is missing or too old.
test_toolchain() {
    local fake=$work/toolchain target said
    mkdir -p "$fake"
    # Only if the distribution has no cargo either.
    [ -e /usr/bin/cargo ] || for target in build deb rpm static image demo; do
        said=$(outside /usr/bin:/bin "$target") && fail "make $target without cargo"
        [ "$(head -n 1 <<<"$said" | cut -d: -f1)" = "cargo is missing" ] || fail "make $target without cargo: $said"
    done
    printf '#!/bin/sh\necho "cargo 1.63.0"\n' >"$fake/cargo"
    chmod +x "$fake/cargo"
    said=$(outside "$fake:/usr/bin:/bin" deb) && fail "make deb with an old cargo"
    [[ $said == "cargo 1.63.0 is too old"*"requires Rust 1."* ]] || fail "make deb with an old cargo: $said"
    say toolchain "missing tools are reported first"
}

# test_rpm: checks the contents of the packages, and an installation in a tree of its own.
test_rpm() {
    local dir=$work/rpm-root file
    NO_BUILD=1 scripts/package.sh rpm "$work/rpms" >/dev/null
    mkdir -p "$dir"
    # The scripts need a shell in the tree; their work is tested with the other packages.
    rpm --root "$dir" --install --nodeps --noscripts --ignorearch "$work"/rpms/*.rpm 2>"$work/rpm.log" || { cat "$work/rpm.log" >&2; fail "rpm --install"; }
    for file in usr/bin/netvale usr/bin/netvale-bench usr/lib/netvale/libnetmap.so.0 usr/lib64/libnetmap.so.0 usr/include/libnetmap.h usr/include/netvale.h usr/lib/netvale/netvale-cni \
        usr/share/man/man1/netvale.1.gz usr/share/man/man5/netvale.toml.5.gz usr/share/man/man7/netvale.7.gz \
        usr/share/doc/netvale/guide/policies.md usr/share/doc/netvale/reference/configuration.md usr/lib/systemd/system/netvale-web.service \
        usr/lib/systemd/system/netvale.socket usr/lib/sysusers.d/netvale.conf etc/netvale.toml; do
        [ -e "$dir/$file" ] || fail "the rpms lack $file"
    done
    [ "$(rpm -qp --configfiles "$work"/rpms/netvale-[0-9]*.rpm)" = /etc/netvale.toml ] || fail "the rpm does not mark /etc/netvale.toml as a configuration file"
    ! rpm -qp --requires "$work"/rpms/*.rpm | grep libpcap-system >/dev/null || fail "the rpm requires a file that it creates itself"
    "$dir/usr/bin/netvale" --version >/dev/null
    say rpm "$(find "$work/rpms" -name '*.rpm' | wc -l) packages are complete"
}

# frames_in_image PODMAN…: runs a daemon in a container, and two programs in it.
frames_in_image() {
    local name=netvale-test end=$((SECONDS + 90)) receiver
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

# by_podman PODMAN…: the same with processes and mounts that end with it.
by_podman() {
    export -f frames_in_image fail
    export image image_file work
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc bash -euo pipefail -c 'frames_in_image "$@"' - "$@"
}

# The image runs under podman, as root and as an ordinary user, without capabilities and without a network.
test_image() {
    local image image_file=$work/image.tar user=65534 home
    image=localhost/netvale:$(release)
    scripts/package-image.sh "$image_file" >/dev/null
    # crun supports either version of control groups, but not both at once.
    [ ! -d /sys/fs/cgroup/unified ] || { umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup; }
    by_podman podman --root "$work/podman/root" --runroot "$work/podman/run"
    # A user's files, in a place that the user may enter.
    home=$work/home
    chmod 711 "$work"
    mkdir -p "$home/run"
    cp "$image_file" "$home/image.tar"
    chown -R "$user:$user" "$home"
    image_file=$home/image.tar
    cd "$home"
    by_podman setpriv --reuid "$user" --regid "$user" --clear-groups env -i PATH="$PATH" HOME="$home" \
        XDG_RUNTIME_DIR="$home/run" podman --root "$home/storage" --runroot "$home/run/storage" --storage-driver vfs \
        --storage-opt vfs.ignore_chown_errors=true
    cd "$root"
    say image "frames between programs in a container, root's and an ordinary user's"
}

have systemd-nspawn || fail "systemd-nspawn is not installed (scripts/install-deps.sh test-system)"
releases=${RELEASES:-bookworm trixie}
containers=()
tests=("$@")
[ $# -gt 0 ] || tests=(toolchain lintian development dkms install full_disk rpm image container interrupted)
# One after the other: two at once would only wait for each other.
for release in $releases; do scripts/package-tree.sh "$release" >/dev/null; done
tree=$(scripts/package-tree.sh bookworm)
make_debs
strip_built
case " ${tests[*]} " in *' container '*) begin_containers ;; esac
for name in "${tests[@]}"; do "test_$name"; done
