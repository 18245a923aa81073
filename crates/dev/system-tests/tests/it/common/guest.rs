//! Virtual machines: Debian's kernel and a small root file system under QEMU, without hardware virtualisation.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::up::{Up, listens, until};

/// Time limit for each step of a guest.
pub const LIMIT: Duration = Duration::from_secs(240);

/// If a switch carries more bytes per frame than this on average, TCP segments cross it whole; otherwise no frame is
/// longer than 1514. In slow guests, Linux does not merge more than two segments.
pub const WHOLE: u64 = 2000;

/// Script that receives a file at port 5000 of 10.1.0.1.
pub const RECEIVE: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
echo ready
nc -l -p 5000 >/tmp/file
md5sum /tmp/file
";

/// The files from which guests boot.
pub struct Image {
    /// The folder with kernel and root file system.
    pub folder: PathBuf,
    /// The folder with a QEMU, and a User-Mode Linux, newer than the programs of the system.
    pub newer: PathBuf,
    /// The folder with netvale's drivers for the guests' kernel.
    pub drivers: PathBuf,
}

/// Returns the image, built if necessary; `None` after printing the reason if guests cannot run here.
pub fn image() -> Option<&'static Image> {
    static IMAGE: OnceLock<Option<Image>> = OnceLock::new();
    let found = IMAGE.get_or_init(|| {
        if !super::has(&["qemu-system-x86_64", "busybox", "cpio", "modprobe", "debootstrap"]) {
            return None;
        }
        Some(Image {
            folder: folder("guest-image.sh")?,
            newer: folder("newer-debian.sh")?,
            drivers: folder("guest-driver.sh")?,
        })
    });
    found.as_ref()
}

/// Emulated guests use all CPUs: one test runs at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Waits until no other test has guests. The next test waits until the returned value is dropped.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a daemon for guests once no other test has guests. Returns the value of [`alone`], and the image; `None` if
/// guests cannot run here.
pub fn begin(args: &[&str]) -> Option<(MutexGuard<'static, ()>, &'static Image, Up)> {
    let one = alone();
    image().map(|image| (one, image, Up::start(args)))
}

