//! A virtual machine: Debian's kernel and a small root file system under QEMU, emulated in software.
//!
//! `scripts/test-system.sh guests` builds the image from which the machine boots, in `NETVALE_GUESTS` or the user's
//! cache folder.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{BenchError, Result, Skip};
use crate::interrupt;
use crate::sys::child::{Child, run};
use crate::sys::netns::Netns;
use crate::sys::part::Part;
use crate::sys::trees;

/// Time limit for each step of a machine.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The guest kernel's packet generator: path of the module in the image.
const PKTGEN: &str = "pktgen/10-pktgen.ko";
/// The guest kernel's packet generator: path of the module in a guest.
const PKTGEN_INSIDE: &str = "lib/pktgen.ko";

const MISSING: &str = "needs the guests' image: run scripts/test-system.sh guests";
const NO_NETMAP: &str = "needs a QEMU with its netmap back end: run scripts/qemu-netmap.sh";
const OLDER: &str = "needs modules that the guests' image lacks: run scripts/test-system.sh guests again";
/// Minimum memory of a machine in MiB.
const MEMORY: u32 = 256;

/// Finds a QEMU with a netmap back end, which Debian's QEMU lacks.
pub fn netmap_qemu() -> std::result::Result<PathBuf, Skip> {
    let found = trees::newest("qemu-netmap-").map(|folder| folder.join("bin/qemu-system-x86_64"));
    found.filter(|program| program.is_file()).ok_or(Skip::NotBuilt(NO_NETMAP))
}

/// The image from which machines boot.
pub struct Image {
    folder: PathBuf,
    /// The tree of a newer Debian, with its QEMU.
    newer: PathBuf,
    drivers: PathBuf,
}

impl Image {
    /// Finds the newest image.
    pub fn find() -> std::result::Result<Image, Skip> {
        let found = || {
            let folder = trees::newest("linux-image-").filter(|folder| folder.join(PKTGEN).exists())?;
            Some(Image { folder, newer: trees::newest("sid-")?, drivers: trees::newest("drivers-")? })
        };
        found().ok_or(Skip::NotBuilt(MISSING))
    }

    /// Returns the kernel modules in a folder of the image. Only some guests need them.
    pub fn modules(&self, folder: &str) -> std::result::Result<Vec<PathBuf>, Skip> {
        let entries = fs::read_dir(self.folder.join(folder)).map_err(|_| Skip::NotBuilt(OLDER))?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    }

    /// Returns the beginning of a command line that starts QEMU: `other` if it is not empty, otherwise the newer
    /// Debian's QEMU through that Debian's loader.
    fn qemu(&self, other: &[PathBuf]) -> Vec<PathBuf> {
        let mut words = other.to_vec();
        if words.is_empty() {
            words = trees::program(&self.newer, "usr/bin/qemu-system-x86_64");
        }
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            words.extend(["-L".into(), self.newer.join(data)]);
        }
        words
    }
}

/// The description of a machine to boot.
#[derive(Debug, Default)]
pub struct MachineSpec {
    /// The CPUs that the machine may use; the machine has one emulated processor for each of them.
    pub cores: Vec<usize>,
    /// The script that the machine runs.
    pub script: String,
    /// Further arguments of QEMU.
    pub devices: Vec<String>,
    /// The beginning of the command line that starts QEMU; empty: the image's QEMU.
    pub emulator: Vec<PathBuf>,
    /// The machine's memory in MiB; smaller values than the minimum of 256 count as 256.
    pub memory: u32,
    /// A folder of the image with kernel modules to add; `None`: no further modules.
    pub modules: Option<&'static str>,
    /// Further programs and libraries; the libraries that they need are added as well.
    pub programs: Vec<GuestProgram>,
}

/// A program or library to copy into a machine.
#[derive(Debug)]
pub struct GuestProgram {
    /// The file's path on the host.
    pub from: PathBuf,
    /// The file's path in the guest.
    pub to: &'static str,
}

/// A machine that has booted and runs its script.
pub struct Machine {
    child: Child,
    dir: tempfile::TempDir,
}

impl Machine {
    /// Boots a machine inside `namespace`, with netvale's drivers and this program in it.
    pub fn boot(image: &Image, namespace: &Netns, spec: &MachineSpec) -> Result<Machine> {
        let dir = super::scratch("machine")?;
        let initrd = initrd(image, spec, dir.path())?;
        let memory = spec.memory.max(MEMORY);
        let cores: Vec<_> = spec.cores.iter().map(usize::to_string).collect();
        let mut command = namespace.command("taskset");
        command.arg("-c").arg(cores.join(",")).args(image.qemu(&spec.emulator));
        // If there can never be a second processor, QEMU omits a guest's memory barriers, on which the guest's peers
        // rely.
        command.arg("-smp").arg(format!("{},maxcpus=2", cores.len()));
        command.args(["-accel", "tcg,thread=multi", "-nographic", "-nodefaults", "-cpu", "max"]);
        command.args(["-serial", "stdio", "-net", "none", "-m", &memory.to_string(), "-object"]);
        command.arg(format!("memory-backend-memfd,id=mem,size={memory}M,share=on"));
        command.args(["-M", "q35,memory-backend=mem", "-append", "console=ttyS0 quiet panic=-1 no_timer_check"]);
        command.arg("-kernel").arg(image.folder.join("vmlinux")).arg("-initrd").arg(initrd);
        command.arg("-monitor").arg(format!("unix:{},server=on,wait=off", dir.path().join("monitor").display()));
        command.args(&spec.devices);
        let child = Child::spawn(command, &dir.path().join("log"))?;
        Ok(Machine { child, dir })
    }

