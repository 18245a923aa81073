//! A virtual machine that is really booted: Debian's kernel and a small root file system under QEMU, emulated in
//! software.
//!
//! `scripts/test-system.sh guests` builds the image that it boots from, and puts it into `NETVALE_GUESTS` or the
//! user's cache, where it is looked for.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{BenchError, Result, Skip};
use crate::interrupt;
use crate::sys::child::{Child, run};
use crate::sys::netns::Netns;
use crate::sys::part::Part;

/// The longest wait for anything that a machine does.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The guest kernel's packet generator: where it is in the image, and in guests.
const PKTGEN: &str = "pktgen/10-pktgen.ko";
const PKTGEN_INSIDE: &str = "lib/pktgen.ko";

const MISSING: &str = "needs what guests boot from: scripts/test-system.sh guests makes it";
const NO_NETMAP: &str = "needs a QEMU with its netmap back end: scripts/qemu-netmap.sh builds it";

/// The folder of the newest thing of its kind that was made for guests, and is whole.
fn newest(prefix: &str) -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map_or_else(|| "/tmp".into(), PathBuf::from);
    let cache = || std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home().join(".cache"), PathBuf::from);
    let root = std::env::var_os("NETVALE_GUESTS").map_or_else(|| cache().join("netvale/guests"), PathBuf::from);
    let entries = fs::read_dir(&root).ok()?.flatten().map(|entry| entry.path());
    let fits = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) && path.join("done").exists()
    };
    entries.filter(fits).max_by_key(|path| fs::metadata(path.join("done")).and_then(|m| m.modified()).ok())
}

/// QEMU with its netmap back end, which Debian's has not.
pub fn netmap_qemu() -> std::result::Result<PathBuf, Skip> {
    let found = newest("qemu-netmap-").map(|folder| folder.join("bin/qemu-system-x86_64"));
    found.filter(|program| program.is_file()).ok_or(Skip::NotBuilt(NO_NETMAP))
}

/// The image that machines boot from.
pub struct Image {
    folder: PathBuf,
    /// A newer Debian's tree, with its QEMU.
    newer: PathBuf,
    drivers: PathBuf,
}

impl Image {
    /// Finds the newest image.
    pub fn find() -> std::result::Result<Image, Skip> {
        let found = || {
            let folder = newest("linux-image-").filter(|folder| folder.join(PKTGEN).exists())?;
            Some(Image { folder, newer: newest("sid-")?, drivers: newest("drivers-")? })
        };
        found().ok_or(Skip::NotBuilt(MISSING))
    }

    /// QEMU: another one, by the words that start it, or by the newer system's own loader.
    fn qemu(&self, other: &[PathBuf]) -> Vec<PathBuf> {
        let at = |path: &str| self.newer.join(path);
        let mut words = other.to_vec();
        if words.is_empty() {
            words.extend([at("usr/lib64/ld-linux-x86-64.so.2"), "--library-path".into()]);
            words.extend([at("usr/lib/x86_64-linux-gnu"), at("usr/bin/qemu-system-x86_64")]);
        }
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            words.extend(["-L".into(), at(data)]);
        }
        words
    }
}

/// What a machine is made of.
#[derive(Debug)]
pub struct MachineSpec {
    /// The CPUs that it may use; it has a processor for each.
    pub cores: Vec<usize>,
    /// What it runs.
    pub script: String,
    /// More of QEMU's arguments.
    pub devices: Vec<String>,
    /// The words that start QEMU, if it is not to be the image's.
    pub emulator: Vec<PathBuf>,
}

/// A machine that has booted and runs its script.
pub struct Machine {
    child: Child,
    dir: tempfile::TempDir,
}

