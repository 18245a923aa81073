//! The console: the state that commands change, and a client of the switch, to which the console applies the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use netvale_control::types::Mac;

use super::VdeFailure;
use super::answers::VdeError;
use super::options::{MOST_PORTS, VdeOptions};
use super::place::SwitchPlace;
use super::switch::{PortCounts, ShownPort, VdeSwitch};
use super::vlans::VlanTable;

/// Values that commands print but that do not affect forwarding.
#[derive(Debug)]
pub(super) struct ConsoleFacts {
    /// The folder of the switch's sockets.
    pub folder: PathBuf,
    /// The daemon's run directory.
    pub run_dir: PathBuf,
    /// Permission bits of the control socket.
    pub mode: u32,
    /// The management socket's path and permission bits; `None` if there is no management socket.
    pub mgmt: Option<(PathBuf, u32)>,
    /// The switch's own Ethernet address.
    pub mac: Mac,
    /// The switch's spanning-tree priority.
    pub priority: u32,
    /// When the console started.
    pub begun: Instant,
    /// Parameters of VDE's hash table of addresses.
    pub hash: HashNumbers,
}

/// Parameters of VDE's hash table of addresses: its size, and the garbage collection interval, expiry and minimum
/// persistence in seconds. Commands only set and print these parameters; they do not affect the daemon's table of
/// addresses.
#[derive(Debug)]
pub(super) struct HashNumbers {
    pub size: i32,
    pub collected: i32,
    pub expires: i32,
    pub persists: i32,
}

/// The console of a switch: the state of VDE's commands.
#[derive(Debug)]
pub(super) struct VdeConsole {
    pub facts: ConsoleFacts,
    pub vlans: VlanTable,
    pub switch: VdeSwitch,
    /// The values that the ports' counters had at the last `port/resetcounter`, by the ports' full names.
    pub since: BTreeMap<String, PortCounts>,
    /// Nesting depth of `load`: the number of files that are being loaded, each by a command in another file.
    pub loading: usize,
}

impl VdeConsole {
    /// Attaches the `vde:` port and the TAPs to the daemon's switch, and creates its console.
    pub(super) fn begin(place: &SwitchPlace, options: &VdeOptions) -> Result<VdeConsole, VdeFailure> {
        if options.ports > MOST_PORTS {
            super::say(format_args!("-n {}: the switch has {MOST_PORTS} ports, the maximum", options.ports));
        }
        let mut vlans = VlanTable::new(options.ports.min(MOST_PORTS));
        vlans.is_hub = options.hub;
        vlans.is_guarded = options.fstp;
        let switch = VdeSwitch::begin(&place.run_dir, &place.folder, options, &vlans.usual())?;
        let hash = HashNumbers {
            size: i32::try_from(options.hashsize.next_power_of_two()).unwrap_or(i32::MAX),
            collected: 2,
            expires: 100,
            persists: 3,
        };
        let facts = ConsoleFacts {
            folder: place.folder.clone(),
            run_dir: place.run_dir.clone(),
            mode: options.mode,
            mgmt: None,
            mac: options.mac.unwrap_or_else(own_address),
            priority: options.priority,
            begun: Instant::now(),
            hash,
        };
        Ok(VdeConsole { facts, vlans, switch, since: BTreeMap::new(), loading: 0 })
    }

    /// Returns the ports that exist now, and updates the table of VLANs: plugs can create and remove ports without
    /// notice to the console.
    pub(super) fn look(&mut self) -> Result<BTreeMap<u16, ShownPort>, VdeError> {
        let ports = self.switch.ports()?;
        let numbers: BTreeSet<u16> = ports.keys().copied().collect();
        self.vlans.keep(&numbers);
        Ok(ports)
    }

    /// Applies `change` to the table of VLANs, and updates the policies of the ports that the change affects and of new
    /// ports. If a policy cannot be set, the table stays unchanged.
    pub(super) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut VlanTable) -> Result<T, VdeError>,
    ) -> Result<T, VdeError> {
        let ports = self.look()?;
        let mut new = self.vlans.clone();
        let done = change(&mut new)?;
        if new.usual() != self.vlans.usual() {
            self.switch.set_usual(new.usual())?;
        }
        for (number, vlans) in new.ports() {
            let before = self.vlans.ports().get(number).map(|vlans| self.vlans.policies(vlans));
            let policies = new.policies(vlans);
            if let Some(port) = ports.get(number).filter(|_| before.as_ref() != Some(&policies)) {
                self.switch.set(&port.name, policies)?;
            }
        }
        self.vlans = new;
        Ok(done)
    }
}

/// Returns an Ethernet address that is derived from the clock and the process ID, with VDE's prefix 00:ff.
fn own_address() -> Mac {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let number = clock.subsec_nanos() ^ std::process::id().rotate_left(16);
    let [a, b, c, d] = number.to_be_bytes();
    Mac([0, 0xff, a, b, c, d])
}
