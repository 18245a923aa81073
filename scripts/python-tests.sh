#!/usr/bin/env bash
# python-tests.sh: builds the Python package's wheel and source archive, installs the wheel into an environment of its
# own, and runs the package's tests there, against the built daemon and library ($NETVALE). Nothing is downloaded, and
# nothing is written below python/.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The distribution's Python, which has the needed packages: scapy, build.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
have "$python" || skip "python3 is not installed"
for module in build venv wheel setuptools scapy mypy; do
    "$python" -c "import $module" 2>/dev/null || skip "Python's $module is not installed"
done
netvale=$(realpath "${NETVALE:-$target_dir/debug/netvale}")
export NETVALE=$netvale NETVALE_LIBNETMAP=${NETVALE_LIBNETMAP:-$(dirname "$netvale")/libnetmap.so}
unset NETVALE_RUN_DIR XDG_RUNTIME_DIR PYTHONPATH

mkdir -p "$target_dir"
work=$(mktemp -d -p "$target_dir" python.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cp -r "$root/python" "$work/package"
"$python" -m build --no-isolation --outdir "$work/dist" "$work/package" >"$work/log" 2>&1 || { tail -n 20 "$work/log" && exit 1; }
ls "$work/dist"
"$python" -m venv --system-site-packages "$work/venv"
"$work/venv/bin/pip" install --quiet --no-index --no-deps "$work"/dist/netvale-*.whl

cd "$work/package/tests"
"$python" -m mypy --config-file "$work/package/pyproject.toml" --cache-dir "$work/mypy" --python-executable "$work/venv/bin/python" -p netvale
"$work/venv/bin/python" -X faulthandler -W error::ResourceWarning -m unittest "$@"
