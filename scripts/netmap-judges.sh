#!/usr/bin/env bash
# netmap-judges.sh suricata|daq: builds a program of Debian's development release with netmap, once (this takes
# minutes), and prints its folder: Suricata in `bin`, with its lists in `etc`; or in `bin` a program for Snort's library
# (libdaq), with the library's netmap module in `lib`. Debian's own packages have no netmap.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/source-lib.sh"

build_suricata() {
    # Only for linking; at run time, it finds the library of `netvale run`.
    sed -n 's/^[a-z].*[ *]\(nm[a-z]*_[a-z_]*\)(.*/void \1(void) {}/p' /usr/include/libnetmap.h >netmap.c
    gcc -shared -Wl,-soname,libnetmap.so.0 -o /usr/lib/libnetmap.so.0 netmap.c
    ln -s libnetmap.so.0 /usr/lib/libnetmap.so
    autoreconf --force --install
    ./configure --enable-netmap --enable-non-bundled-htp --disable-gccmarch-native --disable-shared CFLAGS=-O1
    make -j"$(nproc)"
    rm /usr/lib/libnetmap.so.0
    keep src/suricata
    mkdir /out/etc
    cp etc/*.config threshold.config /out/etc/
}

build_daq() {
    # With netmap as the only module, it would build none.
    # shellcheck disable=SC2046 # words
    ./configure $(printf -- '--disable-%s-module ' afpacket ipfw ipq nfq pcap) CFLAGS="-O1 -std=gnu17"
    # The results of these generators are part of the sources and are used, whatever the times of the files.
    local made=(ACLOCAL=: AUTOCONF=: AUTOHEADER=: AUTOMAKE=:)
    # A grammar's header is generated in the folder of the files that include it.
    make "${made[@]}"
    make "${made[@]}" install
    ldconfig
    gcc -O1 -o daq_judge "$judges/daq.c" -ldaq
    keep daq_judge
    cp /usr/local/lib/daq/daq_netmap.so /usr/local/lib/libsfbpf.so.0 /out/lib/
    patchelf --force-rpath --set-rpath "$place/lib" /out/lib/daq_netmap.so
}

# The numbers are changed whenever the result of this script changes.
case ${1:-} in
suricata)
    from_source suricata-1 suricata build_suricata cargo rustc cbindgen libpcre2-dev libyaml-dev libjansson-dev \
        libpcap-dev zlib1g-dev libhtp-dev python3 autoconf automake libtool
    ;;
daq) from_source daq-1 daq build_daq flex bison libpcap-dev ;;
*)
    echo "usage: $0 suricata|daq" >&2
    exit 2
    ;;
esac
