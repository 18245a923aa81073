# shellcheck shell=bash
# Shared by the scripts of these folders: a machine of the script's own, daemons, stations, waiting, checks. Sourced by
# bash, before anything else.
#
# A script says what it looks at in its first lines, and then in a line of its own `# measures: yes` or `# measures:
# no`: whether it asserts a rate, a delay or a duration, and so needs the machine for itself, or runs beside others. It
# prints a line for each check that holds, and ends with 0. It ends with 1 at the first check that does not, with what
# it got instead; with 77 and a reason where it cannot run. $NETVALE is the program under test.
set -euo pipefail

# The script's own folder.
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SKIPPED=77

# skip REASON: ends the script, as it cannot run here.
skip() {
    echo "skipped: $*"
    reached_end=yes
    exit "$SKIPPED"
}

ok() {
    echo "ok: $*"
}

# fail WHAT [GOT…]: ends the script.
fail() {
    echo "FAILED: $1" >&2
    shift
    [ $# = 0 ] || printf '    %s\n' "$@" >&2
    exit 1
}

# need PROGRAM…: skips the script unless they are all installed.
need() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || skip "$program is not installed (scripts/install-deps.sh test)"
    done
}

# Debian's own Python has it.
need_scapy() {
    /usr/bin/python3 -c 'import scapy' 2>/dev/null ||
        skip "python3-scapy is not installed (scripts/install-deps.sh test)"
}

# --- a machine of its own

# Runs the script again in namespaces of its own: of networks, mounts and processes. All that it makes is in there, its
# folder $work as well, and ends with them, whatever ends the script; nor does it meet another script, or itself.
in_own_machine() {
    local status=0
    unshare --net --mount --pid --fork true 2>/dev/null || skip "namespaces are not permitted here"
    work=
    trap '[ -z "$work" ] || rmdir "$work"' EXIT
    work=$(mktemp -d)
    # The network outside, for what is downloaded.
    exec {outside}</proc/self/ns/net
    # In a process group of its own, as a background process would ignore SIGINT otherwise. If this shell is killed, all
    # are killed.
    set -m
    NETVALE_TEST_FOLDER=$work NETVALE_TEST_OUTSIDE=$outside \
        setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc \
        setsid "$BASH" "$0" "$@" </dev/null &
    set +m
    machine=$!
    trap end_machine INT TERM HUP
    # A signal ends the waiting, too.
    while kill -0 "$machine" 2>/dev/null; do wait "$machine" && status=0 || status=$?; done
    exit "$status"
}

# Gives the script some time to say how far it came. It is the one child of `unshare`, which ignores SIGTERM.
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

# Others' processes have to get at the script's files. The tree may lie in a folder that is root's alone, such as /root:
# then the script runs where it is mounted, too.
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

# What the namespaces need to be a machine. `exit` by PID 1 ends whatever is left in there.
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
    # All processes but this one. Daemons say what they have to say; who does not listen is killed.
    kill -CONT -1 2>/dev/null || true
    kill -TERM -1 2>/dev/null || true
    for _ in $(seq 30); do
        kill -0 -1 2>/dev/null || break
        sleep 0.1
    done
    [ "$status" != 0 ] || [ -n "$reached_end" ] || status=1
    exit "$status"
}

# What helps to understand a failure.
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

# What is measured is not who else computes here. The kernel shares processors out among sessions, if it is told to, and
# the script is one of its own.
go_before_others() {
    renice -n -10 -p $$ >/dev/null 2>&1 || true
    { echo -10 >/proc/self/autogroup; } 2>/dev/null || true
}

# --- waiting

# A script that runs beside others gives up later than one that has the machine for itself.
patience=3
! grep -q '^# measures: yes' "$0" || patience=1

# wait_for WHAT SECONDS COMMAND…: until the command succeeds; fails after that time.
wait_for() {
    local what=$1 begin=$SECONDS limit=$(($2 * patience)) passed=0
    shift 2
    until "$@" >"$work/waited" 2>&1; do
        passed=$((SECONDS - begin))
        [ "$passed" -lt "$limit" ] || fail "$what: not within the time" "$(tail -n 20 "$work/waited")"
        # What takes long is asked for less often, as who asks computes, too.
        sleep "$((passed < 3 ? 50 : passed < 10 ? 200 : 500))e-3"
    done
}

