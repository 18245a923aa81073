#!/usr/bin/env bash
# install.sh PREFIX BINARY: installs the binary, its man pages and shell completions below PREFIX.
#
# The binary writes its own man pages and completions, so they always match it. Root often has no
# cargo: a binary built before is then installed as it is.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

prefix=$1
binary=$2
cd "$root"
if have cargo; then
    cargo build --release --package netvale-cli
elif [ ! -x "$binary" ]; then
    echo "$binary does not exist and there is no cargo to build it: run \`make build\` as the user who has Rust" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/man"
"$binary" man "$work/man"
for shell in bash zsh fish; do
    "$binary" completions "$shell" >"$work/$shell"
done

install -D -m 755 "$binary" "$prefix/bin/netvale"
install -d "$prefix/share/man/man1"
install -m 644 "$work"/man/*.1 "$prefix/share/man/man1/"
install -D -m 644 "$work/bash" "$prefix/share/bash-completion/completions/netvale"
install -D -m 644 "$work/zsh" "$prefix/share/zsh/site-functions/_netvale"
install -D -m 644 "$work/fish" "$prefix/share/fish/vendor_completions.d/netvale.fish"
echo "installed netvale below $prefix"
