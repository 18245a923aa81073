#!/usr/bin/env bash
# guide-commands.sh [PAGE…]: runs the commands of the guide (README.md and docs/guide/*.md), so that what a reader copies works.
#
# Each page is one session: a shell of root's in network, mount and process namespaces of its own, in which /run is empty and
# `netvale` is the built one ($NETVALE). All of it ends with the page. Fenced blocks say what is done with them:
#
#   ```sh run                 the commands succeed
#   ```sh run background      the reader's other terminal: the block goes on while later ones run
#   ```console run            after each `$ COMMAND` stands its output; … is anything, blanks are alike
#   ```sh ignore: REASON      not run; the reason names the test that covers it, where there is one
#   ```toml file=NAME         becomes this file
#
# More words behind `run`: `needs=PROGRAM,…` skips the block where one is missing, `needs=root` where the namespaces are an ordinary
# user's, `needs=guest` where guests of the tests cannot boot (guide-vm.sh); `status=N` is the exit status of a console block's commands; `eventually` repeats a console block's commands until the output is
# as shown. `<!-- run … -->` is what a page needs and its reader has (an interface, a running program).
set -uo pipefail
. "$(dirname "$0")/lib.sh"

# Seconds for a page, and for anything that is waited for.
page_limit=300
wait_limit=60

# blocks PAGE FOLDER: writes each block to FOLDER/LINE, and prints `LINE LANGUAGE WORDS…`.
blocks() {
    awk -v folder="$2" '
        /^```/ && !inside {
            inside = 1; line = NR; info = substr($0, 4)
            known = info ~ /^[a-z]+ +(run|ignore: |file=)/
            if (known) print line, info
            else if (info ~ /^(sh|console)/) print line, "unmarked"
            printf "" > (folder "/" line)
            next
        }
        /^<!-- run/ && !inside { inside = 2; line = NR; print line, "hidden run" substr($0, 9); printf "" > (folder "/" line); next }
        (inside == 1 && /^```/) || (inside == 2 && /^-->/) { close(folder "/" line); inside = 0; next }
        inside { print > (folder "/" line) }
    ' "$1"
}

# The pages' own word for waiting: await COMMAND…: until the command succeeds.
await() {
    local until=$((SECONDS + wait_limit))
    while ! "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || { echo "never succeeded: $*" && return 1; }
        sleep 0.05
    done
}

# blanks: runs of blanks become one, and those at the ends of lines go.
blanks() {
    sed -E 's/[[:blank:]]+/ /g; s/^ //; s/ $//; /^$/d'
}

# console FILE STATUS EVENTUALLY: each command of the block, with its output.
console() {
    local command='' expected='' text
    while IFS= read -r text; do
        if [[ $text == '$ '* ]]; then
            [ -z "$command" ] || shown "$command" "$expected" "$2" "$3" || return 1
            command=${text#'$ '} expected=''
        else
            expected+=$text$'\n'
        fi
    done <"$1"
    shown "$command" "$expected" "$2" "$3"
}

# shown COMMAND EXPECTED STATUS EVENTUALLY
shown() {
    local output status pattern until=$((SECONDS + wait_limit))
    # A line of … alone may also be no line at all.
    pattern=$(blanks <<<"$2" | sed -e 's/[][\\*?]/\\&/g' | sed -z -e 's/\n…\n/…\n/g' -e 's/…/*/g')
    while :; do
        status=0
        output=$(eval "$1" 2>&1 </dev/null) || status=$?
        # shellcheck disable=SC2053 # it is a pattern
        if [ "$status" = "$3" ] && [[ $(blanks <<<"$output") == $pattern ]]; then return 0; fi
        [ "$4" = 1 ] && [ "$SECONDS" -lt "$until" ] || break
        sleep 0.1
    done
    printf '$ %s\nstatus %s, shown is %s; output:\n%s\nshown is:\n%s\n' "$1" "$status" "$3" "$output" "$2"
    return 1
}

# lacks WORD…: prints what a block needs and is not there.
lacks() {
    local word need
    for word in "$@"; do
        [[ $word == needs=* ]] || continue
        for need in $(tr , ' ' <<<"${word#needs=}"); do
            case $need in
            root) [ "$GUIDE_ROOT" = 1 ] || { echo "the rights of root" && return; } ;;
            guest) [ -n "${GUIDE_DRIVERS:-}" ] || { echo "what guests boot from" && return; } ;;
            *) have "$need" || { echo "$need" && return; } ;;
            esac
        done
    done
}

