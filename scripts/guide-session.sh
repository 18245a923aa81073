#!/usr/bin/env bash
# guide-session.sh FOLDER: a reader's session with a page, in the container that guide-commands.sh has booted, as the user who reads it. FOLDER has
# the page's blocks, each in the file of its line's number, and their order in the file plan. It leaves there what guide-inside.sh tells of it: the
# line of the last block (now), what it printed (log), what other terminals printed (log.LINE), and at its end how many were run (ran).
#
# The session is a login shell, in which the page's commands run one after the other, as if they were typed. Each other terminal is a login
# shell of its own: it has nothing of the first one's variables.
set -uo pipefail

# Seconds for anything that is waited for, and for what a guest does: it may be emulated, on a busy machine.
wait_limit=120
guest_limit=480

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
    [ -n "$command" ] || { echo "there is no command in this block" && return 1; }
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

# said LINE TEXT LIMIT: waits until that terminal shows the text, and says so if its program ends without.
said() {
    local until=$((SECONDS + $3))
    while ! grep -qF -- "$2" "$folder/log.$1"; do
        if ! kill -0 "${running[$1]}" 2>/dev/null && ! grep -qF -- "$2" "$folder/log.$1"; then
            echo "the program of line $1 ended, and never said: $2"
            return 1
        fi
        [ "$SECONDS" -lt "$until" ] || { echo "the program of line $1 never said: $2" && return 1; }
        sleep 0.05
    done
}

# terminal LINE TEXT: the block runs in a terminal of its own, until it has said the text.
terminal() {
    local input=/dev/null
    : >"$folder/log.$1"
    if [ -n "$name" ]; then
        input=$folder/terminal.$name
        mkfifo "$input"
        at[$name]=$1
        # Open at both ends, so that neither waits for the other.
        exec {keyboard}<>"$input"
        keyboards[$name]=$keyboard
    fi
    env -i -C "$HOME" "${initial[@]}" bash -l -euo pipefail "$folder/$1" >"$folder/log.$1" 2>&1 <"$input" &
    running[$1]=$!
    # Without a text, the page goes on with something that shows whether it has begun.
    [ -z "$2" ] || said "$1" "$2" "$guest_limit"
}

# typed LINE NAME: the block is typed at the terminal of that name, where a shell of a guest reads it.
typed() {
    local mark=guide-$1
    [ -n "${keyboards[$2]:-}" ] || { echo "no terminal is called $2" && return 1; }
    # The terminal shows what is typed, too: the mark is put together there.
    { echo '(set -e'; cat "$folder/$1"; echo "); echo guide''-$1: \$?."; } >&"${keyboards[$2]}"
    said "${at[$2]}" "$mark: " "$guest_limit" && grep -qF "$mark: 0." "$folder/log.${at[$2]}"
}

# Other terminals' programs go on, or have succeeded.
others_go_on() {
    local other status
    for other in "${!running[@]}"; do
        kill -0 "${running[$other]}" 2>/dev/null && continue
        status=0
        wait "${running[$other]}" || status=$?
        unset "running[$other]"
        # Ended by Ctrl-C, or by whoever the page has end it.
        case $status in 0 | 130 | 143) ;; *) echo "$other" >"$folder/now" && return 1 ;; esac
    done
}

folder=$1 line=1 ran=0
declare -A running=() at=() keyboards=()
mapfile -d '' -t initial < <(env -0)
cd || exit 1
while IFS='|' read -r -u 9 line kind status eventually name until_text; do
    case $kind in
    file) cp "$folder/$line" "$name" || exit 1 && continue ;;
    esac
    others_go_on || exit 1
    echo "$line" >"$folder/now"
    ran=$((ran + 1))
    case $kind in
    console) console "$folder/$line" "$status" "$eventually" >"$folder/log" 2>&1 || exit 1 ;;
    terminal) terminal "$line" "$until_text" >"$folder/log" 2>&1 || exit 1 ;;
    typed) typed "$line" "$name" >"$folder/log" 2>&1 || exit 1 ;;
    # A page may leave its shell as it likes, but not with our options.
    *) set -euo pipefail; . "$folder/$line" >"$folder/log" 2>&1 </dev/null; set +e ;;
    esac
done 9<"$folder/plan"
[ "$ran" -gt 0 ] || exit 1
echo "$ran" >"$folder/ran"
