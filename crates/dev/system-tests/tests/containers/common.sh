# Sourced by the scripts beside it, which run in mount, network and process namespaces of their own: what they start ends with them.
# PROGRAMS: the folder with netvale and netvale-cni. The current folder is the script's own, and empty.
set -euo pipefail

netvale=$PROGRAMS/netvale

# A container runtime wants control groups, and folders below /run. podman's locks are in shared memory, where two that begin together are in each
# other's way.
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
ip link set lo up

# await COMMAND…: until it succeeds, for a minute.
await() {
    local i
    for ((i = 0; i < 600; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    echo "time is up: $*" >&2
    return 1
}

# no_ports: whether the daemon has none.
no_ports() {
    "$netvale" list --json | grep -q '"ports": *\[\]'
}

has_ports() {
    if no_ports; then return 1; fi
}

# network SUBNET: the network's configuration.
network() {
    mkdir -p plugins net
    ln -sf "$PROGRAMS/netvale-cni" /usr/lib/cni/host-local /usr/lib/cni/loopback plugins/
    cat >net/10-netvale.conflist <<JSON
{"cniVersion": "1.0.0", "name": "netvale", "plugins": [{"type": "netvale-cni", "runDir": "/run/netvale",
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "$1"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "$PWD/addresses"}}]}
JSON
}

# image NAME: an image of busybox, made here. Limits stay what they are: raising them takes a right that not every machine gives.
image() {
    local applet
    printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/storage"\nrunroot = "/run/containers"\n' "$PWD" >storage.conf
    cat >containers.conf <<TOML
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[network]
network_backend = "cni"
cni_plugin_dirs = ["$PWD/plugins"]
network_config_dir = "$PWD/net"
[engine]
cgroup_manager = "cgroupfs"
runtime = "crun"
TOML
    export CONTAINERS_STORAGE_CONF=$PWD/storage.conf CONTAINERS_CONF=$PWD/containers.conf
    mkdir -p root/bin root/tmp root/proc root/etc
    cp /bin/busybox root/bin/
    for applet in sh ping ip sleep; do ln -s busybox root/bin/$applet; done
    tar -C root -c . | podman import -q -c 'CMD ["/bin/sleep", "600"]' - "$1"
}

"$netvale" up >netvale.log 2>&1 &
await "$netvale" list
