#!/usr/bin/env bash
# booted.sh [OPTION…] TREE SCRIPT [ARGUMENT…]: boots a tree (package-tree.sh) with systemd in a container, and runs
# SCRIPT in it as a service of root's. The output of SCRIPT appears here immediately, and its exit status is passed on.
#
#   --bind FROM:TO, --bind-ro FROM:TO   binds a file or folder of this machine to TO, which must not be below /run
#   --env NAME=VALUE                    sets an environment variable of SCRIPT
#   --limit SECONDS                     time limit of SCRIPT (300), excluding up to a minute for the boot; exit status 124 if exceeded
#   --size SIZE                         of the memory for all writes (2g)
#   --nspawn OPTION                     an additional option of systemd-nspawn, such as --nspawn --capability=all
#   --out FOLDER                        receives the files that SCRIPT leaves in /booted/out
#   --console FILE                      receives the boot messages; without it, they are printed if SCRIPT did not run
#
# The container has a network of its own without a connection to the outside, and nothing on this machine is changed:
# all writes, also those to the tree, go to memory and disappear with the container. Several may run at once. However
# the script ends, even by SIGKILL, no mount, process, control group or file is left.
#
# Exit status 125: the container could not be started, or did not run SCRIPT.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The time that systemd may take to start SCRIPT, and to end it, in seconds.
boot_limit=60
end_limit=15

# hierarchies: prints the control group hierarchies of this machine.
hierarchies() {
    local hierarchy
    for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        [ ! -e "$hierarchy/cgroup.procs" ] || echo "$hierarchy"
    done
}

# enter_group NAME: moves this shell into control groups of its own, below which systemd-nspawn creates its groups.
enter_group() {
    local hierarchy
    for hierarchy in $(hierarchies); do
        echo "$BASHPID" >"$hierarchy/$1/cgroup.procs"
    done
}

# groups NAME: prints the folders of these control groups, the innermost first.
groups() {
    local hierarchy
    for hierarchy in $(hierarchies); do find "$hierarchy/$1" -depth -type d 2>/dev/null || true; done
}

# clean_after NAME FOLDER: waits for the end of the container, kills its processes, and removes what it left.
clean_after() {
    local group until
    trap '' INT TERM HUP
    # The script that started the container holds the other end of this pipe.
    cat >/dev/null
    until=$((SECONDS + 30))
    while group=$(groups "$1") && [ -n "$group" ] && [ "$SECONDS" -lt "$until" ]; do
        for group in $group; do
            # shellcheck disable=SC2046 # numbers
            kill -KILL $(cat "$group/cgroup.procs" 2>/dev/null) 2>/dev/null || true
            rmdir "$group" 2>/dev/null || true
        done
        sleep 0.02
    done
    rm -rf "$2"
}

# boot NAME FOLDER TREE SIZE LIMIT OPTION…: boots the container, inside a mount namespace of its own.
boot() {
    local name=$1 work=$2 tree=$3 size=$4 limit=$5 disk=$2/disk register=(--register=no --keep-unit)
    shift 5
    mount -t tmpfs -o "size=$size,mode=755" tmpfs "$disk"
    mkdir "$disk/upper" "$disk/work" "$disk/root"
    mount -t overlay -o "lowerdir=$tree,upperdir=$disk/upper,workdir=$disk/work" overlay "$disk/root"
    # If systemd runs this machine, the container is in a scope; otherwise, what systemd-nspawn leaves in /run
    # disappears with the namespace.
    if [ ! -d /run/systemd/system ]; then
        mount -t tmpfs -o mode=755 tmpfs /run
        enter_group "$name"
    fi
    # As on a machine: with what interfaces (AF_XDP) need, and with the units' settings for devices, addresses and
    # limits.
    local like=(--capability=CAP_BPF,CAP_IPC_LOCK --system-call-filter=bpf --rlimit=MEMLOCK=infinity --rlimit=NOFILE=524288)
    # Only cgroup v2 in all containers: newer versions of systemd support no other.
    export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
    exec timeout --foreground --signal KILL "$limit" setpriv --pdeathsig KILL systemd-nspawn --quiet --directory "$disk/root" \
        --machine "$name" --boot --private-network --console=pipe "${like[@]}" "${register[@]}" \
        --bind="$work/booted:/booted" --bind-ro="$work/booted.service:/etc/systemd/system/booted.service" \
        --bind-ro="$work/wants.conf:/etc/systemd/system/multi-user.target.d/booted.conf" "$@"
}

