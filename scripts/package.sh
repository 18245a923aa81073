#!/usr/bin/env bash
# package.sh deb|rpm [FOLDER]: builds the packages, and prints their paths. FOLDER: target/packages.
#
#   PROFILE=release      the build profile; the tests use an existing build
#   VERSION=0.1.0        a version other than that in Cargo.toml, for tests of upgrades
#   NO_BUILD=1           uses the existing programs
#
# The metadata are in the crates' manifests, for cargo-deb and cargo-generate-rpm. The files that these take from
# target/release/package (target/PROFILE/package) are put there first: stripped programs, man pages, completions, units
# with the right paths.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
say_where_it_stops
cd "$root"

kind=${1:-}
profile=${PROFILE:-release}
out=${2:-$target_dir/packages}
version=${VERSION:-$(release)}
# Cargo's own names for folders.
case $profile in dev | test) built=$target_dir/debug ;; *) built=$target_dir/$profile ;; esac
stage=$target_dir/$profile/package
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}

build() {
    [ -z "${NO_BUILD:-}" ] || return 0
    cargo build --profile "$profile" --package netvale-cli --package netvale-capi --package netvale-pcap --package netvale-cni >&2
    cargo build --profile "$profile" --package netvale-bench >&2
}

# put FILE TO: copies the file without debugging symbols.
put() {
    install -D -m 755 "$1" "$2"
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$2"
}

stage_programs() {
    put "$built/netvale" "$stage/bin/netvale"
    put "$built/netvale-bench" "$stage/bin/netvale-bench"
    put "$built/netvale-cni" "$stage/bin/netvale-cni"
    put "$built/libnetmap.so" "$stage/lib/libnetmap.so.0"
    put "$built/libnetvale_pcap.so" "$stage/lib/libnetvale_pcap.so"
    install -D -m 644 "$built/libnetmap.a" "$stage/lib/libnetmap.a"
    strip --strip-debug "$stage/lib/libnetmap.a"
    "$stage/bin/netvale" man "$stage/man" >/dev/null
    "$stage/bin/netvale-bench" man "$stage/man-bench"
    gzip -9n "$stage"/man/*.[157] "$stage"/man-bench/*.1
    mkdir -p "$stage/completions"
    local shell
    for shell in bash zsh fish; do "$stage/bin/netvale" completions "$shell" >"$stage/completions/$shell"; done
}

# The units refer to the program's path in packages.
stage_units() {
    local file
    mkdir -p "$stage"/systemd "$stage"/systemd-user
    for file in dist/*.service dist/*.socket; do sed 's|/usr/local/bin/|/usr/bin/|' "$file" >"$stage/systemd/${file##*/}"; done
    for file in dist/user/*; do sed 's|/usr/local/bin/|/usr/bin/|' "$file" >"$stage/systemd-user/${file##*/}"; done
    install -D -m 644 dist/netvale.sysusers "$stage/sysusers/netvale.conf"
    install -D -m 644 dist/netvale.tmpfiles "$stage/tmpfiles/netvale.conf"
}

# stage_links FOLDER NAME: links to libraries in /usr/FOLDER; libpcap is called NAME there.
stage_links() {
    local name
    mkdir -p "$stage"/links/{netmap,pcap,dev} "$stage/pkgconfig"
    ln -sfn "${1/#lib\//../}/libnetmap.so.0" "$stage/links/netmap/libnetmap.so.0"
    for name in libpcap.so.0.8 libpcap.so.1 libpcap.so; do
        ln -sfn ../libnetvale_pcap.so "$stage/links/pcap/$name"
    done
    ln -sfn "${1/#lib\//../../}/$2" "$stage/links/pcap/libpcap-system.so"
    ln -sfn libnetmap.so.0 "$stage/links/dev/libnetmap.so"
    sed "s|@PREFIX@|/usr|; s|@VERSION@|$version|; s|^libdir=.*|libdir=\${prefix}/$1|" crates/programs/capi/libnetmap.pc.in \
        >"$stage/pkgconfig/libnetmap.pc"
}

# Licences of the crates that are linked in.
licences() {
    cargo tree --offline --quiet --edges normal --prefix none --format '{p}|{l}' --package netvale-cli --package netvale-capi \
        --package netvale-pcap --package netvale-cni --package netvale-bench 2>/dev/null | sed 's/ (.*)|/|/; s/ v/ /' | grep -v '^netvale' | sort -u
}

stage_docs() {
    mkdir -p "$stage/doc"
    gzip -9nc CHANGELOG.md >"$stage/doc/changelog.gz"
    {
        printf 'netvale (%s-1) unstable; urgency=medium\n\n' "$version"
        printf '  * Release %s: see changelog.gz.\n\n' "$version"
        printf ' -- The netvale authors <netvale@users.noreply.github.com>  %s\n' "$(date -uR -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9nc >"$stage/doc/changelog.Debian.gz"
    {
        cat dist/debian/copyright
        echo 'License: BSD-2-Clause'
        sed -n '5,$s/^\(..*\)/ \1/p; 5,$s/^$/ ./p' LICENSE
        printf '\nLicense: GPL-2.0\n On Debian systems, the text is in /usr/share/common-licenses/GPL-2.\n\n'
        printf 'Files: vendored-crates\nCopyright: the authors of each crate\nLicense: MIT or Apache-2.0 or similar\n'
        printf 'Comment:\n The programs are linked with these Rust crates, under the licences that stand behind them:\n .\n'
        licences | sed 's/^/ /; s/|/: /'
        printf '\nLicense: MIT or Apache-2.0 or similar\n The text is with each crate, at https://crates.io; that of Apache-2.0 is in\n /usr/share/common-licenses/Apache-2.0.\n'
    } >"$stage/doc/copyright"
}

# What the manifest of a crate cannot express.
synopsis_of() {
    case $1 in
    netvale) echo "virtual switch in user space, with netmap packet I/O" ;;
    libnetmap0) echo "netmap API for netvale ports" ;;
    libnetmap-dev) echo "netmap API for netvale ports: headers and static library" ;;
    netvale-bench) echo "benchmark of netvale and other switches" ;;
    netvale-dkms) echo "Linux guest drivers for netvale's ptnet and e1000 ports" ;;
    esac
}

