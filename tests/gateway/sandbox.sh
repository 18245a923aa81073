#!/usr/bin/env bash
# Sandboxes of an ordinary user: a command whose only network is a gateway with rules. What it reaches and what not, its
# user, files, terminal, signals and exit codes; and that nothing remains, and nothing opens, whichever part is killed.
#
# `host` has the sandboxes and a cable to `outside`, where servers for HTTP and names are.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=SCRIPTDIR/lib.sh
. "$here/lib.sh"
need busybox curl dnsmasq dig nsenter setpriv

# servers: HTTP and names outside, HTTP on the host's loopback.
servers() {
    mkdir "$work/www" "$work/own"
    mkdir -m 777 "$work/box"
    head -c 5000000 /dev/urandom >"$work/www/file"
    echo own >"$work/own/index.html"
    background in_space outside busybox httpd -f -p 192.0.2.2:80 -h "$work/www"
    background in_space host busybox httpd -f -p 127.0.0.1:8080 -h "$work/own"
    background in_space outside dnsmasq -k -C /dev/null --user=root --pid-file= -p 53 --no-resolv --no-hosts \
        --listen-address=192.0.2.2 --bind-interfaces --address=/example.test/192.0.2.2 >"$work/dnsmasq.err" 2>&1
    mkdir -m 755 "$work/resolver"
    echo "nameserver 192.0.2.2" >"$work/resolver/resolv.conf"
    wait_for "the servers answer" 20 in_space host curl -sf -o /dev/null http://192.0.2.2/file
    wait_for "the name server answers" 20 in_space host dig +short +time=1 @192.0.2.2 example.test
}

# sandbox [OPTION…] -- COMMAND…: as an ordinary user, on `host`, in the folder box.
sandbox() {
    cd "$work/box" || return
    in_space host "${as[@]}" "$NETVALE" sandbox --resolv-conf "$work/resolver/resolv.conf" "$@"
}
as=("${as_user[@]}")

# same WHAT GOT WANTED
same() {
    [ "$2" = "$3" ] || fail "$1" "got $2, wanted $3" "$(tail -n 3 "$work/box.err" 2>/dev/null)"
    ok "$1"
}

# code COMMAND…: prints its exit code.
code() {
    local code=0
    "$@" >"$work/box.out" 2>"$work/box.err" </dev/null || code=$?
    echo "$code"
}

# fetches WHAT URL FILE OPTION…
fetches() {
    local what=$1 url=$2 file=$3
    shift 3
    sandbox "$@" -- curl -s --max-time 20 -o "$work/box/got" "$url" 2>"$work/box.err" ||
        fail "$what" "curl: $?" "$(tail -n 3 "$work/box.err")"
    cmp "$work/box/got" "$file" || fail "$what" "other bytes"
    ok "$what"
}

# refused WHAT URL OPTION…: immediately; the exit code of curl would be another after a timeout.
refused() {
    local what=$1 url=$2
    shift 2
    same "$what is refused" "$(code sandbox "$@" -- curl -s --max-time 20 -o /dev/null "$url")" 7
}

reach() {
    fetches "an allowed server" http://192.0.2.2/file "$work/www/file" --allow 192.0.2.2:80/tcp
    refused "the same server without a rule" http://192.0.2.2/file
    refused "another port of it" http://192.0.2.2:81/ --allow 192.0.2.2:80/tcp
    refused "the host's address" http://192.0.2.1:8080/ --allow any
    fetches "the Internet, by name" http://example.test/file "$work/www/file" --allow any
    refused "what is denied of it" http://192.0.2.2/file --allow any --deny 192.0.2.2:80
    refused "the command's own loopback" http://127.0.0.1:8080/ --allow any
    refused "the host's loopback" http://192.0.0.1:8080/ --allow any
    fetches "an allowed port of the host's loopback" http://gateway.lan:8080/ "$work/own/index.html" \
        --allow 127.0.0.1:8080
    same "names come from the gateway" "$(sandbox -- sed -n 's/^nameserver //p' /etc/resolv.conf)" 192.0.0.1
    same "other families of sockets are refused" "$(code sandbox --allow any -- /usr/bin/python3 -c '
import errno, socket
try: socket.socket(socket.AF_VSOCK)
except OSError as why: exit(0 if why.errno == errno.EAFNOSUPPORT else 2)
exit(1)')" 0
}

