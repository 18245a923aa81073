#!/usr/bin/env bash
# install-deps.sh demo|test|test-system|test-long|check|docs|bench|package: installs what that make target needs on Debian.
#
# Prints which packages it installs and why, leaves out those that are present, and changes nothing else. Without root
# and sudo it prints the packages and returns success: the target then continues, and reports what it skips. Rust itself
# is not installed here.
set -uo pipefail
. "$(dirname "$0")/lib.sh"

packages_compiler() {
    cat <<'LIST'
gcc|links the Rust binaries, compiles C programs for the tests
libc6-dev|C library to link against
LIST
}

packages_demo() {
    packages_compiler
    cat <<'LIST'
iproute2|network namespaces and interfaces (ip)
iputils-ping|ping across the switch
iperf3|TCP across the switch
curl|HTTP through a gateway; asks for metrics as other clients do
LIST
}

packages_test() {
    packages_compiler
}

packages_test_system() {
    packages_demo
    cat <<'LIST'
ethtool|has veth pairs finish their checksums
tcpdump|reads back captured files, captures on ports
libpcap-dev|C program for libpcap, compiled without netvale
ngrep|unmodified libpcap program
zsh|a shell that completes
fish|a shell that completes
tshark|unmodified libpcap programs (tshark, dumpcap)
tcpreplay|unmodified program that sends through packet sockets
arping|unmodified program that sends and receives
arp-scan|unmodified program that sends and receives
python3-scapy|unmodified program that loads libpcap at run time; sockets of the Python package
vde2|the vde_switch beside which the drop-in answers, and its plugs
jq|reads what netvale says as JSON, for the scripts of tests/policies
dnsmasq-base|DHCP server, right or rogue; names for guests of a gateway
bind9-dnsutils|asks a gateway for names (dig)
isc-dhcp-client|asks a gateway for an address
iodine|tries to tunnel through a gateway's name service (iodine, iodined)
dns2tcp|another program that tries to
frr|control plane of VXLAN ports (zebra, bgpd), in namespaces of a test's own
gobgpd|another BGP beside it
nfdump|reads what sfcapd wrote
nfdump-sflow|collects samples (sfcapd)
prometheus|scrapes a switch, and checks metrics and rules (promtool)
chromium|opens the page of netvale web, without a screen
python3-build|makes the Python package
python3-setuptools|the package's build system
python3-wheel|makes its wheel
python3-venv|installs it into an environment of its own
mypy|checks its types
qemu-system-x86|runs guests
libvirt-daemon|runs guests as domains, in namespaces of a test's own
libvirt-daemon-driver-qemu|libvirt's driver for QEMU
libvirt-clients|virsh
busybox-static|root file system of guests
cpio|packs it
podman|runs a container on a switch, for the guide
crun|the runtime under podman
containernetworking-plugins|hands out addresses to containers (host-local)
containerd|runs a pod on a switch
runc|the runtime under containerd
python3-grpcio|asks containerd for pods, as the kubelet does
kmod|finds the guest's kernel modules
lz4|unpacks the guest's kernel
zstd|unpacks the guest's kernel
xz-utils|unpacks the guest's kernel
debootstrap|unpacks a newer QEMU and User-Mode Linux, and the system of os-autoinst
patch|applies the guide's patch to os-autoinst
make|builds the guests' driver
linux-headers-amd64|builds the guests' driver
dpdk-dev|testpmd at the other end of vhost-user
openvswitch-switch-dpdk|OVS-DPDK as the back end of the virtio driver
systemd|rates the unit (systemd-analyze); nothing is started
procps|looks at processes and their resources
systemd-container|boots systemd in a container, for the units (systemd-nspawn)
lintian|judges the Debian packages
dkms|builds the guests' drivers from their package
LIST
}

packages_test_long() {
    packages_test_system
    cat <<'LIST'
g++|builds libFuzzer for the fuzz targets
qemu-user|runs the tests of the packet path's crates for ARM
gcc-aarch64-linux-gnu|links them
libc6-dev-arm64-cross|C library to link them against
LIST
}

packages_check() {
    packages_compiler
    echo 'valgrind|counts the instructions a frame costs'
}

