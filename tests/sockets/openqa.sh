#!/usr/bin/env bash
# Parallel jobs of openQA's test engine, os-autoinst, on a netvale switch, all as an ordinary user without capabilities:
# three machines boot, the two in one VLAN reach each other, also by frames of 8,000 bytes, and the third does so only
# once it is in that VLAN. First with NICTYPE=vde and the drop-in for vde_switch; then with the guide's patch, which
# adds NICTYPE=netvale.
#
# The folder openqa has the jobs' test distribution, and their barriers, which are otherwise openQA's own.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need patch pgrep python3

# --- the place of the jobs

# engine: mounts os-autoinst's system at $work/root, with the script's folder in the same place as outside.
engine() {
    local trees
    trees=$(nsenter "--net=/proc/self/fd/$outside" "$root/scripts/os-autoinst.sh" 2>"$work/trees.log") ||
        skip "no os-autoinst: $(tail -n 1 "$work/trees.log")"
    mkdir "$work"/{root,upper,overlay}
    mount -t overlay -o "lowerdir=${trees//$'\n'/:},upperdir=$work/upper,workdir=$work/overlay" test "$work/root"
    mkdir -p "$work/root"{/guest,/openqa,"$work"}
    mount --bind /dev "$work/root/dev"
    mount -t proc test "$work/root/proc"
    mount --bind "$image" "$work/root/guest"
    mount --bind "$here/openqa" "$work/root/openqa"
    mount --bind "$work" "$work/root$work"
}

# printed TEXT: prints the block of the guide's page that contains the text.
printed() {
    awk -v text="$1" '/^```/ { if (found) printf "%s", block; block = ""; found = 0; next }
        { block = block $0 "\n"; if (index($0, text)) found = 1 }' "$root/docs/guide/harnesses.md"
}

