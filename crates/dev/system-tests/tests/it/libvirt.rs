//! libvirt's domains on a switch, through vhost-user and TAPs. The test runs its own libvirtd, in namespaces in which
//! the machine's libvirt files are not visible; nothing is left when the test ends, however it ends.

use crate::common;
use crate::common::guest;
use crate::common::up;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{stderr, stdout};
use guest::{Image, image};
use netvale_harness::ChildProcess;
use up::Up;

/// Options for the namespaces of a test: files, network, processes.
const APART: [&str; 6] = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Script that creates the files that libvirt needs: an empty /run and /var, a configuration in which root runs
/// everything, and the user that libvirt requires (Debian's package of the libvirt daemon would create this user).
const FILES: &str = r#"
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var; mount -t tmpfs tmpfs /etc/libvirt
mkdir /run/etc /var/lib /var/cache /var/log /var/tmp; ln -s /run /var/run
cp /etc/passwd /etc/group /run/etc
echo 'libvirt-qemu:x:64055:64055::/:/bin/false' >>/run/etc/passwd
echo 'libvirt-qemu:x:64055:' >>/run/etc/group
mount --bind /run/etc/passwd /etc/passwd; mount --bind /run/etc/group /etc/group
ip link set lo up
cat >/etc/libvirt/qemu.conf <<X
user = "root"
group = "root"
security_driver = "none"
dynamic_ownership = 0
remember_owner = 0
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
X
cat >/etc/libvirt/libvirtd.conf <<X
auth_unix_rw = "none"
log_outputs = "3:file:/run/libvirtd.log"
X
"#;

/// Commands that start libvirtd, and then wait as the parent of its domains' processes.
const LIBVIRTD: &str = "/usr/sbin/libvirtd -f /etc/libvirt/libvirtd.conf -p /run/libvirtd.pid & wait";

/// Script of guest NUMBER, which gives each of its interfaces ethN the address 10.N+1.0.NUMBER, in a loop, because an
/// interface may be removed and added between two rounds. Guest 2 pings guest 1.
const SCRIPT: &str = r#"
set -- $(cat /proc/cmdline)
for word; do case $word in number=*) number=${word#number=} ;; esac; done
while true; do
    for n in 0 1; do
        [ -e /sys/class/net/eth$n ] || continue
        ip addr show dev eth$n | busybox grep -q "10.$((n + 1)).0.$number/" && continue
        ip addr add 10.$((n + 1)).0.$number/24 dev eth$n && ip link set eth$n up
    done
    [ $number = 2 ] && ping -c 1 -W 1 10.1.0.1 >/dev/null && echo "reached"
    sleep 0.2
done
"#;

/// Runs a line of commands, which must succeed.
pub fn sh(line: &str) {
    stdout(&Command::new("sh").args(["-ec", line]).stdin(Stdio::null()).output().expect("sh runs"));
}

fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(netvale_harness::until(guest::LIMIT, Duration::from_millis(50), done), "time is up: {what}");
}

/// Runs a virsh command of blank-separated words.
fn virsh(line: &str) -> std::process::Output {
    let mut command = Command::new("virsh");
    command.args(["--connect", "qemu:///system", "--quiet"]).args(line.split_whitespace());
    command.stdin(Stdio::null()).output().expect("virsh runs")
}

/// Runs a virsh command that must succeed; if it fails, prints its error and libvirtd's log.
fn done(line: &str) -> String {
    let output = virsh(line);
    let log = || std::fs::read_to_string("/run/libvirtd.log").unwrap_or_default();
    assert!(output.status.success(), "virsh {line}: {}\n{}", stderr(&output), log());
    stdout(&output)
}

/// Waits until an address answers.
pub fn reached(address: &str) {
    until(address, || {
        let mut ping = Command::new("ping");
        ping.args(["-c", "1", "-W", "1", address]).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
    });
}

/// Prepares the test's namespaces for libvirt. Returns `None` in the process outside the namespaces, and, after
/// printing the reason, if libvirt cannot run here.
pub fn prepare() -> Option<&'static Image> {
    for program in ["/usr/sbin/libvirtd", "/usr/bin/virsh"] {
        if !Path::new(program).exists() {
            netvale_harness::skip(&format!("{program} is not installed"));
            return None;
        }
    }
    let image = image()?;
    netvale_system_tests::programs();
    if !netvale_harness::net::inside(&APART).expect("the test runs in namespaces") {
        return None;
    }
    sh(FILES);
    Some(image)
}

/// libvirt, and the files from which its domains boot, in a test's namespaces.
struct World {
    image: &'static Image,
    dir: tempfile::TempDir,
    _libvirtd: ChildProcess,
}

