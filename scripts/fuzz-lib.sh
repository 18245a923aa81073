# Shared by the scripts that build and run fuzz targets. Sourced by bash after lib.sh; sets no shell options of its own.

# fuzz_targets NAME|all: sets `targets`; ends the script if no target has that name.
fuzz_targets() {
    local file name
    targets=()
    for file in "$root"/fuzz/src/bin/*.rs; do
        name=$(basename "$file" .rs)
        if [ "$1" = all ] || [ "$1" = "$name" ]; then targets+=("$name"); fi
    done
    if [ ${#targets[@]} = 0 ]; then
        echo "unknown fuzz target $1; targets: $(cd "$root/fuzz/src/bin" && echo *.rs | sed 's/\.rs\b//g')" >&2
        exit 2
    fi
}

# fuzz_build KIND: builds `targets`, and sets `bin_dir`. KIND is plain, asan (AddressSanitizer, with the nightly
# compiler), coverage, or replay: programs that take inputs as arguments, without libFuzzer.
#
# With --target the flags apply to the targets but not to build scripts and procedural macros, which could not be linked
# with them.
fuzz_build() {
    local kind=$1 toolchain=() host counters
    if [ "$kind" = replay ]; then
        bin_dir=$target_dir/replay/debug
        CARGO_TARGET_DIR=$target_dir/replay RUSTFLAGS="--cfg fuzzing" cargo build --quiet --no-default-features \
            --manifest-path "$root/fuzz/Cargo.toml" "${targets[@]/#/--bin=}"
        return
    fi
    host=$(rustc -vV | sed -n 's/^host: //p')
    counters="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks"
    case $kind in
    plain) CARGO_TARGET_DIR=$target_dir/fuzz ;;
    asan)
        CARGO_TARGET_DIR=$target_dir/fuzz-asan
        counters="-Zsanitizer=address $counters"
        toolchain=(+nightly)
        ;;
    coverage)
        CARGO_TARGET_DIR=$target_dir/fuzz-coverage
        counters="-Cinstrument-coverage"
        ;;
    esac
    bin_dir=$CARGO_TARGET_DIR/$host/release
    CARGO_TARGET_DIR=$CARGO_TARGET_DIR RUSTFLAGS="$counters --cfg fuzzing" cargo "${toolchain[@]}" build --quiet --release \
        --manifest-path "$root/fuzz/Cargo.toml" --target "$host" "${targets[@]/#/--bin=}"
}

# fuzz_inputs NAME FOLDER: copies a target's chosen seeds and kept corpus into the folder.
fuzz_inputs() {
    mkdir -p "$2"
    [ ! -d "$root/fuzz/seeds/$1" ] || cp -r "$root/fuzz/seeds/$1/." "$2/"
    [ ! -f "$root/fuzz/corpora/$1.tar.gz" ] || tar -xzf "$root/fuzz/corpora/$1.tar.gz" -C "$2"
}
