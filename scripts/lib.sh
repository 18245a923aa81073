# Shared by the scripts: where files are, and stages with a heading, a time limit and an outcome. Sourced by bash; sets
# no shell options of its own.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target_dir=${CARGO_TARGET_DIR:-$root/target}
# Tools that are built once and kept: cargo-nextest, cargo-deny.
tools_dir=${NETVALE_TOOLS:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/netvale/tools}

# What the tests' guests and containers boot from, built once and kept.
guests_dir=${NETVALE_GUESTS:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/netvale/guests}

# more_compilers: has cargo run three compilers per processor, if there is 1 GiB for each. Beside other programs, these
# get a larger share of the processors. Otherwise, cargo itself chooses their number.
more_compilers() {
    local compilers memory
    compilers=$((3 * $(nproc)))
    memory=$(awk '$1 == "MemAvailable:" { print int($2 / 1048576) }' /proc/meminfo)
    [ "${memory:-0}" -lt "$compilers" ] || export CARGO_BUILD_JOBS=$compilers
}
[ -n "${CARGO_BUILD_JOBS:-}" ] || more_compilers

# The exit status with which a stage reports that it cannot run here.
SKIPPED=77

# A file with a line for each stage that has ended: its name, its seconds, and passed, failed or skipped. Lanes write to
# the same file.
stages_file=${NETVALE_STAGES:-}
# The seconds since the script began are those of the tier.
times_file=$root/docs/internals/test-times.toml

# skip REASON: ends a stage as skipped.
skip() {
    echo "skipped: $*"
    exit "$SKIPPED"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# release: prints the version in Cargo.toml.
release() {
    sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' "$root/Cargo.toml"
}

# say_where_it_stops: makes a script that ends at the first failing command print that command.
say_where_it_stops() {
    set -E
    trap 'echo "${BASH_SOURCE[0]##*/}:$LINENO: stopped (status $?): $BASH_COMMAND" >&2' ERR
}

# kept_tree NAME FUNCTION: prints the folder of that name beside the guests' files. The first time, the function creates
# it at "$work/root", for which it needs debootstrap and root. It runs in a shell of its own (variables that it reads
# are exported), whose mounts and processes end with it; a second process that needs the same tree waits.
kept_tree() {
    local tree=$guests_dir/$1 lock
    if [ ! -e "$tree/done" ]; then
        have debootstrap || { echo "debootstrap is not installed (scripts/install-deps.sh test-system)" >&2; exit 1; }
        [ "$(id -u)" = 0 ] || { echo "debootstrap needs root" >&2; exit 1; }
        mkdir -p "$guests_dir"
        exec {lock}>"$tree.lock"
        flock "$lock"
        [ -e "$tree/done" ] || (make_tree "$tree" "$2") || exit 1
        exec {lock}>&-
    fi
    echo "$tree"
}

# unpacked NAME RELEASE PACKAGE…: prints the folder of that name among the guests', with these packages of that release
# of Debian's, unpacked once. What is in it never becomes part of this system: it is started by its own dynamic loader.
unpacked() {
    export release=$2 packages="${*:3}"
    kept_tree "$1" unpack_packages
}

unpack_packages() {
    local get=(apt-get -q -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache"
        -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root)
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$work/root" "$work/lists/partial" "$work/cache/archives/partial"
    echo "deb [signed-by=$keys] http://deb.debian.org/debian $release main" >"$work/sources.list"
    # shellcheck disable=SC2086 # words
    cd "$work" && "${get[@]}" update && "${get[@]}" download $packages &&
        for package in *.deb; do dpkg-deb --extract "$package" root || return 1; done
}

# make_tree FOLDER FUNCTION: kept_tree's work, in a shell of its own, while nobody else does it.
make_tree() {
    # Not local, as the trap reads it when the shell ends.
    maker=
    export work=$1.making
    export -f "${2?}"
    # A killed run may have left its folder, but no mounts.
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

# stages_begin: to be called before the first stage of a script.
stages_begin() {
    stages_file=$(mktemp)
    export NETVALE_STAGES=$stages_file NETVALE_SKIPPED=$stages_file.skipped
    trap 'rm -f "$stages_file" "$NETVALE_SKIPPED"' EXIT
}

# stage NAME SECONDS COMMAND…: runs the command under a time limit and records its outcome. `timeout` leads a process
# group of its own, so that the limit ends grandchildren, too; the trap passes Ctrl-C on, as the terminal's signal does
# not reach that group.
stage() {
    local name=$1 limit=$2 status outcome start=$SECONDS
    shift 2
    printf '\n== %s\n' "$name"
    (trap - INT; exec timeout -k 20 "$limit" "$@") </dev/null &
    local pid=$!
    trap 'kill -TERM "$pid" 2>/dev/null; wait "$pid"; exit 130' INT TERM
    wait "$pid"
    status=$?
    trap - INT TERM
    case $status in
    0) outcome=passed ;;
    "$SKIPPED") outcome=skipped ;;
    # 124: timeout ended the command; 137: it had to kill it.
    124 | 137) outcome=failed && echo "== $name: exceeded its time limit of $limit s" ;;
    *) outcome=failed && echo "== $name: status $status" ;;
    esac
    echo "== $name: $outcome in $((SECONDS - start)) s"
    echo "$name $((SECONDS - start)) $outcome" >>"$stages_file"
}

