//! Domains of an ordinary user's libvirt (`qemu:///session`) on that user's daemon, through each kind of interface that
//! needs no privilege. Everything that the test creates is in its own namespaces and ends with it.

use crate::common;
use crate::common::guest;
use crate::common::up;
use crate::libvirt::{prepare, reached, sh};

use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{stderr, stdout};
use guest::Image;
use up::Up;

/// A user ID that no account of the system has.
const USER: u32 = 70_310;

/// Script that creates the account that libvirt looks up, its folders and its configuration of libvirt.
const ACCOUNT: &str = "
echo \"session:x:$0:$0::/run/session:/bin/sh\" >>/run/etc/passwd; echo \"session:x:$0:\" >>/run/etc/group
mkdir -m 700 /run/session /run/session/run; mkdir -p /run/session/.config/libvirt
printf 'security_driver = \"none\"\\nstdio_handler = \"file\"\\n' >/run/session/.config/libvirt/qemu.conf
chown -R $0:$0 /run/session
";

/// Script of the domain, which gives the IP address 10.N.0.1 to the card whose Ethernet address ends in N.
const SCRIPT: &str = "
for card in /sys/class/net/eth*; do
    number=$(cut -d: -f6 $card/address); card=${card##*/}
    ip addr add 10.${number#0}.0.1/24 dev $card && ip link set $card up
done
echo ready
read line </dev/ttyS0
";

/// Runs a program as the user [`USER`].
fn as_user(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    let user = USER.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all", program]).args(arguments);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", "/run/session").env("XDG_RUNTIME_DIR", "/run/session/run");
    command.current_dir("/run/session").stdin(Stdio::null()).output().expect("setpriv runs")
}

/// Runs a command of the user's virsh, which must succeed; a failure shows QEMU's log.
fn virsh(arguments: &[&str]) -> String {
    let output = as_user("virsh", &[&["--connect", "qemu:///session", "--quiet"], arguments].concat());
    let log = || std::fs::read_to_string("/run/session/.cache/libvirt/qemu/log/one.log").unwrap_or_default();
    assert!(output.status.success(), "virsh {arguments:?}: {}\n{}", stderr(&output), log());
    stdout(&output)
}

/// Writes the kernel and the initrd to where the user can read them.
fn boot_files(image: &Image, dir: &Path) {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("permitted");
    std::fs::copy(image.folder.join("vmlinux"), dir.join("vmlinux")).expect("copied");
    std::fs::write(dir.join("script"), SCRIPT).expect("written");
    let line =
        "cd \"$0\"; echo script | cpio -o -H newc --quiet | gzip -1 | cat \"$1/base.cpio.gz\" - >initrd; chmod 644 *";
    let status = Command::new("sh").args(["-ec", line]).arg(dir).arg(&image.folder).status();
    assert!(status.is_ok_and(|s| s.success()));
}

/// Returns the domain's XML: four cards are elements, the fifth is an argument for QEMU. No MSI: QEMU 7.2 crashes with
/// MSI under TCG.
fn domain(dir: &Path) -> String {
    let dir = dir.display();
    let sources = [
        ("vhostuser", format!("<source type='unix' path='{dir}/one.sock' mode='client'/>")),
        ("client", "<source address='127.0.0.1' port='5000'/>".to_owned()),
        ("server", "<source address='127.0.0.1' port='5003'/>".to_owned()),
        ("udp", "<source address='127.0.0.1' port='5001'><local address='127.0.0.1' port='5002'/></source>".to_owned()),
    ];
    let mut cards = String::new();
    for (number, (kind, source)) in sources.iter().enumerate() {
        let mac = format!("<mac address='52:54:00:00:00:{:02x}'/>", number + 1);
        write!(cards, "<interface type='{kind}'>{mac}{source}<model type='virtio'/></interface>").expect("a text");
    }
    let words = [
        "-netdev".to_owned(),
        format!("stream,id=nv0,server=off,addr.type=unix,addr.path={dir}/stream.sock"),
        "-device".to_owned(),
        "virtio-net-pci,netdev=nv0,mac=52:54:00:00:00:05,bus=pcie.0,addr=0x1e".to_owned(),
    ];
    let words: String = words.iter().map(|word| format!("<qemu:arg value='{word}'/>")).collect();
    format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>one</name>
         <memory unit='MiB'>192</memory><memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>
         <vcpu current='1'>2</vcpu>
         <os><type arch='x86_64' machine='q35'>hvm</type><kernel>{dir}/vmlinux</kernel><initrd>{dir}/initrd</initrd>
         <cmdline>console=ttyS0 quiet panic=-1 no_timer_check pci=nomsi</cmdline></os>
         <features><acpi/></features><cpu mode='maximum'/>
         <devices><controller type='usb' model='none'/><memballoon model='none'/>
         <serial type='file'><source path='/run/session/console'/></serial>{cards}</devices>
         <qemu:commandline>{words}</qemu:commandline></domain>"
    )
}

/// Prepares the test's namespaces. Returns `None` outside them, or after printing why the test cannot run here.
fn world() -> Option<&'static Image> {
    if !rustix::process::geteuid().is_root() {
        netvale_harness::skip("only root becomes another user");
        return None;
    }
    let image = prepare()?;
    let status = Command::new("sh").args(["-ec", ACCOUNT, &USER.to_string()]).status();
    assert!(status.is_ok_and(|s| s.success()));
    Some(image)
}

/// Objective: an unprivileged user's domain and daemon exchange frames through each kind of interface that libvirt has
/// for sockets, and through a UNIX socket, which only QEMU's arguments express.
#[test]
fn a_users_domain_joins_by_vhost_user_tcp_udp_and_a_unix_socket() {
    let Some(image) = world() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    boot_files(image, dir.path());
    let folder = dir.path().display().to_string();
    chown(dir.path(), Some(USER), Some(USER)).expect("permitted");
    let up = Up::start(&["--user", &USER.to_string(), "--allow-dir", &folder]);
    let ports = [
        format!("vhost:{folder}/one.sock"),
        "stream:127.0.0.1:5000 --name client".to_owned(),
        "stream:127.0.0.1:5003 --client --name server".to_owned(),
        "dgram:127.0.0.1:5001,remote=127.0.0.1:5002 --name udp".to_owned(),
        format!("stream:{folder}/stream.sock"),
    ];
    for (number, port) in (1..).zip(&ports) {
        stdout(&up.run(&format!("attach vale{number} {port}")));
        stdout(&up.run(&format!("attach vale{number} tap:nv{number} --netns /proc/self/ns/net")));
        sh(&format!("ip addr add 10.{number}.0.100/24 dev nv{number}; ip link set nv{number} up"));
    }
    std::fs::write("/run/session/one.xml", domain(dir.path())).expect("written");
    virsh(&["create", "one.xml"]);
    (1..=ports.len()).for_each(|number| reached(&format!("10.{number}.0.1")));
}
