#!/usr/bin/env bash
# newer-passt.sh: unpacks passt of Debian's development release (sid), and the C library that it needs, into a folder of
# their own, once, and prints that folder. Nothing in it becomes part of this system: passt is started with its own
# dynamic loader. Debian 12's passt has no vhost-user back end.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# To be changed whenever the result of this script changes.
recipe=1
make() {
    local get=(apt-get -q -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache"
        -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root)
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$work/root" "$work/lists/partial" "$work/cache/archives/partial"
    echo "deb [signed-by=$keys] http://deb.debian.org/debian sid main" >"$work/sources.list"
    cd "$work" && "${get[@]}" update && "${get[@]}" download passt libc6 &&
        for package in *.deb; do dpkg-deb --extract "$package" root || return 1; done
}
kept_tree "passt-$recipe" make
