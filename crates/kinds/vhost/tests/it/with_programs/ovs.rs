//! A test with OVS-DPDK as the back end of netvale's driver: two netvale ports are connected to its switch.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{End, frame, give, take, until};
use netvale_vhost::frontend::BackEnd;
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;
use netvale_wire::offload::Offload;

/// Debian installs this build in addition to the build without DPDK.
const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// An OVS-DPDK switch with two vhost-user ports, whose sockets are `v0` and `v1` in its folder. All other files of the
/// switch are in this folder, too, and its interfaces are in their own network namespace.
struct Ovs {
    children: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Ovs {
    fn start() -> Ovs {
        let mut ovs = Ovs { children: Vec::new(), dir: tempfile::tempdir().unwrap() };
        let db = ovs.file("conf.db");
        let socket = format!("unix:{}", ovs.file("db.sock").display());
        run(ovs.inside("ovsdb-tool").arg("create").arg(&db).arg(SCHEMA));
        let mut database = ovs.inside("ovsdb-server");
        database.arg(format!("--remote=p{socket}")).arg(format!("--unixctl={}", ovs.file("db.ctl").display())).arg(&db);
        ovs.keep(&mut database);
        until("the database listens", || ovs.file("db.sock").exists());
        let memory = "other_config:dpdk-extra=--no-pci --no-huge --legacy-mem -m 2048 --no-telemetry --no-shconf";
        ovs.control(&["--no-wait", "init"]);
        ovs.control(&["--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true", memory]);
        ovs.control(&["--no-wait", "set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=0x1"]);
        let mut switch = ovs.inside("unshare");
        switch.args(["--net", VSWITCHD, &socket]).arg(format!("--unixctl={}", ovs.file("switch.ctl").display()));
        let log = std::fs::File::create(ovs.file("log")).unwrap();
        ovs.keep(switch.stderr(log));
        let ports = "--timeout=60 add-br br0 -- set bridge br0 datapath_type=netdev \
             -- add-port br0 v0 -- set Interface v0 type=dpdkvhostuser \
             -- add-port br0 v1 -- set Interface v1 type=dpdkvhostuser";
        ovs.control(&ports.split_whitespace().collect::<Vec<_>>());
        until("the ports listen", || ovs.file("v0").exists() && ovs.file("v1").exists());
        ovs
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a command that makes a program of Open vSwitch keep all its files in the folder.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for name in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"] {
            command.env(name, self.dir.path());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn keep(&mut self, command: &mut Command) {
        self.children.push(command.spawn().expect("it starts"));
    }

    fn control(&self, words: &[&str]) {
        run(self.inside("ovs-vsctl").arg(format!("--db=unix:{}", self.file("db.sock").display())).args(words));
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn run(command: &mut Command) {
    let status = command.status().expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
}

/// An Ethernet frame of `len` bytes between two stations.
fn between(to: u8, from: u8, len: usize, seed: u8) -> (Vec<u8>, Offload) {
    let mut bytes = frame(len, seed);
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    (bytes, Offload::None)
}

/// Time after which a frame counts as lost.
const LOST: Duration = Duration::from_secs(3);

/// Sends frames through the switch, each chunk only once the previous chunk has arrived, because the switch drops
/// frames for which its queue has no room. Late copies of `hello` are ignored.
fn pass(from: &End, to: &mut End, frames: &[(Vec<u8>, Offload)], hello: &(Vec<u8>, Offload)) {
    for chunk in frames.chunks(64) {
        let mut sent = 0;
        let mut got = Vec::new();
        let mut begun = Instant::now();
        until("all arrive", || {
            if begun.elapsed() > LOST {
                // The switch drops frames while it changes its flows, so the chunk is sent again.
                sent = 0;
                begun = Instant::now();
                got.clear();
            }
            sent += give(from, &chunk[sent..]);
            take(to, |frame| got.extend((frame != *hello).then_some(frame)));
            got.len() == chunk.len()
        });
        assert!(got == chunk);
    }
}

/// Objective: netvale's driver works on OVS-DPDK's ports: frames pass between two ports through the switch, which
/// learns the port of each station.
#[test]
fn our_driver_on_ovs() {
    if !Path::new(VSWITCHD).exists() {
        netvale_harness::skip("openvswitch-switch-dpdk is not installed");
        return;
    }
    let ovs = Ovs::start();
    let port = |name: &str| {
        let (port, queues) = VirtioPort::new(BackEnd(ovs.file(name).into()), DriverOptions::default()).unwrap();
        (port, End::first(queues))
    };
    let (one, mut one_end) = port("v0");
    let (two, mut two_end) = port("v1");
    until("both run", || one.state().now.running && two.state().now.running);
    // The switch needs a while before it forwards frames. Once a first frame has passed in each direction, the switch
    // has learned both stations.
    let hello = |to, from| between(to, from, 60, 7);
    until("the first frame passes", || {
        give(&one_end, &[hello(2, 1)]);
        take(&mut two_end, |_| ()) > 0
    });
    until("and one back", || {
        give(&two_end, &[hello(1, 2)]);
        take(&mut one_end, |_| ()) > 0
    });
    let frames: Vec<_> = (0..2000u32).map(|i| between(2, 1, 64 + (i as usize * 7) % 1400, i as u8)).collect();
    pass(&one_end, &mut two_end, &frames, &hello(2, 1));
    let back: Vec<_> = (0..2000u32).map(|i| between(1, 2, 64 + (i as usize * 7) % 1400, i as u8)).collect();
    pass(&two_end, &mut one_end, &back, &hello(1, 2));
    assert_eq!((one.state().last_error, two.state().last_error), (None, None));
}
