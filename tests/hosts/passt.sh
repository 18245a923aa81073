#!/usr/bin/env bash
# passt, an unprivileged program that replaces a network card's uplink, as the vhost-user back end of a `virtio:` port:
# TCP and UDP from a namespace on the switch to the host's sockets, and back.
#
# passt leaves the checksums out of the host's frames and marks them as valid (VIRTIO_NET_HDR_F_DATA_VALID). It takes
# each descriptor of a chain for a frame of its own, so frames must fit into one descriptor.
# measures: no
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
need python3
tree=$("$root/scripts/newer-passt.sh") || skip "passt is not unpacked (scripts/newer-passt.sh)"
loader=$(find "$tree" -name 'ld-linux-*.so.*' | head -n 1)
libraries=$(dirname "$(find "$tree" -name libc.so.6)")

# begin: sets up the namespace `outside` with passt, the switch vale0 behind it, and the namespace `inside` on the
# switch.
begin() {
    space outside
    ip -n outside link add up0 type bridge
    ip -n outside addr add 192.0.2.1/24 dev up0
    ip -n outside link set up0 up
    ip -n outside route add default via 192.0.2.254
    background in_space outside "$loader" --library-path "$libraries" "$tree/usr/bin/passt" --foreground --quiet \
        --vhost-user --socket "$TMPDIR/passt" --mtu 1500 --ipv4-only --address 10.0.2.15 --netmask 255.255.255.0 \
        --gateway 10.0.2.2 --tcp-ports 8080 --udp-ports 8080 >"$work/passt.err" 2>&1
    wait_for "passt listens" 20 test -S "$TMPDIR/passt"
    must nv attach vale0 "virtio:$TMPDIR/passt" --name passt --lossless
    space inside
    attach in0 inside
    ip -n inside addr add 10.0.2.15/24 dev in0
    ip -n inside route add default via 10.0.2.2
}

# carries WHAT PORT SERVER ADDRESS CLIENT ADDRESS: sends 10 MiB in each direction, and datagrams.
carries() {
    background in_space "$3" python3 "$here/transfer.py" serve "$4" "$2" >"$work/server.out" 2>&1
    wait_for "the server listens" 20 grep -q ready "$work/server.out"
    in_space "$5" python3 "$here/transfer.py" fetch "$6" "$2" $((10 << 20)) >"$work/client.out" 2>&1 ||
        fail "$1" "$(cat "$work/client.out")" "$(cat "$work/passt.err")" "$(shown passt | jq -c .)"
    ended "$1" $! 0
}

start_daemon
begin
carries "to the host: 10 MiB each way, and datagrams" 9090 outside 127.0.0.1 inside 10.0.2.2
carries "from the host: 10 MiB each way, and datagrams" 8080 inside 10.0.2.15 outside 127.0.0.1
drops_nothing passt || fail "nothing is lost" "$(shown passt)"
ok "nothing is lost"
finish