impl World {
    /// Starts libvirt in the test's namespaces. Returns `None` in the cases of [`prepare`].
    fn new() -> Option<World> {
        let image = prepare()?;
        // libvirt's QEMUs have no parent process. The shell, as the first process of their PID namespace, reaps them
        // when they end, for which libvirt waits.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", LIBVIRTD]);
        command.stdout(Stdio::null());
        let libvirtd = ChildProcess::start(&mut command).expect("libvirtd starts");
        until("libvirtd answers", || virsh("list").status.success());
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("script"), SCRIPT).expect("written");
        let line = "cd \"$0\"; echo script | cpio -o -H newc --quiet | gzip -1 | cat \"$1/base.cpio.gz\" - >initrd";
        let status = Command::new("sh").args(["-ec", line]).arg(dir.path()).arg(&image.folder).status();
        assert!(status.is_ok_and(|s| s.success()));
        Some(World { image, dir, _libvirtd: libvirtd })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a domain with these interfaces; `backing` is the element that makes the domain's memory shared. MSI is
    /// off, because QEMU 7.2 crashes with MSI under TCG.
    fn start(&self, name: &str, number: u8, backing: &str, interfaces: &str) {
        let image = self.image.folder.display();
        let console = self.file(name).display().to_string();
        let initrd = self.file("initrd");
        let xml = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>192</memory>{backing}<vcpu>1</vcpu>
             <os><type arch='x86_64' machine='q35'>hvm</type><kernel>{image}/vmlinux</kernel><initrd>{}</initrd>
             <cmdline>console=ttyS0 quiet panic=-1 no_timer_check pci=nomsi number={number}</cmdline></os>
             <features><acpi/></features><cpu mode='maximum'/>
             <devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/>
             <memballoon model='none'/><serial type='file'><source path='{console}'/></serial>\
             {interfaces}</devices></domain>",
            initrd.display()
        );
        std::fs::write(self.file("domain.xml"), xml).expect("written");
        done(&format!("create {}", self.file("domain.xml").display()));
    }

    fn says(&self, name: &str, text: &str) {
        until(text, || std::fs::read_to_string(self.file(name)).is_ok_and(|said| said.contains(text)));
    }

    /// Starts a daemon with a listening port and a connecting port for two domains, and a port for the host's stack.
    fn daemon(&self) -> Up {
        let dir = self.dir.path().display();
        let up = Up::start(&["--allow-dir", &dir.to_string()]);
        for port in [format!("vhost:{dir}/one.sock"), format!("vhost:{dir}/two.sock --client"), "tap:nv0".into()] {
            stdout(&up.run(&format!("attach vale0 {port}")));
        }
        sh("ip addr add 10.1.0.100/24 dev nv0; ip link set nv0 up");
        up
    }
}

/// Returns the two elements that `netvale vm` prints for a domain: its memory, and its interface.
fn printed(up: &Up, port: &str) -> (String, String) {
    let text = stdout(&up.run(&format!("vm {port} --vmm libvirt")));
    let (backing, interface) = text.split_once("<!-- in <devices> -->").expect("two elements");
    (backing.to_owned(), interface.to_owned())
}

fn waits(up: &Up, port: &str) -> bool {
    up.notes(port).contains("waits for a front end")
}

/// Objective: two domains with the elements that `netvale vm` prints, one domain in each mode, reach the host and each
/// other, and continue after a restart of the daemon; one domain is saved and restored; one domain gets a second
/// interface while it runs, and loses it again.
#[test]
fn vhost_user_domains_reach_the_host_and_each_other() {
    let Some(world) = World::new() else { return };
    let up = world.daemon();
    for (name, number) in [("one", 1), ("two", 2)] {
        let (backing, interface) = printed(&up, &format!("vale0:{name}"));
        world.start(name, number, &backing, &interface);
    }
    reached("10.1.0.1");
    reached("10.1.0.2");
    world.says("two", "reached");

    drop(up);
    let up = world.daemon();
    reached("10.1.0.1");
    reached("10.1.0.2");

    let saved = world.file("saved").display().to_string();
    done(&format!("save one {saved}"));
    until("the port is free", || waits(&up, "vale0:one"));
    done(&format!("restore {saved}"));
    reached("10.1.0.1");

    plug_and_unplug(&world, &up);
    for name in ["one", "two"] {
        done(&format!("destroy {name}"));
        until("the port is free", || up.notes(&format!("vale0:{name}")).contains("waits for"));
    }
}

fn plug_and_unplug(world: &World, up: &Up) {
    let socket = world.file("more.sock");
    stdout(&up.run(&format!("attach vale1 vhost:{}", socket.display())));
    stdout(&up.run("attach vale1 tap:nv1"));
    sh("ip addr add 10.2.0.100/24 dev nv1; ip link set nv1 up");
    let xml = world.file("more.xml");
    std::fs::write(&xml, printed(up, "vale1:more").1).expect("written");
    for _ in 0..2 {
        done(&format!("attach-device one {} --live", xml.display()));
        reached("10.2.0.1");
        done(&format!("detach-device one {} --live", xml.display()));
        until("it is unplugged", || waits(up, "vale1:more"));
        until("libvirt knows", || !done("domiflist one").contains("more.sock"));
    }
    reached("10.1.0.1");
}

/// Objective: a TAP that libvirt makes for a domain can be attached to a switch as an interface.
#[test]
fn an_ethernet_domain_is_attached_as_an_interface() {
    let Some(world) = World::new() else { return };
    let up = Up::start(&[]);
    stdout(&up.run("attach vale0 tap:nv0"));
    sh("ip addr add 10.1.0.100/24 dev nv0; ip link set nv0 up");
    let off = "csum='off' gso='off' tso4='off' tso6='off' ecn='off' ufo='off'";
    let interface = format!(
        "<interface type='ethernet'><mac address='52:54:00:00:00:01'/><target dev='dom1'/><model type='virtio'/>
         <driver name='qemu'><host {off}/><guest {}/></driver></interface>",
        off.replace("gso='off' ", "")
    );
    world.start("one", 1, "", &interface);
    stdout(&up.run("attach vale0 netmap:dom1"));
    reached("10.1.0.1");
    assert!(up.frames("vale0:dom1", "in") > 0);
    done("destroy one");
    until("the TAP is gone", || !Path::new("/sys/class/net/dom1").exists());
    up::until("the daemon answers", || up.run("list").status.success());
}
