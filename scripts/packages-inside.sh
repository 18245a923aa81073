#!/bin/bash
# packages-inside.sh: the part of packages-test.sh that runs in a Debian 12 booted by systemd, as a service. Debian packages of two
# versions are in /test. Ends with 0 if all is as it should be.
set -euo pipefail

say() { echo "container: $*"; }
fail() {
    echo "FAILED: $*"
    journalctl --no-pager -n 60
    systemctl --no-pager status 'netvale*' || true
    exit 1
}

# until_ok WHAT COMMAND…: waits until the command succeeds.
until_ok() {
    local what=$1 end=$((SECONDS + 60))
    shift
    while ! "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "never: $what"
        sleep 0.1
    done
}

expect() {
    local what=$1 expected=$2 found=$3
    [ "$found" = "$expected" ] || fail "$what: '$found', not '$expected'"
}

pid_of() { systemctl show -p MainPID --value netvale.service; }
is_new() { [ "$(pid_of)" != "$1" ] && [ "$(pid_of)" != 0 ] && systemctl is-active -q netvale.service; }

# All files but those that programs write for themselves.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/log -o -path /var/cache \
        -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/tmp -o -path /out -o -path /test -o -path /root -o -path /home \) -prune -o -print | sort
}

# Frames from one port to another.
traffic() {
    local receiver
    netvale pkt-gen -i vale0:rx -f rx -n 1000 >/tmp/rx 2>&1 &
    receiver=$!
    until_ok "a receiver" netvale show vale0:rx
    while kill -0 "$receiver" 2>/dev/null; do netvale pkt-gen -i vale0:tx -f tx -n 1000 >/dev/null 2>&1; done
    wait "$receiver" || fail "the receiver: $(cat /tmp/rx)"
}