# The session of a page, inside the namespaces: session FOLDER PAGE. Its plan is FOLDER/plan.
session() {
    # Not local: the trap reads them when a block has ended the shell.
    folder=$1 page=$2 line=1
    local kind words word status eventually lacking other
    declare -A running=()
    mount -t tmpfs tmpfs /run && mount -t proc proc /proc && ip link set lo up || exit 1
    # Files of the page are its own.
    mkdir -p "$folder/home" && cd "$folder/home" || exit 1
    export HOME=$PWD PATH=$folder/bin:$PATH:/usr/sbin:/sbin
    unset NETVALE_RUN_DIR XDG_RUNTIME_DIR
    trap 'status=$?; [ -n "$done" ] || { tail -n 30 "$folder"/log*; echo "$page:$line: FAILED (status $status)"; exit 1; }' EXIT
    done='' ran=0 skipped=0
    while read -r -u 9 line kind words; do
        set -- $words
        lacking=$(lacks "$@")
        status=0 eventually=0
        for word in "$@"; do
            case $word in
            status=*) status=${word#status=} ;;
            eventually) eventually=1 ;;
            esac
        done
        case $kind/${1:-} in
        unmarked/*) echo "a block says neither run nor ignore" >"$folder/log" && exit 1 ;;
        */file=*) cp "$folder/$line" "${1#file=}" && continue ;;
        */ignore:) echo "    not run: line $line: ${words#ignore: }" && continue ;;
        esac
        if [ -n "$lacking" ]; then
            skipped=$((skipped + 1))
            echo "    skipped: line $line: needs $lacking"
            continue
        fi
        # What the page's other terminals run goes on, or has succeeded.
        for other in "${!running[@]}"; do
            [ -e "/proc/${running[$other]}" ] || wait "${running[$other]}" || { line=$other && exit 1; }
        done
        ran=$((ran + 1))
        case $kind/$words in
        console/*) console "$folder/$line" "$status" "$eventually" >"$folder/log" 2>&1 || exit 1 ;;
        */*background*)
            (set -euo pipefail; . "$folder/$line") >"$folder/log.$line" 2>&1 </dev/null &
            running[$line]=$!
            ;;
        *) set -euo pipefail; . "$folder/$line" >"$folder/log" 2>&1 </dev/null; set +e ;;
        esac
    done 9<"$folder/plan"
    [ $((ran + skipped)) -gt 0 ] || { line=1; echo "no block was run" >"$folder/log"; exit 1; }
    done=1
    echo "    $ran blocks run"
}

if [ "${1:-}" = --inside ]; then
    session "$2" "$3"
    exit
fi

cd "$root" || exit 1
netvale=$(realpath "${NETVALE:-$target_dir/debug/netvale}") && [ -x "$netvale" ] ||
    { echo "guide-commands.sh: there is no netvale at ${NETVALE:-$target_dir/debug}; cargo build" >&2 && exit 2; }
[ $# -gt 0 ] || set -- README.md docs/guide/*.md

namespaces=(--mount --net --pid --uts --fork --kill-child)
export GUIDE_ROOT=1
if [ "$(id -u)" != 0 ]; then
    namespaces+=(--user --map-root-user)
    GUIDE_ROOT=0
fi
unshare "${namespaces[@]}" true 2>/dev/null || skip "namespaces are not allowed here"

mkdir -p "$target_dir"
# What the tests' guests boot from, where it is or can be made; fails otherwise.
find_guest() {
    GUIDE_GUEST=$(scripts/guest-image.sh) && GUIDE_QEMU=$(scripts/newer-debian.sh) && GUIDE_DRIVERS=$(scripts/guest-driver.sh) &&
        export GUIDE_GUEST GUIDE_QEMU GUIDE_DRIVERS
}

work=$(mktemp -d -p "$target_dir" guide.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0
for page in "$@"; do
    folder=$work/$(basename "$page" .md)
    mkdir -p "$folder/bin"
    ln -s "$netvale" "$folder/bin/netvale"
    blocks "$page" "$folder" >"$folder/plan"
    if grep -q needs=guest "$folder/plan" && find_guest 2>/dev/null; then ln -s "$root/scripts/guide-vm.sh" "$folder/bin/qemu-system-x86_64"; fi
    echo "$page"
    timeout --foreground -k 5 "$page_limit" unshare "${namespaces[@]}" "$root/scripts/guide-commands.sh" --inside "$folder" "$page" || failed=1
done
[ "$failed" = 0 ]
