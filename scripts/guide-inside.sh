#!/bin/bash
# guide-inside.sh READER SHELL [FILE…]: the part of guide-commands.sh that runs in the container, as root's service: makes the reader, and lets
# the reader have the session (guide-session.sh) with the page in /guide. SHELL: the command that the page has a rootless reader begin
# with. FILE: what the reader has, of what lies in /usr/share/guide.
set -euo pipefail
reader=$1 shell=$2
shift 2
account=reader
[ "$reader" != root ] || account=root
[ "$reader" != member ] || adduser --quiet reader netvale

# The container's own view of /proc and /sys has parts covered, and the kernel lets no user namespace make a fuller one. A machine has it.
mkdir /run/guide
for kind in proc sysfs; do
    mkdir "/run/guide/$kind"
    mount -t "$kind" "$kind" "/run/guide/$kind"
done
# The machine's services are up when a reader comes.
if [ -e /lib/systemd/system/netvale.service ] || [ -e /usr/lib/systemd/system/netvale.service ]; then systemctl start netvale.service; fi

home=$(getent passwd "$account" | cut -d: -f6)
for file in "$@"; do
    case $file in
    netvale) cp -a /usr/share/guide/netvale "$home/" ;;
    *.qcow2) cp /usr/share/guide/guest.qcow2 "$home/$file" ;;
    esac
done
cp -r /guide/page /var/tmp/guide
chown -R "$account:" "$home" /var/tmp/guide
exec su -l "$account" -c "exec $shell bash -l /guide/session /var/tmp/guide"