# background COMMAND…: starts it; it ends with the script at the latest. Its number is in $!, its output where the
# caller says.
background() {
    # In a group of its own, as it would ignore SIGINT otherwise. Without saying so, its input would be empty. The
    # process is to be the program itself, so that its number is the program's: functions that begin with $direct see to
    # that.
    set -m
    direct="exec" "$@" <&0 &
    set +m
}

# must COMMAND…: it succeeds, or the script fails with what it said.
must() {
    "$@" >"$work/must" 2>&1 || fail "$*" "$(cat "$work/must")"
}

gone() {
    ! kill -0 "$1" 2>/dev/null
}

# end_of PROCESS [SIGNAL]: ends a process that is in the background, and waits for its end; its exit status is this
# one's.
end_of() {
    kill "-${2:-TERM}" "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null
}

# --- namespaces

# space NAME: makes a network namespace without traffic of its own.
space() {
    ip netns add "$1"
    quiet_network in_space "$1"
}

# quiet_network [COMMAND…]: of here, or of where the command runs another.
quiet_network() {
    "$@" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 2>/dev/null || true
    "$@" ip link set lo up
}

# in_space NAME COMMAND…
in_space() {
    ${direct:-} ip netns exec "$@"
}

# veth SPACE DEVICE SPACE DEVICE [MTU]: a cable between two namespaces, up at both ends.
veth() {
    ip link add "$2" netns "$1" mtu "${5:-1500}" type veth peer name "$4" netns "$3" mtu "${5:-1500}" ||
        skip "there are no veth interfaces"
    ip -n "$1" link set dev "$2" up
    ip -n "$3" link set dev "$4" up
}

# --- daemons

# An ordinary user, in front of a command.
as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs env HOME=/nonexistent)
# Numbers of hosts' daemons; $daemon is the newest one's.
declare -A daemons=()

# nv ARGUMENT…: netvale with the script's own daemon; at HOST ARGUMENT…: with a host's.
nv() {
    ${direct:-} "$NETVALE" --run-dir "$run_dir" "$@"
}

at() {
    ${direct:-} "$NETVALE" --run-dir "$work/$1/run" "${@:2}"
}

# start_daemon [OPTION…]: the script's own.
start_daemon() {
    launch "$work" "$NETVALE" --run-dir "$run_dir" up "$@"
}

