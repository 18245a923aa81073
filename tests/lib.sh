# shellcheck shell=bash
# Shared by the scripts of these folders: a machine of the script's own, daemons, stations, waiting, checks. Sourced by
# bash, before anything else.
#
# A script describes what it tests in its first lines, and then has a line `# measures: yes` or `# measures: no`:
# whether it asserts a rate, a delay or a duration and so needs the machine for itself, or can run beside others. It
# prints a line for each check that succeeds. Its exit status is 0 if all succeed; 1 at the first check that fails, with
# what was found instead; 77, with a reason, if it cannot run here. $NETVALE is the program under test.
set -euo pipefail

# The script's own folder.
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SKIPPED=77

# skip REASON: ends the script, which cannot run here.
skip() {
    echo "skipped: $*"
    reached_end=yes
    exit "$SKIPPED"
}

ok() {
    echo "ok: $*"
}

# fail WHAT [GOT…]: ends the script with a failure.
fail() {
    echo "FAILED: $1" >&2
    shift
    [ $# = 0 ] || printf '    %s\n' "$@" >&2
    exit 1
}

# need PROGRAM…: skips the script unless all programs are installed.
need() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || skip "$program is not installed (scripts/install-deps.sh test)"
    done
}

# Scapy is a package of Debian's own Python.
need_scapy() {
    /usr/bin/python3 -c 'import scapy' 2>/dev/null ||
        skip "python3-scapy is not installed (scripts/install-deps.sh test)"
}

# --- a machine of its own

# Runs the script again in network, mount and process namespaces of its own. Everything that it creates, including its
# folder $work, is in there and disappears with them, however the script ends; nor can it interfere with another script,
# or with another run of itself.
in_own_machine() {
    local status=0
    unshare --net --mount --pid --fork true 2>/dev/null || skip "namespaces are not permitted here"
    work=
    trap '[ -z "$work" ] || rmdir "$work"' EXIT
    work=$(mktemp -d)
    # The outer network namespace, for downloads.
    exec {outside}</proc/self/ns/net
    # In a process group of its own, as a background process would otherwise ignore SIGINT. If this shell is killed,
    # everything is killed.
    set -m
    NETVALE_TEST_FOLDER=$work NETVALE_TEST_OUTSIDE=$outside \
        setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc \
        setsid "$BASH" "$0" "$@" </dev/null &
    set +m
    machine=$!
    trap end_machine INT TERM HUP
    # A signal interrupts `wait`, too.
    while kill -0 "$machine" 2>/dev/null; do wait "$machine" && status=0 || status=$?; done
    exit "$status"
}

# Gives the script some time to report how far it came. It is the only child of `unshare`, which ignores SIGTERM.
end_machine() {
    local script
    script=$(cat "/proc/$machine/task/$machine/children" 2>/dev/null || true)
    [ -z "$script" ] || kill -TERM -- "-${script% }" 2>/dev/null || kill -TERM "${script% }" 2>/dev/null || true
    for _ in $(seq 50); do
        kill -0 "$machine" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$machine" 2>/dev/null || true
}

# Processes of other users need access to the script's files. If the tree is in a folder that only root may enter, such
# as /root, the script runs from where the tree is mounted in its namespace.
let_others_in() {
    local work=$NETVALE_TEST_FOLDER
    [ "$root" = "$work/tree" ] || mount -t tmpfs -o mode=711 test "$work"
    "${as_user[@]}" test -x "$NETVALE" -a -r "$root/tests/lib.sh" && return
    [ "$root" != "$work/tree" ] || {
        echo "other users cannot reach $NETVALE: have the folder of its programs below $root, or open its folders" >&2
        return
    }
    mkdir "$work/tree"
    mount --bind "$root" "$work/tree"
    case $NETVALE in "$root"/*) export NETVALE=$work/tree${NETVALE#"$root"} ;; esac
    exec "$BASH" "$work/tree${here#"$root"}/${0##*/}" "$@"
}

