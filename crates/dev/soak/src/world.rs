//! The environment of a soak: two daemons, folders, and everything that is set up once for all their lives.

use std::path::{Path, PathBuf};

use netvale::{Options, Port};
use netvale_harness::daemon::scratch;
use netvale_harness::net::{cable, ip};
use tempfile::TempDir;

use crate::ends::{PairEnd, RingsEnd, Wrap, station};
use crate::machine::MachineProbe;
use crate::netvale::Netvale;
use crate::replayed;

/// The switch that attackers may use.
pub const ATTACKED: &str = "vale0";
/// The tunnel on [`ATTACKED`].
pub const ATTACKED_TUNNEL: &str = "xvxlan";
/// Station numbers of the bystanders on [`ATTACKED`], for [`station`].
pub const TARGETS: [u8; 2] = [1, 2];
/// The veth pair whose ends are attached as interfaces.
pub const CABLE: [&str; 2] = ["nvsoak0", "nvsoak1"];
/// Addresses of the bystanders' VTEPs. The addresses of all VTEPs are on the loopback interface.
pub const VTEPS: [&str; 2] = ["127.0.0.11", "127.0.0.12"];
/// Address of the attacked VTEP.
pub const ATTACKED_VTEP: &str = "127.0.0.13";
/// Address of the attackers' VTEP.
pub const ATTACKING_VTEP: &str = "127.0.0.14";
/// VXLAN's UDP port (RFC 7348).
pub const VXLAN: u16 = 4789;
/// VNI of the attacked tunnel.
pub const ATTACKED_VNI: u32 = 13;
/// The first user ID of attackers that use the daemon's own sockets.
const ATTACKER: u32 = 70_001;

/// The daemons, and the files of the soak.
pub struct World {
    /// Most ports are on the first daemon; the second drives the virtio devices of the first daemon.
    pub daemons: [Netvale; 2],
    /// Captures, logs, and a copy of this program that all users can start.
    pub files: TempDir,
    /// The copy of this program, which is started for attackers.
    pub program: PathBuf,
    /// The first of the attackers' user IDs; `None` if this process cannot change its user.
    pub attacker: Option<u32>,
    /// Measures the machine's part of the daemons' time.
    pub machine: MachineProbe,
}

impl World {
    /// Starts both daemons.
    pub fn new(netvale: &Path) -> Result<World, String> {
        let files = scratch("soak-files").map_err(|e| e.to_string())?;
        let folder = files.path().to_owned();
        open_to_all(&folder)?;
        let program = folder.join("soak");
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        std::fs::copy(own, &program).map_err(|e| e.to_string())?;
        replayed::write(&folder.join(replayed::NAME))?;
        // VTEPs and local sockets use loopback; the ends of the veth pair are attached as interfaces.
        ip("link set lo up").map_err(|e| e.to_string())?;
        cable(CABLE[0], CABLE[1], 1).map_err(|e| e.to_string())?;
        let allowed = folder.display().to_string();
        let arguments = ["--workers", "2", "--share-switch", ATTACKED, "--socket-mode", "666", "--allow-dir", &allowed];
        let first = Netvale::start(netvale, &arguments, folder.join("first.log"))?;
        let other = first.dir().display().to_string();
        let second = Netvale::start(netvale, &["--workers", "1", "--allow-dir", &other], folder.join("second.log"))?;
        let attacker = rustix::process::geteuid().is_root().then_some(ATTACKER);
        let machine = MachineProbe::start().map_err(|e| e.to_string())?;
        let this = World { daemons: [first, second], files, program, attacker, machine };
        this.watch_over();
        Ok(this)
    }

    /// Sets the daemons whose time is measured.
    pub fn watch_over(&self) {
        self.machine.look_at(self.daemons.each_ref().map(|daemon| daemon.id()));
    }

    /// Returns the daemon that is attacked.
    pub fn first(&self) -> &Netvale {
        &self.daemons[0]
    }

    /// Returns the path of a file in the soak's folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Opens a port of a daemon.
    pub fn open(&self, daemon: usize, name: &str) -> Result<Port, String> {
        let options = Options { run_dir: Some(self.daemons[daemon].dir().into()), ..Options::default() };
        Port::open_with(name, &options).map_err(|e| format!("{name}: {e}"))
    }

    /// Opens a port of the first daemon as an end that sends from one station to another, and also sends `frame` in
    /// each turn.
    pub fn announcing(&self, name: &str, [from, to]: [u8; 2], frame: Vec<u8>) -> Result<Box<dyn PairEnd>, String> {
        Ok(RingsEnd::announcing(self.open(0, name)?, Wrap::ethernet(station(to), station(from)), frame))
    }

    /// Opens a port as an end that sends from one station to another.
    pub fn end(&self, daemon: usize, name: &str, from: u8, to: u8) -> Result<Box<dyn PairEnd>, String> {
        Ok(RingsEnd::of(self.open(daemon, name)?, Wrap::ethernet(station(to), station(from))))
    }
}

fn open_to_all(folder: &Path) -> Result<(), String> {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder, mode).map_err(|e| e.to_string())
}
