# shellcheck shell=bash
# Shared by the scripts of these folders: guests, traffic between stations, and captures of it. Sourced by lib.sh.

# --- guests

# The folder of the guests' kernel and root file system, which are built if necessary.
guest_image() {
    need qemu-system-x86_64 busybox cpio modprobe
    image=$(nsenter "--net=/proc/self/fd/$outside" "$root/scripts/guest-image.sh" 2>"$work/image.log") ||
        skip "no guest image: $(tail -n 1 "$work/image.log")"
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

# guest NAME ARGUMENT…: boots a guest with the files of $work/NAME beside busybox; it runs the file `script` among them
# and powers off. Its console output is in $work/NAME.console; what is written to $work/NAME.typed is typed at the
# console.
guest() {
    guest_initrd "$1"
    guest_boots "$@"
}

# guest_initrd NAME: builds its root file system.
guest_initrd() {
    mkdir -p "$work/$1/more"
    cp "$image"/more/* "$work/$1/more/"
    (cd "$work/$1" && find . | cpio -o -H newc --quiet | gzip -1 | cat "$image/base.cpio.gz" - >"$work/$1.initrd")
}

# guest_boots NAME ARGUMENT…: boots it with the existing root file system, in $vmm or the system's QEMU. A second
# processor is possible, as QEMU otherwise leaves out a guest's memory barriers, which its peers rely on. Under other
# load a guest's timer is late; its kernel must not take it for broken.
declare -A guests=()
guest_boots() {
    local name=$1
    shift
    mkfifo "$work/$name.typed"
    background "${vmm[@]:-qemu-system-x86_64}" -accel tcg,thread=multi -cpu max -m 256 -smp 1,maxcpus=2 -nographic \
        -no-reboot -nodefaults -serial stdio -net none -object memory-backend-memfd,id=mem,size=256M,share=on -M q35,memory-backend=mem \
        -kernel "$image/vmlinux" -initrd "$work/$name.initrd" \
        -append 'console=ttyS0 quiet panic=-1 no_timer_check' "$@" \
        <>"$work/$name.typed" >"$work/$name.console" 2>&1
    guests[$name]=$!
}

# says NAME TEXT SECONDS: waits until a guest has printed the text.
says() {
    local end=$((SECONDS + $3 * patience))
    until grep -q -- "$2" "$work/$1.console"; do
        if [ "$SECONDS" -ge "$end" ] || gone "${guests[$1]}"; then
            ! grep -q -- "$2" "$work/$1.console" || return 0
            fail "the guest $1 says '$2'" "$(tail -n 40 "$work/$1.console")"
        fi
        sleep 0.1
    done
}

# --- traffic

# iperf_server SPACE [OPTION…]: starts a server, until the script ends.
iperf_server() {
    local space=$1 port=5201
    shift
    [ "${1:-}" != -p ] || port=$2
    background in_space "$space" iperf3 -s "$@" >"$work/server.$space.$port" 2>&1
    wait_for "iperf3 listens at $space" 10 listens "$space" "$port"
}

listens() {
    in_space "$1" ss -Hltn "sport = :$2" | grep -q .
}

# iperf FROM TO OPTION…: traffic between two stations. iperf3's output is in $work/iperf.json: `said EXPRESSION`.
iperf() {
    iperf_client "s$1" "10.1.0.$2" "${@:3}"
}

# iperf_client SPACE ADDRESS OPTION…: runs a client. A server listens anew after each client, and resets a connection
# that arrives in between.
iperf_client() {
    local space=$1 address=$2
    shift 2
    for _ in 1 2 3; do
        ! in_space "$space" iperf3 -J -c "$address" "$@" >"$work/iperf.json" || return 0
        said .error | grep -q 'control message' || break
    done
    fail "iperf3 from $space to $address" "$(jq -r '.error // .' "$work/iperf.json")"
}

# ends_iperf PROCESS: ends a background client whose output is $work/iperf.json; it must not have failed before.
ends_iperf() {
    end_of "$1" INT || true
    jq -e '.error == "interrupt - the client has terminated"' "$work/iperf.json" >/dev/null ||
        fail "iperf3 goes on" "$(cat "$work/iperf.json")"
}

said() {
    jq -r "$1" "$work/iperf.json"
}

# frames_to SPACE INTERFACE: the number of frames that reached it.
frames_to() {
    ip -n "$1" -s -j link show "$2" | jq '.[].stats64.rx.packets'
}

# attack SPACE INTERFACE KIND COUNT: see attack.py.
attack() {
    in_space "$1" "$here/attack.py" "$2" "$3" "$4"
}

# compiled PROGRAM: compiles PROGRAM.c to $work/PROGRAM, to run here and in guests.
compiled() {
    need gcc
    gcc -O1 -static -Wall -Wextra -Werror -o "$work/$1" "$here/$1.c"
}

# crosses WHAT SPACE PORT…: sends the frames of standard input (format: see matrix.c) between ports of a namespace; each
# must come out where its line says.
crosses() {
    local what=$1 space=$2
    shift 2
    grep '^[^#]' >"$work/wanted"
    sed 's/ :.*//' "$work/wanted" >"$work/sent"
    in_space "$space" "$work/matrix" -e "$work/wanted" "$work/sent" "$@" >"$work/got" ||
        fail "$what" "the frames cannot be sent"
    diff "$work/wanted" "$work/got" >"$work/diff" || fail "$what (<: wanted, >: got)" "$(cat "$work/diff")"
    ok "$what ($(wc -l <"$work/wanted") frames)"
}

# http_status SPACE OPTION…: the status of a response to curl.
http_status() {
    in_space "$1" curl -s --max-time 20 -o /dev/null -w '%{http_code}' "${@:2}" || true
}

# --- captures

# tcpdump_in SPACE FILE ARGUMENT…: starts tcpdump. Its capture is $work/FILE, its messages are in $work/FILE.err.
tcpdump_in() {
    local space=$1 file=$2
    shift 2
    rm -f "$work/$file"
    background in_space "$space" tcpdump --immediate-mode -w "$work/$file" "$@" 2>"$work/$file.err"
    capture=$!
    wait_for "tcpdump listens" 20 grep -q listening "$work/$file.err"
}

# begin_capture SPACE INTERFACE: starts a capture of what arrives there, to $work/got.pcap.
begin_capture() {
    tcpdump_in "$1" got.pcap -i "$2" -U -Q in -s 10000 -B 65536
}

# end_capture WANTED WHAT: waits for the frames of the capture WANTED; these and no others must arrive, unchanged and in
# order. Their number is in $work/same.
end_capture() {
    local wanted
    wanted=$(stat -c %s "$1")
    # A capture of the same frames has the same length. Unexpected frames would arrive soon after.
    for _ in $(seq 500); do
        [ "$(stat -c %s "$work/got.pcap")" -lt "$wanted" ] || break
        sleep 0.02
    done
    sleep 0.05
    end_of "$capture" INT || true
    grep -q '^0 packets dropped by kernel' "$work/got.pcap.err" ||
        fail "tcpdump gets all frames" "$(cat "$work/got.pcap.err")"
    same_frames "$1" "$work/got.pcap" >"$work/same" || fail "$2" "$(cat "$work/same")"
}

# same_frames WANTED GOT: whether two captures have the same frames in the same order; prints how they differ, or how
# many frames they have. same_frames ALL SOME REST: writes a capture of the frames of ALL that are not in SOME.
same_frames() {
    "$root/tests/same_frames.py" "$@"
}