    /// Returns the machine's process.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Makes QEMU count accesses to its emulated registers during `work`. Returns the result, and the number of
    /// accesses to the register region `region`.
    pub fn accesses<T>(&self, region: &str, work: impl FnOnce(&Machine) -> Result<T>) -> Result<(T, u64)> {
        let log = self.dir.path().join("log");
        let before = fs::metadata(&log).map_or(0, |m| m.len());
        self.trace("on")?;
        let done = work(self)?;
        self.trace("off")?;
        let text = fs::read(&log).map_err(BenchError::io("reading QEMU's log"))?;
        let text = String::from_utf8_lossy(text.get(before as usize..).unwrap_or_default()).into_owned();
        let count = text.lines().filter(|line| line.contains("memory_region_ops") && line.contains(region)).count();
        Ok((done, count as u64))
    }

    fn trace(&self, how: &str) -> Result<()> {
        let events = ["memory_region_ops_read", "memory_region_ops_write"];
        let commands = events.map(|event| format!("trace-event {event} {how}"));
        self.monitor(&commands.each_ref().map(String::as_str))
    }

    /// Makes QEMU execute commands.
    fn monitor(&self, commands: &[&str]) -> Result<()> {
        let failed = || BenchError::io("sending commands to QEMU's monitor");
        let mut monitor = UnixStream::connect(self.dir.path().join("monitor")).map_err(failed())?;
        monitor.set_read_timeout(Some(LIMIT)).map_err(failed())?;
        for command in commands {
            writeln!(monitor, "{command}").map_err(failed())?;
        }
        // Wait until the monitor has printed its prompt after each command, which shows that the command is done.
        let mut text = String::new();
        let mut chunk = [0; 1024];
        while text.matches("(qemu)").count() <= commands.len() {
            interrupt::check()?;
            let n = monitor.read(&mut chunk).map_err(failed())?;
            if n == 0 {
                return Err(failed()(std::io::Error::from(ErrorKind::UnexpectedEof)));
            }
            text.push_str(&String::from_utf8_lossy(chunk.get(..n).unwrap_or_default()));
        }
        Ok(())
    }
}

/// Stopping a machine stops its clock, too.
impl Part for Machine {
    fn children(&self) -> Vec<&Child> {
        vec![&self.child]
    }

    fn freeze(&self) -> Result<()> {
        self.monitor(&["stop"])
    }

    fn thaw(&self) -> Result<()> {
        self.monitor(&["cont"])
    }
}

/// Creates a folder and its parents.
fn folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(BenchError::io("creating a guest's root file system"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).map_err(BenchError::io("copying a file for a guest"))
}

/// Creates the root file system with the script, netvale's drivers, the kernel's generator, this program and the
/// machine's other files. The kernel accepts several archives in a row.
fn initrd(image: &Image, spec: &MachineSpec, dir: &Path) -> Result<PathBuf> {
    let own = dir.join("root");
    let more = own.join("more");
    folder(&more)?;
    copy(&image.drivers.join("nvptnet.ko"), &more.join("99-nvptnet.ko"))?;
    let modules = spec.modules.map(|name| image.modules(name)).transpose()?;
    for module in modules.into_iter().flatten() {
        copy(&module, &more.join(module.file_name().unwrap_or_default()))?;
    }
    folder(&own.join("lib"))?;
    copy(&image.drivers.join("nve1000.ko"), &own.join("lib/nve1000.ko"))?;
    copy(&image.folder.join(PKTGEN), &own.join(PKTGEN_INSIDE))?;
    fs::write(own.join("script"), &spec.script).map_err(BenchError::io("writing a guest's script"))?;
    let program = fs::canonicalize("/proc/self/exe").map_err(BenchError::io("finding this program"))?;
    install(&program, "/bin/netvale-bench", &own)?;
    spec.programs.iter().try_for_each(|program| install(&program.from, program.to, &own))?;
    let line = "find . | cpio -o -H newc --quiet | gzip -1 | cat \"$0/base.cpio.gz\" - >../initrd";
    run(Command::new("sh").args(["-c", line]).arg(&image.folder).current_dir(&own))?;
    fs::remove_dir_all(&own).map_err(BenchError::io("removing temporary files"))?;
    Ok(dir.join("initrd"))
}

/// Copies a program or library to a path in a root file system, and each library that it needs to that library's own
/// path in the root file system.
fn install(from: &Path, to: &str, root: &Path) -> Result<()> {
    let listed = run(Command::new("ldd").arg(from))?;
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/')).map(|path| (Path::new(path), path));
    for (from, to) in libraries.chain([(from, to)]) {
        let to = root.join(to.trim_start_matches('/'));
        if to.exists() {
            continue;
        }
        folder(to.parent().unwrap_or(root))?;
        // Most of the file is debugging information, which is omitted.
        run(Command::new("strip").arg("-o").arg(to).arg(from))?;
    }
    Ok(())
}