/// Runs a script of `scripts`. Returns the folder that the script makes; `None`, with the test reported as skipped, if
/// the script fails.
pub fn folder(script: &str) -> Option<PathBuf> {
    let path = netvale_system_tests::root().join("scripts").join(script);
    let output = Command::new(path).stdin(Stdio::null()).output().expect("the script runs");
    if !output.status.success() {
        netvale_harness::skip(&format!("{script}: {}", String::from_utf8_lossy(&output.stderr).trim()));
        return None;
    }
    Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

impl Image {
    /// Returns the command that starts a program of the newer system through its own dynamic loader.
    pub fn newer_program(&self, program: &str) -> Command {
        let mut command = Command::new(self.newer.join("usr/lib64/ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(self.newer.join("usr/lib/x86_64-linux-gnu"));
        command.arg(self.newer.join(program));
        command
    }

    fn qemu(&self, which: Qemu) -> Command {
        match which {
            Qemu::System => Command::new("qemu-system-x86_64"),
            Qemu::Newer => {
                let mut command = self.newer_program("usr/bin/qemu-system-x86_64");
                for data in ["usr/share/qemu", "usr/share/seabios"] {
                    command.arg("-L").arg(self.newer.join(data));
                }
                command
            }
        }
    }
}

/// The QEMU that runs a guest.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Qemu {
    /// The QEMU of the newer system, [`Image::newer`].
    #[default]
    Newer,
    /// The system's own QEMU.
    System,
}

/// A network interface of a guest.
pub struct Nic<'a> {
    /// The vhost-user socket.
    pub socket: &'a Path,
    /// Number of queue pairs.
    pub pairs: u32,
    /// Text added to the argument of `-device virtio-net-pci`.
    pub device: &'a str,
    /// Text added to the argument of `-chardev socket`.
    pub chardev: &'a str,
    /// The QEMU that runs the guest.
    pub qemu: Qemu,
    /// Further arguments of QEMU.
    pub more: &'a [String],
    /// The output of `netvale vm`, used instead of the harness's own arguments.
    pub printed: &'a [String],
    /// Text added to the argument of `-M`.
    pub machine: &'a str,
    /// Text added to the kernel's command line.
    pub kernel: &'a str,
    /// If set, the interface is not a vhost-user device, but QEMU's own device on a TAP in a network namespace of its
    /// own. In that namespace, 10.1.0.1 answers, and writes what arrives at port 5000 to this file.
    pub tap: Option<&'a Path>,
    /// A `-netdev` with the id n0 for QEMU's own device, instead of vhost-user; `socket` is ignored.
    pub netdev: &'a str,
    /// The user as whom QEMU runs, without any capability; 0: the caller's user, with its capabilities.
    pub user: u32,
    /// Whether the guest has QEMU's own e1000 instead of virtio-net.
    pub e1000: bool,
    /// If not 0: netvale's ptnet device with that many vectors instead of virtio-net; `socket` is the ptnet port's
    /// socket.
    pub ptnet: u32,
    /// Whether the guest has, instead of virtio-net, the devices of a ptnet port through vfio-user; `socket` is the
    /// port's socket.
    pub vfio_user: bool,
    /// Whether the guest has, instead of virtio-net, the PCI function of an e1000 port through vfio-user; `socket` is
    /// the port's socket.
    pub function: bool,
}

impl<'a> Nic<'a> {
    pub fn new(socket: &'a Path) -> Nic<'a> {
        Nic {
            socket,
            pairs: 1,
            device: "",
            chardev: "",
            qemu: Qemu::Newer,
            more: &[],
            printed: &[],
            machine: "",
            kernel: "",
            tap: None,
            netdev: "",
            user: 0,
            e1000: false,
            ptnet: 0,
            vfio_user: false,
            function: false,
        }
    }
}

#[derive(Default)]
struct Console {
    /// The console's text, and the number of pipes that may still deliver more text.
    text: Mutex<(String, usize)>,
    grown: Condvar,
}

/// A guest, killed on drop.
pub struct Guest {
    child: Child,
    console: Arc<Console>,
    _dir: tempfile::TempDir,
}

/// Asserts that a sender's pings were answered, and that both guests print the same checksum of `/tmp/file`.
pub fn same_sum(receiver: &str, sender: &str) {
    assert!(sender.contains(" 0% packet loss"), "{sender}");
    same_file(receiver, sender);
}

/// Asserts that both guests print the same checksum of `/tmp/file`.
pub fn same_file(one: &str, other: &str) {
    let sum = |text: &str| text.lines().find(|l| l.contains("  /tmp/file")).map(|l| l[..32].to_owned());
    assert!(sum(one).is_some() && sum(one) == sum(other), "{one}\n{other}");
}

impl Guest {
    /// Boots a guest that runs `script` and powers off.
    pub fn start(image: &Image, script: &str, number: u8, nic: &Nic<'_>) -> Guest {
        Guest::start_in(tempfile::tempdir().expect("a folder"), image, script, number, nic)
    }

    /// Like [`Guest::start`], with netvale, ethtool and optional kernel modules in the guest.
    pub fn start_with_netvale(image: &Image, script: &str, number: u8, nic: &Nic<'_>) -> Guest {
        Guest::start_with(image, script, number, nic, &[])
    }

    /// Like [`Guest::start_with_netvale`], with further programs, each at its path.
    pub fn start_with(image: &Image, script: &str, number: u8, nic: &Nic<'_>, programs: &[(&Path, &str)]) -> Guest {
        let dir = tempfile::tempdir().expect("a folder");
        take_program(&netvale_system_tests::netvale(), "/bin/netvale", dir.path());
        take_program(Path::new("/usr/sbin/ethtool"), "/bin/ethtool", dir.path());
        for (program, place) in programs {
            take_program(program, place, dir.path());
        }
        let more = dir.path().join("more");
        std::fs::create_dir(&more).expect("a folder");
        for module in std::fs::read_dir(image.folder.join("more")).expect("a folder") {
            let module = module.expect("an entry");
            std::fs::copy(module.path(), more.join(module.file_name())).expect("copied");
        }
        Guest::start_in(dir, image, script, number, nic)
    }

    fn start_in(dir: tempfile::TempDir, image: &Image, script: &str, number: u8, nic: &Nic<'_>) -> Guest {
        if nic.ptnet > 0 {
            let more = dir.path().join("more");
            std::fs::create_dir_all(&more).expect("a folder");
            std::fs::copy(image.drivers.join("nvptnet.ko"), more.join("99-nvptnet.ko")).expect("copied");
        }
        if nic.function {
            // The new modules are added to the modules of the image.
            let lib = dir.path().join("lib");
            std::fs::create_dir_all(&lib).expect("a folder");
            std::fs::copy(image.drivers.join("nve1000.ko"), lib.join("nve1000.ko")).expect("copied");
        }
        let initrd = initrd(&image.folder, script, dir.path());
        let mut command = image.qemu(nic.qemu);
        // If there can never be a second processor, QEMU omits a guest's memory barriers, on which the guest's peers
        // rely. QEMU's timer interrupts are late on a busy machine; `no_timer_check` keeps the kernel from taking the
        // timer for broken.
        let processors = format!("{},maxcpus={}", nic.pairs, nic.pairs + 1);
        command.args(["-accel", "tcg,thread=multi", "-m", "256", "-smp", &processors, "-nographic"]);
        command.args(["-nodefaults", "-serial", "stdio", "-net", "none", "-cpu", "max"]);
        if nic.printed.is_empty() {
            command.args(["-object", "memory-backend-memfd,id=mem,size=256M,share=on"]);
        }
        command.args(["-M", &format!("q35,memory-backend=mem{}", nic.machine)]);
        let mut kernel = image.folder.join("vmlinux");
        if nic.user > 0 {
            std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("permitted");
            kernel = dir.path().join("vmlinux");
            std::fs::copy(image.folder.join("vmlinux"), &kernel).expect("copied");
        }
        command.arg("-kernel").arg(kernel).arg("-initrd").arg(initrd);
        command.args(["-append", &format!("console=ttyS0 quiet panic=-1 no_timer_check{}", nic.kernel)]);
        if !nic.printed.is_empty() {
            command.args(nic.printed);
            return Guest::spawn(command, dir);
        }
        if nic.tap.is_some() {
            let queues = if nic.pairs > 1 { format!(",queues={}", nic.pairs) } else { String::new() };
            let tap = format!("tap,id=n0,ifname=there0,script=no,downscript=no,vhost=off{queues}");
            command.args(["-netdev", &tap]);
        } else if !nic.netdev.is_empty() {
            command.args(["-netdev", nic.netdev]);
        } else if nic.vfio_user || nic.function {
            let device = |path: &str| {
                serde_json::json!({"driver": "vfio-user-pci", "socket": {"type": "unix", "path": path}}).to_string()
            };
            let socket = nic.socket.display().to_string();
            // A virtual IOMMU must precede the device that uses it.
            command.args(nic.more);
            if nic.vfio_user {
                command.args(["-device", &device(&format!("{socket}.mem"))]);
            }
            command.args(["-device", &device(&socket)]);
            return Guest::spawn(command, dir);
        } else if nic.ptnet > 0 {
            command.arg("-chardev").arg(format!("socket,id=c0,path={}{}", nic.socket.display(), nic.chardev));
        } else {
            command.arg("-chardev").arg(format!("socket,id=c0,path={}{}", nic.socket.display(), nic.chardev));
            command.arg("-netdev").arg(format!("vhost-user,id=n0,chardev=c0,queues={}", nic.pairs));
        }
        // With MSI-X vectors, QEMU 7.2 crashes under TCG when the driver starts.
        let mq = if nic.pairs > 1 { ",mq=on" } else { "" };
        let vectors = if nic.qemu == Qemu::System { 0 } else { 2 * nic.pairs + 2 };
        let device = format!(
            "virtio-net-pci,netdev=n0,vectors={vectors},romfile=,mac=52:54:00:00:00:{number:02x}{mq}{}",
            nic.device
        );
        let device = if nic.e1000 { format!("e1000,netdev=n0,mac=52:54:00:00:00:{number:02x}") } else { device };
        let device = if nic.ptnet > 0 { format!("ivshmem-doorbell,chardev=c0,vectors={}", nic.ptnet) } else { device };
        // A virtual IOMMU must precede the device that uses it.
        command.args(nic.more).arg("-device").arg(device);
        let command = if let Some(file) = nic.tap { behind_tap(&command, nic.pairs, file) } else { command };
        let command = if nic.user > 0 { as_user(&command, nic.user) } else { command };
        Guest::spawn(command, dir)
    }

    /// Boots User-Mode Linux, which runs `script` and ends. It runs inside the newer system's tree, in a mount
    /// namespace of its own.
    pub fn start_uml(image: &Image, script: &str, socket: &Path) -> Guest {
        let dir = tempfile::tempdir().expect("a folder");
        let own = dir.path().join("own");
        std::fs::create_dir(&own).expect("a folder");
        let kernel = only_entry(&image.newer.join("usr/lib/uml/modules")).join("kernel");
        for (i, module) in
            ["net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net"].iter().enumerate()
        {
            std::fs::copy(kernel.join(format!("{module}.ko")), own.join(format!("{i}.ko"))).expect("copied");
        }
        initrd(&image.folder, script, dir.path());
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-ec"]);
        command.arg(
            "mount --bind \"$2\" \"$1/mnt\"; mount -t proc proc \"$1/proc\"; mount --rbind /dev \"$1/dev\"
             mount -t tmpfs tmpfs \"$1/tmp\"; cp \"$3/initrd\" \"$1/tmp/\"
             exec chroot \"$1\" /usr/bin/linux.uml mem=128M seccomp=on initrd=/tmp/initrd con0=null,fd:1 con=null \
                 stderr=1 panic=-1 quiet \"virtio_uml.device=/mnt/$4:1\"",
        );
        let folder = socket.parent().expect("a folder");
        let name = socket.file_name().expect("a name");
        command.args([Path::new("sh"), &image.newer, folder, dir.path(), Path::new(name)]);
        Guest::spawn(command, dir)
    }

    fn spawn(mut command: Command, dir: tempfile::TempDir) -> Guest {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("QEMU starts");
        let pipes = [child.stdout.take().map(boxed), child.stderr.take().map(boxed)].into_iter().flatten();
        let pipes: Vec<_> = pipes.collect();
        let console = Arc::new(Console { text: Mutex::new((String::new(), pipes.len())), ..Console::default() });
        for pipe in pipes {
            let console = Arc::clone(&console);
            std::thread::spawn(move || console.fill_from(pipe));
        }
        Guest { child, console, _dir: dir }
    }

    /// Waits until the console has shown `text` after the position where the last wait ended. Returns the output before
    /// `text`.
    pub fn expect(&mut self, text: &str) -> String {
        let start = Instant::now();
        let mut state = self.console.text.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(at) = state.0.find(text) {
                let rest = state.0.split_off(at + text.len());
                return std::mem::replace(&mut state.0, rest);
            }
            let left = LIMIT.saturating_sub(start.elapsed());
            assert!(!left.is_zero() && state.1 > 0, "the guest does not print {text:?}: {}", state.0);
            state = self.console.grown.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Types a line on the console.
    pub fn say(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{line}").expect("the guest runs");
    }

    /// Waits until the script has ended, and asserts that it succeeded. Returns the console's output since the last
    /// wait.
    pub fn end(mut self) -> String {
        let text = self.expect("guest: exit ");
        let code = self.expect("\n");
        assert_eq!(code.trim(), "0", "{text}");
        text
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn boxed(pipe: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(pipe)
}

impl Console {
    fn fill_from(&self, mut pipe: Box<dyn Read + Send>) {
        let mut chunk = [0; 4096];
        loop {
            let n = pipe.read(&mut chunk).unwrap_or(0);
            let mut state = self.text.lock().unwrap_or_else(PoisonError::into_inner);
            state.0.push_str(&String::from_utf8_lossy(&chunk[..n]));
            state.1 -= usize::from(n == 0);
            self.grown.notify_all();
            if n == 0 {
                return;
            }
        }
    }
}

/// Returns the only entry of a folder.
fn only_entry(folder: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(folder).expect("a folder");
    entries.next().expect("an entry").expect("an entry").path()
}

/// Returns a command that runs `qemu` in a network namespace of its own; see [`Nic::tap`].
fn behind_tap(qemu: &Command, pairs: u32, file: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-ec"]);
    let multi = if pairs > 1 { " multi_queue" } else { "" };
    command.arg(format!(
        "ip tuntap add there0 mode tap{multi}; ip addr add 10.1.0.1/24 dev there0; ip link set there0 up
         timeout {} busybox nc -l -p 5000 -e dd \"of=$0\" status=none & exec \"$@\"",
        LIMIT.as_secs()
    ));
    command.arg(file).arg(qemu.get_program()).args(qemu.get_args());
    command
}

/// Copies a program to `place` in the guest, and the libraries that the program needs to the paths at which its loader
/// finds them.
fn take_program(program: &Path, place: &str, root: &Path) {
    let listed = Command::new("ldd").arg(program).output().expect("ldd runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/')).map(|path| (Path::new(path), path));
    for (from, to) in libraries.chain([(program, place)]) {
        let to = root.join(&to[1..]);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        // Most of the file is debugging information, which is omitted.
        let done = Command::new("strip").arg("-o").arg(to).arg(from).status().expect("strip runs");
        assert!(done.success());
    }
}

/// Returns a command that runs `command` as the user `user`, without any capability.
fn as_user(command: &Command, user: u32) -> Command {
    let mut all = Command::new("setpriv");
    let user = user.to_string();
    all.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
    all.arg(command.get_program()).args(command.get_args());
    all
}

/// Creates the root file system with `script`. The kernel accepts several archives in a row.
fn initrd(image: &Path, script: &str, dir: &Path) -> PathBuf {
    std::fs::write(dir.join("script"), script).expect("written");
    let line = "find script own more bin lib lib64 usr 2>/dev/null | cpio -o -H newc --quiet | gzip -1 | \
                cat \"$0/base.cpio.gz\" - >initrd";
    let status = Command::new("sh").arg("-c").arg(line).arg(image).current_dir(dir).status().expect("sh runs");
    assert!(status.success());
    dir.join("initrd")
}

/// A connection to QEMU's monitor (QMP).
pub struct Qmp {
    stream: std::io::BufReader<std::os::unix::net::UnixStream>,
}

impl Qmp {
    /// Connects to the monitor that listens at `path`.
    pub fn connect(path: &Path) -> Qmp {
        until("the monitor listens", || listens(path));
        let stream = std::os::unix::net::UnixStream::connect(path).expect("the monitor listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        let mut qmp = Qmp { stream: std::io::BufReader::new(stream) };
        qmp.run("qmp_capabilities", &serde_json::json!({}));
        qmp
    }

    /// Runs a command, which must succeed. Returns its result.
    pub fn run(&mut self, command: &str, arguments: &serde_json::Value) -> serde_json::Value {
        let line = serde_json::json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{line}").expect("the monitor listens");
        loop {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut self.stream, &mut line).expect("the monitor answers");
            let mut answer: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            assert!(answer.get("error").is_none(), "{command}: {answer}");
            if let Some(value) = answer.get_mut("return") {
                return value.take();
            }
        }
    }
}
