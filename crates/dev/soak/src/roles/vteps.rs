//! Attackers that act as remote ends of tunnels, or as strangers that send to the tunnels' sockets.

use std::net::UdpSocket;

use super::{Attacker, pause, text};
use crate::rng::Rng;
use crate::world::{ATTACKED_VNI, ATTACKED_VTEP, ATTACKING_VTEP, VTEPS, VXLAN};

/// Number of datagrams that are sent in a row.
const BURST: usize = 32;
/// One datagram in this many is also sent to a bystander's socket, truncated to [`SHORT`] bytes. More or longer
/// datagrams could overflow the socket's buffer, and the kernel would drop datagrams without counting them for the
/// port.
const SELDOM: u64 = 256;
/// Maximum bytes of a datagram to a bystander's socket; see [`SELDOM`].
const SHORT: usize = 200;
/// Maximum length of a UDP datagram over IPv4.
const LONGEST: usize = 65_507;

/// Opens a socket with the IP address `address` and any port, because a VTEP may send from any port.
fn socket(address: &str) -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind((address, 0)).map_err(text)?;
    socket.set_nonblocking(true).map_err(text)?;
    Ok(socket)
}

/// Returns a VXLAN header (RFC 7348 section 5).
fn header(vni: u32) -> [u8; 8] {
    let [_, a, b, c] = vni.to_be_bytes();
    [8, 0, 0, 0, a, b, c, 0]
}

/// Sends to a VTEP. A full socket is not an error.
fn send(a: &mut Attacker, from: &UdpSocket, to: &str, datagram: &[u8]) {
    if from.send_to(datagram, (to, VXLAN)).is_ok() {
        a.is_up();
    }
}

/// Acts as a VTEP known to the attacked tunnel: sends as many frames as possible, from many stations.
pub fn floods(a: &mut Attacker) -> Result<(), String> {
    let from = socket(ATTACKING_VTEP)?;
    while a.goes_on() {
        for _ in 0..BURST {
            let datagram = [&header(ATTACKED_VNI)[..], &a.frame()].concat();
            send(a, &from, ATTACKED_VTEP, &datagram);
        }
        pause();
    }
    Ok(())
}

/// Returns a datagram that no VTEP sends: truncated, too long, of another VNI, with other flags, or random.
fn strange(rng: &mut Rng, frame: &[u8]) -> Vec<u8> {
    let mut datagram = [&header(ATTACKED_VNI)[..], frame].concat();
    match rng.below(6) {
        0 => datagram.truncate(rng.index(30)),
        1 => datagram.resize(1 + rng.index(LONGEST), 0xa5),
        2 => datagram[..8].copy_from_slice(&header(rng.word() as u32 & 0xff_ffff)),
        3 => datagram[0] = rng.word() as u8,
        4 => datagram = rng.bytes(100),
        _ => {
            let at = rng.index(datagram.len().min(60));
            datagram[at] ^= 1 << rng.below(8);
        }
    }
    datagram
}

/// Acts as a VTEP known to the tunnel and as an unknown VTEP: sends datagrams of all lengths and contents, a few of
/// them to the bystanders' sockets.
pub fn nonsense(a: &mut Attacker) -> Result<(), String> {
    let known = socket(ATTACKING_VTEP)?;
    let stranger = socket("127.0.0.66")?;
    while a.goes_on() {
        for _ in 0..BURST / 4 {
            let frame = a.frame();
            let datagram = strange(&mut a.rng, &frame);
            let from = if a.rng.one_in(8) { &stranger } else { &known };
            send(a, from, ATTACKED_VTEP, &datagram);
            if a.rng.one_in(SELDOM) {
                let bystander = a.rng.index(VTEPS.len());
                send(a, &stranger, VTEPS[bystander], &datagram[..datagram.len().min(SHORT)]);
            }
        }
        pause();
    }
    Ok(())
}