# side_by_side LANE…: each lane is a list of stages that run one after another, in parallel with other lanes. The output
# of a lane is shown when it ends; `$0 --lane STAGE…` runs one.
side_by_side() {
    local lane pids=() logs=() log i
    for lane in "$@"; do
        log=$(mktemp)
        logs+=("$log")
        # shellcheck disable=SC2086 # words of the lane
        "$0" --lane $lane >"$log" 2>&1 </dev/null &
        pids+=($!)
    done
    trap 'kill -TERM "${pids[@]}" 2>/dev/null; wait; cat "${logs[@]}"; rm -f "${logs[@]}"; exit 130' INT TERM
    for i in "${!pids[@]}"; do
        wait "${pids[i]}"
        cat "${logs[i]}"
        rm -f "${logs[i]}"
    done
    trap - INT TERM
}

# stages_summary TIER: prints the table of stages and the closing lines; returns 1 if a stage failed. A test that could
# not run counts as skipped, or as failed if STRICT is set. RECORD=1 writes the times to a file.
stages_summary() {
    local passed failed skipped total=$SECONDS
    printf '\n%-24s %6s\n' stage seconds
    awk '{ printf "%-24s %6d  %s\n", $1, $2, $3 }' "$stages_file"
    printf '%-24s %6d\n\n' 'in all' "$total"
    count() { grep -c " $1\$" "$stages_file"; }
    passed=$(count passed) failed=$(count failed) skipped=$(count skipped)
    [ ! -s "$NETVALE_SKIPPED" ] || cat "$NETVALE_SKIPPED"
    sed -n 's/^\(.*\) [0-9]* failed$/failed stage: \1/p' "$stages_file"
    if [ -n "${STRICT:-}" ] && { [ "$skipped" != 0 ] || [ -s "$NETVALE_SKIPPED" ]; }; then
        echo "STRICT is set: a skipped test is a failure"
        failed=$((failed + 1))
    fi
    [ -z "${RECORD:-}" ] || [ "$failed" != 0 ] || record_times "$1" "$total"
    echo "stages: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}

# record_times TIER SECONDS: replaces the tier's table in the file of times by what was measured.
record_times() {
    local new
    new=$(mktemp)
    [ ! -e "$times_file" ] || awk -v tier="[$1]" '/^\[/ { own = $0 == tier } !own' "$times_file" | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' >"$new"
    {
        [ ! -s "$new" ] || echo
        echo "[$1]"
        echo "date = \"$(date +%F)\""
        echo "machine = \"$(nproc) x $(awk -F': ' '/^model name/ && !found { found = 1; print $2 }' /proc/cpuinfo)\""
        echo "total = $2"
        awk '{ print $1 " = " $2 }' "$stages_file"
    } >>"$new"
    cat "$new" >"$times_file"
    rm -f "$new"
}

# Ends the script unless there is a cargo that is new enough.
need_cargo() {
    local oldest found
    oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
    have cargo || {
        echo "cargo is missing: install Rust $oldest or newer, for example from https://rustup.rs" >&2
        exit 1
    }
    # In a folder without a workspace, whose manifest an old cargo could not read.
    found=$(cd / && cargo --version | sed 's/^cargo \([0-9.]*\).*/\1/')
    [ "$(printf '%s\n' "$oldest" "$found" | sort -V | sed -n 1p)" = "$oldest" ] || {
        echo "cargo $found is too old ($(command -v cargo)): netvale requires Rust $oldest or newer, for example from https://rustup.rs" >&2
        exit 1
    }
}

# Ends the script unless the tools for every target are installed: cargo and a C linker.
need_rust() {
    need_cargo
    have cc || {
        echo "a C linker (cc) is missing: install gcc and libc6-dev" >&2
        exit 1
    }
}

# The target of programs that are linked statically.
musl_target=$(uname -m)-unknown-linux-musl

has_musl() {
    [ -d "$(rustc --print target-libdir --target "$musl_target" 2>/dev/null)" ]
}

# build_static PROFILE: builds a statically linked command, and prints its path.
build_static() {
    local folder=$1
    case $1 in dev | test) folder=debug ;; esac
    cargo build --profile "$1" --target "$musl_target" --package netvale-cli >&2
    echo "$target_dir/$musl_target/$folder/netvale"
}

# Ends the script unless cargo-nextest, which runs the tests, is installed.
need_nextest() {
    PATH=$tools_dir/bin:$PATH
    cargo nextest --version >/dev/null 2>&1 || {
        echo "cargo-nextest is missing: make test installs it, or cargo install cargo-nextest --locked" >&2
        exit 1
    }
}

# The packages and targets that cargo and nextest build for both tiers: with others, crates would get other features and
# be built again.
workspace=(--workspace --lib --bins --tests --examples)
# Tests that assert times or rates.
measuring='test(/(^|::)measuring::/)'
