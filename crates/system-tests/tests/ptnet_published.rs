//! The devices that netmap published, in a virtual machine: driven in the order in which netmap's own drivers do it.

mod common;
#[path = "common/guest.rs"]
mod guest;
#[path = "common/libs.rs"]
mod libs;
#[path = "common/ptnet.rs"]
mod machines;
#[path = "common/up.rs"]
mod up;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use guest::{Guest, Nic, image};
use machines::{no_complaints, port};
use netvale::{Interest, Options, Port};
use up::{Up, until};

/// Emulated guests take all the processor there is: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Sends all frames back to where they came from, in a thread of its own, until dropped.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(up: &Up, name: &str) -> Echo {
        let options = Options { run_dir: Some(up.dir().into()), ..Options::default() };
        let mut port = Port::open_with(name, &options).expect("the port opens");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let _ = port.wait(Interest::Rx, Some(Duration::from_millis(20)));
                let mut frame = [0; 65_536];
                while let Some(n) = port.rx()[0].recv(&mut frame) {
                    frame.copy_within(6..12, 0);
                    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xec]);
                    // Of a machine that speaks of other things, nothing is sent back.
                    if frame[12..14] == [0x88, 0xb5] {
                        port.tx()[0].send_now(&frame[..n], Duration::from_secs(1));
                    }
                }
                let _ = port.rx()[0].sync();
            }
        });
        Echo { stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The driver, as a program that needs nothing in the guest.
fn driver(into: &Path) -> PathBuf {
    let program = into.join("published");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(netvale_system_tests::root().join("crates/capi/include"))
        .arg(netvale_system_tests::root().join("crates/system-tests/tests/guest/published.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{}", common::stderr(&output));
    program
}

/// Finds the devices; runs the driver on them without and with a header, and once more by vfio if the machine has an IOMMU.
const DRIVE: &str = "
for pci in /sys/bus/pci/devices/*; do
    case $(cat $pci/vendor)$(cat $pci/device) in
        0x1b360x000d) at=$(basename $pci) ;;
        0x1b360x000c) memory=$(basename $pci) ;;
    esac
done
if grep -q intel_iommu /proc/cmdline; then
    echo vfio-pci >/sys/bus/pci/devices/$at/driver_override
    echo $at >/sys/bus/pci/drivers_probe
    for header in 0 12; do published vfio $at $memory $header || exit 1; done
    exit
fi
for header in 0 12; do published sysfs $at $memory $header || exit 1; done
";

/// Runs the driver in a guest of a port with those options. Returns what it says.
fn drive(options: &str, iommu: bool) -> Option<String> {
    let image = image()?;
    let up = Up::start(&[]);
    let socket = port(&up, "two", options);
    let _echo = Echo::start(&up, "vale0:echo");
    let program = driver(up.dir());
    let more = ["-device", "intel-iommu,intremap=on,caching-mode=on"].map(String::from);
    let nic = Nic { vfio_user: true, ..Nic::new(&socket) };
    let with_iommu = Nic { more: &more, machine: ",kernel-irqchip=split", kernel: " intel_iommu=on", ..nic };
    let nic = Nic { vfio_user: true, ..Nic::new(&socket) };
    let nic = if iommu { with_iommu } else { nic };
    let shown = Guest::start_with(image, DRIVE, 2, &nic, &[(&program, "/bin/published")]).end();
    no_complaints(&shown);
    until("the port is free", || up.show("vale0:two")["notes"].to_string().contains("waits for a virtual machine"));
    Some(shown)
}

/// Objective: loaded, opened, closed, opened again and loaded anew, with a header and without, the devices carry frames of one slot and of several both
/// ways from the first time on, with the status blocks at physical addresses.
#[test]
fn in_the_drivers_order() {
    let _one = ONE.lock();
    let Some(shown) = drive("--vfio-user --vnet-hdr --slots 64", false) else { return };
    for header in [0, 12] {
        assert!(shown.contains(&format!("exchanged with a header of {header}, 1 rings, polling")), "{shown}");
    }
}

/// Objective: the same with two queues behind an IOMMU, woken by the devices' own interrupts.
#[test]
fn interrupted() {
    let _one = ONE.lock();
    let Some(shown) = drive("--vfio-user --vnet-hdr --rings 2", true) else { return };
    for header in [0, 12] {
        assert!(shown.contains(&format!("exchanged with a header of {header}, 2 rings, interrupted")), "{shown}");
    }
}
