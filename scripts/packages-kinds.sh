# Sourced by packages-inside.sh: one port of every kind under the shipped unit, by the table packages-kinds.txt.

# The switch under test, and another one for the other ends.
switch=vale7
other=vale8

# As described in service.md: folders in the unit and in the configuration, and what other users may open.
prepare_kinds() {
    mkdir -p /srv/kinds /etc/systemd/system/netvale.service.d
    chown netvale /srv/kinds
    chmod 1777 /srv/kinds
    printf '[Service]\nReadWritePaths=/srv/kinds\n' >/etc/systemd/system/netvale.service.d/kinds.conf
    sed -i '1i allow_taps = ["kt0", "kt1"]\nallow_nics = ["ka"]\nallow_dirs = ["/srv/kinds"]' /etc/netvale.toml
    systemctl daemon-reload
    often
    systemctl restart netvale.service
    # Frames of interfaces need locked memory, whose limit the unit raises. If this machine forbids that, a capability
    # has the same effect.
    if ! grep -E 'Max locked memory +unlimited' "/proc/$(pid_of)/limits" >/dev/null; then
        printf '[Service]\nAmbientCapabilities=CAP_IPC_LOCK\nCapabilityBoundingSet=CAP_IPC_LOCK\n' \
            >/etc/systemd/system/netvale.service.d/locked.conf
        systemctl daemon-reload
        often
        systemctl restart netvale.service
    fi
    useradd --create-home joe
    adduser --quiet joe netvale
}

# send [SWITCH]: sends frames to all ports of a switch.
send() { "${as[@]}" netvale pkt-gen -i "${1:-$switch}:gen" -f tx -n 100 >/dev/null 2>&1; }

# grows SWITCH:PORT in|out COMMAND…: frames must pass there while the command runs.
grows() {
    local port=$1 way=$2 before end=$((SECONDS + 30))
    shift 2
    before=$(frames "$port" "$way")
    while "$@" || true; [ "$(frames "$port" "$way")" -le "$before" ]; do
        [ "$SECONDS" -lt "$end" ] || fail "$port, ${as[*]}: no frames $way by: $*; $("${as[@]}" netvale show "$port")"
    done
}

# Preparations of the ports.

namespace() { ip netns del kinds 2>/dev/null || true; ip netns add kinds; }

cable() {
    ip link del ka 2>/dev/null || true
    ip link add ka type veth peer name kb
    ip link set ka up
    ip addr add 10.77.2.1/24 dev kb
    ip link set kb up
}

# A file with one frame.
recording() {
    perl -e 'print pack("VvvVVVV", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1), pack("VVVV", 1, 0, 60, 60),
        "\xff" x 6, "\2\0\0\0\0\1", "\x88\xb5", "\0" x 46' >/srv/kinds/in.pcap
}

back_end() { "${as[@]}" netvale attach "$other" vhost:/srv/kinds/kw.sock --name back >/dev/null; }

addresses() {
    ip addr replace 10.78.0.1/32 dev lo
    ip addr replace 10.78.0.2/32 dev lo
    ip addr replace fd78::1/128 dev lo nodad
    ip addr replace fd78::2/128 dev lo nodad
}

# Proofs that the ports work.

is_there() { "${as[@]}" netvale show "$switch:$1" >/dev/null; }
takes() { grows "$switch:$1" out send; }
gives() { grows "$switch:$1" in sleep 0.05; }
takes_and_gives() { takes "$1" && grows "$switch:$1" in send; }

receives() {
    local receiver
    "${as[@]}" netvale pkt-gen -i "$switch:$1" -f rx -n 100 >/tmp/receiver 2>&1 &
    receiver=$!
    takes "$1"
    while kill -0 "$receiver" 2>/dev/null; do send; done
    wait "$receiver" || fail "$1: $(cat /tmp/receiver)"
}

# device_takes DEVICE: the kernel's device must receive what is sent to all ports.
device_takes() {
    local statistic=/sys/class/net/$1/statistics/rx_packets before end=$((SECONDS + 30))
    before=$(cat "$statistic")
    while send || true; [ "$(cat "$statistic")" -le "$before" ]; do
        [ "$SECONDS" -lt "$end" ] || fail "the kernel receives nothing on $1"
    done
}