install_and_upgrade() {
    ! command -v cc gcc rustc || fail "there is a compiler"
    apt-get install -y --no-install-recommends /test/older/*.deb >/tmp/apt 2>&1 || fail "$(cat /tmp/apt)"
    id netvale >/dev/null || fail "no user"
    expect "the units" "enabled enabled enabled" "$(systemctl is-enabled netvale.service netvale.socket netvale-attach.socket | xargs)"
    until_ok "the daemon" systemctl is-active netvale.service
    traffic
    say "installed: the daemon runs as $(ps -o user= -p "$(pid_of)" 2>/dev/null || stat -c %U "/proc/$(pid_of)"), and frames pass"
    echo 'workers = 2' >>/etc/netvale.toml
    local before
    before=$(pid_of)
    dpkg -i /test/debs/{libnetmap0,netvale,netvale-bench,libnetmap-dev}_*.deb >/tmp/dpkg 2>&1 </dev/null || fail "$(cat /tmp/dpkg)"
    is_new "$before" || fail "the daemon was not restarted"
    tail -n 1 /etc/netvale.toml | grep -q workers || fail "the configuration was replaced"
    expect "threads that forward" 2 "$(grep -l 'netvale-w[0-9]' "/proc/$(pid_of)"/task/*/comm | wc -l)"
    netvale-bench --list >/dev/null
    [ -s /usr/share/man/man1/netvale-up.1.gz ] || [ -d /usr/share/man ] || fail "no manual pages"
    /usr/lib/*/wireshark/extcap/netvale-extcap --extcap-interfaces | grep -q '{value=netvale-ssh}' || fail "no program for Wireshark"
    ldconfig -p | grep -q 'libnetmap.so.0 ' || fail "the loader does not know libnetmap.so.0"
    traffic
    say "upgraded: the configuration is kept, frames pass"
}

activation() {
    systemctl stop netvale.service
    [ -S /run/netvale/control.sock ] && [ -S /run/netvale/attach.sock ] || fail "no sockets without a daemon"
    expect "the daemon" inactive "$(systemctl is-active netvale.service)"
    netvale list >/dev/null || fail "the first client"
    expect "the daemon" active "$(systemctl is-active netvale.service)"
    traffic
    # A client of the other socket.
    netvale stop
    until_ok "the end" sh -c '[ "$(systemctl is-active netvale.service)" = inactive ]'
    [ -S /run/netvale/attach.sock ] || fail "the daemon has removed a socket of systemd's"
    netvale pkt-gen -i vale0:tx -f tx -n 1 >/dev/null 2>&1 || fail "the first program"
    expect "the daemon" active "$(systemctl is-active netvale.service)"
    say "the first client of either socket starts the daemon"
}

restarts() {
    local before
    netvale attach vale0 ptnet:/run/netvale/guest
    before=$(pid_of)
    kill -9 "$before"
    until_ok "a new daemon" is_new "$before"
    traffic
    say "a daemon that was killed is started again"
}

watchdog() {
    local before
    mkdir -p /run/systemd/system/netvale.service.d
    printf '[Service]\nWatchdogSec=2\n' >/run/systemd/system/netvale.service.d/test.conf
    systemctl daemon-reload
    systemctl restart netvale.service
    before=$(pid_of)
    # A daemon that goes on stays.
    sleep 5
    expect "the process" "$before" "$(pid_of)"
    kill -STOP "$before"
    until_ok "a new daemon" is_new "$before"
    journalctl -u netvale.service | grep -q 'Watchdog timeout' || fail "not by the watchdog"
    rm -r /run/systemd/system/netvale.service.d
    systemctl daemon-reload
    systemctl restart netvale.service
    say "a daemon that hangs is started again by the watchdog"
}

journal() {
    netvale attach vale1 named --rings 1
    netvale detach vale1 named
    until_ok "PORT=" sh -c 'journalctl -q --no-pager PORT=vale1:named | grep -q detached'
    until_ok "SWITCH=" sh -c 'journalctl -q --no-pager SWITCH=vale1 | grep -q attached'
    expect "other switches" "" "$(journalctl -q --no-pager -o cat SWITCH=vale1 | grep vale0 || true)"
    say "journalctl finds what is about a port, and about a switch"
}

user_units() {
    useradd --create-home --uid 4711 someone
    systemctl start user@4711.service
    local as=(setpriv --reuid 4711 --regid 4711 --init-groups env XDG_RUNTIME_DIR=/run/user/4711)
    "${as[@]}" systemctl --user start netvale.socket
    "${as[@]}" netvale list >/dev/null || fail "the user's first client"
    expect "the user's daemon" active "$("${as[@]}" systemctl --user is-active netvale.service)"
    "${as[@]}" netvale pkt-gen -i vale0:tx -f tx -n 10 >/dev/null 2>&1 || fail "the user's program"
    systemctl stop user@4711.service
    userdel --remove someone 2>/dev/null
    say "a user's own daemon is started by the user's first client"
}

purge() {
    dpkg --remove netvale >/tmp/dpkg 2>&1 || fail "$(cat /tmp/dpkg)"
    [ -e /etc/netvale.toml ] || fail "remove took the configuration"
    [ ! -e /run/netvale/attach.sock ] || fail "remove left a socket"
    expect "processes" "" "$(pgrep -x netvale || true)"
    dpkg --purge netvale netvale-bench libnetmap-dev libnetmap0 >/tmp/dpkg 2>&1 || fail "$(cat /tmp/dpkg)"
    files >/tmp/after
    local left
    left=$(comm -13 /tmp/before /tmp/after | grep -v -x -e '/etc/.*-' -e /etc/.pwd.lock -e '/var/lib/systemd/deb-systemd-.*' || true)
    expect "files left" "" "$left"
    [ ! -e /run/netvale ] || fail "purge left /run/netvale"
    expect "files missing" "" "$(comm -23 /tmp/before /tmp/after)"
    say "purged: nothing is left but the user"
}

files >/tmp/before
install_and_upgrade
activation
restarts
watchdog
journal
user_units
purge
