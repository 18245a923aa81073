//! The console: the state that commands change, and the switch that they change with it.

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

/// What is shown of a switch, and changes nothing.
#[derive(Debug)]
pub(super) struct ConsoleFacts {
    /// The folder of its sockets.
    pub folder: PathBuf,
    /// The daemon's run directory.
    pub run_dir: PathBuf,
    /// Permission bits of the control socket.
    pub mode: u32,
    /// The management socket, and its permission bits.
    pub mgmt: Option<(PathBuf, u32)>,
    /// Its own Ethernet address, and the priority of that.
    pub mac: Mac,
    /// The priority.
    pub priority: u32,
    /// When it began.
    pub begun: Instant,
    /// Entries of its table, and times of theirs.
    pub hash: HashNumbers,
}

/// Numbers of VDE's table of addresses. The switch has a table of its own, to which they mean nothing.
#[derive(Debug)]
pub(super) struct HashNumbers {
    pub size: i32,
    pub collected: i32,
    pub expires: i32,
    pub persists: i32,
}

/// A console.
#[derive(Debug)]
pub(super) struct VdeConsole {
    pub facts: ConsoleFacts,
    pub vlans: VlanTable,
    pub switch: VdeSwitch,
    /// Counters of ports when they were reset.
    pub since: BTreeMap<String, PortCounts>,
    /// Files that are being loaded, one by the other.
    pub loading: usize,
}

impl VdeConsole {
    /// Attaches the ports of a switch.
    pub(super) fn begin(place: &SwitchPlace, options: &VdeOptions) -> Result<VdeConsole, VdeFailure> {
        if options.ports > MOST_PORTS {
            super::say(format_args!("-n {}: the switch has {MOST_PORTS} ports, the most there can be", options.ports));
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

    /// The ports that there are by now. Plugs come and go without the console.
    pub(super) fn look(&mut self) -> Result<BTreeMap<u16, ShownPort>, VdeError> {
        let ports = self.switch.ports()?;
        let numbers: BTreeSet<u16> = ports.keys().copied().collect();
        self.vlans.keep(&numbers);
        Ok(ports)
    }

    /// Changes VLANs, and the policies that they are; all ports of which these differ, and new ones.
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

/// An address of its own, which begins as VDE's do.
fn own_address() -> Mac {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let number = clock.subsec_nanos() ^ std::process::id().rotate_left(16);
    let [a, b, c, d] = number.to_be_bytes();
    Mac([0, 0xff, a, b, c, d])
}
