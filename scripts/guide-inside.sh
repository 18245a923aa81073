#!/bin/bash
# guide-inside.sh READER SHELL [FILE…]: the part of guide-commands.sh that runs in the container, as a service of
# root's: creates the reader, and runs the reader's session (guide-session.sh) with the page in /guide. SHELL: the
# command with which the page has a rootless reader begin. FILE: what the reader has, from /usr/share/guide; qemu: a
# newer one.
set -euo pipefail
reader=$1 shell=$2
shift 2
account=reader
[ "$reader" != root ] || account=root
[ "$reader" != member ] || adduser --quiet reader netvale

# Parts of the container's own /proc and /sys are covered, and then the kernel lets neither a user namespace nor a
# container in the container mount a complete one. A real machine has them complete.
mkdir -p /run/guide/proc /run/guide/sysfs /run/guide/cgroup
mount -t proc proc /run/guide/proc
mount -t sysfs sysfs /run/guide/sysfs
mount --bind /sys/fs/cgroup /run/guide/cgroup
umount --recursive --lazy /sys
mount -t sysfs -o ro sysfs /sys
mount --bind /run/guide/cgroup /sys/fs/cgroup
# If this machine's root may not raise limits (CAP_SYS_RESOURCE), systemd cannot give the daemon the locked memory that
# its unit requests, nor podman its limits.
if ! (ulimit -l unlimited) 2>/dev/null; then
    mkdir -p /run/systemd/system/netvale.service.d
    printf '[Service]\nAmbientCapabilities=CAP_IPC_LOCK\nCapabilityBoundingSet=CAP_IPC_LOCK\n' >/run/systemd/system/netvale.service.d/limits.conf
    systemctl daemon-reload
    printf '%s\n' 'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024", "memlock=65536:65536"]' 'cgroups = "disabled"' >>/etc/containers/containers.conf
    [ "$(systemctl is-active netvale.service)" != active ] || systemctl restart netvale.service
fi
# The machine's services have started when a reader logs in.
if [ -e /lib/systemd/system/netvale.service ] || [ -e /usr/lib/systemd/system/netvale.service ]; then systemctl start netvale.service; fi

home=$(getent passwd "$account" | cut -d: -f6)
for file in "$@"; do
    case $file in
    netvale) cp -a /usr/share/guide/netvale "$home/" ;;
    *.qcow2) cp /usr/share/guide/guest.qcow2 "$home/$file" ;;
    nomsi) for disk in "$home"/*.qcow2; do cp /usr/share/guide/nomsi.qcow2 "$disk"; done ;;
    qemu)
        # A newer QEMU than Debian's, as a user who needs one would install it.
        cat >/usr/local/bin/qemu-system-x86_64 <<'QEMU'
#!/bin/sh
exec /opt/qemu/usr/lib64/ld-linux-x86-64.so.2 --library-path /opt/qemu/usr/lib/x86_64-linux-gnu /opt/qemu/usr/bin/qemu-system-x86_64 \
    -L /opt/qemu/usr/share/qemu -L /opt/qemu/usr/share/seabios "$@"
QEMU
        chmod 755 /usr/local/bin/qemu-system-x86_64
        ;;
    esac
done
cp -r /guide/page /var/tmp/guide
chown -R "$account:" "$home" /var/tmp/guide
status=0
su -l "$account" -c "exec $shell bash -l /guide/session /var/tmp/guide" || status=$?
cd /var/tmp/guide
if [ "$status" = 0 ] && [ -s ran ]; then
    echo "$(cat ran) blocks"
    exit
fi
cat log 2>/dev/null || true
for log in log.*; do [ ! -s "$log" ] || { echo "-- terminal of line ${log#log.}:" && tail -n 20 "$log"; }; done
echo "line $(cat now 2>/dev/null): FAILED (status $status)"
exit 1
