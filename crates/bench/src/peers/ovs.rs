//! OVS-DPDK, learning switch (action NORMAL) between two vhost-user ports: the peer of a VALE switch.
//!
//! The switch's forwarding thread has the second CPU; on the first, one testpmd with two virtio-user ports sends each frame back
//! through the switch (`mac` mode, so that the switch sees the addresses it has learned). The figure is both directions together.
//! Database, sockets and logs lie in a folder of our own, and the daemon runs in a network namespace of its own, so that the system's
//! Open vSwitch is not touched and the taps OVS makes (`ovs-netdev`, `br0`) vanish with it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::case::Case;
use crate::contender::{Contender, Env, Session};
use crate::disturb::threads_named;
use crate::error::{BenchError, Result, Skip};
use crate::peers::dpdk::{DpdkSession, Part, burst};
use crate::peers::testpmd::{self, Place, Setup, Testpmd};
use crate::sys::child::{self, Child};
use crate::sys::need_program;
use crate::{crowd, interrupt, pin};

/// Debian keeps this build beside the one without DPDK, whichever of them `ovs-vswitchd` means.
const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const PACKAGE: &str = "openvswitch-switch-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Locally administered addresses of the two virtio-user ports.
const ADDRESSES: [&str; 2] = ["02:00:00:00:0a:01", "02:00:00:00:0a:02"];
/// Hugepages for the switch: 1 GiB holds its default pool of 256 Ki mbufs.
const SWITCH_PAGES: u64 = 512;
const START_LIMIT: Duration = Duration::from_secs(20);

/// The best burst of the ports' application; the switch itself works in bursts of 32. 32, 64 and 256 differ by 3 %.
const BEST_BURST: u32 = 64;

/// The peer, by the kind of virtqueue between switch and testpmd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ovs {
    /// Split ring, mergeable buffers.
    Mergeable,
    /// Split ring, mergeable buffers, in order.
    InOrder,
}

impl Contender for Ovs {
    fn name(&self) -> &str {
        match self {
            Self::Mergeable => "ovs-dpdk-mergeable",
            Self::InOrder => "ovs-dpdk",
        }
    }

    fn about(&self) -> &str {
        match self {
            Self::Mergeable => "OVS-DPDK L2 switch, two vhost-user ports, split mergeable; both directions",
            Self::InOrder => {
                "OVS-DPDK L2 switch, two vhost-user ports, split in-order (best with short frames); both directions"
            }
        }
    }

    fn fits(&self, case: &Case) -> bool {
        // Between guests, each kind has cases of its own.
        let guests = if case.variant == "in-order" { Self::InOrder } else { Self::Mergeable };
        let crowded = *self == Self::InOrder && case.is_crowded("switch");
        case.is_across_a_switch() || (case.scenario == "guests" && *self == guests) || crowded
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        testpmd::available(env, 2)?;
        need_program("ovsdb-server", PACKAGE)?;
        if Path::new(VSWITCHD).is_file() {
            Ok(())
        } else {
            Err(Skip::NotInstalled { program: "ovs-vswitchd-dpdk", package: PACKAGE })
        }
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (ports_core, switch_core) = env.two_cores()?;
        let place = Place::new(1, SWITCH_PAGES)?;
        let pinned = case.foreign.is_none();
        let switch = Switch::start(&place, pinned.then_some((ports_core, switch_core)))?;
        if case.is_secured() {
            secure(&place)?;
        }
        let mut process = self.ports(case, ports_core, &place)?;
        if !pinned {
            pin::release(process.pid())?;
        }
        process.command("start tx_first 16")?;
        let session = DpdkSession {
            processes: vec![process],
            others: vec![Box::new(switch)],
            keep: Box::new(place),
            name: self.name().to_owned(),
            unit: case.unit,
            frame_bytes: case.frame_bytes,
            cores: if pinned {
                format!("switch {switch_core}, both ports' application {ports_core}")
            } else {
                "switch pinned by OVS itself, both ports' application polls, not pinned".into()
            },
            touched: true,
            context: vec![("peer_burst".into(), burst(case, BEST_BURST).to_string())],
        };
        crowd::beside(case, Box::new(session.settled()?))
    }
}

impl Ovs {
    /// The application with both ports, at the sockets `v0` and `v1` of the place.
    pub(crate) fn ports(self, case: &Case, core: usize, place: &Place) -> Result<Testpmd> {
        let in_order = u8::from(self == Self::InOrder);
        let device = |index: usize, address: &str| {
            format!(
                "net_virtio_user{index},path={},mac={address},mrg_rxbuf=1,in_order={in_order}",
                place.file(&format!("v{index}"))
            )
        };
        let [first, second] = ADDRESSES;
        let setup = Setup {
            name: "ports",
            cores: &[core],
            vdevs: &[device(0, first), device(1, second)],
            single_file: true,
            forward: "mac",
            frame_bytes: case.frame_bytes,
            burst: burst(case, BEST_BURST),
            more: &[format!("--eth-peer=0,{second}"), format!("--eth-peer=1,{first}")],
            eal: &[],
        };
        Testpmd::start(&setup, place)
    }
}