packages_deb() {
    packages_compiler
    echo 'dpkg-dev|finds the libraries that Debian packages depend on'
    echo 'xz-utils|compresses the packages'
}

packages_rpm() {
    packages_compiler
    echo 'rpm|finds the libraries that rpm packages depend on, and lists their contents'
}

packages_bench() {
    packages_demo
    cat <<'LIST'
dpdk-dev|peer: testpmd with net_ring, memif and vhost
debootstrap|unpacks newer DPDKs to measure beside (scripts/newer-dpdk.sh)
openvswitch-switch-dpdk|peer: OVS-DPDK between vhost-user ports
vde2|peer: vde_switch
slirp4netns|peer: a gateway in user space
passt|peer: pasta, a gateway in user space
linux-perf|samples where a frame's time goes (perf)
binutils|says where in the source that is (addr2line)
LIST
}

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Prints the `package|why` lines whose package is missing.
missing_of() {
    local package why
    while IFS='|' read -r package why; do
        installed "$package" || echo "$package|$why"
    done
}

# Sets `as_root` to the command prefix that makes us root; fails if there is none.
find_root() {
    as_root=()
    [ "$(id -u)" = 0 ] && return 0
    have sudo || return 1
    if sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    elif [ -t 0 ]; then
        as_root=(sudo)
    else
        return 1
    fi
}

# How long, in seconds, to wait for another apt (unattended-upgrades on a fresh machine, for example).
apt_patience=600

# is_locked FILE: whether a process has locked the file. apt uses fcntl(2) locks, which the kernel lists.
is_locked() {
    [ -e "$1" ] && grep -q ":$(stat -c %i "$1") " /proc/locks
}

# Waits until no other apt is running, and prints that once: apt-get itself waits silently, and for some of its locks
# not at all.
wait_for_other_apt() {
    local lock until=$((SECONDS + apt_patience)) said=
    for lock in /var/lib/dpkg/lock-frontend /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
        while is_locked "$lock" && [ "$SECONDS" -lt "$until" ]; do
            [ -n "$said" ] || echo "another apt is running ($lock): waiting for up to $((apt_patience / 60)) minutes"
            said=1
            sleep 1
        done
    done
}

# Runs apt-get; its output appears only when it fails.
apt() {
    local output
    output=$("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout="$apt_patience" "$@" 2>&1 </dev/null) ||
        { printf '%s\n' "$output" && return 1; }
}

# apt_install PACKAGE…: tries twice to install all; then one by one, so that a package that this release lacks does not
# block the others.
apt_install() {
    local attempt package
    for attempt in 1 2; do
        wait_for_other_apt
        apt update
        apt install -y --no-install-recommends "$@" && return 0
        echo "apt-get failed (attempt $attempt)"
    done
    for package in "$@"; do
        apt install -y --no-install-recommends "$package" >/dev/null ||
            echo "not installed: $package (what needs it is skipped)"
    done
}

policy=/usr/sbin/policy-rc.d
policy_kept=$policy.netvale-kept
policy_mark='# netvale install guard'

# Keeps packages from starting services while they are installed (Debian's policy-rc.d), and restores the machine's own
# policy afterwards, even if interrupted.
guard_services() {
    unguard_services
    [ ! -e "$policy" ] || "${as_root[@]}" mv "$policy" "$policy_kept"
    printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    trap unguard_services EXIT
    trap 'exit 130' INT TERM
}

unguard_services() {
    if grep -qsF "$policy_mark" "$policy"; then
        "${as_root[@]}" rm -f "$policy"
    fi
    if [ -e "$policy_kept" ]; then
        "${as_root[@]}" mv "$policy_kept" "$policy"
    fi
}

# Tests and benchmarks start what they need themselves: services that were installed as dependencies must not start at
# boot.
disable_at_boot() {
    local package
    have systemctl || return 0
    for package in "$@"; do
        case $package in
        openvswitch-switch-dpdk) "${as_root[@]}" systemctl disable --quiet openvswitch-switch ;;
        containerd) "${as_root[@]}" systemctl disable --quiet containerd ;;
        libvirt-daemon) "${as_root[@]}" systemctl disable --quiet libvirtd.service libvirtd{,-ro,-admin}.socket virtlogd.service virtlockd.service ;;
        frr) "${as_root[@]}" systemctl disable --quiet frr.service ;;
        gobgpd) "${as_root[@]}" systemctl disable --quiet gobgpd.service ;;
        iodine) "${as_root[@]}" systemctl disable --quiet iodined.service ;;
        dns2tcp) "${as_root[@]}" systemctl disable --quiet dns2tcp.service ;;
        prometheus) "${as_root[@]}" systemctl disable --quiet prometheus.service ;;
        nfdump) "${as_root[@]}" systemctl disable --quiet nfdump.service ;;
        podman) "${as_root[@]}" systemctl disable --quiet podman.socket podman.service podman-auto-update.{service,timer} podman-restart.service ;;
        esac 2>/dev/null
    done
    return 0
}