# ask DEVICE ADDRESS: sends ARP requests for an address that nobody has.
ask() { ping -c 1 -W 1 -i 0.2 -I "$1" "$2" >/dev/null 2>&1; }

tap_works() {
    ip addr add 10.77.0.1/24 dev "$1"
    ip link set "$1" up
    grows "$switch:$1" in ask "$1" 10.77.0.9
    device_takes "$1"
}

namespace_answers() {
    ip -n kinds addr add 10.77.1.1/24 dev "$1"
    ip -n kinds link set "$1" up
    grows "$switch:$1" in ip netns exec kinds ping -c 1 -W 1 10.77.1.9 >/dev/null
}

cable_works() {
    grows "$switch:$1" in ask kb 10.77.2.9
    device_takes kb
}

# The port behind an interface, towards the host.
stack_behind() {
    ip addr replace 10.77.3.1/24 dev "$1"
    grows "$switch:$1^" in ask "$1" 10.77.3.9
}

captures() {
    takes "$1"
    until_ok "frames in the file" sh -c "[ \$(stat -c %s /srv/kinds/$1.pcap) -gt 24 ]"
}

# socket_of PORT: prints the path of its socket.
socket_of() { "${as[@]}" netvale show "$switch:$1" --json | grep -o '"path":"[^"]*"' | cut -d'"' -f4; }

# The device's driver is netvale's own, on the other switch.
guest_by_virtio() {
    "${as[@]}" netvale attach "$other" "virtio:$(socket_of "$1")" --name front >/dev/null
    grows "$other:front" in send
    "${as[@]}" netvale detach "$other:front" >/dev/null
}

guest_sends() {
    grows "$switch:$1" in send "$other"
    "${as[@]}" netvale detach "$other:back" >/dev/null
}

# The first messages of an ivshmem server to QEMU: its version, 0, and a number for the guest.
talks_ivshmem() {
    # shellcheck disable=SC2016 # Perl's own
    "${as[@]}" perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$!";
        alarm 20; read($s, my $said, 16) == 16 or die "short"; exit((unpack "q<", $said)[0] != 0)' "$(socket_of "$1")" ||
        fail "$1 does not answer as an ivshmem server"
}

# QEMU's first message to a vfio-user server, its version, is answered (flags: a reply, without an error).
talks_vfio_user() {
    # shellcheck disable=SC2016 # Perl's own
    "${as[@]}" perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$!";
        alarm 20; my $body = pack("vv", 0, 1) . "{\"capabilities\":{\"max_msg_fds\":8}}\0";
        print $s pack("vvVVV", 7, 1, 16 + length $body, 0, 0), $body; $s->flush;
        read($s, my $said, 16) == 16 or die "short"; my ($id, $command, $size, $flags) = unpack "vvVV", $said;
        exit !($id == 7 && $command == 1 && ($flags & 0x2f) == 1)' "$(socket_of "$1")" || fail "$1 does not answer as a vfio-user server"
}

# other_end PORT OPTIONS…: frames sent here must come out at the other end, another port of the same daemon.
other_end() {
    "${as[@]}" netvale attach "$other" "${@:2}" --name far_end >/dev/null
    grows "$other:far_end" in send
    "${as[@]}" netvale detach "$other:far_end" >/dev/null
}

# other_end_begins PORT OPTIONS…: frames sent at the other end must come in here.
other_end_begins() {
    "${as[@]}" netvale attach "$other" "${@:2}" --name far_end >/dev/null
    grows "$switch:$1" in send "$other"
    "${as[@]}" netvale detach "$other:far_end" >/dev/null
}

# A folder for a VDE switch's sockets and those of its plugs.
vde_folder() {
    mkdir -m 1777 /srv/kinds/vde
    chown netvale /srv/kinds/vde
}

