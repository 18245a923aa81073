#!/bin/bash
# packages-inside.sh: the part of packages-test.sh that runs in a Debian booted by systemd (booted.sh), as a service.
# Debian packages of two versions are in /test, the source tree and its build results in /src and /built. Exits with 0
# if all tests pass.
set -euo pipefail
. /test/kinds.sh

say() { echo "container: $*"; }
fail() {
    echo "FAILED: $*"
    journalctl --no-pager -n 60 -u 'netvale*'
    systemctl --no-pager --lines 0 status 'netvale*' || true
    echo "FAILED: $*"
    exit 1
}

# until_ok WHAT COMMAND…: waits until the command succeeds.
until_ok() {
    local what=$1 end=$((SECONDS + 60))
    shift
    while ! "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "timed out: $what"
        sleep 0.05
    done
}

expect() {
    local what=$1 expected=$2 found=$3
    [ "$found" = "$expected" ] || fail "$what: '$found', not '$expected'"
}

# refused TEXT COMMAND…: the command must fail with that message.
refused() {
    local text=$1
    shift
    ! "$@" >/tmp/refused 2>&1 || fail "not refused: $*"
    grep -F -- "$text" /tmp/refused >/dev/null || fail "$*: no '$text' in: $(cat /tmp/refused)"
}

pid_of() { systemctl show -p MainPID --value netvale.service; }
is_new() { [ "$(pid_of)" != "$1" ] && [ "$(pid_of)" != 0 ] && systemctl is-active -q netvale.service; }

# systemd does not restart a service that was started too often within seconds (StartLimitBurst=), as these tests do.
often() { systemctl reset-failed netvale.service 2>/dev/null || true; }

# frames PORT in|out: the number of frames that have entered or left the switch there.
frames() {
    "${as[@]}" netvale show "$1" --json | { grep -o "\"dir\":\"$2\"[^{]*\"frames\":[0-9]*" || true; } | awk -F: '{ n += $NF } END { print n + 0 }'
}

# The prefix of commands: they run as root.
as=(env)

# All files except those that programs write for themselves, or timers at midnight.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/log -o -path /var/cache \
        -o -path /var/backups -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/tmp -o -path /booted -o -path /test -o -path /src -o -path /built \
        -o -path /root -o -path /home -o -path /srv \) -prune -o -print | sort
}

# Sends frames from one port to another.
traffic() {
    local receiver
    netvale pkt-gen -i vale0:rx -f rx -n 1000 >/tmp/rx 2>&1 &
    receiver=$!
    until_ok "a receiver" netvale show vale0:rx
    while kill -0 "$receiver" 2>/dev/null; do netvale pkt-gen -i vale0:tx -f tx -n 1000 >/dev/null 2>&1; done
    wait "$receiver" || fail "the receiver: $(cat /tmp/rx)"
}

# in_traffic WHAT REPEATED COMMAND…: runs the command while numbered frames pass from one program to another, and pings
# from a TAP to one in another namespace. None may be lost, and at most REPEATED may arrive twice.
in_traffic() {
    local what=$1 repeated=$2 sender receiver pings sent received lost
    shift 2
    # Lossless, so that a receiver without processor time loses nothing either.
    netvale attach vale2 flow_to --lossless >/dev/null
    netvale pkt-gen -i vale2:flow_to -f rxseq >/tmp/flow_to 2>&1 &
    receiver=$!
    # The port exists before its program opens it, and accepts no frames until then.
    until_ok "a receiver" is_open vale2:flow_to
    netvale pkt-gen -i vale2:flow_from -f txseq -R 5000 >/tmp/flow_from 2>&1 &
    sender=$!
    ping -i 0.02 10.70.0.2 >/tmp/flow_ping 2>&1 &
    pings=$!
    until_ok "frames" flows
    "$@" >/tmp/during 2>&1 || fail "$what: $(cat /tmp/during)"
    kill -0 "$sender" "$receiver" "$pings" || fail "$what ended a program: $(cat /tmp/flow_from /tmp/flow_to /tmp/flow_ping)"
    until_ok "frames afterwards" flows
    kill -INT "$pings"
    wait "$pings" || true
    kill -INT "$sender"
    wait "$sender" || true
    until_ok "all frames have arrived" is_quiet
    kill -INT "$receiver"
    wait "$receiver" || true
    netvale detach vale2:flow_to >/dev/null
    sent=$(sed -n 's/^Sent \([0-9]*\) packets.*/\1/p' /tmp/flow_from)
    received=$(sed -n 's/^Received \([0-9]*\) packets.*/\1/p' /tmp/flow_to)
    lost=$((sent - received))
    [ "$lost" -le 0 ] && [ "$lost" -ge "-$repeated" ] || fail "$what: $received of $sent frames: $(cat /tmp/flow_to)"
    # The last ping may still have been under way.
    lost=$(sed -n 's/^\([0-9]*\) packets transmitted, \([0-9]*\) received.*/\1 \2/p' /tmp/flow_ping | awk '{ print $1 - $2 }')
    [ "${lost:-9}" -le 1 ] || fail "$what: $(tail -n 3 /tmp/flow_ping)"
    say "$what: $received of $sent frames, $(sed -n 's/ packets transmitted, \([0-9]*\) received.*/ pings, \1 answers/p' /tmp/flow_ping)," \
        "the longest took $(sed -n 's|^rtt [^=]*= [^/]*/[^/]*/\([0-9.]*\)/.*|\1|p' /tmp/flow_ping) ms"
}