# Prepares the namespaces. When this shell, PID 1, exits, the kernel kills whatever is left in there.
begin_machine() {
    work=$NETVALE_TEST_FOLDER outside=$NETVALE_TEST_OUTSIDE reached_end=
    unset NETVALE_TEST_FOLDER NETVALE_TEST_OUTSIDE NETVALE_RUN_DIR XDG_RUNTIME_DIR
    trap clean_up EXIT
    trap 'exit 130' INT TERM HUP
    mkdir -p /run/netns
    mount -t tmpfs test /run/netns
    mount -t sysfs test /sys
    export TMPDIR=$work/tmp
    mkdir -m 1777 "$TMPDIR"
    quiet_network
}

clean_up() {
    local status=$?
    trap - EXIT
    trap '' INT TERM HUP
    [ "$status" = 0 ] || [ "$status" = "$SKIPPED" ] || tell_state
    # All processes but this one: daemons get the time to write their last messages, and what does not react is killed.
    kill -CONT -1 2>/dev/null || true
    kill -TERM -1 2>/dev/null || true
    for _ in $(seq 30); do
        kill -0 -1 2>/dev/null || break
        sleep 0.1
    done
    [ "$status" != 0 ] || [ -n "$reached_end" ] || status=1
    exit "$status"
}

# Prints what helps to understand a failure.
tell_state() {
    local log
    for log in "$work"/daemon.log "$work"/*/daemon.log; do
        [ ! -s "$log" ] || { echo "the last words of $log:" && tail -n 5 "$log"; } >&2
    done
}

# The script's last line: all checks were made.
finish() {
    ok "all of $(basename "$0" .sh), in $SECONDS s"
    reached_end=yes
    exit 0
}

# Gives the script priority, so that other load does not change what it measures. Where the kernel distributes processor
# time among sessions (autogroup), the script is a session of its own.
go_before_others() {
    renice -n -10 -p $$ >/dev/null 2>&1 || true
    { echo -10 >/proc/self/autogroup; } 2>/dev/null || true
}

# --- waiting

# A script that runs beside others waits longer than one that has the machine for itself.
patience=3
! grep -q '^# measures: yes' "$0" || patience=1

# wait_for WHAT SECONDS COMMAND…: waits until the command succeeds; fails after that time.
wait_for() {
    local what=$1 begin=$SECONDS limit=$(($2 * patience)) passed=0
    shift 2
    until "$@" >"$work/waited" 2>&1; do
        passed=$((SECONDS - begin))
        [ "$passed" -lt "$limit" ] || fail "$what: timed out" "$(tail -n 20 "$work/waited")"
        # The longer it takes, the rarer the attempts, as each takes processor time, too.
        sleep "$((passed < 3 ? 50 : passed < 10 ? 200 : 500))e-3"
    done
}

# background COMMAND…: starts the command, which is ended with the script at the latest. Its process number is in $!;
# its output goes where the caller redirects it.
background() {
    # In a process group of its own, as it would otherwise ignore SIGINT. Without the explicit redirection its input
    # would be empty. The process has to be the program itself, so that $! is the program's number: functions that begin
    # with $direct `exec` it.
    set -m
    direct="exec" "$@" <&0 &
    set +m
}

# must COMMAND…: fails with the command's output if the command fails.
must() {
    "$@" >"$work/must" 2>&1 || fail "$*" "$(cat "$work/must")"
}

gone() {
    ! kill -0 "$1" 2>/dev/null
}

# end_of PROCESS [SIGNAL]: ends a background process, waits for it, and returns its exit status.
end_of() {
    kill "-${2:-TERM}" "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null
}

# --- namespaces

# space NAME: creates a network namespace without traffic of its own.
space() {
    ip netns add "$1"
    quiet_network in_space "$1"
}

# quiet_network [COMMAND…]: the same for the current namespace, or for that in which COMMAND… runs its arguments.
quiet_network() {
    "$@" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 2>/dev/null || true
    "$@" ip link set lo up
}

# in_space NAME COMMAND…: runs a command in a namespace.
in_space() {
    ${direct:-} ip netns exec "$@"
}

# veth SPACE DEVICE SPACE DEVICE [MTU]: creates a cable between two namespaces, up at both ends.
veth() {
    ip link add "$2" netns "$1" mtu "${5:-1500}" type veth peer name "$4" netns "$3" mtu "${5:-1500}" ||
        skip "there are no veth interfaces"
    ip -n "$1" link set dev "$2" up
    ip -n "$3" link set dev "$4" up
}

# --- daemons

# Runs the command that follows as an ordinary user.
as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs env HOME=/nonexistent)
# Process numbers of the hosts' daemons; $daemon is that of the newest one.
declare -A daemons=()

# nv ARGUMENT…: netvale with the script's own daemon; at HOST ARGUMENT…: with a host's.
nv() {
    ${direct:-} "$NETVALE" --run-dir "$run_dir" "$@"
}

at() {
    ${direct:-} "$NETVALE" --run-dir "$work/$1/run" "${@:2}"
}

# start_daemon [OPTION…]: starts the script's own daemon.
start_daemon() {
    launch "$work" "$NETVALE" --run-dir "$run_dir" up "$@"
}

# host_daemon HOST [USER…]: starts a daemon in the host's namespace, whose network it uses; as an ordinary user after
# "${as_user[@]}".
host_daemon() {
    local host=$1
    shift
    mkdir -p "$work/$host"
    [ $# = 0 ] || chown 65534:65534 "$work/$host"
    launch "$work/$host" ip netns exec "$host" "$@" "$NETVALE" --run-dir "$work/$host/run" up
    daemons[$host]=$daemon
}

# launch FOLDER COMMAND…: starts a daemon whose log and run folder `run` are in FOLDER.
launch() {
    local folder=$1
    shift
    background "$@" >>"$folder/daemon.log" 2>&1
    daemon=$!
    wait_for "the daemon in $folder starts" "${start_limit:-20}" "$NETVALE" --run-dir "$folder/run" list
}

# upgrade [HOST]: replaces the daemon's process by a new one.
upgrade() {
    local said folder=$work${1:+/$1}
    said=$(${1:+in_space "$1"} "$NETVALE" --run-dir "$folder/run" upgrade 2>&1) ||
        fail "netvale upgrade" "$said" "$(tail -n 5 "$folder/daemon.log")"
    daemon=$(echo "$said" | sed -n 's/^process \([0-9]*\) goes on.*/\1/p')
    [ -n "$daemon" ] || fail "netvale upgrade prints the new process" "$said"
}

