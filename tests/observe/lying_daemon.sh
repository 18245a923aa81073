#!/usr/bin/env bash
# Root's `netvale upgrade` with a daemon of another user: the options that the process reports about itself give its
# successor neither another user, nor a weaker sandbox, nor any other privilege. Options that it wrote down as root are
# used, unless somebody else has replaced the file.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need /usr/bin/python3 setpriv

cat >"$work/recorder" <<'SCRIPT'
#!/bin/sh
printf '%s\n' "$@" >"${0%/*}/words"
exit 3
SCRIPT
chmod 755 "$work/recorder"
chmod 755 "$work"

# lies NAME WORD…: starts an unconfined process of another user that reports such options; upgrade_of NAME: root's
# command.
lies() {
    local folder=$work/$1
    shift
    mkdir "$folder"
    chown 65534:65534 "$folder"
    background setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 "$here/liar.py" "$folder" "$@"
    wait_for "the liar listens" 10 test -S "$folder/control.sock"
}
upgrade_of() {
    rm -f "$work/words"
    "$NETVALE" --run-dir "$work/$1" upgrade --exec "$work/recorder" >"$work/said" 2>&1 || true
}
words() {
    tr '\n' ' ' <"$work/words"
}

lies user up --user=0 --user 0 --workers 2
upgrade_of user
[ -e "$work/words" ] || fail "a successor is started" "$(cat "$work/said")"
expect "words for the successor" "$(words)" = "$here/liar.py $work/user up --workers 2 --user 65534 --take-over "
for option in "--allow-dir /" --config=/tmp/x.toml "--socket-mode 0666" "--allow-nic lo"; do
    name=wider${option%%[ =]*}
    # shellcheck disable=SC2086 # words
    lies "$name" up $option
    upgrade_of "$name"
    [ ! -e "$work/words" ] || fail "a successor is not started with $option" "$(words)"
    grep -q "another user's process has set" "$work/said" || fail "why $option is not believed" "$(cat "$work/said")"
done
ok "options that a process of another user reports give its successor no privilege"

mkdir "$work/real"
run_dir=$work/real/run
mkdir -m 777 "$work/allowed"
launch "$work/real" "$NETVALE" --run-dir "$run_dir" up --user 65534 --workers 2 --allow-dir "$work/allowed"
first=$daemon
said=$(nv upgrade 2>&1) || fail "netvale upgrade" "$said" "$(tail -n 5 "$work/real/daemon.log")"
daemon=$(sed -n 's/^process \([0-9]*\) continues.*/\1/p' <<<"$said")
[ "$daemon" != "$first" ] || fail "another process has taken over"
expect "whose the successor is" "$(stat -c %u "/proc/$daemon")" = 65534
expect "its sandbox" "$(awk '/^Seccomp:/ { print $2 }' "/proc/$daemon/status")" = 2
must nv attach vale0 "vhost:$work/allowed/socket"
upgrade_of real/run
expect "the options that root wrote down" "$(words)" = "--run-dir $run_dir up --workers 2 --allow-dir $work/allowed --user 65534 --take-over "
# The folder belongs to the other user, who can replace the file.
"${as_user[@]}" rm -f "$run_dir/options"
"${as_user[@]}" sh -c "printf 'netvale\\0up\\0--no-sandbox\\0' >$run_dir/options"
upgrade_of real/run
[ ! -e "$work/words" ] || fail "a file of another user's is not believed" "$(words)"
ok "options that a daemon wrote down as root are used, and no other user's file"
finish
