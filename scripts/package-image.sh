#!/usr/bin/env bash
# package-image.sh [FILE]: writes an OCI image that contains only the netvale command, as an archive for `podman load`
# and `docker load`, and prints its path. FILE: target/packages/netvale-image.tar. Needs neither root nor podman.
#
#   PROFILE=release      the build profile
#   NETVALE=FILE         an existing program
#
# The program is linked statically, to musl, if Rust has that target installed; otherwise the image contains its
# libraries, too.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
say_where_it_stops
cd "$root"

profile=${PROFILE:-release}
archive=${1:-$target_dir/packages/netvale-image.tar}
machine=$(uname -m)
case $profile in dev | test) built=$target_dir/debug ;; *) built=$target_dir/$profile ;; esac
version=$(release)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}

if [ -z "${NETVALE:-}" ] && has_musl; then
    NETVALE=$(build_static "$profile")
elif [ -z "${NETVALE:-}" ]; then
    cargo build --profile "$profile" --package netvale-cli >&2
    NETVALE=$built/netvale
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
blobs=$work/oci/blobs/sha256
mkdir -p "$blobs" "$work/root"/{bin,etc,tmp,run/netvale}
chmod 1777 "$work/root/tmp"
chmod 755 "$work/root/run/netvale"
install -m 755 "$NETVALE" "$work/root/bin/netvale"
strip "$work/root/bin/netvale"
# A static program has none.
{ ldd "$NETVALE" 2>/dev/null | grep -o '/[^ ]*' || true; } | while read -r library; do
    install -D -m 755 "$library" "$work/root$library"
done
printf 'root:x:0:0:root:/:/bin/false\nnetvale:x:999:999:netvale:/run/netvale:/bin/false\n' >"$work/root/etc/passwd"
printf 'root:x:0:\nnetvale:x:999:\n' >"$work/root/etc/group"
cp LICENSE "$work/root/"

pack() { tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$1" -cf "$2" .; }

# blob FILE: adds it to the blobs; prints its digest and its size.
blob() {
    local sum
    sum=$(sha256sum "$1" | cut -d' ' -f1)
    mv "$1" "$blobs/$sum"
    echo "$sum $(stat -c %s "$blobs/$sum")"
}

pack "$work/root" "$work/layer.tar"
diff=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
gzip -n "$work/layer.tar"
read -r layer layer_size < <(blob "$work/layer.tar.gz")

case $machine in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch=$machine ;; esac
cat >"$work/config" <<JSON
{"created":"$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)","architecture":"$arch","os":"linux",
 "config":{"Entrypoint":["/bin/netvale"],"Cmd":["up"],"Env":["PATH=/bin","NETVALE_RUN_DIR=/run/netvale"],"Volumes":{"/run/netvale":{}},
  "Labels":{"org.opencontainers.image.title":"netvale","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"BSD-2-Clause"}},
 "rootfs":{"type":"layers","diff_ids":["sha256:$diff"]},"history":[{"created_by":"package-image.sh"}]}
JSON
read -r config config_size < <(blob "$work/config")
cat >"$work/manifest" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
 "config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:$config","size":$config_size},
 "layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:$layer","size":$layer_size}]}
JSON
read -r manifest manifest_size < <(blob "$work/manifest")
cat >"$work/oci/index.json" <<JSON
{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:$manifest","size":$manifest_size,
 "annotations":{"org.opencontainers.image.ref.name":"localhost/netvale:$version"}}]}
JSON
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"
mkdir -p "$(dirname "$archive")"
pack "$work/oci" "$archive"
echo "$archive"