# A plug's request, with a socket beside the switch's, is answered with the socket of port 1.
talks_vde() {
    # shellcheck disable=SC2016 # Perl's own
    "${as[@]}" perl -MIO::Socket::UNIX -MSocket -e 'umask 0; my $plug = "$ARGV[0]/plug";
        my $data = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => $plug) or die "$!";
        my $s = IO::Socket::UNIX->new(Peer => "$ARGV[0]/ctl") or die "$!";
        alarm 20; print $s pack("LLLSa108", 0xfeedface, 3, 0, AF_UNIX, $plug); $s->flush;
        read($s, my $said, 110) == 110 or die "short"; exit(substr($said, 2) !~ m{^\Q$ARGV[0]\E/001\.0\0})' \
        /srv/kinds/vde || fail "$1 does not answer as a VDE switch"
}

# kind OPTIONS BEFORE PROOF MEMBER: tests a row of the table as the current user ($as).
kind() {
    local options=$1 before=$2 proof=$3 member=$4
    rm -rf /srv/kinds/*
    [ "$before" = - ] || "$before"
    if [ "${as[0]}" != env ] && [ "$member" != yes ]; then
        # shellcheck disable=SC2086 # words
        refused "$member" "${as[@]}" netvale attach "$switch" $options
    elif [[ $proof == refused\ * ]]; then
        # shellcheck disable=SC2086 # words
        refused "${proof#refused }" "${as[@]}" netvale attach "$switch" $options
    else
        # shellcheck disable=SC2086 # words
        "${as[@]}" netvale attach "$switch" $options >/tmp/attach 2>&1 || fail "attach $options, ${as[*]}: $(cat /tmp/attach)"
        # shellcheck disable=SC2086 # words
        $proof
        # shellcheck disable=SC2086 # words
        set -- $proof
        "${as[@]}" netvale detach "$switch:$2" >/dev/null || fail "detach $2"
    fi
}

# Tests all rows as the current user.
all_kinds() {
    local name options before proof member rows=0
    while IFS='|' read -r -u 8 name options before proof member; do
        [[ $name != '#'* ]] || continue
        read -r before <<<"$before"
        read -r proof <<<"$proof"
        read -r member <<<"$member"
        kind "$options" "$before" "$proof" "$member"
        rows=$((rows + 1))
    done 8</test/kinds.txt
    # What a program opens without a switch.
    cable
    grows_in_kernel "${as[@]}" netvale pkt-gen -i netmap:ka -f tx -n 100
    expect "ports left" "" "$("${as[@]}" netvale list "$switch" 2>/dev/null | grep "^$switch:" || true)"
    say "$rows kinds of ports under the unit: $1"
}

# grows_in_kernel COMMAND…: the command's frames must come out of the cable.
grows_in_kernel() {
    local before
    before=$(cat /sys/class/net/kb/statistics/rx_packets)
    "$@" >/tmp/program 2>&1 || fail "$*: $(cat /tmp/program)"
    until_ok "its frames" sh -c "[ \$(cat /sys/class/net/kb/statistics/rx_packets) -gt $before ]"
}

kinds() {
    local as=(env)
    prepare_kinds
    all_kinds "as root"
    as=(setpriv --reuid joe --regid joe --init-groups env NETVALE_RUN_DIR=/run/netvale)
    all_kinds "as a member of the group netvale"
    ip link del ka
    ip netns del kinds
}

# If the unit forbids something, the refusal names its line.
unit_is_named() {
    mkdir -p /srv/other
    chown netvale /srv/other
    refused "ReadWritePaths=" netvale attach vale7 vhost:/srv/other/vm.sock
    refused "ReadWritePaths=" netvale attach vale7 pcap:out=/srv/other/out.pcap
    mkdir -p /run/systemd/system/netvale.service.d
    printf '[Service]\nRestrictAddressFamilies=\nRestrictAddressFamilies=AF_UNIX AF_NETLINK AF_PACKET AF_XDP\n' \
        >/run/systemd/system/netvale.service.d/families.conf
    systemctl daemon-reload
    often
    systemctl restart netvale.service
    refused "add AF_INET AF_INET6 to RestrictAddressFamilies=" netvale attach vale7 vxlan:77,local=10.78.0.1,remote=10.78.0.2
    rm -r /run/systemd/system/netvale.service.d /etc/systemd/system/netvale.service.d /srv/kinds /srv/other
    sed -i '/^allow_/d' /etc/netvale.toml
    systemctl daemon-reload
    often
    systemctl restart netvale.service
    say "refusals name the line of the unit that causes them"
}
