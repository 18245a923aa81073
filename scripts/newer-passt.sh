#!/usr/bin/env bash
# newer-passt.sh: unpacks passt of Debian's development release (sid), and the C library that it takes, into a folder of
# their own, once, and prints that folder. Debian 12's passt is no vhost-user back end.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The number changes whenever what is made changes.
unpacked passt-1 sid passt libc6
