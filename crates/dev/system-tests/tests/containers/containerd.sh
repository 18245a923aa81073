# Two pods that containerd makes as the kubelet asks it to (CRI) reach each other; once removed, they leave nothing.
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)

network 10.88.6.0/24
image localhost/pause:1
podman save -q --format docker-archive -o pause.tar localhost/pause:1
cat >containerd.toml <<TOML
version = 2
root = "$PWD/containerd"
state = "/run/containerd-test"
[grpc]
  address = "/run/containerd-test/c.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$PWD/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_cgroup = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$PWD/plugins"
    conf_dir = "$PWD/net"
TOML
socket=/run/containerd-test/c.sock
containerd --config containerd.toml >containerd.log 2>&1 &
await ctr -a $socket version
ctr -a $socket -n k8s.io images import --snapshotter native pause.tar
cri() {
    /usr/bin/python3 "$here/cri.py" $socket "$@"
}
# The runtime reads the network's configuration when it notices it.
await cri ready
one=$(cri run one "$PWD/logs")
two=$(cri run two "$PWD/logs")
namespaces=(/run/netns/cni-*)
[ "${#namespaces[@]}" = 2 ]
address=$(nsenter --net="${namespaces[1]}" ip -4 -o addr show eth0 | sed 's/.*inet \([0-9.]*\).*/\1/')
nsenter --net="${namespaces[0]}" ping -c 2 -i 0.2 -W 20 "$address"
cri stop "$one"
has_ports
cri stop "$two"
no_ports
echo reached the end
