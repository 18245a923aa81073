//! Implements netdevice(7)'s ioctls for ports.

use libc::{ARPHRD_ETHER, IFF_BROADCAST, IFF_MULTICAST, IFF_RUNNING, IFF_UP};
use netvale::interface;
use rustix::io::Errno;

use super::{index_of, port_at, socket};
use crate::user;

/// Numbers of the ioctls about an interface (linux/sockios.h).
mod sioc {
    pub const GIFNAME: u32 = 0x8910;
    pub const GIFFLAGS: u32 = 0x8913;
    pub const SIFFLAGS: u32 = 0x8914;
    pub const GIFADDR: u32 = 0x8915;
    pub const GIFDSTADDR: u32 = 0x8917;
    pub const GIFBRDADDR: u32 = 0x8919;
    pub const GIFNETMASK: u32 = 0x891b;
    pub const GIFMETRIC: u32 = 0x891d;
    pub const GIFMTU: u32 = 0x8921;
    pub const GIFHWADDR: u32 = 0x8927;
    pub const GIFINDEX: u32 = 0x8933;
    pub const GIFTXQLEN: u32 = 0x8942;
    pub const ETHTOOL: u32 = 0x8946;
}

/// Size of an interface's name in bytes.
const NAME: usize = libc::IFNAMSIZ;
/// MTU of a port in bytes: with the Ethernet header, such a frame fits into a buffer of 2048 bytes.
const MTU: i32 = 1500;

/// Returns whether an ioctl concerns an interface, by its name or index.
pub fn is_question(number: u32) -> bool {
    use sioc::*;
    [
        GIFNAME, GIFFLAGS, SIFFLAGS, GIFADDR, GIFDSTADDR, GIFBRDADDR, GIFNETMASK, GIFMETRIC, GIFMTU, GIFHWADDR,
        GIFINDEX, GIFTXQLEN, ETHTOOL,
    ]
    .contains(&number)
}

/// Answers an ioctl about an interface, whose `struct ifreq` is at `addr`. Returns `None` if the interface is not a
/// port, so that the kernel must handle the call.
pub fn answer(number: u32, addr: u64) -> Option<Result<(), Errno>> {
    // If the address is unmapped, the call is left to the kernel, which returns the error.
    let mut name = [0u8; NAME];
    user::read_bytes(addr, &mut name).ok()?;
    let value_at = addr.checked_add(NAME as u64)?;
    if number == sioc::GIFNAME {
        let mut index = [0u8; 4];
        user::read_bytes(value_at, &mut index).ok()?;
        let (name, _) = port_at(i32::from_ne_bytes(index))?;
        return Some(user::write_bytes(addr, &padded(&name)));
    }
    let end = name.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(name.get(..end)?).ok()?;
    let index = index_of(name)?;
    Some(value(number, index).and_then(|value| match value {
        Some(bytes) => user::write_bytes(value_at, &bytes),
        None => Ok(()),
    }))
}

/// Returns the new value of the `union` in `struct ifreq`; `None` if the union stays unchanged.
fn value(number: u32, index: i32) -> Result<Option<[u8; NAME]>, Errno> {
    let spec = port_at(index).ok_or(Errno::NODEV)?.1;
    // Programs make one of these ioctls before they send, and usually before they drop the privileges that opening the
    // port requires, so the port is opened here.
    if matches!(number, sioc::GIFINDEX | sioc::GIFHWADDR) {
        socket::named(index);
    }
    let int = |v: i32| Ok(Some(first_bytes(&v.to_ne_bytes())));
    match number {
        sioc::GIFINDEX => int(index),
        sioc::GIFHWADDR => {
            let mut sockaddr = first_bytes(&ARPHRD_ETHER.to_ne_bytes());
            sockaddr[2..8].copy_from_slice(&interface::mac(&spec));
            Ok(Some(sockaddr))
        }
        sioc::GIFFLAGS => {
            let flags = (IFF_UP | IFF_RUNNING | IFF_BROADCAST | IFF_MULTICAST) as i16;
            Ok(Some(first_bytes(&flags.to_ne_bytes())))
        }
        // A port is always up, and receives every frame as in promiscuous mode.
        sioc::SIFFLAGS => Ok(None),
        sioc::GIFMTU => int(MTU),
        sioc::GIFMETRIC => int(0),
        sioc::GIFTXQLEN => int(1000),
        sioc::ETHTOOL => Err(Errno::OPNOTSUPP),
        // A port has no IP addresses.
        _ => Err(Errno::ADDRNOTAVAIL),
    }
}

/// Returns a name in the form in which `struct ifreq` stores it, always NUL-terminated.
pub fn padded(name: &str) -> [u8; NAME] {
    let mut bytes = first_bytes(name.as_bytes());
    bytes[NAME - 1] = 0;
    bytes
}

fn first_bytes(from: &[u8]) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    bytes.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    bytes
}