/// Database server and switch daemon.
struct Switch {
    daemon: Child,
    database: Child,
}

impl Switch {
    /// Main thread and forwarding thread run on `cores`, or where OVS puts them.
    fn start(place: &Place, cores: Option<(usize, usize)>) -> Result<Self> {
        let folder = place.path();
        let database_file = place.file("conf.db");
        child::run(Command::new("ovsdb-tool").args(["create", &database_file, SCHEMA]))?;
        let mut command = inside(folder, "ovsdb-server");
        command.arg(format!("--remote=punix:{}", place.file("db.sock")));
        command.arg(format!("--unixctl={}", place.file("db.ctl"))).arg(&database_file);
        let database = Child::spawn(command, &folder.join("ovsdb.log"))?;
        wait_for(&folder.join("db.sock"), "ovsdb-server")?;
        configure(place, cores)?;
        let mut command = inside(folder, "unshare");
        command.args(["--net", VSWITCHD, &format!("unix:{}", place.file("db.sock"))]);
        command.arg(format!("--unixctl={}", place.file("switch.ctl")));
        let daemon = Child::spawn(command, &folder.join("vswitchd.log"))?;
        let this = Self { daemon, database };
        this.add_ports(place)?;
        Ok(this)
    }

    fn add_ports(&self, place: &Place) -> Result<()> {
        let words = "--timeout=30 add-br br0 -- set bridge br0 datapath_type=netdev \
             -- add-port br0 v0 -- set Interface v0 type=dpdkvhostuser \
             -- add-port br0 v1 -- set Interface v1 type=dpdkvhostuser";
        control(place, words.split_whitespace()).map_err(|error| {
            let log = std::fs::read_to_string(place.path().join("vswitchd.log")).unwrap_or_default();
            BenchError::Failed {
                program: VSWITCHD.into(),
                status: error.to_string(),
                output: child::tail(&log).to_owned(),
            }
        })?;
        wait_for(&place.path().join("v0"), VSWITCHD)?;
        wait_for(&place.path().join("v1"), VSWITCHD)
    }
}

impl Part for Switch {
    fn pids(&self) -> Vec<u32> {
        vec![self.daemon.pid(), self.database.pid()]
    }

    fn threads(&self) -> Vec<(u32, u32)> {
        threads_named(self.daemon.pid(), &["pmd"])
    }

    fn freeze(&self) -> Result<()> {
        self.daemon.freeze()
    }

    fn thaw(&self) -> Result<()> {
        self.daemon.thaw()
    }
}

/// A command that keeps all of Open vSwitch's files in `folder`.
fn inside(folder: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    for name in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"] {
        command.env(name, folder);
    }
    command
}

fn control<'a>(place: &Place, words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut command = inside(place.path(), "ovs-vsctl");
    command.arg(format!("--db=unix:{}", place.file("db.sock"))).args(words);
    child::run(&mut command).map(drop)
}

/// Puts both ports into a VLAN, and takes frames from each from its own address only.
fn secure(place: &Place) -> Result<()> {
    control(place, ["set", "port", "v0", "tag=10", "--", "set", "port", "v1", "tag=10"])?;
    let flow = |words: &str| {
        let mut command = inside(place.path(), "ovs-ofctl");
        child::run(command.args(["add-flow", "br0", words])).map(drop)
    };
    flow("priority=0,actions=drop")?;
    let [first, second] = ADDRESSES;
    flow(&format!("priority=10,in_port=v0,dl_src={first},actions=normal"))?;
    flow(&format!("priority=10,in_port=v1,dl_src={second},actions=normal"))
}

fn configure(place: &Place, cores: Option<(usize, usize)>) -> Result<()> {
    let extra = format!(
        "other_config:dpdk-extra=--no-pci --no-telemetry --file-prefix=switch --huge-dir={}",
        place.file("huge")
    );
    let mask = |name: &str, core: usize| format!("other_config:{name}={:#x}", 1u64 << (core % 64));
    let masks = cores.map(|(main, forwarding)| [mask("dpdk-lcore-mask", main), mask("pmd-cpu-mask", forwarding)]);
    let masks = masks.iter().flatten().map(String::as_str);
    let memory = format!("other_config:dpdk-socket-mem={}", SWITCH_PAGES * 2);
    let fixed = ["--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true"];
    let quiet = ["other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1"];
    control(place, ["--no-wait", "init"])?;
    control(place, fixed.into_iter().chain([&*extra, &*memory]).chain(masks).chain(quiet))
}

fn wait_for(file: &Path, program: &str) -> Result<()> {
    interrupt::poll_until(START_LIMIT, || Ok(file.exists().then_some(())))?.ok_or_else(|| BenchError::Silent {
        program: program.to_owned(),
        wanted: file.display().to_string(),
        limit: START_LIMIT,
        output: String::new(),
    })
}