# Whether a program has opened the port.
is_open() { netvale show "$1" --json | grep '"state":"open"' >/dev/null; }

# Whether frames of the flow arrive.
flows() {
    local before
    before=$(frames vale2:flow_to out)
    sleep 0.1
    [ "$(frames vale2:flow_to out)" -gt "$before" ]
}
is_quiet() { ! flows; }

# Two TAPs, one in a namespace of its own, for pings.
two_taps() {
    ip netns add far
    netvale attach vale0 tap:near0 >/dev/null
    netvale attach vale0 tap:far0 --netns /run/netns/far >/dev/null
    ip addr add 10.70.0.1/24 dev near0
    ip link set near0 up
    ip -n far addr add 10.70.0.2/24 dev far0
    ip -n far link set far0 up
    until_ok "a ping" ping -c 1 -W 1 10.70.0.2
}

install_older() {
    ! command -v cc gcc rustc || fail "a compiler is installed"
    apt-get install -y --no-install-recommends /test/older/*.deb >/tmp/apt 2>&1 || fail "$(cat /tmp/apt)"
    id netvale >/dev/null || fail "no user"
    expect "the units" "enabled enabled enabled" "$(systemctl is-enabled netvale.service netvale.socket netvale-attach.socket | xargs)"
    until_ok "the daemon" systemctl is-active netvale.service
    traffic
    say "installed: the daemon runs as $(ps -o user= -p "$(pid_of)"), and frames pass"
}

dpkg_upgrade() { dpkg -i /test/debs/{libnetmap0,netvale,netvale-bench,libnetmap-dev}_*.deb </dev/null; }

upgrade_packages() {
    local before
    two_taps
    before=$(pid_of)
    # dpkg keeps changed configuration files.
    echo 'workers = 2' >>/etc/netvale.toml
    in_traffic "dpkg installs another version" 0 dpkg_upgrade
    is_new "$before" || fail "the daemon was not restarted"
    expect "the version" "$(netvale --version | cut -d' ' -f2)" "$(dpkg-query -W -f='${Version}' netvale | sed 's/-.*//')"
    tail -n 1 /etc/netvale.toml | grep workers >/dev/null || fail "the configuration was replaced"
    expect "threads that forward" 2 "$(grep -l 'netvale-w[0-9]' "/proc/$(pid_of)"/task/*/comm | wc -l)"
    netvale-bench --list >/dev/null
    [ -s /usr/share/man/man1/netvale-up.1.gz ] || [ -d /usr/share/man ] || fail "no manual pages"
    /usr/lib/*/wireshark/extcap/netvale-extcap --extcap-interfaces | grep '{value=netvale-ssh}' >/dev/null || fail "no program for Wireshark"
    /usr/lib/netvale/drop-in/vde_switch --version | grep '^VDE ' >/dev/null || fail "no drop-in for vde_switch"
    /usr/lib/netvale/drop-in/gvproxy -version | grep '^gvproxy version ' >/dev/null || fail "no drop-in for gvproxy"
    ldconfig -p | grep 'libnetmap.so.0 ' >/dev/null || fail "the loader does not find libnetmap.so.0"
    traffic
}

upgrade_command() {
    local before
    before=$(pid_of)
    often
    in_traffic "netvale upgrade" 0 netvale upgrade
    is_new "$before" || fail "netvale upgrade did not replace the daemon: $(cat /tmp/during)"
    grep "process $(pid_of) continues in place of process $before" /tmp/during >/dev/null || fail "netvale upgrade printed: $(cat /tmp/during)"
    before=$(pid_of)
    cp /usr/bin/netvale /usr/local/bin/another
    refused "netvale.service starts /usr/bin/netvale, not /usr/local/bin/another" netvale upgrade --exec /usr/local/bin/another
    rm /usr/local/bin/another
    expect "the daemon" "$before" "$(pid_of)"
    often
    in_traffic "systemctl restart" 0 systemctl restart netvale.service
    is_new "$before" || fail "the daemon was not restarted"
}

# Clients find the daemon's process, although systemd created the sockets; even the first client, which connects before
# the daemon starts.
process() {
    local after
    for after in true "systemctl stop netvale.service"; do
        often
        $after 2>/dev/null
        netvale doctor --seconds 0.1 --json >/tmp/doctor
        grep -E "\"pid\":$(pid_of)[,}]" /tmp/doctor >/dev/null || fail "doctor examines another process than $(pid_of): $(cut -c1-300 /tmp/doctor)"
    done
    say "the daemon's process is found behind systemd's sockets"
}

activation() {
    often
    systemctl stop netvale.service 2>/dev/null
    [ -S /run/netvale/control.sock ] && [ -S /run/netvale/attach.sock ] || fail "no sockets without a daemon"
    expect "the daemon" inactive "$(systemctl is-active netvale.service)"
    netvale list >/dev/null || fail "the first client"
    expect "the daemon" active "$(systemctl is-active netvale.service)"
    traffic
    # A client of the other socket.
    often
    netvale stop
    until_ok "the end" sh -c '[ "$(systemctl is-active netvale.service)" = inactive ]'
    [ -S /run/netvale/attach.sock ] || fail "the daemon removed a socket of systemd's"
    netvale pkt-gen -i vale0:tx -f tx -n 1 >/dev/null 2>&1 || fail "the first program"
    expect "the daemon" active "$(systemctl is-active netvale.service)"
    say "the first client of either socket starts the daemon"
}

kill_it() {
    local before
    before=$(pid_of)
    often
    kill -9 "$before"
    until_ok "a new daemon" is_new "$before"
}

killed() {
    netvale attach vale0 ptnet:/run/netvale/guest >/dev/null
    # At most a batch of each ring.
    in_traffic "kill -9" 1024 kill_it
    traffic
}

watchdog() {
    local before
    mkdir -p /run/systemd/system/netvale.service.d
    printf '[Service]\nWatchdogSec=2\n' >/run/systemd/system/netvale.service.d/test.conf
    systemctl daemon-reload
    often
    systemctl restart netvale.service
    before=$(pid_of)
    # A daemon that keeps running is not restarted.
    sleep 5
    expect "the process" "$before" "$(pid_of)"
    often
    kill -STOP "$before"
    until_ok "a new daemon" is_new "$before"
    journalctl -u netvale.service | grep 'Watchdog timeout' >/dev/null || fail "not by the watchdog"
    rm -r /run/systemd/system/netvale.service.d
    systemctl daemon-reload
    often
    systemctl restart netvale.service
    say "the watchdog restarts a daemon that hangs"
}

journal() {
    netvale attach vale1 named --rings 1 >/dev/null
    netvale detach vale1 named >/dev/null
    until_ok "PORT=" sh -c 'journalctl -q --no-pager PORT=vale1:named | grep detached >/dev/null'
    until_ok "SWITCH=" sh -c 'journalctl -q --no-pager SWITCH=vale1 | grep attached >/dev/null'
    expect "other switches" "" "$(journalctl -q --no-pager -o cat SWITCH=vale1 | grep vale0 || true)"
    say "journalctl finds the entries of a port, and of a switch"
}

user_units() {
    local as before
    useradd --create-home --uid 4711 someone
    systemctl start user@4711.service
    as=(setpriv --reuid 4711 --regid 4711 --init-groups env XDG_RUNTIME_DIR=/run/user/4711)
    "${as[@]}" systemctl --user start netvale.socket
    "${as[@]}" netvale list >/dev/null || fail "the user's first client"
    expect "the user's daemon" active "$("${as[@]}" systemctl --user is-active netvale.service)"
    "${as[@]}" netvale pkt-gen -i vale0:tx -f tx -n 10 >/dev/null 2>&1 || fail "the user's program"
    "${as[@]}" netvale attach vale0 vxlan:9,local=127.0.0.1,remote=127.0.0.2 >/dev/null || fail "the user's tunnel"
    before=$("${as[@]}" systemctl --user show -p MainPID --value netvale.service)
    "${as[@]}" netvale upgrade >/tmp/upgrade 2>&1 || fail "the user's upgrade: $(cat /tmp/upgrade)"
    [ "$("${as[@]}" systemctl --user show -p MainPID --value netvale.service)" != "$before" ] || fail "the user's daemon was not replaced"
    "${as[@]}" netvale show vale0:vxlan9 >/dev/null || fail "the user's tunnel did not survive the upgrade"
    systemctl stop user@4711.service
    userdel --remove someone 2>/dev/null
    say "a user's first client starts the user's own daemon, and the user can upgrade it"
}

# A container's interface by the CNI plugin, where podman looks for it.
cni() {
    local network='{"cniVersion": "1.0.0", "name": "net", "type": "netvale-cni", "bridge": "vale0"}'
    export CNI_CONTAINERID=c1 CNI_NETNS=/run/netns/pod CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni
    ip netns add pod
    CNI_COMMAND=ADD /usr/lib/cni/netvale-cni <<<"$network" >/tmp/cni || fail "CNI's ADD: $(cat /tmp/cni)"
    ip -n pod link show eth0 >/dev/null || fail "the container has no interface"
    CNI_COMMAND=DEL /usr/lib/cni/netvale-cni <<<"$network" || fail "CNI's DEL"
    ip netns del pod
    say "the CNI plugin gives a container an interface"
}

# The same program as netavark's plugin, where podman looks for it.
netavark() {
    local network='{"name": "lab", "id": "7f", "driver": "netvale", "options": {"switch": "vale0"}, "subnets": [{"subnet": "10.1.0.0/24"}]}'
    local container="{\"container_id\": \"c1\", \"network\": $network, \"network_options\": {\"interface_name\": \"eth0\", \"static_ips\": [\"10.1.0.2\"]}}"
    local plugin=/usr/lib/netavark/netvale
    ip netns add pod
    "$plugin" create <<<"$network" >/tmp/netavark || fail "netavark's create: $(cat /tmp/netavark)"
    "$plugin" setup /run/netns/pod <<<"$container" >/tmp/netavark || fail "netavark's setup: $(cat /tmp/netavark)"
    [[ $(ip -n pod addr show eth0) == *" 10.1.0.2/24 "* ]] || fail "podman's container has no address"
    "$plugin" teardown /run/netns/pod <<<"$container" || fail "netavark's teardown"
    ip netns del pod
    say "netavark's plugin gives a container an interface"
}

# The daemon's companions, as their pages describe them: they run under their units and do their work.
companions() {
    local unit log
    mkdir -p /etc/systemd/system/netvale-sflow.service.d
    printf '[Service]\nEnvironment="OPTIONS=--target 127.0.0.1 --polling 1"\n' >/etc/systemd/system/netvale-sflow.service.d/target.conf
    systemctl daemon-reload
    netvale attach vale7 null: >/dev/null
    systemctl enable --now netvale-web netvale-evpn netvale-sflow >/tmp/enable 2>&1 || fail "$(cat /tmp/enable)"
    until_ok "the page is served" sees_page
    until_ok "samples are sent" logs netvale-sflow 'sending samples'
    until_ok "the agent for FRR runs" systemctl is-active -q netvale-evpn
    for unit in web evpn sflow; do
        log=$(journalctl -b -u "netvale-$unit" -o cat -p warning --no-pager)
        expect "warnings of netvale-$unit" "" "$log"
    done
    netvale detach vale7 null >/dev/null
    rm -r /etc/systemd/system/netvale-sflow.service.d
    say "the page, the agent for FRR and the samples run under their units"
}

sees_page() (
    exec 3<>/dev/tcp/127.0.0.1/9848
    printf 'GET / HTTP/1.0\r\nHost: 127.0.0.1:9848\r\n\r\n' >&3
    read -r line <&3
    [[ $line == *" 200 "* ]] && [ -s /var/lib/netvale-web/token ]
)

logs() {
    journalctl -b -u "$1" -o cat --no-pager | grep "$2" >/dev/null
}

purge() {
    # As described in observe.md.
    systemctl enable --now netvale-metrics.socket >/dev/null 2>&1
    systemctl --global enable netvale.socket >/dev/null 2>&1
    deluser --quiet joe netvale
    userdel --remove joe 2>/dev/null
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
    say "purged: only the user account is left"
}

# make install, without Rust and without DESTDIR: then the instructions of service.md work.
from_source() {
    # The shell has cached the path of the removed one.
    hash -r
    /src/scripts/install.sh "" /usr/local /built >/tmp/install 2>&1 || fail "install.sh: $(cat /tmp/install)"
    ldconfig -p | grep '/usr/local/lib/libnetmap.so.0' >/dev/null || fail "the loader does not find the library"
    systemd-sysusers /usr/local/lib/sysusers.d/netvale.conf
    systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/netvale.conf
    systemctl daemon-reload
    systemctl enable --now netvale.socket netvale >/tmp/enable 2>&1 || fail "$(cat /tmp/enable)"
    traffic
    systemctl disable --now netvale.socket netvale-attach.socket netvale >/dev/null 2>&1
    say "installed from source: the daemon runs, and frames pass"
}

files >/tmp/before
install_older
upgrade_packages
upgrade_command
process
activation
ip netns del far
two_taps
killed
kinds
unit_is_named
watchdog
journal
user_units
cni
netavark
companions
purge
from_source
