//! Code common to tests of the devices that netmap published.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common;
use crate::common::responder::PortThread;

/// Script that finds the device (`at`) and the memory device (`memory`).
pub const FIND: &str = "
for pci in /sys/bus/pci/devices/*; do
    case $(cat $pci/vendor)$(cat $pci/device) in
        0x1b360x000d) at=$(basename $pci) ;;
        0x1b360x000c) memory=$(basename $pci) ;;
    esac
done
";

/// Starts a thread that opens a port, and returns frames of EtherType 0x88b5 to their senders.
pub fn echo(run_dir: &Path, name: &str) -> PortThread {
    PortThread::start(run_dir, name, |port| {
        let mut frame = [0; 65_536];
        while let Some(n) = port.rx()[0].recv(&mut frame) {
            frame.copy_within(6..12, 0);
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xec]);
            // Frames of other types, which the machine's stack may send, are not returned.
            if frame[12..14] == [0x88, 0xb5] {
                port.tx()[0].send_now(&frame[..n], Duration::from_secs(1));
            }
        }
        let _ = port.rx()[0].sync();
    })
}

/// Compiles the driver of the published devices (tests/guest/published.c) as a static program, which needs no libraries
/// in the guest.
pub fn driver(into: &Path) -> PathBuf {
    let program = into.join("published");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(netvale_system_tests::root().join("crates/programs/capi/include"))
        .arg(netvale_system_tests::root().join("crates/dev/system-tests/tests/guest/published.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{}", common::stderr(&output));
    program
}
