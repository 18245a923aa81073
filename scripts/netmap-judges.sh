#!/usr/bin/env bash
# netmap-judges.sh suricata|daq: builds a program of Debian's development release with netmap, once (minutes), and
# prints the folder that has it in `bin`: Suricata, with its lists in `etc`, or a program for Snort's library (libdaq),
# with the library's netmap module in `lib`. Debian's own have no netmap.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/source-lib.sh"

build_suricata() {
    # To link with; when it runs, it finds the one of `netvale run`.
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
    # With netmap alone, it would build no module.
    # shellcheck disable=SC2046 # words
    ./configure $(printf -- '--disable-%s-module ' afpacket ipfw ipq nfq pcap) CFLAGS="-O1 -std=gnu17"
    # What these make is in the sources, and is good enough, whatever the times of the files say.
    local made=(ACLOCAL=: AUTOCONF=: AUTOHEADER=: AUTOMAKE=:)
    # A grammar's header is made in the same folder as what includes it.
    make "${made[@]}"
    make "${made[@]}" install
    ldconfig
    gcc -O1 -o daq_judge "$judges/daq.c" -ldaq
    keep daq_judge
    cp /usr/local/lib/daq/daq_netmap.so /usr/local/lib/libsfbpf.so.0 /out/lib/
    patchelf --force-rpath --set-rpath "$place/lib" /out/lib/daq_netmap.so
}

# The numbers change whenever what is made changes.
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