# host_daemon HOST [USER…]: in the host's namespace, whose network it uses; as an ordinary user after "${as_user[@]}".
host_daemon() {
    local host=$1
    shift
    mkdir -p "$work/$host"
    [ $# = 0 ] || chown 65534:65534 "$work/$host"
    launch "$work/$host" ip netns exec "$host" "$@" "$NETVALE" --run-dir "$work/$host/run" up
    daemons[$host]=$daemon
}

# launch FOLDER COMMAND…: a daemon with its log, and its run folder `run`, in a folder.
launch() {
    local folder=$1
    shift
    background "$@" >>"$folder/daemon.log" 2>&1
    daemon=$!
    wait_for "the daemon in $folder starts" "${start_limit:-20}" "$NETVALE" --run-dir "$folder/run" list
}

# upgrade [HOST]: puts another process in the daemon's place.
upgrade() {
    local said folder=$work${1:+/$1}
    said=$(${1:+in_space "$1"} "$NETVALE" --run-dir "$folder/run" upgrade 2>&1) ||
        fail "netvale upgrade" "$said" "$(tail -n 5 "$folder/daemon.log")"
    daemon=$(echo "$said" | sed -n 's/^process \([0-9]*\) goes on.*/\1/p')
    [ -n "$daemon" ] || fail "netvale upgrade says who goes on" "$said"
}

# attach PORT SPACE [OPTION…]: a TAP of the port's name in a namespace is port PORT of switch vale0, or of $switch. More
# arguments are policies: `--access 10`. The interface is up.
attach() {
    must nv attach "${switch:-vale0}" "tap:$1" --name "$1" --netns "/run/netns/$2" "${@:3}"
    ip -n "$2" link set dev "$1" up
}

# station NUMBER [OPTION…]: a namespace sN with an address, 10.1.0.N and 02:00:00:00:00:N (two digits), on port sN.
station() {
    local n=$1
    shift
    [ -e "/run/netns/s$n" ] || space "s$n"
    attach "s$n" "s$n" --mac "02:00:00:00:00:$(printf %02d "$n")" "$@"
    ip -n "s$n" addr add "10.1.0.$n/24" dev "s$n"
}

# detach PORT…
detach() {
    local port
    for port; do nv detach "vale0:$port" >/dev/null; done
}

# set_policies PORT POLICY VALUE…
set_policies() {
    must nv port set "vale0:$1" "${@:2}"
}

# --- checks

shown() {
    nv show "vale0:$1" --json
}

# is PORT EXPRESSION: whether it is true of what `show` says of the port.
is() {
    shown "$1" | jq -e "$2" >/dev/null
}

# check WHAT PORT EXPRESSION
check() {
    is "$2" "$3" || fail "$1" "not true of vale0:$2: $3" "$(shown "$2")"
    ok "$1"
}

# drops PORT REASON: how many frames were dropped there for that reason, in both directions.
drops() {
    shown "$1" | jq "[.rings[].drops[\"$2\"] // 0] | add"
}

# drops_nothing PORT: whether none was, for any reason.
drops_nothing() {
    is "$1" '([.rings[].drops[]] | add // 0) == 0'
}

# moved PORT DIRECTION FIGURE: frames or bytes that a port sent (in) or got (out).
moved() {
    shown "$1" | jq "[.rings[] | select(.dir == \"$2\") | .$3] | add"
}

# For `wait_for`: whether a port has sent or got that many frames, or dropped as many for a reason.
has_sent() {
    [ "$(moved "$1" in frames)" -ge "$2" ]
}

has_got() {
    [ "$(moved "$1" out frames)" -ge "$2" ]
}

has_dropped() {
    [ "$(drops "$1" "$2")" -ge "$3" ]
}

# expect WHAT GOT OPERATOR WANTED: numbers.
expect() {
    test "$2" "$3" "$4" || fail "$1" "got $2, wanted it $3 $4"
    ok "$1 ($2)"
}

# carried RATE: what TCP carries of a rate of full frames: 1,448 of 1,514 bytes. Segments count as frames.
carried() {
    echo "$(($1 * 1448 / 1514))"
}

# near WHAT GOT WANTED PART: whether a number is that one, but for a part of it, such as 0.03.
near() {
    is_near "$2" "$3" "$4" || fail "$1" "got $2, wanted $3 but for $4 of it"
    ok "$1 ($2)"
}

is_near() {
    jq -en --argjson got "$1" --argjson wanted "$2" --argjson part "$3" '($got - $wanted | fabs) <= $wanted * $part' \
        >/dev/null
}

# ends_with WHAT CODE TEXT COMMAND…: whether it ends with that exit code and says that text (an extended regular
# expression).
ends_with() {
    local what=$1 code=$2 text=$3 got=0
    shift 3
    "$@" >"$work/refused" 2>&1 || got=$?
    [ "$got" = "$code" ] || fail "$what" "exit code $got, wanted $code: $*" "$(cat "$work/refused")"
    grep -qE -- "$text" "$work/refused" || fail "$what" "it does not say '$text':" "$(cat "$work/refused")"
    ok "$what"
}

# refuses WHAT CODE TEXT ARGUMENT…: the same of `nv`.
refuses() {
    ends_with "$1" "$2" "$3" nv "${@:4}"
}

# ended WHAT PROCESS STATUS: waits until one in the background ends with that exit status.
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

# reaches FROM TO; fails if it does not, within some attempts.
reaches() {
    local attempt
    for attempt in 1 2 3 4 5; do
        pings "$1" "$2" && ok "$1 reaches $2${3:+: $3}" && return
    done
    fail "$1 reaches $2${3:+: $3}" "no answer to $attempt pings" "$(shown "s$1" | jq -c .rings)" \
        "$(shown "s$2" | jq -c .rings)"
}

# apart FROM TO; fails if it does reach it.
apart() {
    ! in_space "s$1" ping -q -c 2 -i 0.2 -W 0.5 "10.1.0.$2" >/dev/null 2>&1 ||
        fail "$1 does not reach $2${3:+: $3}" "it does"
    ok "$1 does not reach $2${3:+: $3}"
}

# cpu_time PROCESS: hundredths of a second that it took so far.
cpu_time() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}

# memory PROCESS: KiB that it has.
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
