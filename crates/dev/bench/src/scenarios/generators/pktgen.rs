//! The kernel's pktgen: a kernel thread for each CPU, controlled by files.

use std::cell::Cell;

use tempfile::TempDir;

use super::*;
use crate::disturb::processes_named;

/// The need of the kernel module pktgen, which may be missing.
pub const MODULE: &[Need] = &[Need::Found(loaded)];

fn loaded() -> std::result::Result<(), Skip> {
    let there = Path::new("/proc/net/pktgen/pgctrl").exists();
    there.then_some(()).ok_or(Skip::NotBuilt("the kernel has no pktgen (modprobe pktgen)"))
}

/// The kernel's generator. It runs as long as the process that started it.
struct KernelGenerator {
    namespace: Rc<Netns>,
    starter: Cell<Option<Child>>,
    folder: TempDir,
}

impl Part for KernelGenerator {
    fn children(&self) -> Vec<&Child> {
        Vec::new()
    }

    fn pids(&self) -> Vec<u32> {
        processes_named("kpktgend")
    }

    fn freeze(&self) -> Result<()> {
        self.starter.set(None);
        Ok(())
    }

    fn thaw(&self) -> Result<()> {
        let mut command = self.namespace.command("sh");
        command.args(["-c", "echo start >/proc/net/pktgen/pgctrl"]);
        let child = Child::spawn(command, &self.folder.path().join("log"))?;
        self.starter.set(Some(child));
        Ok(())
    }
}

/// Configures the kernel threads of the senders' CPUs.
pub fn begin(bench: &TestBench<'_>) -> Result<Crew> {
    bench.cables()?;
    for index in 0..bench.senders() {
        let name = near(index);
        tell(&bench.namespace, &format!("kpktgend_{}", bench.own(index)), &format!("add_device {name}"))?;
        let length = format!("pkt_size {}", bench.case.frame_bytes);
        for words in ["count 0", "delay 0", &length, "dst 10.78.0.2", "dst_mac 02:00:00:00:00:01"] {
            tell(&bench.namespace, &name, words)?;
        }
    }
    let namespace = Rc::clone(&bench.namespace);
    let generator = KernelGenerator { namespace, starter: Cell::new(None), folder: sys::scratch("pktgen")? };
    Ok(Crew::on_cables(Vec::new(), vec![Rc::new(generator)]))
}

fn tell(namespace: &Netns, file: &str, words: &str) -> Result<()> {
    let path = format!("/proc/thread-self/net/pktgen/{file}");
    namespace.inside(|| std::fs::write(&path, words).map_err(BenchError::io(format!("writing {words:?} to {path}"))))
}
