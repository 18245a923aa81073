//! What the daemon has: its registries, and what they call the thing behind a port.

use std::any::Any;

use netvale_control::types::{Direction, PortInfo, PortKind};
use netvale_ptnet::keep::Kept;

use crate::config::Config;
use crate::registry::captures::Captures;
use crate::registry::evictions::Evictions;
use crate::registry::guests::Guests;
use crate::registry::interfaces::Interfaces;
use crate::registry::mirrors::Mirrors;
use crate::registry::persistent::PersistentPorts;
use crate::registry::pipes::Pipes;
use crate::registry::ports::{PortRecord, Ports};
use crate::registry::regions::Regions;
use crate::registry::switches::Switches;
use crate::registry::watches::Watches;
use crate::registry::workers::Workers;
use crate::rings::local::LocalPort;
use crate::rings::switched::Rings;
use crate::system::keep;

/// Everything the daemon has. Each registry answers for its own map; what takes several of them is a function of `ports` or `api`.
pub struct Daemon {
    /// What it runs with.
    pub config: Config,
    /// Its worker threads.
    pub workers: Workers,
    /// Its switches.
    pub switches: Switches,
    /// Memory that programs map.
    pub regions: Regions,
    /// Ports, by full name.
    pub ports: Ports<dyn Attached>,
    /// Ports that stay, on a switch or not.
    pub persistent: PersistentPorts,
    /// Pipes between programs.
    pub pipes: Pipes,
    /// Network interfaces.
    pub interfaces: Interfaces,
    /// ptnet devices of the virtual machine that we run in.
    pub guests: Guests,
    /// Which monitor watches what.
    pub watches: Watches,
    /// Copies for monitors of what passes without the daemon.
    pub(crate) mirrors: Mirrors,
    /// Programs that lost their port.
    pub(crate) evictions: Evictions,
    /// Capture files that are being written.
    pub(crate) captures: Captures,
    /// Descriptors that the service manager kept for us, until their ports are attached.
    pub(crate) kept: Kept,
}

impl Daemon {
    /// A daemon without ports.
    ///
    /// # Errors
    /// When a worker cannot be started.
    pub fn new(config: Config) -> std::io::Result<Daemon> {
        let faults = netvale_mem::fault::news()?;
        Ok(Daemon {
            workers: Workers::start(&config.workers, config.polling)?,
            switches: Switches::new(config.table_entries, config.ageing),
            regions: Regions::new(std::sync::Arc::clone(&faults)),
            ports: Ports::default(),
            persistent: PersistentPorts::default(),
            pipes: Pipes::default(),
            interfaces: Interfaces::default(),
            guests: Guests::default(),
            watches: Watches::default(),
            mirrors: Mirrors::default(),
            evictions: Evictions::new(faults),
            captures: Captures::default(),
            kept: keep::found(),
            config,
        })
    }
}

/// A port of the daemon.
pub type Record = PortRecord<dyn Attached>;

/// Kicks of one ring: sent, saved because nobody asked for them, and received.
pub type Kicks = (u64, u64, u64);

/// What stands behind a port. Each kind of port has its own, in its file in `ports/`; what is not said here of a kind does not exist for it.
pub trait Attached: Any {
    /// What `netvale list` calls it.
    fn kind(&self) -> PortKind;

    /// Rings that programs open, and who holds them.
    fn programs(&self) -> Option<&LocalPort> {
        None
    }

    /// The same, for those who hold them or let go.
    fn programs_mut(&mut self) -> Option<&mut LocalPort> {
        None
    }

    /// What only this kind has, in `list` and `show`.
    fn describe(&self, _info: &mut PortInfo) {}

    /// Sentences for `netvale show`.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Kicks of a ring that is not netmap's.
    fn ring_kicks(&self, _dir: Direction, _ring: usize) -> Kicks {
        (0, 0, 0)
    }

    /// Kicks sent and received by all rings together, where rings do not count them.
    fn kicks(&self) -> Option<(u64, u64)> {
        None
    }

    /// The network interface that is this port.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// Queues of what netmap has a bridge wrapper around: an interface, a persistent port on its second switch.
    fn wrapped_queues(&self) -> Option<u32> {
        None
    }

    /// Chooses the length of the virtio-net header before its frames. Returns whether that is its length now.
    fn set_header(&self, _len: u32) -> bool {
        false
    }

    /// The port is off its switch, and its tasks are off their workers: what else was made for it goes.
    fn stop(self: Box<Self>, _daemon: &mut Daemon, _full: &str) {}
}

impl dyn Attached {
    /// The thing itself, if it is of that kind.
    pub fn get<T: Attached>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

impl Record {
    /// Its rings, if it has rings that programs open.
    pub fn rings(&self) -> Option<&Rings> {
        self.behind.programs().map(|local| &local.rings)
    }

    /// Whether programs can have it open, and none has.
    pub fn is_idle(&self) -> bool {
        self.behind.programs().is_some_and(LocalPort::is_unheld)
    }

    /// Bytes of virtio-net header before its frames. A device's frames are watched whole, with what is left to be done to them.
    pub fn hdr_len(&self) -> u32 {
        self.rings().map_or(0, |rings| rings.hdr_len.get())
    }
}