impl Machine {
    /// Boots one inside `namespace`, with our drivers and this very program in it.
    pub fn boot(image: &Image, namespace: &Netns, spec: &MachineSpec) -> Result<Machine> {
        let dir = super::scratch("machine")?;
        let initrd = initrd(image, &spec.script, dir.path())?;
        let cores: Vec<_> = spec.cores.iter().map(usize::to_string).collect();
        let mut command = namespace.command("taskset");
        command.arg("-c").arg(cores.join(",")).args(image.qemu(&spec.emulator));
        // Where there never can be a second processor, QEMU leaves a guest's memory barriers out, which its peers rely
        // on.
        command.arg("-smp").arg(format!("{},maxcpus=2", cores.len()));
        command.args(["-accel", "tcg,thread=multi", "-m", "256", "-nographic", "-nodefaults", "-cpu", "max"]);
        command.args(["-serial", "stdio", "-net", "none", "-object", "memory-backend-memfd,id=mem,size=256M,share=on"]);
        command.args(["-M", "q35,memory-backend=mem", "-append", "console=ttyS0 quiet panic=-1 no_timer_check"]);
        command.arg("-kernel").arg(image.folder.join("vmlinux")).arg("-initrd").arg(initrd);
        command.arg("-monitor").arg(format!("unix:{},server=on,wait=off", dir.path().join("monitor").display()));
        command.args(&spec.devices);
        let child = Child::spawn(command, &dir.path().join("log"))?;
        Ok(Machine { child, dir })
    }

    /// The machine's process.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Lets QEMU count its emulated registers' accesses while `work` is done. Returns the result, and how often a
    /// region of that name was accessed.
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

    /// Has QEMU carry out commands.
    fn monitor(&self, commands: &[&str]) -> Result<()> {
        let failed = || BenchError::io("talking to QEMU's monitor");
        let mut monitor = UnixStream::connect(self.dir.path().join("monitor")).map_err(failed())?;
        monitor.set_read_timeout(Some(LIMIT)).map_err(failed())?;
        for command in commands {
            writeln!(monitor, "{command}").map_err(failed())?;
        }
        // The prompt comes back when one is done.
        let mut text = String::new();
        let mut chunk = [0; 1024];
        while text.matches("(qemu)").count() <= commands.len() {
            interrupt::check()?;
            let n = monitor.read(&mut chunk).map_err(failed())?;
            text.push_str(&String::from_utf8_lossy(chunk.get(..n).unwrap_or_default()));
        }
        Ok(())
    }
}

/// Stopped and let go on with its clock.
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

/// The root file system with `script`, our drivers, the kernel's generator and this program in it: the kernel takes
/// archives one behind the other.
fn initrd(image: &Image, script: &str, dir: &Path) -> Result<PathBuf> {
    let own = dir.join("root");
    let folder = |path: &Path| fs::create_dir_all(path).map_err(BenchError::io("making a root file system"));
    folder(&own.join("more"))?;
    let copy = |from: &Path, to: &Path| fs::copy(from, to).map(drop).map_err(BenchError::io("copying into a guest"));
    copy(&image.drivers.join("nvptnet.ko"), &own.join("more/99-nvptnet.ko"))?;
    folder(&own.join("lib"))?;
    copy(&image.drivers.join("nve1000.ko"), &own.join("lib/nve1000.ko"))?;
    copy(&image.folder.join(PKTGEN), &own.join(PKTGEN_INSIDE))?;
    fs::write(own.join("script"), script).map_err(BenchError::io("writing a guest's script"))?;
    let program = fs::canonicalize("/proc/self/exe").map_err(BenchError::io("finding this program"))?;
    let listed = run(Command::new("ldd").arg(&program))?;
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/')).map(|path| (Path::new(path), path));
    for (from, to) in libraries.chain([(program.as_path(), "/bin/netvale-bench")]) {
        let to = own.join(to.trim_start_matches('/'));
        folder(to.parent().unwrap_or(&own))?;
        // Without what is for debuggers, which is most of it.
        run(Command::new("strip").arg("-o").arg(to).arg(from))?;
    }
    let line = "find . | cpio -o -H newc --quiet | gzip -1 | cat \"$0/base.cpio.gz\" - >../initrd";
    run(Command::new("sh").args(["-c", line]).arg(&image.folder).current_dir(&own))?;
    fs::remove_dir_all(&own).map_err(BenchError::io("cleaning up"))?;
    Ok(dir.join("initrd"))
}
