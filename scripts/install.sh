#!/usr/bin/env bash
# install.sh DESTDIR PREFIX BUILT: installs the binary, the libraries with their headers, man pages, shell completions
# and the unit below DESTDIR/PREFIX. BUILT is the folder with the results of `make build`.
#
# The binary generates its own man pages and completions, so they always match it. Root often has no cargo: the earlier
# build is then installed as it is.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
say_where_it_stops

prefix=$2
to=$1$2
built=$3
binary=$built/netvale
cd "$root"
if have cargo; then
    cargo build --release --package netvale-cli --package netvale-capi --package netvale-pcap --package netvale-cni
fi
for file in "$binary" "$built/libnetmap.so" "$built/libnetmap.a" "$built/libnetvale_pcap.so" "$built/netvale-cni"; do
    if [ ! -e "$file" ]; then
        echo "$file does not exist and there is no cargo to build it: run \`make build\` as the user who has Rust" >&2
        exit 1
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/man"
"$binary" man "$work/man" >/dev/null
for shell in bash zsh fish; do
    "$binary" completions "$shell" >"$work/$shell"
done

install -D -m 755 "$binary" "$to/bin/netvale"
for section in 1 5 7; do
    install -d "$to/share/man/man$section"
    install -m 644 "$work"/man/*."$section" "$to/share/man/man$section/"
done
for folder in guide reference; do
    install -d "$to/share/doc/netvale/$folder"
    install -m 644 docs/$folder/*.* "$to/share/doc/netvale/$folder/"
done
install -D -m 644 "$work/bash" "$to/share/bash-completion/completions/netvale"
install -D -m 644 "$work/zsh" "$to/share/zsh/site-functions/_netvale"
install -D -m 644 "$work/fish" "$to/share/fish/vendor_completions.d/netvale.fish"

install -d "$to/lib/systemd/system" "$to/lib/systemd/user" "$to/lib/sysusers.d" "$to/lib/tmpfiles.d"
for unit in dist/*.service dist/*.socket; do
    sed "s|/usr/local/bin/|$prefix/bin/|" "$unit" >"$to/lib/systemd/system/${unit##*/}"
done
for unit in dist/user/*; do
    sed "s|/usr/local/bin/|$prefix/bin/|" "$unit" >"$to/lib/systemd/user/${unit##*/}"
done
chmod 644 "$to"/lib/systemd/system/netvale* "$to"/lib/systemd/user/netvale*
install -m 644 dist/netvale.sysusers "$to/lib/sysusers.d/netvale.conf"
install -m 644 dist/netvale.tmpfiles "$to/lib/tmpfiles.d/netvale.conf"
# The configuration that the unit names. An existing one is kept.
[ -e "$1/etc/netvale.toml" ] || install -D -m 644 dist/netvale.toml "$1/etc/netvale.toml"
for folder in prometheus grafana; do
    install -d "$to/share/doc/netvale/examples/$folder"
    install -m 644 dist/$folder/* "$to/share/doc/netvale/examples/$folder/"
done

# libnetmap: for programs that link it, and (the same file) for `netvale run` to preload.
install -D -m 755 "$built/libnetmap.so" "$to/lib/libnetmap.so.0"
ln -sfn libnetmap.so.0 "$to/lib/libnetmap.so"
install -m 644 "$built/libnetmap.a" "$to/lib/libnetmap.a"
install -d "$to/lib/netvale/pcap" "$to/lib/pkgconfig" "$to/include/net"
ln -sfn ../libnetmap.so.0 "$to/lib/netvale/libnetmap.so.0"
install -m 644 crates/programs/capi/include/net/*.h "$to/include/net/"
install -m 644 crates/programs/capi/include/libnetmap.h crates/programs/capi/include/netvale.h "$to/include/"
version=$(release)
sed "s|@PREFIX@|$prefix|; s|@VERSION@|$version|" crates/programs/capi/libnetmap.pc.in >"$to/lib/pkgconfig/libnetmap.pc"
chmod 644 "$to/lib/pkgconfig/libnetmap.pc"

# The replacement for the system's libpcap, under libpcap's names, in a folder of its own: only programs that
# `netvale run` starts look there.
install -m 755 "$built/libnetvale_pcap.so" "$to/lib/netvale/"
# awk reads to the end of its input: a program that writes into a pipe without a reader is killed, and this script would
# end with it.
system=$({ PATH=$PATH:/sbin:/usr/sbin ldconfig -p || true; } |
    awk '!found && ($1 == "libpcap.so.0.8" || $1 == "libpcap.so.1") { print $NF; found = 1 }')
if [ -n "$system" ]; then
    for name in libpcap.so.0.8 libpcap.so.1 libpcap.so; do
        ln -sfn ../libnetvale_pcap.so "$to/lib/netvale/pcap/$name"
    done
    ln -sfn "$system" "$to/lib/netvale/pcap/libpcap-system.so"
else
    echo "no libpcap found: \`netvale run\` will work for netmap programs only; to support others, install libpcap and run this again" >&2
fi
# Wireshark finds the ports through this, if it has the same prefix.
install -d "$to/lib/wireshark/extcap"
ln -sfn ../../../bin/netvale "$to/lib/wireshark/extcap/netvale-extcap"
echo "for another Wireshark: netvale extcap --install"
# Programs that start vde_switch or gvproxy find it first.
install -d "$to/lib/netvale/drop-in"
ln -sfn ../../../bin/netvale "$to/lib/netvale/drop-in/vde_switch"
ln -sfn ../../../bin/netvale "$to/lib/netvale/drop-in/gvproxy"
# The plugin for containers. CNI's runtimes look for plugins in folders of their own; podman with netavark looks for the
# driver's name, below /usr and /usr/local.
install -m 755 "$built/netvale-cni" "$to/lib/netvale/"
install -d "$to/lib/netavark"
ln -sfn ../netvale/netvale-cni "$to/lib/netavark/netvale"
echo "for containers: ln -s $prefix/lib/netvale/netvale-cni /opt/cni/bin/ (podman 4 on Debian: /usr/lib/cni/)"
# Updates the loader's list of libraries, if the files are installed on this machine.
if [ -z "$1" ] && ! PATH=$PATH:/sbin:/usr/sbin ldconfig; then
    echo "ldconfig failed: programs linked to libnetmap need a successful ldconfig, or LD_LIBRARY_PATH=$to/lib" >&2
fi
echo "installed netvale below $to"
