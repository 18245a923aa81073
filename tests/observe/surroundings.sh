#!/usr/bin/env bash
# Bad surroundings: standard streams that are closed, full, or without a reader; other locales and terminals; a
# read-only /usr; a daemon whose user does not exist; limits of descriptors, memory and file sizes, for the daemon and
# its clients.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need prlimit /usr/bin/python3

# does_not_panic WHAT: checks the command's output in $work/err.
does_not_panic() {
    ! grep -q panicked "$work/err" || fail "$1: no panic" "$(cat "$work/err")"
}

# to_full COMMAND…: runs the command with its output to /dev/full.
to_full() {
    "$@" >/dev/full
}

# elsewhere NAME OPTION…: starts a daemon in a folder of its own, which is the script's daemon from then on; with the
# prefix command $by, if set, for this call only. here: back to the first one.
by=(env)
elsewhere() {
    local folder=$work/$1
    mkdir -p "$folder"
    run_dir=$folder/run
    launch "$folder" "${by[@]}" "$NETVALE" --run-dir "$run_dir" up "${@:2}"
    by=(env)
}
here() {
    run_dir=$work/run
}

# --- streams

# A daemon without standard streams opens replacements, so that no socket of its own gets one of their numbers.
launch "$work" sh -c 'exec "$@" <&- >&- 2>&-' sh "$NETVALE" --run-dir "$run_dir" up
for stream in 0 1 2; do
    expect "the daemon's stream $stream" "$(readlink "/proc/$daemon/fd/$stream")" = /dev/null
done
must nv attach vale0 null:n
nv list <&- >"$work/out" 2>&1 || fail "a client without standard input" "$(cat "$work/out")"
nv list >&- 2>"$work/err" || true
does_not_panic "a client without standard output"
ok "closed standard streams"

for command in list "list --json" "show vale0:n" "top --batch -n 1" metrics export "apply --schema" doctor; do
    # shellcheck disable=SC2086 # words
    ends_with "netvale $command to a full disk" 1 "No space left" to_full nv $command
    # shellcheck disable=SC2086 # words
    { nv $command 2>"$work/err" || true; } | true
    does_not_panic "netvale $command to a pipe that nobody reads"
done
ok "output to a full disk, and to pipes without a reader"

# A daemon continues without its log if the disk is full or the log's reader is gone.
by=(sh -c 'exec "$@" 2>/dev/full' sh)
elsewhere full --log-level debug
must nv attach vale0 null:n
must nv detach vale0:n
must nv list
by=(bash -c 'exec "$@" 2> >(true)' sh)
elsewhere unread --log-level debug
must nv attach vale0 null:n
must nv detach vale0:n
must nv list
here
ok "a log to a full disk, and to a pipe without a reader"

# --- locales and terminals

nv list >"$work/usual"
for locale in LC_ALL=C LC_ALL=POSIX LC_ALL=de_DE LC_ALL= LANG=nowhere.UTF-9; do
    env "$locale" "$NETVALE" --run-dir "$run_dir" list >"$work/out" 2>&1
    cmp -s "$work/usual" "$work/out" || fail "netvale list with $locale" "$(diff "$work/usual" "$work/out")"
done
for terminal in TERM= TERM=dumb TERM=nowhere; do
    env "$terminal" "$NETVALE" --run-dir "$run_dir" top --batch -n 1 >"$work/out" 2>&1 ||
        fail "netvale top --batch with $terminal" "$(cat "$work/out")"
done
ok "other locales and terminals"

# --- limits

limited() {
    prlimit "$1" -- "$NETVALE" --run-dir "$run_dir" "${@:2}"
}
for most in 4 6 8; do
    ends_with "a program with few descriptors ($most)" 1 "Too many open files" \
        limited --nofile=$most pkt-gen -i vale0:f -f tx -n 1
done
must limited --nofile=16 list
limited --fsize=0 list | grep -q vale0 || fail "a client that may write no file"
must limited --as=$((512 << 20)) list
ok "limits of clients"

# Each port takes descriptors. The daemon reports that it has run out, and continues; later there are free ones again.
by=(prlimit --nofile=64:64)
elsewhere few
attach_many() {
    local n
    for n in $(seq 100); do
        nv attach vale0 "r$n" >"$work/said" 2>&1 || return 0
    done
    return 1
}
attach_many || fail "100 ports do not fit into 64 descriptors"
grep -Eqi "descriptor|open files" "$work/said" || fail "the daemon reports the missing descriptors" "$(cat "$work/said")"
must nv list
must nv detach vale0:r1
must nv attach vale0 r1
here
ok "a daemon with few descriptors"

# --- the file system

mount --bind /usr /usr
mount -o remount,bind,ro /usr
elsewhere read-only
must nv attach vale0 rx
background nv pkt-gen -i vale0:rx -f rx -n 10 >"$work/rx.err" 2>&1
receiver=$!
must nv pkt-gen -i vale0:tx -f tx -n 1000 -R 1000
ended "a receiver with a read-only /usr" "$receiver" 0
here
ok "a read-only /usr"

mount -t tmpfs -o size=4k,nr_inodes=4 test "$TMPDIR"
mkdir "$TMPDIR/full"
head -c 8192 /dev/zero >"$TMPDIR/rest" 2>/dev/null || true
ends_with "a capture to a full disk" 1 "No space left" nv dump vale0:n -w "$TMPDIR/full/capture.pcap" -c 1
ends_with "a daemon on a full disk" 1 "No space left" timeout 20 "$NETVALE" --run-dir "$TMPDIR/full/run/of/a/daemon" up
umount "$TMPDIR"
ok "a full disk"

# --- a daemon before that cannot end

# The daemon's main thread is dead, another one is blocked, and the lock is held.
mkdir -p "$work/dying/run"
/usr/bin/python3 -c '
import ctypes, fcntl, sys, threading, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(int(sys.argv[2]), 0)' "$work/dying/run/lock" "$(($(uname -m | grep -c x86) ? 60 : 93))" &
dying=$!
is_zombie() {
    grep -q "^State:.*Z" "/proc/$dying/status"
}
wait_for "its main thread ends" 10 is_zombie
elsewhere dying
must nv list
ends_with "a third daemon there" 1 "runs in" "$NETVALE" --run-dir "$run_dir" up
kill -KILL "$dying"
here
ok "a lock of a daemon that cannot end"

# --- the daemon's user

ends_with "a user that does not exist" 1 "user nosuch does not exist" "$NETVALE" --run-dir "$work/other" up --user nosuch
printf 'user = "nosuch"\n' >"$work/other.toml"
ends_with "the same in a file" 1 "user nosuch does not exist" "$NETVALE" --run-dir "$work/other" up --config "$work/other.toml"
elsewhere number --user 54321
expect "whose the daemon is" "$(stat -c %u "/proc/$daemon")" = 54321
ok "a user without a name"
finish