# What the command leaves in the terminal's input, the caller's shell would run.
terminal_input() {
    cat >"$work/box/input.py" <<'PY'
import errno, fcntl, os, pty, sys, termios
if len(sys.argv) == 1:
    try: fcntl.ioctl(0, termios.TIOCSTI, b"x")
    except OSError as why: sys.exit(0 if why.errno == errno.EPERM else 2)
    sys.exit(1)
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
try:
    while os.read(terminal, 4096): pass
except OSError: pass
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
PY
    cd "$work/box" || return
    same "the command writes no input for the terminal" "$(code in_space host "${as[@]}" /usr/bin/python3 input.py \
        "$NETVALE" sandbox -- /usr/bin/python3 input.py)" 0
}

# A resolver file that is replaced, as resolver managers do it, is read again.
resolver() {
    echo "nameserver 192.0.2.77" >"$work/resolver/resolv.conf"
    background sandbox --allow any -- sh -c 'until getent hosts example.test; do :; done' >"$work/box/named" 2>"$work/box.err"
    local box=$!
    wait_for "the sandbox runs" 20 has_children "$box"
    echo "nameserver 192.0.2.2" >"$work/resolver/new"
    mv "$work/resolver/new" "$work/resolver/resolv.conf"
    ended "a new resolver file is read by the confined gateway" "$box" 0
    same "… and has the name" "$(cut -d ' ' -f 1 "$work/box/named")" 192.0.2.2
}

# The host's own file is replaced: the sandbox still has that of its gateway.
replaced() {
    cp -a /etc "$work/etc"
    mount --bind "$work/etc" /etc
    background sandbox -- sh -c 'touch begun; until [ -e replaced ]; do sleep 0.05; done
        until grep -q 192.0.0.1 /etc/resolv.conf; do sleep 0.05; done; ! grep -q 192.0.2.88 /etc/resolv.conf' 2>"$work/box.err"
    local box=$!
    wait_for "the sandbox runs" 20 test -e "$work/box/begun"
    echo "nameserver 192.0.2.88" >/etc/resolv.conf.new
    mv /etc/resolv.conf.new /etc/resolv.conf
    touch "$work/box/replaced"
    ended "the host's new resolver file stays outside" "$box" 0
    umount /etc
}

has_children() {
    [ -n "$(cat "/proc/$1/task/$1/children")" ]
}

caller() {
    same "the user is the caller" "$(sandbox -- id -u)" 65534
    same "the folder is the caller's" "$(sandbox -- pwd)" "$work/box"
    sandbox -- sh -c 'echo text >file'
    same "its files are the user's" "$(stat -c %u "$work/box/file")" 65534
    same "standard input passes" "$(echo word | sandbox -- cat)" word
    same "an exit code" "$(code sandbox -- sh -c 'exit 7')" 7
    # shellcheck disable=SC2016
    same "the end by a signal" "$(code sandbox -- sh -c 'kill -TERM $$')" 143
    same "no such command" "$(code sandbox -- no-such-command)" 127
    same "a file that is no program" "$(code sandbox -- ./file)" 126
    same "the command has no privileges" "$(sandbox -- sed -n 's/^CapEff:\s*//p' /proc/self/status)" 0000000000000000
    same "a second namespace opens nothing" \
        "$(code sandbox --allow any -- unshare --user --map-root-user nsenter --net=/run/netns/outside true)" 1
}

# --- the record

record() {
    sandbox --allow 192.0.2.2:80 --watch --flows flows -- sh -c '
        curl -s -o /dev/null http://192.0.2.2/file; curl -s --max-time 9 http://192.0.2.2:81/; true' 2>"$work/box.err"
    grep -q 'netvale: allowed tcp  192.0.2.2:80' "$work/box.err" || fail "--watch shows what is allowed" "$(cat "$work/box.err")"
    grep -q 'netvale: refused tcp  192.0.2.2:81: policy' "$work/box.err" || fail "--watch shows what is refused" "$(cat "$work/box.err")"
    same "the record has both, and the end" "$(jq -r .event "$work/box/flows" | sort -u | tr '\n' ' ')" "closed opened refused "
}