install_packages() {
    local missing names
    if ! have dpkg-query || ! have apt-get; then
        echo "not a Debian system: install the equivalents of: $("packages_${1//-/_}" | cut -d'|' -f1 | tr '\n' ' ')"
        return
    fi
    missing=$("packages_${1//-/_}" | missing_of)
    [ -n "$missing" ] || return 0
    mapfile -t names < <(cut -d'|' -f1 <<<"$missing")
    if ! find_root; then
        echo "packages are missing; as root, run: apt-get install --no-install-recommends ${names[*]}"
        return
    fi
    echo "installing Debian packages for \`make $1\`:"
    sed 's/^\([^|]*\)|/  \1: /' <<<"$missing"
    case " ${names[*]} " in
    *' openvswitch-switch-dpdk '* | *' podman '* | *' containerd '* | *' libvirt-daemon '* | *' frr '* | *' gobgpd '* | *' prometheus '* | *' nfdump '* | *' iodine '* | *' dns2tcp '*)
        guard_services
        apt_install "${names[@]}"
        disable_at_boot "${names[@]}"
        unguard_services
        ;;
    *) apt_install "${names[@]}" ;;
    esac
}

# Miri needs a nightly toolchain, which only rustup can install.
install_miri() {
    cargo +nightly miri --version >/dev/null 2>&1 && return
    if ! have rustup; then
        echo "Miri: skipped: no rustup to install a nightly toolchain"
        return
    fi
    echo "installing a nightly Rust toolchain with Miri: runs the pure crates' tests in an interpreter that detects undefined behaviour"
    timeout 300 rustup toolchain install nightly --profile minimal --component miri --component rust-src \
        >/dev/null 2>&1 || echo "Miri: skipped: rustup could not install nightly with miri (offline?)"
}

# Components of the stable toolchain that a minimal rustup profile leaves out.
install_components() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    have rustup || return
    echo "installing the Rust components rustfmt and clippy"
    timeout 300 rustup component add rustfmt clippy >/dev/null 2>&1 ||
        echo "rustup could not add rustfmt and clippy (offline?)"
}

# A fixed version, so that it gives the same result everywhere; built once, into a directory of its own.
cargo_deny_version=0.20.2

install_cargo_deny() {
    [ -x "$tools_dir/bin/cargo-deny" ] && return
    echo "building cargo-deny $cargo_deny_version into $tools_dir (once; takes minutes): checks licences, advisories and sources of dependencies"
    env -u CARGO_TARGET_DIR timeout 1200 \
        cargo install cargo-deny --version "$cargo_deny_version" --locked --quiet --root "$tools_dir" ||
        echo "cargo-deny: skipped: it could not be built (offline?)"
}

# install_tool CRATE VERSION [OPTION…]: builds and installs a tool. Compiled crates are kept until all are built, so
# that an attempt that ran out of time is not lost.
install_tool() {
    local status=0 built=$tools_dir/build-$1
    env -u CARGO_TARGET_DIR timeout 1200 \
        cargo install "$1" --version "$2" --locked --quiet --root "$tools_dir" --target-dir "$built" "${@:3}" || status=$?
    case $status in
    0) rm -rf "$built" ;;
    124) echo "$1: skipped: not built within 20 minutes; the next attempt continues from there" ;;
    *) echo "$1: skipped: it could not be built (offline?)" ;;
    esac
}