# attach PORT SPACE [OPTION…]: attaches a TAP in a namespace, named after the port, as port PORT to switch vale0, or
# $switch. Further arguments are policies: `--access 10`. The interface is up.
attach() {
    must nv attach "${switch:-vale0}" "tap:$1" --name "$1" --netns "/run/netns/$2" "${@:3}"
    ip -n "$2" link set dev "$1" up
}

# station NUMBER [OPTION…]: creates a namespace sN with the addresses 10.1.0.N and 02:00:00:00:00:N (two digits), on
# port sN.
station() {
    local n=$1
    shift
    [ -e "/run/netns/s$n" ] || space "s$n"
    attach "s$n" "s$n" --mac "02:00:00:00:00:$(printf %02d "$n")" "$@"
    ip -n "s$n" addr add "10.1.0.$n/24" dev "s$n"
}

# detach PORT…: detaches the ports.
detach() {
    local port
    for port; do nv detach "vale0:$port" >/dev/null; done
}

# set_policies PORT POLICY VALUE…: sets policies of a port.
set_policies() {
    must nv port set "vale0:$1" "${@:2}"
}

# --- checks

shown() {
    nv show "vale0:$1" --json
}

# is PORT EXPRESSION: whether the expression holds for what `show` prints about the port.
is() {
    shown "$1" | jq -e "$2" >/dev/null
}

# check WHAT PORT EXPRESSION: fails unless `is` succeeds.
check() {
    is "$2" "$3" || fail "$1" "not true of vale0:$2: $3" "$(shown "$2")"
    ok "$1"
}

# drops PORT REASON: the number of frames dropped at the port for that reason, in both directions.
drops() {
    shown "$1" | jq "[.rings[].drops[\"$2\"] // 0] | add"
}

# drops_nothing PORT: whether no frame was dropped, for any reason.
drops_nothing() {
    is "$1" '([.rings[].drops[]] | add // 0) == 0'
}

# moved PORT DIRECTION FIGURE: the frames or bytes that a port sent (in) or received (out).
moved() {
    shown "$1" | jq "[.rings[] | select(.dir == \"$2\") | .$3] | add"
}