published() {
    background sandbox --publish 8081:80 -- busybox httpd -f -p 80 -h "$work/www" 2>"$work/box.err"
    local box=$!
    wait_for "a published port" 20 in_space host curl -sf -o "$work/got" http://127.0.0.1:8081/file
    cmp "$work/got" "$work/www/file" || fail "a published port" "other bytes"
    ok "a published port, of a command that listens below 1024"
    same "a port in use" "$(code sandbox --publish 8081:80 -- touch "$work/box/ran")" 1
    [ ! -e "$work/box/ran" ] || fail "a sandbox that cannot start does not run the command"
    grep -q 8081 "$work/box.err" || fail "the error names the port" "$(cat "$work/box.err")"
    kill "$box"
    ended "SIGTERM reaches the command" "$box" 143
    same "the port is free again" "$(in_space host ss -Htln 'sport = :8081' | wc -l)" 0
}

# The first datagram arrives, since the gateway knows where the command is.
published_datagrams() {
    background sandbox --publish 8082:7/udp -- /usr/bin/python3 -c '
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 7))
print("bound", flush=True)
words, client = server.recvfrom(100)
server.sendto(words.upper(), client)' >"$work/box/said" 2>"$work/box.err"
    local box=$!
    wait_for "the command listens" 20 grep -q bound "$work/box/said"
    same "a published port, by UDP" "$(in_space host /usr/bin/python3 -c '
import socket
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(20)
client.sendto(b"word", ("127.0.0.1", 8082))
print(client.recv(100).decode())')" WORD
    ended "the command ends" "$box" 0
}

# --- signals

signals() {
    background sandbox -- sh -c 'n=0; trap "n=\$((n + 1))" INT; trap "echo INT \$n; exit 9" TERM; echo begun
        while :; do sleep 0.05; done' >"$work/box/said" 2>"$work/box.err"
    local box=$!
    wait_for "the command runs" 20 grep -q begun "$work/box/said"
    kill -INT "$box"
    # Signals arrive in this order, since the shell runs traps between two commands.
    sleep_until_handled "$box"
    kill -TERM "$box"
    ended "signals are forwarded once" "$box" 9
    same "… each" "$(tail -n 1 "$work/box/said")" "INT 1"
    same "Ctrl-C reaches the command once" "$(in_terminal)" "INT 1"
}

# The sandbox has no signal that waits.
sleep_until_handled() {
    wait_for "the signal is forwarded" 20 sh -c "grep -q '^SigPnd:.*0000000000000000' /proc/$1/status &&
        grep -q '^ShdPnd:.*0000000000000000' /proc/$1/status"
}

# Runs a command on a terminal, where its job is in the foreground, and presses Ctrl-C.
in_terminal() {
    cd "$work/box" || return
    cat >"$work/box/terminal.py" <<'PY'
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
said = b""
def until(word):
    global said
    while word not in said:
        try: got = os.read(terminal, 4096)
        except OSError: got = b""
        if not got: sys.exit(f"{said!r} without {word!r}")
        said += got
until(b"begun")
os.write(terminal, b"\x03")
until(b"counted")
os.write(terminal, b"end\n")
until(b"INT 1")
print("INT 1")
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
PY
    # The second line of input comes only after the first signal: another one would be counted by then.
    in_space host "${as[@]}" /usr/bin/python3 "$work/box/terminal.py" "$NETVALE" sandbox -- \
        bash -c 'n=0; trap "n=\$((n + 1)); echo counted" INT; echo begun
            until read -r line && [ "$line" = end ]; do :; done; echo "INT $n"' 2>&1
}

# --- the end of any part

# Prints the processes of a sandbox: parts PARENT.
parts() {
    local child
    parent=$1 gateway='' inside='' command=''
    for child in $(cat "/proc/$1/task/$1/children"); do
        if tr '\0' ' ' <"/proc/$child/cmdline" | grep -q '^netvale gateway '; then gateway=$child; else inside=$child; fi
    done
    command=$(cat "/proc/$inside/task/$inside/children")
    command=${command%% *}
}

# Processes with this word in their command lines.
with_word() {
    # Its own command line has the brackets, and does not match.
    grep -lsz -- "0[.]$1" /proc/[0-9]*/cmdline || true
}

is_gone() {
    [ -z "$(with_word "$1")" ]
}