# A guest with a shell on its virtio console.
shell_guest() {
    mkdir -p "$work/guest/more"
    cp "$image"/console/*virtio_console.ko "$work/guest/more/"
    cat >"$work/guest/script" <<'SCRIPT'
busybox stty -F /dev/hvc0 cols 1000
echo "guest: shell"
exec busybox setsid sh -c 'PS1="# " exec sh -i </dev/hvc0 >/dev/hvc0 2>&1'
SCRIPT
    guest_initrd guest
    chmod 644 "$work/guest.initrd"
}

# --- jobs

declare -A jobs=()

# job NAME WORKER ADDRESSES SETTING…: starts isotovideo in a folder of its own below $pool. It puts the kernel's
# arguments into quotation marks, which make the first and the last one useless.
job() {
    local name=$1 worker=$2
    "${as_user[@]}" mkdir "$pool/$name"
    background chroot "$work/root" "${as_user[@]}" PATH="$work/bin:$PATH" "${surroundings[@]}" isotovideo --debug \
        --color=no "--workdir=$pool/$name" CASEDIR=/openqa "NEEDLES_DIR=$work/needles" DISTRI=openqa "MACHINE=$name" \
        "JOBTOKEN=$name" "OPENQA_URL=127.0.0.1:$(cat "$pool/barriers")" "WORKER_ID=$worker" "WORKER_INSTANCE=$worker" \
        "VNC=$((90 + worker))" "QEMUPORT=$((20002 + worker * 10))" "ADDRESSES=$3" \
        QEMU=x86_64 QEMU_NO_KVM=1 QEMUCPU=max QEMURAM=256 QEMUCPUS=1 NUMDISKS=0 QEMU_DISABLE_SNAPSHOTS=1 \
        QEMU_NO_TABLET=1 NOVIDEO=1 KERNEL=/guest/vmlinux \
        "INITRD=$work/guest.initrd" "APPEND=- console=ttyS0 quiet panic=-1 no_timer_check -" \
        "${settings[@]}" "${@:4}" >"$pool/$name.log" 2>&1
    jobs[$name]=$!
}

# begin_jobs NAME SETTING…: prepares a folder for jobs with these settings.
begin_jobs() {
    pool=$work/$1 settings=("${@:2}")
    mkdir -m 777 "$pool"
    background python3 "$here/openqa/barriers.py" "$pool/barriers" 2>"$pool/barriers.log"
    wait_for "barriers" 20 test -s "$pool/barriers"
}

# results NAME: the results of a job's test modules.
results() {
    jq -r .result "$pool/$1"/testresults/result-{boot,network,shutdown}.json 2>/dev/null | xargs
}

# has_failed NAME: whether a module of the job has failed, or the job has ended without all of them.
has_failed() {
    grep -qs '"result" : "fail"' "$pool/$1"/testresults/result-*.json ||
        { gone "${jobs[$1]}" && [ "$(results "$1")" != "ok ok ok" ]; }
}

# Whether all jobs have ended, or one has failed, for which others would wait.
settled() {
    local name running=
    for name in "${!jobs[@]}"; do
        ! has_failed "$name" || return 0
        gone "${jobs[$name]}" || running=yes
    done
    [ -z "$running" ]
}

# none_has_failed WHAT
none_has_failed() {
    local name
    for name in "${!jobs[@]}"; do
        ! has_failed "$name" || fail "$1: the job $name" "results: $(results "$name")" "$(tail -n 60 "$pool/$name.log")"
    done
}

# all_ok WHAT: fails unless the jobs end, each test module with the result ok.
all_ok() {
    local name
    wait_for "$1" 80 settled
    none_has_failed "$1"
    for name in "${!jobs[@]}"; do
        wait "${jobs[$name]}" || fail "$1: the job $name ends well" "$(tail -n 20 "$pool/$name.log")"
    done
    ok "$1"
}

# powerless PATTERN: fails unless such processes exist, all of the ordinary user, without capabilities.
powerless() {
    local process found status checked=0
    found=$(pgrep -f "$1") || fail "processes: $1" "there are none"
    for process in $found; do
        # One that the engine has asked for its version may have ended since.
        status=$(cat "/proc/$process/status" 2>/dev/null) || continue
        [ "$(grep -cE '^CapEff:\s0+$|^Uid:(\s65534){4}$' <<<"$status")" = 2 ] || fail "$1 has no privileges" "$status"
        checked=$((checked + 1))
    done
    [ "$checked" -gt 0 ] || fail "processes: $1" "all have ended"
}

guest_image
engine
shell_guest
mkdir "$work"/{bin,needles}
surroundings=(OS_AUTOINST_LOCKAPI_POLL_INTERVAL=1 QEMU_QMP_CONNECT_ATTEMPTS=120)
printed 'unixcmd -f' >"$work/bin/vdecmd"
chmod 755 "$work/bin/vdecmd"

# --- NICTYPE=vde

q=$work/vde
begin_jobs vde NICTYPE=vde "VDE_SOCKETDIR=$q"
ln -s "$NETVALE" "$work/vde_switch"
background "${as_user[@]}" "$work/vde_switch" --nostdin --sock "$q/vde.ctl" --mgmt "$q/vde.mgmt" \
    >"$work/daemon.log" 2>&1
wait_for "the switch" 20 test -S "$q/vde.mgmt"
job server 1 eth0=10.1.0.1 NICVLAN=42 REACHES=10.1.0.2 DOES_NOT_REACH=10.1.0.3
job client 2 eth0=10.1.0.2 NICVLAN=42 REACHES=10.1.0.1 DOES_NOT_REACH=10.1.0.3
job other 3 eth0=10.1.0.3 NICVLAN=43 "DOES_NOT_REACH=10.1.0.1 10.1.0.2" "JOIN=vdecmd -s $q/vde.mgmt port/setvlan 8 42"

# attached PORT…: whether the switch has these ports, or will not have them.
attached() {
    local port
    "$NETVALE" --run-dir "$q/vde.ctl/.netvale" list >"$work/list"
    for port; do grep -q "$port" "$work/list" || settled || return 1; done
}
wait_for "the machines' ports" 60 attached port0004 port0006 port0008
none_has_failed "the machines' ports"
powerless '^/usr/bin/(perl.*)?isotovideo'
powerless '^/usr/bin/qemu-system-x86_64'
powerless "^$work/vde_switch"
powerless "^netvale --run-dir $q/vde.ctl/.netvale"
ok "jobs, machines and switch are an ordinary user's, without capabilities"
all_ok "NICTYPE=vde: a VLAN's machines reach each other, others do not"

# --- NICTYPE=netvale

# netvale_inside: puts netvale into the engine's system, which may have another C library.
netvale_inside() {
    mkdir "$work/libs"
    ldd "$NETVALE" | grep -o '/[^ ]*' | xargs cp -L -t "$work/libs"
    : >"$work/bin/program"
    mount --bind "$NETVALE" "$work/root$work/bin/program"
    printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' \
        "$work"/libs/ld-linux*.so* "$work/libs" "$work/bin/program" >"$work/bin/netvale"
    chmod 755 "$work/bin/netvale"
}

q=$work/own
begin_jobs own NICTYPE=netvale "NETVALE_DIR=$q/ports" NETVALE_MTU=9000
netvale_inside
printed "+++ b/backend/qemu.pm" >"$work/patch"
must patch --directory="$work/root/usr/lib/os-autoinst" --strip=1 --input="$work/patch"
"${as_user[@]}" mkdir "$q/ports"
launch "$q" "${as_user[@]}" "$NETVALE" --run-dir "$q/run" up --allow-dir "$q/ports"
surroundings+=("NETVALE_RUN_DIR=$q/run")
# The first machine has a card in each VLAN.
job server 1 "eth0=10.1.0.1 eth1=10.2.0.1" NICVLAN=42,43 "REACHES=10.1.0.2 10.2.0.3" DOES_NOT_REACH=10.1.0.3
job client 2 eth0=10.1.0.2 NICVLAN=42 REACHES=10.1.0.1 DOES_NOT_REACH=10.1.0.3
job other 3 "eth0=10.1.0.3 eth0=10.2.0.3" NICVLAN=43 REACHES=10.2.0.1 DOES_NOT_REACH=10.1.0.2 \
    "JOIN=netvale port set openqa:w3n0 access 42"
all_ok "NICTYPE=netvale: a machine has a card in each VLAN"
finish