# finish_control TREE NAME: completes the control files.
finish_control() {
    local control=$1/DEBIAN/control
    sed -i "s|@VERSION@|$version-1|g; s|^Description: .*|Description: $(synopsis_of "$2")|" "$control"
    case $2 in
    libnetmap0)
        echo "libnetmap 0 libnetmap0 (>= $version)" >"$1/DEBIAN/shlibs"
        echo 'activate-noawait ldconfig' >"$1/DEBIAN/triggers"
        ;;
    netvale-dkms) sed -i 's/^Architecture: .*/Architecture: all/' "$control" ;;
    esac
    (cd "$1" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
}

# finish_deb MADE: adds what cargo-deb does not support, and packs the package again.
finish_deb() {
    local work name tree
    work=$(mktemp -d)
    tree=$work/tree
    dpkg-deb -R "$1" "$tree"
    name=$(sed -n 's/^Package: //p' "$tree/DEBIAN/control")
    install -D -m 644 -t "$tree/usr/share/doc/$name" "$stage"/doc/*
    # cargo-deb looks at the dependencies of executable files only.
    find "$tree/usr/lib" -name '*.so*' -type f -exec chmod 644 {} + 2>/dev/null || true
    case $name in
    netvale)
        mkdir -p "$tree/usr/lib/netvale/pcap" "$tree/usr/lib/$tuple/wireshark/extcap"
        cp -a "$stage"/links/netmap/* "$tree/usr/lib/netvale/"
        cp -a "$stage"/links/pcap/* "$tree/usr/lib/netvale/pcap/"
        # Wireshark finds the ports through this.
        ln -s ../../../../bin/netvale "$tree/usr/lib/$tuple/wireshark/extcap/netvale-extcap"
        # Programs that start vde_switch or gvproxy find it first.
        mkdir "$tree/usr/lib/netvale/drop-in"
        ln -s ../../../bin/netvale "$tree/usr/lib/netvale/drop-in/vde_switch"
        ln -s ../../../bin/netvale "$tree/usr/lib/netvale/drop-in/gvproxy"
        # podman finds the plugin by these: with CNI by its name, with netavark by the driver's.
        mkdir "$tree/usr/lib/cni" "$tree/usr/lib/netavark"
        ln -s ../netvale/netvale-cni "$tree/usr/lib/netavark/netvale"
        ln -s ../netvale/netvale-cni "$tree/usr/lib/cni/netvale-cni"
        ;;
    libnetmap-dev) cp -a "$stage"/links/dev/* "$tree/usr/lib/$tuple/" ;;
    esac
    finish_control "$tree" "$name"
    dpkg-deb --root-owner-group "${compression[@]}" -b "$tree" "$out" | sed "s/.* in '\(.*\)'\.$/\1/"
    rm -rf "$work"
}

# make_deb CRATE MULTIARCH [OPTION…]: builds one Debian package.
make_deb() {
    local crate=$1 multiarch=$2 made
    shift 2
    made=$("$tools_dir/bin/cargo-deb" --quiet --no-build --no-strip --fast --compress-type gz --compress-system --offline --profile "$profile" --package "$crate" \
        --multiarch "$multiarch" --deb-version "$version-1" --output "$target_dir/debian/" "$@")
    finish_deb "$made"
}

debs() {
    compression=(-Zxz)
    # Packages for the tests are never downloaded.
    [ "$profile" = release ] || compression=(-Zgzip -z1)
    tuple=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    stage_links "lib/$tuple" libpcap.so.0.8
    mkdir -p "$out"
    make_deb netvale-cli none
    make_deb netvale-capi same
    make_deb netvale-capi same --variant dev
    make_deb netvale-bench none
    make_deb netvale-ptnet none
}

# make_rpm CRATE [OPTION…]: builds one RPM package.
make_rpm() {
    local crate=$1
    shift
    "$tools_dir/bin/cargo-generate-rpm" --package "$crate" --profile "$profile" --target-dir "$target_dir" --output "$out/" \
        --payload-compress "$([ "$profile" = release ] && echo zstd || echo gzip)" --auto-req "$root/dist/rpm/find-requires" --set-metadata "version = \"$version\"" "$@"
}

rpms() {
    stage_links lib64 libpcap.so.1
    mkdir -p "$out"
    make_rpm crates/tools/cli
    make_rpm crates/programs/capi
    make_rpm crates/programs/capi --variant devel
    printf '%s\n' "$out"/*.rpm
}

stage_all() {
    rm -rf "$stage"
    stage_programs
    stage_units
    stage_docs
}

# All packages share one staging folder: two processes take turns.
mkdir -p "$target_dir"
exec {turn}>"$target_dir/package.lock"
flock "$turn"

case $kind in
deb)
    [ -x "$tools_dir/bin/cargo-deb" ] || { echo "cargo-deb is not installed (scripts/install-deps.sh deb)" >&2; exit 1; }
    build
    stage_all
    debs
    ;;
rpm)
    [ -x "$tools_dir/bin/cargo-generate-rpm" ] || { echo "cargo-generate-rpm is not installed (scripts/install-deps.sh rpm)" >&2; exit 1; }
    build
    stage_all
    rpms
    ;;
*)
    echo "usage: package.sh deb|rpm [FOLDER]" >&2
    exit 2
    ;;
esac
