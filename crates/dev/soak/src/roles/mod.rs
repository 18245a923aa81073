//! Attackers: processes of this program that misbehave until they are killed or end by themselves.
//!
//! | module | who |
//! |---|---|
//! | [`programs`] | programs with ports |
//! | [`slow`] | users who make their own resources slow |
//! | [`strangers`] | clients without a port |
//! | [`machines`] | hypervisors and guests |
//! | [`vmm`] | a front end that writes arbitrary values into its virtqueues |
//! | `vteps` | remote ends of tunnels, and strangers that send to the tunnels' sockets |

mod machines;
mod programs;
mod slow;
mod strangers;
mod vmm;
mod vteps;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale::{Error, Options, Port};
use netvale_harness::attacks::bells;

use crate::rng::Rng;

/// What an attacker prints once its attack takes hold.
pub const UP: &str = "up";

/// The work of an attacker.
pub type AttackFn = fn(&mut Attacker) -> Result<(), String>;

/// A kind of attacker: a row of the table [`ROLES`].
pub struct AttackerRole {
    /// The role's name, in the report and on the command line.
    pub name: &'static str,
    /// The attack.
    pub act: AttackFn,
    /// The device at whose socket the attacker acts as a virtual machine, for which the attacker must run as the
    /// daemon's own user; `None`: the attacker acts as a program.
    pub device: Option<&'static str>,
}

const fn program(name: &'static str, act: AttackFn) -> AttackerRole {
    AttackerRole { name, act, device: None }
}

const fn machine(name: &'static str, act: AttackFn, device: &'static str) -> AttackerRole {
    AttackerRole { name, act, device: Some(device) }
}

/// All roles.
pub const ROLES: &[AttackerRole] = &[
    program("client that floods", programs::floods),
    program("client that never reads", programs::never_reads),
    program("client that opens and closes", programs::opens_and_closes),
    program("client with nonsense in its memory", programs::scribbles),
    program("client with an unfinished frame", programs::unfinished),
    program("client that blocks its wake-up", programs::blocks),
    program("client that rings without frames", programs::rings),
    program("pipe that floods", programs::pipes),
    program("extmem cut short", programs::cuts_short),
    program("extmem with holes", programs::punches_holes),
    program("client with a slow hole in its memory", slow::makes_holes),
    program("client with a wake-up that many watch", slow::is_watched),
    program("client with long rules", slow::has_rules),
    program("TAP that many sockets hear", slow::is_heard),
    program("noise on control", strangers::noise_on_control),
    program("noise on attach", strangers::noise_on_attach),
    program("refused requests", strangers::refused),
    program("connections", strangers::connections),
    program("descriptors that linger", strangers::lingers),
    program("VTEP that floods", vteps::floods),
    program("VTEP with nonsense in its datagrams", vteps::nonsense),
    machine("vhost: guest that floods", machines::floods_vhost, "vhost"),
    machine("vhost: nonsense in the rings", vmm::scribbles, "vhost"),
    machine("vhost: memory cut short", vmm::cuts_short, "vhost"),
    machine("vhost: memory with holes", vmm::punches_holes, "vhost"),
    machine("vhost: noise", machines::noise, "vhost"),
    machine("ptnet: guest that floods", machines::floods_ptnet, "ptnet"),
    machine("ptnet: nonsense in its memory", machines::scribbles_ptnet, "ptnet"),
    machine("ptnet: starts and stops", machines::restarts_ptnet, "ptnet"),
    machine("e1000: guest that floods", machines::floods_e1000, "e1000"),
    machine("e1000: nonsense in the registers", machines::scribbles_e1000, "e1000"),
    machine("e1000: memory with holes", machines::punches_e1000, "e1000"),
    machine("e1000: noise", machines::noise, "e1000"),
];

/// An attacker's state.
pub struct Attacker {
    /// The daemon's run directory.
    pub dir: PathBuf,
    /// The socket of the attacked device.
    pub socket: PathBuf,
    /// The attacker's name, from which the names of its ports are made.
    pub name: String,
    /// Source of the attacker's random choices.
    pub rng: Rng,
    end: Instant,
    is_up: bool,
}

/// Returns the socket for attackers' machines in the daemon's folder.
pub fn socket(dir: &Path, device: &str) -> PathBuf {
    dir.join(format!("attacked-{device}.sock"))
}

/// The name of an attacker's own interface.
const TAPPED: &str = "nvsoakx";

/// Returns the name of the TAP port that an attacker's process attached. The port stays after the process has ended.
pub fn tap_of(process: u32) -> String {
    format!("x{process}t")
}

impl Attacker {
    /// Creates an attacker from a seed, which ends by itself after `life`.
    pub fn new(dir: &Path, device: Option<&str>, seed: u64, life: Duration) -> Attacker {
        let socket = socket(dir, device.unwrap_or_default());
        let name = format!("x{}", std::process::id());
        Attacker { dir: dir.into(), socket, name, rng: Rng::new(seed), end: Instant::now() + life, is_up: false }
    }

    /// Reports at the first call that the attack takes hold; later calls do nothing.
    pub fn is_up(&mut self) {
        if !std::mem::replace(&mut self.is_up, true) {
            println!("{UP}");
            // The reader may be gone already.
            let _ = std::io::stdout().flush();
        }
    }

    /// Returns whether there is time left.
    pub fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    /// Returns the full name of the attacker's own port, on the switch that all users may use.
    pub fn own_port(&self) -> String {
        format!("{}:{}", crate::world::ATTACKED, self.name)
    }

    /// Returns the name of the attacker's TAP port on the switch that all users may use.
    pub fn tap(&self) -> String {
        tap_of(std::process::id())
    }

    /// Opens a port.
    pub fn open(&self, name: &str) -> Result<Port, Error> {
        let slots = 64;
        Port::open_with(name, &Options { run_dir: Some(self.dir.clone()), slots, ..Options::default() })
    }

    /// Returns a frame to a bystander, to the broadcast address or to an unknown address, from one of many stations.
    pub fn frame(&mut self) -> Vec<u8> {
        let len = 60 + self.rng.index(1400);
        let mut frame = self.rng.bytes(len);
        let to = match self.rng.below(4) {
            0 => [0xff; 6],
            1 => [2, 0x66, 0, 0, 0, self.rng.word() as u8],
            _ => crate::ends::station(crate::world::TARGETS[self.rng.index(2)]),
        };
        frame[..6].copy_from_slice(&to);
        let station = self.rng.below(64) as u8;
        frame[6..12].copy_from_slice(&[2, 0x77, 0, 0, std::process::id() as u8, station]);
        frame
    }
}

/// Runs the role with the given name until the attack or `life` ends.
pub fn play(name: &str, dir: &Path, seed: u64, life: Duration) -> Result<(), String> {
    let role = ROLES.iter().find(|role| role.name == name).ok_or("there is no such role")?;
    (role.act)(&mut Attacker::new(dir, role.device, seed, life))
}

/// Pauses briefly, so that the effect of an attack is not only the load on the CPUs.
fn pause() {
    std::thread::sleep(Duration::from_micros(200));
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Returns copies of the descriptors of all doorbells of this process: doorbells that it rings and doorbells on which
/// it waits.
fn own_bells() -> rustix::io::Result<Vec<OwnedFd>> {
    bells::copies(bells::numbers())
}

fn ring_all(bells: &[OwnedFd]) {
    for bell in bells {
        // Writing fails only if the doorbell is full or closed.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}
