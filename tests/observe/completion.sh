#!/usr/bin/env bash
# What bash, zsh and fish complete: commands, options, switches, ports after their colon, kinds of ports, policies,
# words of links, and programs; with the daemon that the line names, and without one.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need zsh fish

mkdir "$work/bin"
ln -s "$NETVALE" "$work/bin/netvale"
export PATH=$work/bin:$PATH NETVALE_RUN_DIR=$run_dir
start_daemon
must nv attach vale0 null:one
must nv attach vale0 null:other
for shell in bash zsh fish; do netvale completions "$shell" >"$work/_$shell"; done

# in_SHELL LINE: prints the possible continuations of the line, one a line. In bash, only the part after a colon.
in_bash() {
    bash --norc -c '. "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _netvale; printf "%s\n" "${COMPREPLY[@]}"' - "$work/_bash" "$1" \
        2>"$work/bash.err"
}

in_fish() {
    fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$work/_fish" "$1" | cut -f 1
}

# As it is installed: loaded on first use, at a terminal.
in_zsh() {
    mkdir -p "$work/functions"
    cp "$work/_zsh" "$work/functions/_netvale"
    zsh -f -c '
        zmodload zsh/zpty
        zpty at zsh -f -i
        say() { zpty -w at "$1"; zpty -r -m at _ "*MARK-$2-*" || exit 1; }
        say "fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; print MARK-\"1\"-" 1
        # The candidates are written to a file instead of the line.
        say "compadd() { builtin compadd -O found \"\$@\"; print -rl -- \$found >>$2; }; print MARK-\"2\"-" 2
        zpty -n -w at "$3"$'"'\t'"'
        repeat 100; do [[ -s $2 ]] && break; sleep 0.1; done
        zpty -d at' - "$work/functions" "$work/zsh.found" "$1" >/dev/null
    cat "$work/zsh.found" 2>/dev/null
    rm -f "$work/zsh.found"
}

# completes LINE EXPECTED…: in each shell. Further words are allowed, except those after `not`.
completes() {
    local line=$1 shell word found
    shift
    for shell in bash zsh fish; do
        found=$("in_$shell" "$line")
        local wanted=yes
        for word; do
            [ "$word" != not ] || { wanted=no && continue; }
            # Bash completes only the part after the colon.
            [ "$shell" != bash ] || [[ ${line##* } != *:* ]] || word=${word#*:}
            if grep -qxF -- "$word" <<<"$found"; then [ $wanted = yes ]; else [ $wanted = no ]; fi ||
                fail "$shell: $line: $word" "$found" "$(cat "$work/bash.err")"
        done
    done
    ok "completes: $line"
}

completes "netvale tab" table
completes "netvale show --js" --json
completes "netvale table v" vale0
completes "netvale show vale0:o" vale0:one vale0:other not table
completes "netvale show vale0:on" vale0:one not vale0:other
completes "netvale pkt-gen -i vale0:ot" vale0:other
completes "netvale detach vale0 on" one not other
completes "netvale attach vale0 vh" vhost:
completes "netvale attach vale0 netmap:l" netmap:lo
completes "netvale port set vale0:one acc" access
completes "netvale link vale0:one del" delay
completes "netvale run -- tim" timeout
completes "netvale --run-dir $work/none show vale0:o" not vale0:one
finish
