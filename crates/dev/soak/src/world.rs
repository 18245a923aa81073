//! The environment of a soak: two daemons, folders, and everything set up once for all their lives.

use std::path::{Path, PathBuf};

use netvale::{Options, Port};
use netvale_harness::daemon::scratch;
use netvale_harness::net::{cable, ip};
use tempfile::TempDir;

use crate::ends::{End, Rings, Wrap, station};
use crate::machine::Machinery;
use crate::netvale::Netvale;
use crate::replayed;

/// The switch that attackers may use.
pub const ATTACKED: &str = "vale0";
/// The tunnel on it.
pub const ATTACKED_TUNNEL: &str = "xvxlan";
/// Addresses of the bystanders on it.
pub const TARGETS: [u8; 2] = [1, 2];
/// The cable whose ends interfaces are attached to.
pub const CABLE: [&str; 2] = ["nvsoak0", "nvsoak1"];
/// Addresses of the bystanders' VTEPs, of the attacked one, and of the attackers', all on the loopback interface.
pub const VTEPS: [&str; 2] = ["127.0.0.11", "127.0.0.12"];
/// See [`VTEPS`].
pub const ATTACKED_VTEP: &str = "127.0.0.13";
/// See [`VTEPS`].
pub const ATTACKING_VTEP: &str = "127.0.0.14";
/// VXLAN's port (RFC 7348), and the attacked tunnel's VNI.
pub const VXLAN: u16 = 4789;
/// See [`VXLAN`].
pub const ATTACKED_VNI: u32 = 13;
/// The user that attacks over the daemon's own sockets.
const ATTACKER: u32 = 70_001;

/// Daemons and files.
pub struct World {
    /// Most ports are on the first; the second one drives the first one's virtio devices.
    pub daemons: [Netvale; 2],
    /// Captures, logs, and a copy of this program that users can start.
    pub files: TempDir,
    /// This program, for roles.
    pub program: PathBuf,
    /// The attackers' user, if this process can change users.
    pub attacker: Option<u32>,
    /// Measures the machine's part of the daemons' time.
    pub machine: Machinery,
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
        // Loopback, for sockets that linger, and the cable.
        ip("link set lo up").map_err(|e| e.to_string())?;
        cable(CABLE[0], CABLE[1], 1).map_err(|e| e.to_string())?;
        let allowed = folder.display().to_string();
        let arguments = ["--workers", "2", "--share-switch", ATTACKED, "--socket-mode", "666", "--allow-dir", &allowed];
        let first = Netvale::start(netvale, &arguments, folder.join("first.log"))?;
        let other = first.dir().display().to_string();
        let second = Netvale::start(netvale, &["--workers", "1", "--allow-dir", &other], folder.join("second.log"))?;
        let attacker = rustix::process::geteuid().is_root().then_some(ATTACKER);
        let machine = Machinery::start().map_err(|e| e.to_string())?;
        let this = World { daemons: [first, second], files, program, attacker, machine };
        this.watch_over();
        Ok(this)
    }

    /// Names the current daemons to the machinery.
    pub fn watch_over(&self) {
        self.machine.look_at(self.daemons.each_ref().map(|daemon| daemon.id()));
    }

    /// The daemon that is attacked.
    pub fn first(&self) -> &Netvale {
        &self.daemons[0]
    }

    /// A file beside the captures.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Opens a port of a daemon.
    pub fn open(&self, daemon: usize, name: &str) -> Result<Port, String> {
        let options = Options { run_dir: Some(self.daemons[daemon].dir().into()), ..Options::default() };
        Port::open_with(name, &options).map_err(|e| format!("{name}: {e}"))
    }

    /// As [`World::open`], on the first daemon, for an end that also sends that frame in each turn.
    pub fn announcing(&self, name: &str, [from, to]: [u8; 2], frame: Vec<u8>) -> Result<Box<dyn End>, String> {
        Ok(Rings::announcing(self.open(0, name)?, Wrap::ethernet(station(to), station(from)), frame))
    }

    /// A port as an end that sends from one station to another.
    pub fn end(&self, daemon: usize, name: &str, (from, to): (u8, u8)) -> Result<Box<dyn End>, String> {
        Ok(Rings::of(self.open(daemon, name)?, Wrap::ethernet(station(to), station(from))))
    }
}

fn open_to_all(folder: &Path) -> Result<(), String> {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder, mode).map_err(|e| e.to_string())
}
