#!/usr/bin/env bash
# Labs of an ordinary user, by `netvale lab`: members in namespaces, and virtual machines by vde, stream and vhost-user,
# at a gateway. Nothing is left of a lab that was ended by `lab down`, by Ctrl-C or by SIGKILL, or could not start.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl jq nsenter qemu-system-x86_64
guest_image

# The lab's user is nobody else's here, so that all its processes are the lab's.
user=("${as_user[@]}")
user[1]=--reuid=65532

lab() {
    ${direct:-} in_space host "${user[@]}" "$NETVALE" --run-dir "$work/lab/run" lab "$@"
}

# begin_lab FILE: starts it, and waits until it is ready.
begin_lab() {
    : >"$work/lab.out"
    background in_space host "${user[@]}" "$NETVALE" --run-dir "$work/lab/run" lab up "$work/lab/$1" \
        >"$work/lab.out" 2>"$work/lab.err"
    running=$!
    wait_for "the lab $1 is ready" 60 is_ready
}

is_ready() {
    grep -q '^ready' "$work/lab.out" || { cat "$work/lab.err" && false; }
}

nothing_is_left() {
    local left
    left=$(ps -o pid=,stat=,args= -u 65532 | awk '$2 !~ /^Z/')
    [ -z "$left" ] || { echo "$left" && false; }
}

# clean WHAT: nothing is left.
clean() {
    wait_for "$1: no process is left" 10 nothing_is_left
    [ ! -e "$work/lab/run" ] || fail "$1: the folder is gone" "$(ls "$work/lab/run")"
    ok "$1: nothing is left"
}

# machine_entry NAME ARGUMENT…: prints the section of a virtual machine. {socket} is filled in by netvale.
machine_entry() {
    local name=$1 words
    shift
    words=$(printf "'%s', " qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 256 -smp 1,maxcpus=2 -nodefaults \
        -display none -no-reboot -object memory-backend-memfd,id=mem,size=256M,share=on -M q35,memory-backend=mem \
        -kernel "$work/image/vmlinux" -initrd "$work/$name.initrd" -append 'console=ttyS0 quiet panic=-1 no_timer_check' \
        -serial stdio -device 'virtio-net-pci,netdev=n0,vectors=0,romfile=,mac={mac}' "$@")
    printf "[[member]]\nname = '%s'\nswitch = 'vale0'\nsocket = '%s'\ncommand = [%s]\n" "$name" "$name" "${words%, }"
}

machine_files() {
    mkdir "$work/$1"
    cat >"$work/$1/lease" <<'SCRIPT'
[ "$1" = bound ] && ip addr add "$ip/$mask" dev "$interface" && ip route add default via "$router"
SCRIPT
    chmod 755 "$work/$1/lease"
    cat >"$work/$1/script" <<SCRIPT
mkdir /www
echo "this is $1" >/www/index.html
ip link set lo up
ip link set eth0 up
busybox udhcpc -q -n -f -t 20 -T 1 -i eth0 -s /lease >/dev/null 2>&1
busybox httpd -f -p 80 -h /www
SCRIPT
    guest_initrd "$1"
    chmod 644 "$work/$1.initrd"
}

files() {
    mkdir -p "$work/lab/www" "$work/lab/own" "$work/image"
    mount --bind "$image" "$work/image"
    echo "this is web" >"$work/lab/www/index.html"
    echo "this is the host" >"$work/lab/own/index.html"
    cat >"$work/lab/small.toml" <<TOML
workers = 1

[[gateway]]
switch = 'vale0'
addresses = '10.0.0.1/24,fd00::1/64'
options = ['--deny', 'any', '--allow', '127.0.0.1:8000', '--publish', '8080:web:80']

[[member]]
name = 'web'
switch = 'vale0'
address = '10.0.0.9'
command = ['busybox', 'httpd', '-f', '-p', '[::]:80', '-h', '$work/lab/www']

[[member]]
name = 'client'
switch = 'vale0'
port = { rate_out = '100mbit' }

[[member]]
name = 'stubborn'
switch = 'vale0'
command = ['sh', '-c', 'trap "" TERM; while :; do sleep 1; done']
TOML
    cp "$work/lab/small.toml" "$work/lab/machines.toml"
    for name in vde stream vhost; do machine_files "$name"; done
    {
        machine_entry vde -netdev 'vde,id=n0,sock={socket}'
        machine_entry stream -netdev 'stream,id=n0,server=off,addr.type=unix,addr.path={socket}'
        machine_entry vhost -chardev 'socket,id=c0,path={socket}' -netdev vhost-user,id=n0,chardev=c0
    } >>"$work/lab/machines.toml"
    sed "s/'--deny', 'any', /'--nonsense', /" "$work/lab/small.toml" >"$work/lab/wrong.toml"
    printf "[[member]]\nname = 'ends'\nswitch = 'vale0'\ncommand = ['sh', '-c', 'echo that is all; exit 3']\n" |
        cat "$work/lab/small.toml" - >"$work/lab/ends.toml"
    chown 65532 "$work/lab"
}

