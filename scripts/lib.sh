# Shared by the scripts: where things lie, and stages with a heading, a time limit and an outcome.
# Sourced by bash; sets no shell options of its own.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target_dir=${CARGO_TARGET_DIR:-$root/target}
# Tools that are built once and kept: cargo-deny.
tools_dir=${NETVALE_TOOLS:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/netvale/tools}

# What guests and containers of the tests boot from, made once and kept.
guests_dir=${NETVALE_GUESTS:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/netvale/guests}

# The exit status by which a stage says that it cannot run here.
SKIPPED=77

stages_passed=0
stages_failed=0
stages_skipped=0
failed_names=()

# skip REASON: ends a stage as skipped.
skip() {
    echo "skipped: $*"
    exit "$SKIPPED"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# release: the version in Cargo.toml.
release() {
    sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' "$root/Cargo.toml"
}

# say_where_it_stops: has a script that ends at the first command that fails say which one that was.
say_where_it_stops() {
    set -E
    trap 'echo "${BASH_SOURCE[0]##*/}:$LINENO: stopped (status $?): $BASH_COMMAND" >&2' ERR
}

# kept_tree NAME FUNCTION: prints the folder of that name among the guests'. The first time, the function makes it at "$work/root", for which
# it needs debootstrap and root. It runs in a shell of its own (what it reads is exported), whose mounts and processes end with it; a
# second process that wants the same tree waits.
kept_tree() {
    local tree=$guests_dir/$1 lock
    if [ ! -e "$tree/done" ]; then
        have debootstrap || { echo "debootstrap is not installed (scripts/install-deps.sh test)" >&2; exit 1; }
        [ "$(id -u)" = 0 ] || { echo "debootstrap needs root" >&2; exit 1; }
        mkdir -p "$guests_dir"
        exec {lock}>"$tree.lock"
        flock "$lock"
        [ -e "$tree/done" ] || (make_tree "$tree" "$2") || exit 1
        exec {lock}>&-
    fi
    echo "$tree"
}

# make_tree FOLDER FUNCTION: kept_tree's work, in a shell of its own, while nobody else does it.
make_tree() {
    # Not local: the trap reads it when the shell ends.
    maker=
    export work=$1.making
    export -f "${2?}"
    # A run that was killed may have left its folder, but no mounts.
    rm -rf "$work"
    mkdir "$work"
    trap '[ -z "$maker" ] || kill -KILL "$maker" 2>/dev/null; wait; rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
        bash -c "$2" >"$work/log" 2>&1 </dev/null &
    maker=$!
    wait "$maker" || { tail -n 5 "$work/log" >&2; exit 1; }
    maker=
    rm -rf "$work"/root/var/cache/apt/*.bin "$work"/root/var/cache/apt/archives/*.deb
    touch "$work/root/done"
    mv -T "$work/root" "$1"
}

# stage NAME SECONDS COMMAND…: runs the command under a time limit and counts its outcome.
# `timeout` leads a process group of its own, so that the limit ends grandchildren too; Ctrl-C is
# passed on by the trap, because the terminal's signal does not reach that group.
stage() {
    local name=$1 limit=$2 status start=$SECONDS
    shift 2
    printf '\n== %s\n' "$name"
    (trap - INT; exec timeout -k 10 "$limit" "$@") </dev/null &
    local pid=$!
    trap 'kill -TERM "$pid" 2>/dev/null; exit 130' INT TERM
    wait "$pid"
    status=$?
    trap - INT TERM
    case $status in
    0)
        stages_passed=$((stages_passed + 1))
        echo "== $name: passed in $((SECONDS - start)) s"
        ;;
    "$SKIPPED")
        stages_skipped=$((stages_skipped + 1))
        ;;
    *)
        stages_failed=$((stages_failed + 1))
        failed_names+=("$name")
        # 124: timeout ended it; 137: it had to kill it.
        case $status in 124 | 137) echo "== $name: over its limit of $limit s" ;; esac
        echo "== $name: FAILED (status $status)"
        ;;
    esac
}

# Prints the closing line; status 1 when a stage failed.
stages_summary() {
    echo
    [ "$stages_failed" = 0 ] || printf 'failed stage: %s\n' "${failed_names[@]}"
    echo "stages: $stages_passed passed, $stages_failed failed, $stages_skipped skipped"
    [ "$stages_failed" = 0 ]
}

# Ends the script unless what every target needs is there: cargo and a C linker.
need_rust() {
    have cargo || {
        echo "cargo is missing: install a Rust toolchain, for example from https://rustup.rs" >&2
        exit 1
    }
    have cc || {
        echo "a C linker (cc) is missing: install gcc and libc6-dev" >&2
        exit 1
    }
}
