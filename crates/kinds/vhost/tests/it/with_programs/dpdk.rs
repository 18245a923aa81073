//! Tests with DPDK at the other end: all paths of DPDK's virtio-user driver on netvale's device, and DPDK's vhost
//! device with netvale's driver.

use crate::common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use common::{End, LIMIT, frame, give, take, until};
use netvale_vhost::frontend::BackEnd;
use netvale_vhost::port::{VhostMode, VhostOptions, VhostPort};
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;
use netvale_wire::offload::Offload;

/// Held by the test that runs testpmd: testpmd takes a whole core, so only one may run at a time.
static ONE: Mutex<()> = Mutex::new(());

/// testpmd with one port that echoes its frames, until dropped.
struct Testpmd(Child);

impl Testpmd {
    /// Starts testpmd. If testpmd is not installed, notes that the test is skipped, and returns `None`.
    fn start(dir: &Path, vdev: &str, simd: bool) -> Option<Testpmd> {
        let prefix = format!("netvale-{}-{}", std::process::id(), dir.file_name().unwrap_or_default().display());
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--lcores", "0@0,1@0", "--no-pci", "--no-huge", "-m", "256", "--no-telemetry", "--no-shconf"]);
        command.arg(format!("--file-prefix={prefix}")).arg("--vdev").arg(vdev);
        if simd {
            command.arg("--force-max-simd-bitwidth=512");
        }
        command.args([
            "--",
            "--forward-mode=io",
            "--no-mlockall",
            "--total-num-mbufs=4096",
            "--no-lsc-interrupt",
            "-a",
        ]);
        command.args(["--stats-period", "1000"]).current_dir(dir).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => Some(Testpmd(child)),
            Err(_) => {
                netvale_harness::skip("dpdk-testpmd is not installed");
                None
            }
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends frames and checks that they come back in order and unchanged. The other end may not be ready for the first
/// frames.
fn echo(end: &mut End) {
    let probe = vec![(frame(60, 77), Offload::None)];
    until("the first frame comes back", || {
        give(end, &probe);
        take(end, |_| ()) > 0
    });
    // Late echoes of the probe arrive before the echoes of the frames sent from here on.
    let frames: Vec<_> = (0..3000u32).map(|i| (frame(64 + (i as usize * 13) % 1400, i as u8), Offload::None)).collect();
    let mut sent = 0;
    let mut got = 0;
    let start = Instant::now();
    while got < frames.len() {
        assert!(start.elapsed() < LIMIT, "{sent} sent, {got} came back");
        // At most as many frames are in flight as the smallest ring holds.
        let to = frames.len().min(sent + 32).min(got + 128);
        if to > sent {
            sent += give(end, &frames[sent..to]);
        }
        take(end, |(bytes, _)| {
            if bytes != probe[0].0 {
                assert!(bytes == frames[got].0, "frame {got}");
                got += 1;
            }
        });
    }
}

/// Objective: each path of DPDK's driver works on netvale's device: mergeable, non-mergeable, in order, vector; split
/// and packed.
#[test]
fn virtio_user_on_our_device() {
    let _one = ONE.lock();
    let paths = [
        ("mrg_rxbuf=1,in_order=0", false),
        ("mrg_rxbuf=0,in_order=0", false),
        ("mrg_rxbuf=1,in_order=1", false),
        ("mrg_rxbuf=0,in_order=1", false),
        ("mrg_rxbuf=0,in_order=1,vectorized=1", true),
        ("packed_vq=1,mrg_rxbuf=1,in_order=0", false),
        ("packed_vq=1,mrg_rxbuf=0,in_order=0", false),
        ("packed_vq=1,mrg_rxbuf=1,in_order=1", false),
        ("packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1", true),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let options = VhostOptions { site: path.clone().into(), mode: VhostMode::Server, pairs: 1, mac: [2; 6], mtu: 1500 };
    let (device, queues) = VhostPort::new(&options).unwrap();
    let mut end = End::first(queues);
    for (flags, simd) in paths {
        let vdev = format!("net_virtio_user0,path={},{flags},queue_size=256", path.display());
        let Some(testpmd) = Testpmd::start(dir.path(), &vdev, simd) else { return };
        until(&format!("{flags}: queues run"), || device.state().now.queues == 2);
        echo(&mut end);
        drop(testpmd);
        until("it is gone", || !device.state().connected);
        assert_eq!(device.state().last_error, None, "{flags}");
    }
}

/// Objective: netvale's driver works on DPDK's device, in every combination of its options.
#[test]
fn our_driver_on_vhost() {
    let _one = ONE.lock();
    for bits in 0..16u8 {
        let on = |bit: u8| bits & bit != 0;
        let order = DriverOptions { in_order: on(8), vector: on(8), offloads: !on(8), ..DriverOptions::default() };
        let options = DriverOptions { packed: on(1), mergeable: on(2), event_idx: on(4), ..order };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let vdev = format!("net_vhost0,iface={}", path.display());
        let Some(_testpmd) = Testpmd::start(dir.path(), &vdev, false) else { return };
        let (driver, queues) = VirtioPort::new(BackEnd(path.into()), options).unwrap();
        let mut end = End::first(queues);
        until("the device runs", || driver.state().now.running);
        echo(&mut end);
        assert_eq!(driver.state().last_error, None, "{options:?}");
    }
}
