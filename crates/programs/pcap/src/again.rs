//! A port that the program opens again while it has it open, as it may do with an interface: handles beyond the first
//! are monitors of what the port receives, and all send by the first one's way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use netvale::{Error, Outgoing, Port};
use netvale_portspec::{Conf, Directions, Flags, Memory, Monitor, PortSpec};

/// A port that this program has open.
#[derive(Default)]
pub struct PortInUse {
    handles: usize,
    /// Those of them that have copies only.
    copies: usize,
    sender: Weak<Outgoing>,
    /// The port of the first handle, if that was closed before others.
    left: Option<Port>,
}

/// The ports, by the names of monitors of them.
pub type PortsInUse = BTreeMap<String, PortInUse>;

static PORTS: Mutex<PortsInUse> = Mutex::new(BTreeMap::new());

/// All ports that this program has open.
pub fn ports() -> MutexGuard<'static, PortsInUse> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of a monitor of what a port receives; none of what is a monitor itself.
pub fn copies_of(spec: &PortSpec) -> Option<String> {
    let receives = spec.flags.monitor.is_none() && spec.flags.directions != Directions::Tx;
    receives.then(|| {
        let monitor = Some(Monitor { directions: Directions::Rx, zero_copy: false });
        let mut copies = spec.clone();
        copies.flags = Flags { monitor, ..Flags::default() };
        copies.memory = Memory::default();
        copies.conf = Conf::default();
        copies.offset = None;
        copies.to_string()
    })
}

/// Opens a port of that name, or its monitor, if this program has it open. Returns whether it is the monitor.
///
/// # Errors
/// As [`Port::open`].
pub fn open(ports: &PortsInUse, name: &str, copies: Option<&str>) -> Result<(Port, bool), Error> {
    match Port::open(name) {
        Err(Error::Refused { errno: libc::EBUSY, text }) => match copies.filter(|copies| ports.contains_key(*copies)) {
            Some(copies) => Port::open(copies).map(|port| (port, true)),
            None => Err(Error::Refused { errno: libc::EBUSY, text }),
        },
        opened => opened.map(|port| (port, false)),
    }
}

/// The way by which other handles of a port send.
pub fn sender(ports: &PortsInUse, copies: Option<&str>) -> Option<Arc<Outgoing>> {
    ports.get(copies?)?.sender.upgrade()
}

/// There is one more handle of a port.
pub fn enter(ports: &mut PortsInUse, copies: &str, is_copy: bool, sender: &Arc<Outgoing>) {
    let shared = ports.entry(copies.to_owned()).or_default();
    shared.handles += 1;
    shared.copies += usize::from(is_copy);
    shared.sender = Arc::downgrade(sender);
}

/// A handle is closed. The port that it had open stays for others that have copies.
pub fn leave(copies: &str, port: Port, is_copy: bool) {
    let mut ports = ports();
    let Some(shared) = ports.get_mut(copies) else { return };
    shared.handles -= 1;
    shared.copies -= usize::from(is_copy);
    if shared.copies == 0 {
        shared.left = None;
    } else if !is_copy {
        shared.left = Some(port);
    }
    if shared.handles == 0 {
        ports.remove(copies);
    }
}

/// Gives back what came for a handle that was closed: the others have copies.
pub fn drain(copies: &str) {
    if let Some(left) = ports().get_mut(copies).and_then(|shared| shared.left.as_mut()) {
        for ring in left.rx() {
            let _ = ring.sync();
            ring.advance(ring.space());
            let _ = ring.sync();
        }
    }
}