# make_unit FOLDER LIMIT SCRIPT ARGUMENT…: writes the unit, and the command that it runs.
make_unit() {
    local folder=$1 limit=$2
    shift 2
    mkdir "$folder/booted" "$folder/booted/out" "$folder/disk"
    chmod 755 "$folder" "$folder/booted" "$folder/booted/out"
    : >"$folder/booted/log"
    {
        echo '#!/bin/bash'
        [ ${#variables[@]} = 0 ] || printf 'export %q\n' "${variables[@]}"
        printf 'exec'
        printf ' %q' /booted/script "$@"
        echo
    } >"$folder/booted/run"
    cat >"$folder/booted.service" <<UNIT
[Unit]
Description=what booted.sh runs
[Service]
ExecStart=/bin/bash /booted/run
# The machine is switched off immediately, as it is not used again.
ExecStopPost=/bin/sh -c 'echo "\$SERVICE_RESULT \$EXIT_STATUS" >/booted/status; systemctl poweroff --force --force'
Environment=HOME=/root
WorkingDirectory=/root
RuntimeMaxSec=$limit
TimeoutStopSec=$end_limit
StandardOutput=append:/booted/log
StandardError=append:/booted/log
UNIT
    printf '[Unit]\nWants=booted.service\n' >"$folder/wants.conf"
}

# end_as FOLDER LIMIT CONSOLE: exits with the status of the script in the container.
end_as() {
    local result=none status=none
    [ ! -e "$1/booted/status" ] || read -r result status <"$1/booted/status"
    [ -z "$out" ] || cp -a "$1/booted/out/." "$out/"
    case $result/$status in
    timeout/*)
        echo "booted.sh: the script exceeded its time limit of $2 s" >&2
        exit 124
        ;;
    */[0-9]*) exit "$status" ;;
    none/*)
        tail -n 40 "$3" >&2
        echo "booted.sh: systemd did not run the script" >&2
        exit 125
        ;;
    *)
        echo "booted.sh: the script was ended by SIG$status" >&2
        exit 125
        ;;
    esac
}

if [ "${1:-}" = --boot ]; then
    shift
    boot "$@"
fi

variables=() options=() limit=300 size=2g console='' out=''
while [ $# -gt 0 ]; do
    case $1 in
    --bind | --bind-ro) options+=("$1=$2") ;;
    --env) variables+=("$2") ;;
    --limit) limit=$2 ;;
    --size) size=$2 ;;
    --nspawn) options+=("$2") ;;
    --console) console=$2 ;;
    --out) out=$2 ;;
    -*) echo "booted.sh: unknown option $1 (see the first lines of the script)" >&2 && exit 2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# -ge 2 ] || { echo "usage: booted.sh [OPTION…] TREE SCRIPT [ARGUMENT…]" >&2; exit 2; }
tree=$1 script=$2
shift 2
[ "$(id -u)" = 0 ] || { echo "booted.sh: booting a container requires root" >&2; exit 125; }
have systemd-nspawn || { echo "booted.sh: systemd-nspawn is not installed (scripts/install-deps.sh test-system)" >&2; exit 125; }
[ -e "$tree/usr/lib/systemd/systemd" ] || { echo "booted.sh: no systemd in $tree" >&2; exit 125; }
[ -r "$script" ] || { echo "booted.sh: cannot read the script $script" >&2; exit 125; }

name=netvale-booted-$$
work=$(mktemp -d)
# The cleaner starts its work when the last process that holds $alive has ended: only this shell does.
exec {alive}> >(exec setsid "$BASH" -c "$(declare -f hierarchies groups clean_after); clean_after $name '$work'")
cleaner=$!
container='' follower=''
finish() {
    local process
    for process in $container $follower; do
        kill -KILL "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    exec {alive}>&-
    wait "$cleaner" || true
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

make_unit "$work" "$limit" "$@"
cp "$script" "$work/booted/script"
chmod 755 "$work/booted/script"
console=${console:-$work/console}
scope=()
if [ -d /run/systemd/system ]; then
    scope=(systemd-run --quiet --collect --scope --unit "$name" --property Delegate=yes)
else
    # mkdir holds $alive, too: the cleaner does not look before the groups exist.
    for hierarchy in $(hierarchies); do mkdir "$hierarchy/$name"; done
fi
setpriv --pdeathsig KILL "${scope[@]}" unshare --mount --propagation private "$root/scripts/booted.sh" --boot "$name" "$work" "$tree" "$size" \
    $((limit + boot_limit + end_limit)) "${options[@]}" {alive}>&- </dev/null >"$console" 2>&1 &
container=$!
tail -n +1 -f --pid "$container" "$work/booted/log" {alive}>&- &
follower=$!
wait "$container" || true
container=''
wait "$follower" || true
follower=''
end_as "$work" "$limit" "$console"