gvproxy_version=v0.8.9

# A peer of the benchmark. Go installs it as a module, with the dependencies that it names.
install_gvproxy() {
    [ ! -x "$tools_dir/bin/gvproxy" ] || return 0
    if ! have go; then
        echo "gvproxy: skipped: no Go to build it"
        return
    fi
    echo "building gvproxy $gvproxy_version into $tools_dir (once; takes minutes): peer: a gateway in user space, with a switch"
    GOBIN=$tools_dir/bin GOFLAGS=-trimpath timeout 1200 \
        go install "github.com/containers/gvisor-tap-vsock/cmd/gvproxy@$gvproxy_version" >/dev/null 2>&1 ||
        echo "gvproxy: skipped: it could not be built (offline, or an older Go?)"
}

cargo_nextest_version=0.9.151

# The tool only starts programs and waits for them: a fast build matters more than fast code.
install_nextest() {
    [ ! -x "$tools_dir/bin/cargo-nextest" ] && ! cargo nextest --version >/dev/null 2>&1 || return 0
    echo "building cargo-nextest $cargo_nextest_version into $tools_dir (once; takes minutes): runs the tests"
    local -x CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    install_tool cargo-nextest "$cargo_nextest_version" --no-default-features
}

cargo_deb_version=3.8.0
cargo_generate_rpm_version=0.21.1

# install_packager TOOL: installs the tool that builds packages.
install_packager() {
    local version=${1//-/_}_version
    [ ! -x "$tools_dir/bin/$1" ] || return 0
    echo "building $1 ${!version} into $tools_dir (once; takes minutes): builds packages"
    install_tool "$1" "${!version}"
}

# Both kinds of packages, for the tests.
install_all_packagers() {
    install_packages deb
    install_packages rpm
    install_packager cargo-deb
    install_packager cargo-generate-rpm
    install_musl
}

# For a statically linked program.
install_musl() {
    local target
    target=$(uname -m)-unknown-linux-musl
    [ ! -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ] && have rustup || return 0
    echo "installing Rust's target $target: statically linked programs"
    timeout 300 rustup target add "$target" >/dev/null 2>&1 ||
        echo "rustup could not add it (offline?): a container image will contain the libraries that the program needs"
}

# The workspace is type-checked for ARM, too.
install_arm() {
    local target=aarch64-unknown-linux-gnu
    [ ! -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ] && have rustup || return 0
    echo "installing Rust's target $target: the workspace must compile for ARM"
    timeout 300 rustup target add "$target" >/dev/null 2>&1 ||
        echo "rustup could not add it (offline?): what needs it is skipped"
}

mdbook_version=0.5.4

install_mdbook() {
    [ -x "$tools_dir/bin/mdbook" ] && return
    echo "building mdBook $mdbook_version into $tools_dir (once; takes minutes): builds the book of the pages"
    env -u CARGO_TARGET_DIR timeout 1200 cargo install mdbook --version "$mdbook_version" --locked --quiet \
        --no-default-features --features search --root "$tools_dir" ||
        echo "mdBook: skipped: it could not be built (offline?)"
}

# Without cargo the target would fail, so nothing is installed for it.
need_cargo
case ${1:-} in
demo) install_packages demo ;;
bench)
    # Restores the machine's policy if an earlier run was killed while packages were installed.
    ! find_root || unguard_services
    install_packages bench
    install_gvproxy
    ;;
test)
    install_packages test
    install_nextest
    ;;
test-system)
    install_packages test-system
    install_nextest
    install_all_packagers
    ;;
test-long)
    install_packages test-long
    install_nextest
    install_all_packagers
    install_miri
    install_arm
    ;;
deb | rpm)
    install_packages "$1"
    case $1 in deb) install_packager cargo-deb ;; rpm) install_packager cargo-generate-rpm ;; esac
    ;;
static)
    install_packages compiler
    install_musl
    ;;
rust) ;;
check)
    install_packages check
    install_components
    install_arm
    install_cargo_deny
    ;;
docs) install_mdbook ;;
*)
    echo "usage: install-deps.sh demo|test|test-system|test-long|check|docs|bench|deb|rpm|static|rust" >&2
    exit 2
    ;;
esac
need_rust
