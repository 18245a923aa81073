#!/usr/bin/env bash
# guide-session.sh FOLDER: a reader's session with a page, in the container that guide-commands.sh has booted, as the
# user who reads it. FOLDER contains the page's blocks, each in a file named after its line, and their order in the file
# `plan`. The session writes there what guide-inside.sh reports: the line of the last block (now), its output (log), the
# output of other terminals (log.LINE), and at the end the number of blocks run (ran).
#
# The session is a login shell that runs the page's commands one after the other, as if they were typed. Each further
# terminal is a login shell of its own, without the first one's variables.
set -uo pipefail

# The time in seconds for anything that the session waits for, and for what a guest does, which may be emulated on a
# busy machine.
wait_limit=120
guest_limit=480

# blanks: replaces runs of blanks by one, and removes those at the ends of lines.
blanks() {
    sed -E 's/[[:blank:]]+/ /g; s/^ //; s/ $//; /^$/d'
}

# console FILE STATUS EVENTUALLY: runs each command of the block and compares its output.
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
    [ -n "$command" ] || { echo "no command in this block" && return 1; }
    shown "$command" "$expected" "$2" "$3"
}

# shown COMMAND EXPECTED STATUS EVENTUALLY: runs a command, repeatedly if EVENTUALLY is 1, and compares its status and
# output.
shown() {
    local output status pattern until=$((SECONDS + wait_limit))
    # A line that is only … also matches no line at all.
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

# said LINE TEXT LIMIT: waits until that terminal shows the text, and reports if its program ends without.
said() {
    local until=$((SECONDS + $3))
    while ! grep -qF -- "$2" "$folder/log.$1"; do
        if ! kill -0 "${running[$1]}" 2>/dev/null && ! grep -qF -- "$2" "$folder/log.$1"; then
            echo "the program of line $1 ended without printing: $2"
            return 1
        fi
        [ "$SECONDS" -lt "$until" ] || { echo "the program of line $1 did not print: $2" && return 1; }
        sleep 0.05
    done
}

# terminal LINE TEXT: runs the block in a terminal of its own, and waits until it has printed the text.
terminal() {
    local input=/dev/null
    : >"$folder/log.$1"
    if [ -n "$name" ]; then
        input=$folder/terminal.$name
        mkfifo "$input"
        at[$name]=$1
        # Open at both ends, so that neither open() blocks.
        exec {keyboard}<>"$input"
        keyboards[$name]=$keyboard
    fi
    env -i -C "$HOME" "${initial[@]}" bash -l -euo pipefail "$folder/$1" >"$folder/log.$1" 2>&1 <"$input" &
    running[$1]=$!
    # Without a text, the page's next block shows whether the program has started.
    [ -z "$2" ] || said "$1" "$2" "$guest_limit"
}

# typed LINE NAME: types the block at the terminal of that name, where a shell of a guest reads it.
typed() {
    local mark=guide-$1
    [ -n "${keyboards[$2]:-}" ] || { echo "unknown terminal $2" && return 1; }
    # The terminal also echoes the input, so the mark is assembled only by the guest's shell.
    { echo '(set -e'; cat "$folder/$1"; echo "); echo guide''-$1: \$?."; } >&"${keyboards[$2]}"
    said "${at[$2]}" "$mark: " "$guest_limit" && grep -qF "$mark: 0." "$folder/log.${at[$2]}"
}

# The programs of other terminals must still run, or have succeeded.
others_go_on() {
    local other status
    for other in "${!running[@]}"; do
        kill -0 "${running[$other]}" 2>/dev/null && continue
        status=0
        wait "${running[$other]}" || status=$?
        unset "running[$other]"
        # Ended by Ctrl-C, or by a command of the page.
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
    # Each block begins with these options, whatever an earlier one has set.
    *) set -euo pipefail; . "$folder/$line" >"$folder/log" 2>&1 </dev/null; set +e ;;
    esac
done 9<"$folder/plan"
[ "$ran" -gt 0 ] || exit 1
echo "$ran" >"$folder/ran"
