# shellcheck shell=bash disable=SC2317
# Shared by the scripts of this folder: a daemon, network namespaces with TAP ports, guests, and checks. Sourced by bash.
#
# A script says what it looks at in its first lines, prints a line for each check that holds, and ends with 0. It ends with 1 at the
# first check that does not, with what it got instead; with 77 and a reason where it cannot run. $NETVALE is the program under test.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
SKIPPED=77

# skip REASON: ends the script, as it cannot run here.
skip() {
    echo "skipped: $*"
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

# --- what is there, and its end

PATH=$PATH:/usr/sbin:/sbin
NETVALE=${NETVALE:-$(command -v netvale || true)}
[ -x "$NETVALE" ] || skip "no netvale: set NETVALE"
[ "$(id -u)" = 0 ] || skip "network namespaces and TAPs take root"
[ -c /dev/net/tun ] || skip "there is no /dev/net/tun"
need ip jq
unset NETVALE_RUN_DIR XDG_RUNTIME_DIR

work=$(mktemp -d)
run_dir=$work/run
spaces=()
children=()
declare -A guests=()
reached_end=

clean_up() {
    local status=$? space
    trap - EXIT
    [ "$status" = 0 ] || [ "$status" = "$SKIPPED" ] || tell_state
    end_children
    for space in "${spaces[@]}"; do ip netns del "$space" 2>/dev/null || true; done
    rm -rf "$work"
    [ "$status" != 0 ] || [ -n "$reached_end" ] || status=1
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# What helps to understand a failure.
tell_state() {
    [ ! -s "$work/daemon.log" ] || { echo "the daemon's last words:" && tail -n 5 "$work/daemon.log"; } >&2
}

end_children() {
    local child
    for child in "${children[@]}"; do kill -- "-$child" 2>/dev/null || true; done
    for child in "${children[@]}"; do
        # Who does not listen is killed.
        for _ in $(seq 50); do
            kill -0 -- "-$child" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
    children=()
}

# The script's last line: all checks were made.
finish() {
    ok "all of $(basename "$0" .sh), in $SECONDS s"
    reached_end=yes
    exit 0
}

# --- waiting

# wait_for WHAT SECONDS COMMAND…: until the command succeeds; fails after that time.
wait_for() {
    local what=$1 end=$((SECONDS + $2))
    shift 2
    until "$@" >"$work/waited" 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "$what: not within the time" "$(tail -n 20 "$work/waited")"
        sleep 0.05
    done
}

# background COMMAND…: starts it; it ends with the script at the latest. Its number is in $!, its output where the caller says.
background() {
    # In a group of its own, so that what it starts ends with it. Without saying so, its input would be empty.
    set -m
    "$@" <&0 &
    set +m
    children+=("$!")
}

# --- the daemon and its ports

nv() {
    "$NETVALE" --run-dir "$run_dir" "$@"
}

start_daemon() {
    background nv_up >"$work/daemon.log" 2>&1
    wait_for "the daemon starts" 20 nv list
}

# The process itself, so that its number is the daemon's.
nv_up() {
    exec "$NETVALE" --run-dir "$run_dir" up
}

# space NAME: makes a network namespace without traffic of its own. `in_space NAME COMMAND…` runs something in it.
space() {
    local name=nvp$$-$1
    ip netns add "$name" || skip "network namespaces are not permitted here"
    spaces+=("$name")
    ip netns exec "$name" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 2>/dev/null || true
    ip -n "$name" link set lo up
}

in_space() {
    local name=nvp$$-$1
    shift
    ip netns exec "$name" "$@"
}

# attach PORT SPACE [OPTION…]: a TAP of the port's name in a namespace is port PORT of switch vale0. More arguments are policies:
# `--access 10`. The interface is up.
attach() {
    local port=$1 name=nvp$$-$2
    shift 2
    nv attach vale0 "tap:$port" --name "$port" --netns "/run/netns/$name" "$@" >"$work/attached" 2>&1 ||
        fail "port $port is attached ($*)" "$(cat "$work/attached")"
    ip -n "$name" link set dev "$port" up
}

# station NUMBER [OPTION…]: a namespace sN with an address, 10.1.0.N and 02:00:00:00:00:N (two digits), on port sN.
station() {
    local n=$1
    shift
    space "s$n"
    attach "s$n" "s$n" --mac "02:00:00:00:00:$(printf %02d "$n")" "$@"
    ip -n "nvp$$-s$n" addr add "10.1.0.$n/24" dev "s$n"
}

# set_policies PORT POLICY VALUE…
set_policies() {
    local port=$1
    shift
    nv port set "vale0:$port" "$@" >"$work/set" 2>&1 || fail "port $port takes the policies $*" "$(cat "$work/set")"
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
    fail "$1 reaches $2${3:+: $3}" "no answer to $attempt pings" "$(shown "s$1" | jq -c .rings)" "$(shown "s$2" | jq -c .rings)"
}

# apart FROM TO; fails if it does reach it.
apart() {
    ! in_space "s$1" ping -q -c 2 -i 0.2 -W 0.5 "10.1.0.$2" >/dev/null 2>&1 || fail "$1 does not reach $2${3:+: $3}" "it does"
    ok "$1 does not reach $2${3:+: $3}"
}

# compiled PROGRAM: makes $work/PROGRAM of PROGRAM.c, to run here and in guests.
compiled() {
    need gcc
    gcc -O1 -static -Wall -Wextra -Werror -o "$work/$1" "$here/$1.c"
}

# crosses WHAT SPACE PORT…: sends the frames of standard input (matrix.c says how to write them) among ports of a namespace; each must come
# out where its line says.
crosses() {
    local what=$1 space=$2 program=$work/matrix
    shift 2
    grep '^[^#]' >"$work/wanted"
    sed 's/ :.*//' "$work/wanted" >"$work/sent"
    in_space "$space" "$program" -e "$work/wanted" "$work/sent" "$@" >"$work/got" || fail "$what" "the frames cannot be sent"
    diff "$work/wanted" "$work/got" >"$work/diff" || fail "$what (<: wanted, >: got)" "$(cat "$work/diff")"
    ok "$what ($(wc -l <"$work/wanted") frames)"
}

# Debian's own Python has it.
need_scapy() {
    /usr/bin/python3 -c 'import scapy' 2>/dev/null || skip "python3-scapy is not installed (scripts/install-deps.sh test)"
}

# attack SPACE INTERFACE KIND COUNT: see attack.py.
attack() {
    in_space "$1" "$here/attack.py" "$2" "$3" "$4"
}

# detach PORT…
detach() {
    local port
    for port; do nv detach "vale0:$port" >/dev/null; done
}

# --- guests

# The folder with the guests' kernel and root file system, made if need be.
guest_image() {
    need qemu-system-x86_64 busybox cpio modprobe
    image=$("$root/scripts/guest-image.sh" 2>"$work/image.log") || skip "no guest image: $(tail -n 1 "$work/image.log")"
}

# guest_takes FOLDER PROGRAM…: copies programs to /bin of a guest's root file system, with the libraries they need.
guest_takes() {
    local folder=$1 program file
    shift
    for program in "$@"; do
        for file in $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*' || true); do
            mkdir -p "$folder$(dirname "$file")"
            cp -L "$file" "$folder$file"
        done
        mkdir -p "$folder/bin"
        cp -L "$program" "$folder/bin/"
    done
}

# guest NAME ARGUMENT…: boots a guest with what is in $work/NAME beside busybox; it runs the file `script` in there and powers off. What it
# says is in $work/NAME.console, what is written to descriptor 9 is typed there.
guest() {
    guest_initrd "$1"
    guest_boots "$@"
    exec 9<>"$work/$1.typed"
}

# guest_initrd NAME: makes its root file system.
guest_initrd() {
    mkdir -p "$work/$1/more"
    cp "$image"/more/* "$work/$1/more/"
    (cd "$work/$1" && find . | cpio -o -H newc --quiet | gzip -1 | cat "$image/base.cpio.gz" - >"$work/$1.initrd")
}

# guest_boots NAME ARGUMENT…: with the root file system that is there. What is written to $work/NAME.typed is typed there.
guest_boots() {
    local name=$1
    shift
    mkfifo "$work/$name.typed"
    background guest_runs "$work/$name" "$@" <>"$work/$name.typed" >"$work/$name.console" 2>&1
    guests[$name]=${children[-1]}
}

# There is room for a second processor, for without it QEMU leaves a guest's memory barriers out, which its peers rely on.
guest_runs() {
    local name=$1
    shift
    exec qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 256 -smp 1,maxcpus=2 -nographic -no-reboot -nodefaults \
        -serial stdio -net none -object memory-backend-memfd,id=mem,size=256M,share=on -M q35,memory-backend=mem \
        -kernel "$image/vmlinux" -initrd "$name.initrd" -append 'console=ttyS0 quiet panic=-1' "$@" 9<&-
}

# says NAME TEXT SECONDS: waits until a guest has said it.
says() {
    local end=$((SECONDS + $3))
    until grep -q -- "$2" "$work/$1.console"; do
        if [ "$SECONDS" -ge "$end" ] || ! kill -0 "${guests[$1]}" 2>/dev/null; then
            ! grep -q -- "$2" "$work/$1.console" || return 0
            fail "the guest $1 says '$2'" "$(tail -n 40 "$work/$1.console")"
        fi
        sleep 0.1
    done
}

# --- traffic

# iperf_server NUMBER: at that station, until the script ends.
iperf_server() {
    background ip netns exec "nvp$$-s$1" iperf3 -s >"$work/server$1" 2>&1
    wait_for "iperf3 listens at station $1" 10 listens "$1"
}

listens() {
    in_space "s$1" ss -Hltn sport = :5201 | grep -q .
}

# iperf FROM TO OPTION…: traffic between two stations. What iperf3 says of it is in $work/iperf.json: `said EXPRESSION`.
iperf() {
    local from=$1 to=$2
    shift 2
    in_space "s$from" iperf3 -J -c "10.1.0.$to" "$@" >"$work/iperf.json" ||
        fail "iperf3 from $from to $to" "$(jq -r '.error // .' "$work/iperf.json")"
}

said() {
    jq -r "$1" "$work/iperf.json"
}

# near WHAT GOT WANTED PART: whether a number is that one, but for a part of it, such as 0.03.
near() {
    is_near "$2" "$3" "$4" || fail "$1" "got $2, wanted $3 but for $4 of it"
    ok "$1 ($2)"
}

is_near() {
    jq -en --argjson got "$1" --argjson wanted "$2" --argjson part "$3" '($got - $wanted | fabs) <= $wanted * $part' >/dev/null
}

# refuses WHAT CODE TEXT ARGUMENT…: whether netvale ends with that exit code and says that text (an extended regular expression).
refuses() {
    local what=$1 code=$2 text=$3 got=0
    shift 3
    nv "$@" >"$work/refused" 2>&1 || got=$?
    [ "$got" = "$code" ] || fail "$what" "exit code $got, wanted $code: $*" "$(cat "$work/refused")"
    grep -qE -- "$text" "$work/refused" || fail "$what" "it does not say '$text':" "$(cat "$work/refused")"
    ok "$what"
}

# cpu_time PROCESS: hundredths of a second that it took so far.
cpu_time() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}

# --- captures

# same_frames WANTED GOT: whether two captures have the same frames in the same order; says what they differ in, or how many they are.
# same_frames ALL SOME REST: writes a capture of the frames that are not among some.
same_frames() {
    /usr/bin/python3 - "$@" <<'PYTHON'
import struct
import sys


def frames(path):
    with open(path, "rb") as file:
        data = file.read()
    at, found = 24, []
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        found.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return found


def without(path, others, to):
    """What tcpdump does not pick is more than what it picks by "not": an expression that looks past a frame's end is false, and so is that."""
    with open(path, "rb") as file, open(to, "wb") as rest:
        rest.write(file.read(24))
        while head := file.read(16):
            frame = file.read(struct.unpack_from("<I", head, 8)[0])
            if frame not in others:
                rest.write(head + frame)


wanted, got = frames(sys.argv[1]), frames(sys.argv[2])
if len(sys.argv) == 4:
    without(sys.argv[1], set(got), sys.argv[3])
    sys.exit()
if wanted != got:
    missing, more = [f for f in wanted if f not in got], [f for f in got if f not in wanted]
    print(f"wanted {len(wanted)} frames, got {len(got)}; {len(missing)} are missing, {len(more)} should not be there")
    for name, some in (("missing", missing), ("should not be there", more)):
        for frame in some[:3]:
            print(f"{name}: {len(frame)} bytes {frame[:64].hex()}")
    sys.exit(1)
print(len(wanted))
PYTHON
}

# begin_capture SPACE INTERFACE: of what comes there.
begin_capture() {
    rm -f "$work/got.pcap"
    background ip netns exec "nvp$$-$1" tcpdump -i "$2" -Q in -U --immediate-mode -s 10000 -B 65536 -w "$work/got.pcap" 2>"$work/capture"
    capture=$!
    wait_for "tcpdump listens" 20 grep -q listening "$work/capture"
}

# end_capture WANTED WHAT: when the frames of the capture WANTED came, and no other ones, each as it was and in order. How many they are is in
# $work/same.
end_capture() {
    local wanted
    wanted=$(stat -c %s "$1")
    # A capture of the same frames is as long. What should not be there would come soon, too.
    for _ in $(seq 500); do
        [ "$(stat -c %s "$work/got.pcap")" -lt "$wanted" ] || break
        sleep 0.02
    done
    sleep 0.05
    kill -INT "$capture"
    wait "$capture" || true
    grep -q '^0 packets dropped by kernel' "$work/capture" || fail "tcpdump gets all frames" "$(cat "$work/capture")"
    same_frames "$1" "$work/got.pcap" >"$work/same" || fail "$2" "$(cat "$work/same")"
}
