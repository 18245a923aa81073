#!/usr/bin/env bash
# newer-netavark.sh: unpacks netavark of Debian 13, and the libraries that it takes, into a folder of their own, once, and
# prints that folder. Debian 12's netavark has no plugins.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The number changes whenever what is made changes.
unpacked netavark-1 trixie netavark libc6 libgcc-s1
