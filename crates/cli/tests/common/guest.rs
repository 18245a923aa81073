//! Virtual machines: Debian's kernel and a small root file system under QEMU, without hardware virtualisation.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// For anything that a guest does.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The folder with kernel and root file system, made if need be; none, and a line that says why, when guests cannot run here.
pub fn image() -> Option<&'static Path> {
    static IMAGE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = IMAGE.get_or_init(|| {
        for program in ["qemu-system-x86_64", "busybox", "cpio", "modprobe"] {
            let dirs = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/bin";
            if !std::env::split_paths(&dirs).any(|d| d.join(program).exists()) {
                eprintln!("skipped: {program} is not installed");
                return None;
            }
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/guest-image.sh");
        let output = Command::new(script).stdin(Stdio::null()).output().expect("the script runs");
        if !output.status.success() {
            eprintln!("skipped: no guest image: {}", String::from_utf8_lossy(&output.stderr).trim());
            return None;
        }
        Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    });
    found.as_deref()
}

/// A network interface of a guest.
pub struct Nic<'a> {
    /// The vhost-user socket.
    pub socket: &'a Path,
    /// Queue pairs.
    pub pairs: u32,
    /// Added to `-device virtio-net-pci`.
    pub device: &'a str,
    /// Added to `-chardev socket`.
    pub chardev: &'a str,
}

impl<'a> Nic<'a> {
    pub fn new(socket: &'a Path) -> Nic<'a> {
        Nic { socket, pairs: 1, device: "", chardev: "" }
    }
}

#[derive(Default)]
struct Console {
    text: Mutex<(String, bool)>,
    grown: Condvar,
}

/// A guest; killed when dropped.
pub struct Guest {
    child: Child,
    console: Arc<Console>,
    _dir: tempfile::TempDir,
}

impl Guest {
    /// Boots a guest that runs `script` and powers off.
    pub fn start(image: &Path, script: &str, number: u8, nic: &Nic<'_>) -> Guest {
        let dir = tempfile::tempdir().expect("a folder");
        let initrd = initrd(image, script, dir.path());
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg,thread=multi", "-m", "192", "-smp", &nic.pairs.to_string(), "-nographic"]);
        command.args(["-nodefaults", "-serial", "stdio", "-net", "none", "-cpu", "max"]);
        command.args(["-object", "memory-backend-memfd,id=mem,size=192M,share=on", "-M", "q35,memory-backend=mem"]);
        command.arg("-kernel").arg(image.join("vmlinux")).arg("-initrd").arg(initrd);
        command.args(["-append", "console=ttyS0 quiet panic=-1"]);
        command.arg("-chardev").arg(format!("socket,id=c0,path={}{}", nic.socket.display(), nic.chardev));
        command.arg("-netdev").arg(format!("vhost-user,id=n0,chardev=c0,queues={}", nic.pairs));
        // With MSI-X vectors, QEMU 7.2 crashes under TCG when the driver starts.
        let mq = if nic.pairs > 1 { ",mq=on" } else { "" };
        let device =
            format!("virtio-net-pci,netdev=n0,vectors=0,romfile=,mac=52:54:00:00:00:{number:02x}{mq}{}", nic.device);
        command.arg("-device").arg(device);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("QEMU starts");
        let console = Arc::new(Console::default());
        for pipe in [child.stdout.take().map(boxed), child.stderr.take().map(boxed)].into_iter().flatten() {
            let console = Arc::clone(&console);
            std::thread::spawn(move || console.fill_from(pipe));
        }
        Guest { child, console, _dir: dir }
    }

    /// Waits until the console has shown `text`, from the place where the last wait ended. Returns what came before it.
    pub fn expect(&mut self, text: &str) -> String {
        let start = Instant::now();
        let mut state = self.console.text.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(at) = state.0.find(text) {
                let rest = state.0.split_off(at + text.len());
                return std::mem::replace(&mut state.0, rest);
            }
            let left = LIMIT.saturating_sub(start.elapsed());
            assert!(!left.is_zero() && !state.1, "the guest does not say {text:?}: {}", state.0);
            state = self.console.grown.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Types a line.
    pub fn say(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{line}").expect("the guest runs");
    }

    /// Waits for the end of the script, which must succeed. Returns what the console showed since the last wait.
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
            state.1 |= n == 0;
            self.grown.notify_all();
            if n == 0 {
                return;
            }
        }
    }
}

/// The root file system with `script` in it: the kernel takes archives one behind the other.
fn initrd(image: &Path, script: &str, dir: &Path) -> PathBuf {
    std::fs::write(dir.join("script"), script).expect("written");
    let line = "echo script | cpio -o -H newc --quiet | gzip -1 | cat \"$0/base.cpio.gz\" - >initrd";
    let status = Command::new("sh").arg("-c").arg(line).arg(image).current_dir(dir).status().expect("sh runs");
    assert!(status.success());
    dir.join("initrd")
}
