//! Code common to tests of the devices that netmap published.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netvale::{Interest, Options, Port};

use crate::common;

/// Returns all frames to their senders, in a thread of its own, until dropped.
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Opens a port and starts echoing.
    pub fn start(run_dir: &Path, name: &str) -> Echo {
        let options = Options { run_dir: Some(run_dir.into()), ..Options::default() };
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
                    // Frames of other types, which the machine's stack may send, are not returned.
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