# For `wait_for`: whether a port has sent or received that many frames, or dropped as many for a reason.
has_sent() {
    [ "$(moved "$1" in frames)" -ge "$2" ]
}

has_got() {
    [ "$(moved "$1" out frames)" -ge "$2" ]
}

has_dropped() {
    [ "$(drops "$1" "$2")" -ge "$3" ]
}

# expect WHAT GOT OPERATOR WANTED: compares numbers.
expect() {
    test "$2" "$3" "$4" || fail "$1" "got $2, wanted it $3 $4"
    ok "$1 ($2)"
}

# carried RATE: what TCP achieves at a rate of full frames: 1,448 of 1,514 bytes. Segments count as frames.
carried() {
    echo "$(($1 * 1448 / 1514))"
}

# near WHAT GOT WANTED PART: fails unless a number is the wanted one, within a relative tolerance such as 0.03.
near() {
    is_near "$2" "$3" "$4" || fail "$1" "got $2, wanted $3 but for $4 of it"
    ok "$1 ($2)"
}

is_near() {
    jq -en --argjson got "$1" --argjson wanted "$2" --argjson part "$3" '($got - $wanted | fabs) <= $wanted * $part' \
        >/dev/null
}

# ends_with WHAT CODE TEXT COMMAND…: fails unless the command exits with that code and prints that text (an extended
# regular expression).
ends_with() {
    local what=$1 code=$2 text=$3 got=0
    shift 3
    "$@" >"$work/refused" 2>&1 || got=$?
    [ "$got" = "$code" ] || fail "$what" "exit code $got, wanted $code: $*" "$(cat "$work/refused")"
    grep -qE -- "$text" "$work/refused" || fail "$what" "no match for '$text' in:" "$(cat "$work/refused")"
    ok "$what"
}

# refuses WHAT CODE TEXT ARGUMENT…: the same for `nv`.
refuses() {
    ends_with "$1" "$2" "$3" nv "${@:4}"
}

# ended WHAT PROCESS STATUS: waits until a background process has ended with that exit status.
ended() {
    local status=0
    wait_for "$1: it ends" 20 gone "$2"
    wait "$2" || status=$?
    [ "$status" = "$3" ] || fail "$1" "it ended with $status, not $3" "$(tail -n 5 "$work"/*.err)"
    ok "$1"
}

# pings FROM TO: whether station TO answers a ping of station FROM.
pings() {
    in_space "s$1" ping -q -c 1 -W 1 "10.1.0.$2" >/dev/null 2>&1
}

# reaches FROM TO: fails if none of some pings is answered.
reaches() {
    local attempt
    for attempt in 1 2 3 4 5; do
        pings "$1" "$2" && ok "$1 reaches $2${3:+: $3}" && return
    done
    fail "$1 reaches $2${3:+: $3}" "no answer to $attempt pings" "$(shown "s$1" | jq -c .rings)" \
        "$(shown "s$2" | jq -c .rings)"
}

# apart FROM TO: fails if a ping is answered.
apart() {
    ! in_space "s$1" ping -q -c 2 -i 0.2 -W 0.5 "10.1.0.$2" >/dev/null 2>&1 ||
        fail "$1 does not reach $2${3:+: $3}" "it does"
    ok "$1 does not reach $2${3:+: $3}"
}

# cpu_time PROCESS: the processor time that it has used, in hundredths of a second.
cpu_time() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}

# memory PROCESS: its resident memory in KiB.
memory() {
    awk '/^VmRSS/ { print $2 }' "/proc/$1/status"
}

# --- the beginning, once all is known

# shellcheck source=SCRIPTDIR/traffic-lib.sh
. "$root/tests/traffic-lib.sh"
PATH=$PATH:/usr/sbin:/sbin
NETVALE=${NETVALE:-$(command -v netvale || true)}
[ -x "$NETVALE" ] || skip "no netvale: set NETVALE"
[ "$(id -u)" = 0 ] || skip "network namespaces and TAPs take root"
[ -c /dev/net/tun ] || skip "there is no /dev/net/tun"
need ip jq unshare setpriv
[ -n "${NETVALE_TEST_FOLDER:-}" ] || in_own_machine "$@"
let_others_in "$@"
begin_machine
run_dir=$work/run
