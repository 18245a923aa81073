//! Several handles of one port, since a program may open an interface several times. All handles but the first read
//! from a monitor of the port's received frames, and all handles send through the first handle's sender.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use netvale::{Error, OutgoingRing, Port};
use netvale_portspec::{Conf, Directions, Flags, Memory, MonitorSpec, PortSpec};

/// The handles of a port that this program has open ([`PortInUse`]).
#[derive(Default)]
pub struct PortInUse {
    handles: usize,
    /// Number of handles that are monitors of the port.
    copies: usize,
    sender: Weak<OutgoingRing>,
    /// The port of the first handle, which stays open after that handle was closed, since the other handles monitor it.
    left: Option<Port>,
}

/// The ports that this program has open, by the name of each port's monitor.
pub type PortsInUse = BTreeMap<String, PortInUse>;

static PORTS: Mutex<PortsInUse> = Mutex::new(BTreeMap::new());

/// Returns all ports that this program has open.
pub fn ports() -> MutexGuard<'static, PortsInUse> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name of the monitor port that copies a port's received frames; `None` for a port that is itself a
/// monitor or receives nothing.
pub fn copies_of(spec: &PortSpec) -> Option<String> {
    let receives = spec.flags.monitor.is_none() && spec.flags.directions != Directions::Tx;
    receives.then(|| {
        let monitor = Some(MonitorSpec { directions: Directions::Rx, zero_copy: false });
        let mut copies = spec.clone();
        copies.flags = Flags { monitor, ..Flags::default() };
        copies.memory = Memory::default();
        copies.conf = Conf::default();
        copies.offset = None;
        copies.to_string()
    })
}

/// Opens the port `name`, or the monitor `copies` if this program already has the port open. Returns the opened port,
/// and `true` if this is the monitor.
///
/// # Errors
/// The errors of [`Port::open`].
pub fn open(ports: &PortsInUse, name: &str, copies: Option<&str>) -> Result<(Port, bool), Error> {
    match Port::open(name) {
        Err(Error::Refused { errno: libc::EBUSY, text }) => match copies.filter(|copies| ports.contains_key(*copies)) {
            Some(copies) => Port::open(copies).map(|port| (port, true)),
            None => Err(Error::Refused { errno: libc::EBUSY, text }),
        },
        opened => opened.map(|port| (port, false)),
    }
}

/// Returns the sender that the port's other handles use, or `None` if there are no other handles.
pub fn sender(ports: &PortsInUse, copies: Option<&str>) -> Option<Arc<OutgoingRing>> {
    ports.get(copies?)?.sender.upgrade()
}

/// Counts a new handle of a port. `is_copy` is set if the handle reads from the monitor.
pub fn enter(ports: &mut PortsInUse, copies: &str, is_copy: bool, sender: &Arc<OutgoingRing>) {
    let shared = ports.entry(copies.to_owned()).or_default();
    shared.handles += 1;
    shared.copies += usize::from(is_copy);
    shared.sender = Arc::downgrade(sender);
}

/// Removes a closed handle from the counts. `port` stays open if other handles monitor it.
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

/// Releases the frames in the port of a closed first handle: the other handles have copies of these frames.
pub fn drain(copies: &str) {
    if let Some(left) = ports().get_mut(copies).and_then(|shared| shared.left.as_mut()) {
        for ring in left.rx() {
            let _ = ring.sync();
            ring.advance(ring.space());
            let _ = ring.sync();
        }
    }
}
