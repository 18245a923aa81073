//! Packet sockets (packet(7)) on ports, for programs that send frames without libpcap.
//!
//! This library assigns an interface index to a port, and answers the usual interface ioctls for the port's name. A raw
//! packet socket that is bound to this index, or sends to it, sends on the port. Such a socket receives nothing:
//! programs that send this way receive through libpcap.
//!
//! The socket remains a packet socket of the kernel, so all other calls on it work. A filter that passes no frame keeps
//! the host's traffic away from the socket.

mod filter;
pub mod ifreq;
pub mod socket;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netvale_portspec::PortSpec;

/// First interface index that is assigned to a port, far above the kernel's own indices.
const FIRST: i32 = 0x4000_0000;

/// The ports that were looked up so far, each with its name as an interface. The interface index of a port is [`FIRST`]
/// plus its position.
static PORTS: Mutex<Vec<(String, PortSpec)>> = Mutex::new(Vec::new());

/// Whether any port was ever looked up. While it is false, all checks are skipped.
static ANY: AtomicBool = AtomicBool::new(false);

/// Returns whether any interface index is assigned to a port.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

fn ports() -> MutexGuard<'static, Vec<(String, PortSpec)>> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the interface index for the name of a port; `None` if no port has this name.
pub fn index_of(name: &str) -> Option<i32> {
    // Programs often look up names of real interfaces; for these names, no lock is taken.
    let spec = netvale::interface(name)?;
    let mut ports = ports();
    let at = ports.iter().position(|(n, _)| n == name).unwrap_or_else(|| {
        ports.push((name.to_owned(), spec));
        ANY.store(true, Ordering::Release);
        ports.len() - 1
    });
    i32::try_from(at).ok()?.checked_add(FIRST)
}

/// Returns the name and the port for an interface index; `None` if the index is not assigned to a port.
pub fn port_at(index: i32) -> Option<(String, PortSpec)> {
    if !any() {
        return None;
    }
    let at = usize::try_from(index.checked_sub(FIRST)?).ok()?;
    ports().get(at).cloned()
}
