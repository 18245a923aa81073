# Two containers that podman puts on a switch by CNI reach each other; one that is gone leaves nothing.
. "$(dirname "$0")/common.sh"

network 10.88.5.0/24
image box
podman run -d --name one --network netvale box
address=$(podman inspect --format '{{.NetworkSettings.Networks.netvale.IPAddress}}' one)
podman run --rm --network netvale box ping -c 2 -i 0.2 -W 20 "$address"
podman run --rm --network netvale --mac-address 02:00:00:00:55:01 box ip link show eth0 | grep 02:00:00:00:55:01
has_ports
podman rm -f -t 0 one
no_ports
[ -z "$(ls addresses/netvale | grep '^10\.')" ]
# A container that is killed, runtime and all, is removed by podman later.
podman run -d --name two --network netvale box
kill -9 "$(podman inspect --format '{{.State.ConmonPid}}' two)" "$(podman inspect --format '{{.State.Pid}}' two)"
# It gives up on one of whose end it hears at that moment.
await podman rm -f -t 0 two
no_ports
echo reached the end