# begin_box WORD: a sandbox with an open connection and a child that outlives its parent. `nohup` and `setsid` hide the
# child from the terminal and the group.
begin_box() {
    rm -f "$work/box/ready"
    background sandbox --allow 192.0.2.2:80 -- sh -c "setsid nohup sh -c 'while :; do sleep 0.$1; done' >/dev/null 2>&1 &
        curl -sN --limit-rate 10k http://192.0.2.2/file >/dev/null & touch ready; while :; do sleep 0.$1; done" \
        >"$work/box.out" 2>"$work/box.err"
    box=$!
    wait_for "the sandbox runs" 20 test -e "$work/box/ready"
    parts "$box"
    [ -n "$gateway" ] && [ -n "$inside" ] && [ -n "$command" ] || fail "the sandbox has all its parts" "$gateway $inside $command"
}

has_no_connection() {
    [ -z "$(in_space host ss -Htn state established dst 192.0.2.2)" ]
}

kills() {
    local part pid wanted word=51234
    for part in parent gateway inside command; do
        word=$((word + 1))
        begin_box "$word"
        case $part in gateway) wanted=1 ;; *) wanted=137 ;; esac
        pid=${!part}
        kill -KILL "$pid"
        ended "kill -9 of the $part ends the sandbox" "$box" "$wanted"
        wait_for "no process remains after kill -9 of the $part" 20 is_gone "$word"
        wait_for "the gateway ends after kill -9 of the $part" 20 gone "$gateway"
        wait_for "no connection remains" 20 has_no_connection
        ok "nothing remains after kill -9 of the $part"
    done
    begin_box 51240
    kill -KILL "$gateway"
    wait "$box" || true
    grep -q 'the gateway has ended' "$work/box.err" || fail "the error names the gateway" "$(cat "$work/box.err")"
    ok "the error names the gateway"
    # shellcheck disable=SC2016
    sandbox -- sh -c 'setsid nohup sh -c "while :; do sleep 0.51250; done" >/dev/null 2>&1 &'
    wait_for "the command's children end with it" 20 is_gone 51250
    ok "the command's children end with it"
}

# status FIELD PROCESS
status() {
    sed -n "s/^$1:[[:space:]]*//p" "/proc/$2/status"
}

confinement() {
    begin_box 51260
    confined "$gateway" "the sandbox's gateway"
    same "the command has no new privileges" "$(status NoNewPrivs "$command")" 1
    # The command could connect to a control socket of its gateway: both have the same user.
    same "the gateway takes no orders" "$(in_space host ss -Hxlp | grep -c "pid=$gateway,")" 0
    same "another sandbox runs beside it" "$(code sandbox -- true)" 0
    kill "$box"
    wait "$box" || true
    host_daemon host "${as_user[@]}"
    background in_space host "$NETVALE" --run-dir "$work/host/run" gateway vale0 10.0.0.1/24 >"$work/gateway.err" 2>&1
    local own=$!
    wait_for "the gateway is ready" 20 grep -q ready "$work/gateway.err"
    confined "$own" "root's gateway"
    end_of "$own" || true
}

# confined PROCESS WHAT
confined() {
    same "$2 has a filter of system calls" "$(status Seccomp "$1")" 2
    same "$2 has no new privileges" "$(status NoNewPrivs "$1")" 1
    same "$2 has no capabilities" "$(status CapPrm "$1") $(status CapEff "$1")" "0000000000000000 0000000000000000"
}

# Root keeps its files, but no way to the host's network.
as_root() {
    as=()
    same "root stays root" "$(sandbox -- id -u)" 0
    fetches "an allowed server, as root" http://192.0.2.2/file "$work/www/file" --allow 192.0.2.2
    refused "another, as root" http://192.0.2.2/file
    same "root cannot enter another network" "$(code sandbox -- nsenter --net=/run/netns/outside true)" 1
    as=("${as_user[@]}")
}

# Without user namespaces. The limit is that of a user namespace made for this.
forbidden() {
    local said=0
    # shellcheck disable=SC2016
    unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"' - \
        "$NETVALE" sandbox -- true 2>"$work/box.err" || said=$?
    same "without user namespaces there is an error" "$said" 1
    grep -q 'user.max_user_namespaces is 0' "$work/box.err" || fail "the error has the reason" "$(cat "$work/box.err")"
    grep -q 'sysctl user.max_user_namespaces=' "$work/box.err" || fail "the error has the remedy" "$(cat "$work/box.err")"
    ok "the error has the reason and the remedy"
}

network
servers
reach
terminal_input
resolver
replaced
caller
record
published
published_datagrams
signals
kills
confinement
as_root
forbidden
finish
