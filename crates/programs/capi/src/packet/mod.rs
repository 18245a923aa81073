//! Packet sockets (packet(7)) on ports, for programs that send frames without libpcap.
//!
//! A port gets an interface index, and this library answers the usual interface ioctls for its name. A raw packet
//! socket that is bound to this index, or sends to it, sends on the port. Such a socket receives nothing: programs that
//! send this way receive through libpcap.
//!
//! The socket remains a packet socket of the kernel, so all other calls on it work. A filter that passes nothing keeps
//! the host's traffic from it.

mod filter;
pub mod ifreq;
pub mod socket;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netvale_portspec::PortSpec;

/// First interface index of ports, far above the kernel's own.
const FIRST: i32 = 0x4000_0000;

/// The ports looked up so far, by index, with their names as interfaces.
static PORTS: Mutex<Vec<(String, PortSpec)>> = Mutex::new(Vec::new());

/// Whether any port was ever looked up; until then, all checks are skipped.
static ANY: AtomicBool = AtomicBool::new(false);

/// Returns whether any index is a port's.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

fn ports() -> MutexGuard<'static, Vec<(String, PortSpec)>> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the index of a port's name; `None` if the name is not a port's.
pub fn index_of(name: &str) -> Option<i32> {
    // Names of real interfaces are looked up often: for them, no lock is taken.
    let spec = netvale::interface(name)?;
    let mut ports = ports();
    let at = ports.iter().position(|(n, _)| n == name).unwrap_or_else(|| {
        ports.push((name.to_owned(), spec));
        ANY.store(true, Ordering::Release);
        ports.len() - 1
    });
    i32::try_from(at).ok()?.checked_add(FIRST)
}

/// Returns the name and the port of an interface index; `None` if the index is not a port's.
pub fn port_at(index: i32) -> Option<(String, PortSpec)> {
    if !any() {
        return None;
    }
    let at = usize::try_from(index.checked_sub(FIRST)?).ok()?;
    ports().get(at).cloned()
}
