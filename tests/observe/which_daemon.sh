#!/usr/bin/env bash
# Which daemon an ordinary user's programs find: the user's own, the system's, or none; and the message for a user who
# may not connect to it: from the command, its programs for ports, `netvale run`, libpcap and Python.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need /usr/bin/python3 setpriv

# Replacements for the host's: a folder for the system's daemon, and users with a group.
mount -t tmpfs test /run
mkdir "$work/etc" "$work/home"
printf 'root:x:0:0::/root:/bin/sh\njoe:x:65534:65534::/:/bin/sh\n' >"$work/etc/passwd"
printf 'root:x:0:\njoe:x:65534:\nvalers:x:4242:\n' >"$work/etc/group"
mount --bind "$work/etc/passwd" /etc/passwd
mount --bind "$work/etc/group" /etc/group
chown 65534:65534 "$work/home"
XDG_RUNTIME_DIR=$work/home

# joe COMMAND…, and member COMMAND…: run as the same user, the latter in a session with the group.
joe() {
    ${direct:-} setpriv --reuid=65534 --regid=65534 --clear-groups env XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" "$@"
}
member() {
    ${direct:-} setpriv --reuid=65534 --regid=65534 --groups=4242 env XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" "$@"
}

# fails WHAT PATTERN COMMAND…: the command must fail with a matching message.
fails() {
    local what=$1 pattern=$2 said
    shift 2
    said=$("$@" 2>&1) && fail "$what: it succeeds" "$said"
    grep -Eq "$pattern" <<<"$said" || fail "$what" "$said"
    [ "$(grep -o 'start one' <<<"$said" | wc -l)" -le 1 ] || fail "$what: twice" "$said"
    ok "$what"
}

# finds WHAT SWITCH USER [COMMAND…]: the user's programs must open ports of the daemon that has that switch.
finds() {
    local what=$1 switch=$2
    shift 2
    must "$@" "$NETVALE" pkt-gen -i "$switch:seen" -f tx -n 1
    "$@" "$NETVALE" list | grep -q "^$switch" || fail "$what: the command" "$("$@" "$NETVALE" list 2>&1)"
    [ "$(python "$@")" = "$switch" ] || fail "$what: Python" "$(python "$@" 2>&1)"
    ok "$what"
}

python() {
    "$@" PYTHONPATH="$root/python/src" /usr/bin/python3 -c 'import netvale
with netvale.Control() as control:
    print(*[switch.name for switch in control.switches()])'
}

own=$work/home/netvale
fails "without any daemon" "no netvale daemon runs in $own\$" joe "$NETVALE" list
fails "without any daemon, a command says how to start one" "start one with 'netvale up', or" joe "$NETVALE" list
fails "without any daemon, so does pkt-gen" "start one with 'netvale up', or" joe "$NETVALE" pkt-gen -i vale0:x -f rx -n 1

background "$NETVALE" up --socket-group 4242 --share-switch vale9 >"$work/system.log" 2>&1
wait_for "the system's daemon" 20 "$NETVALE" list
must "$NETVALE" attach vale9 null:
kept="the system's daemon runs in /run/netvale; members of the group valers may: 'sudo usermod -aG valers joe'"
fails "a user who is no member, netvale list" "$kept" joe "$NETVALE" list
fails "a user who is no member, pkt-gen" "$kept" joe "$NETVALE" pkt-gen -i vale0:x -f rx -n 1
fails "a user who names it" "may not connect to /run/netvale/control.sock" joe "$NETVALE" --run-dir /run/netvale list
fails "a user who names it, pkt-gen" "may not connect to /run/netvale/attach.sock" \
    joe NETVALE_RUN_DIR=/run/netvale "$NETVALE" pkt-gen -i vale0:x -f rx -n 1
fails "Python" "may not connect to /run/netvale" python joe NETVALE_RUN_DIR=/run/netvale
printf 'root:x:0:\njoe:x:65534:\nvalers:x:4242:joe\n' >"$work/etc/group"
fails "a user who became a member after the login" "joe joined the group valers, .*log in again" \
    joe "$NETVALE" list
finds "a member finds the system's" vale9 member

background joe "$NETVALE" up >"$work/own.log" 2>&1
wait_for "the user's daemon" 20 grep -q 'ready in' "$work/own.log"
must joe "$NETVALE" attach vale5 null:
finds "a member of the group with a daemon of their own finds that first" vale5 member
must member NETVALE_RUN_DIR=/run/netvale "$NETVALE" pkt-gen -i vale9:named -f tx -n 1
ok "unless the system's is named"
joe "$NETVALE" stop >/dev/null
wait_for "the user's daemon has ended" 20 gone $!
finds "with it gone, the system's again" vale9 member
"$NETVALE" list | grep -q '^vale9' || fail "root finds the system's"
ok "root finds the system's"
finish