from_client() {
    lab exec client -- curl -s --max-time 20 "$@"
}

says_this() {
    [ "$(from_client "http://$1.lan/")" = "this is $1" ]
}

members() {
    same "members reach each other by name" "$(from_client http://web.lan/)" "this is web"
    same "… and by IPv6" "$(from_client 'http://[fd00::2]/')" "this is web"
    same "a published port" "$(in_space host curl -s --max-time 20 http://127.0.0.1:8080/)" "this is web"
    same "what the gateway allows" "$(from_client http://10.0.0.1:8000/)" "this is the host"
    local code=0
    from_client http://10.0.0.1:8001/ || code=$?
    same "… and nothing else" "$code" 7
    code=0
    lab exec client -- sh -c 'exit 9' || code=$?
    same "exec has the command's exit code" "$code" 9
    same "… and its folder" "$(cd "$work/lab" && lab exec client -- pwd)" "$work/lab"
    same "… and its user" "$(lab exec client -- id -u)" 65532
    ends_with "a member that does not exist" 2 'no member "nobody"' lab exec nobody -- true
    same "status lists members and addresses" \
        "$(lab status --json | jq -r '[.members[] | select(.runs) | .name + "=" + .address] | join(" ")')" \
        "web=10.0.0.9 client=10.0.0.2 stubborn=10.0.0.3"
    same "… and published ports" "$(lab status | grep published)" "published: 127.0.0.1:8080:web:80"
    same "ports have their options" \
        "$("$NETVALE" --run-dir "$work/lab/run" show vale0:client --json | jq -r .policies.rate_out)" "100mbit"
    ends_with "a second lab in the folder is refused" 1 "a lab runs already" lab up "$work/lab/small.toml"
}

machines() {
    begin_lab machines.toml
    for name in vde stream vhost; do
        wait_for "the machine $name gets its address and is reached by name" 120 says_this "$name"
        ok "the machine $name gets its address and is reached by name"
    done
    ends_with "exec is for namespaces" 2 "program at a socket" lab exec vde -- true
    lab down
    ended "lab down ends the lab" "$running" 0
    clean "after lab down, with machines"
}

ends() {
    begin_lab ends.toml
    wait_for "a member that ends is reported" 20 grep -q "member ends has ended with exit code 3" "$work/lab.err"
    grep -q "that is all" "$work/lab.err" || fail "… with its last words" "$(cat "$work/lab.err")"
    ok "a member that ends is reported with its last words, and the lab goes on"
    kill -INT "$running"
    ended "Ctrl-C ends the lab" "$running" 0
    clean "after Ctrl-C"
    begin_lab small.toml
    kill -KILL "$(lab_process)"
    wait "$running" 2>/dev/null || true
    wait_for "after SIGKILL: no process is left" 10 nothing_is_left
    ok "after SIGKILL: no process is left"
    ends_with "no lab runs" 3 "no lab runs" lab status
    begin_lab small.toml
    ok "the next lab has the same folder"
    lab down
    ended "lab down ends it" "$running" 0
    clean "after lab down"
    ends_with "a lab whose gateway cannot start ends" 1 "the gateway of vale0 has ended" lab up "$work/lab/wrong.toml"
    clean "after that"
}

lab_process() {
    jq .pid "$work/lab/run/lab.json"
}

space host
with_v6 host
files
background in_space host busybox httpd -f -p 127.0.0.1:8000 -h "$work/lab/own"
begin_lab small.toml
members
lab down
ended "lab down ends the lab" "$running" 0
clean "after lab down"
ends
machines
finish
