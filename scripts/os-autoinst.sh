#!/usr/bin/env bash
# os-autoinst.sh: unpacks os-autoinst, openQA's test engine, of Debian 12, once, and prints two folders: the engine
# alone, and a small Debian with what it needs. A test mounts one over the other. Needs root (debootstrap uses chroot),
# and about 750 MB of disk.
#
# The package itself is not installed: it depends on every language of an OCR program, and not on some of the Perl
# modules that it uses.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

needed=(
    # Programs and libraries.
    qemu-system-x86 qemu-utils vde2 libopencv-imgcodecs406 libtheora0
    # Perl modules.
    libcarp-always-perl libcpanel-json-xs-perl libcrypt-des-perl libexception-class-perl libfile-which-perl
    libipc-run-perl libipc-system-simple-perl libjson-validator-perl liblist-moreutils-perl
    libmojo-ioloop-readwriteprocess-perl libmojolicious-perl libnet-dbus-perl libnet-ssh2-perl libtime-moment-perl libtry-tiny-perl libxml-libxml-perl
    libyaml-libyaml-perl libyaml-pp-perl
)
# The number changes whenever what is made changes.
unpacked os-autoinst-1 bookworm os-autoinst
"$(dirname "$0")/package-tree.sh" bookworm os-autoinst "${needed[@]}"
