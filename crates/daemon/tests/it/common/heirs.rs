//! Replaces a daemon by a successor while frames pass, which must not be affected.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use netvale::{Interest, Port};
use netvale_control::attach::{AttachReply, REPLY_LEN};
use netvale_control::succession::{Succession, VERSION};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::{Daemon, LIMIT, ip, until};

/// Number of frames in flight: fewer than there is room for in any queue on the path.
const WINDOW: u64 = 100;
/// Number of datagrams at the start that are sent one at a time, each after the answer to the previous datagram.
const ONE_BY_ONE: u64 = 8;
/// Address of the simulated station.
pub const PEER: &str = "10.9.0.2";

impl Daemon {
    /// Acts as a successor that closes the connection after the last item, so that the daemon resumes. On a busy
    /// machine, the daemon may refuse the request instead.
    pub fn is_robbed(&self) {
        let fd = successor(self);
        let mut bytes = vec![0; 1 << 17];
        rustix::net::send(&fd, &Succession::Begin.encode(), SendFlags::NOSIGNAL).unwrap();
        loop {
            assert!(netvale_mem::notify::nap(fd.as_fd(), LIMIT), "nothing comes");
            // This closes the descriptors, as if the process had ended.
            let got = netvale_fdio::receive(&fd, &mut bytes, RecvFlags::empty()).unwrap().bytes;
            assert!(got > 0, "the daemon hung up");
            let said = String::from_utf8_lossy(&bytes[..got]);
            if said.ends_with("\"end\"") || said.contains("\"failed\"") {
                return;
            }
        }
    }
}

/// Creates the connection of an accepted successor.
fn successor(d: &Daemon) -> OwnedFd {
    let address = SocketAddrUnix::new(d.path("attach.sock")).unwrap();
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&fd, &address).unwrap();
    rustix::net::send(&fd, &Succession::Hello(VERSION).encode(), SendFlags::NOSIGNAL).unwrap();
    let mut reply = [0; REPLY_LEN];
    let (got, _) = rustix::net::recv(&fd, &mut reply, RecvFlags::empty()).unwrap();
    assert_eq!(AttachReply::decode(&reply[..got]).unwrap().status, 0);
    fd
}

/// Brings an interface up, and gives it an address and a neighbour at the far end.
pub fn address(name: &str) {
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").unwrap();
    ip(&format!("addr add 10.9.0.1/24 dev {name}"));
    ip(&format!("link set {name} up"));
    ip(&format!("neigh add {PEER} lladdr 02:00:00:00:00:02 dev {name}"));
}

/// Returns the answer to a UDP frame: the frame with source and destination swapped, which leaves the checksums valid.
pub fn answer(frame: &[u8]) -> Vec<u8> {
    let mut back = frame.to_vec();
    for (a, b, n) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        back[a..a + n].copy_from_slice(&frame[b..b + n]);
        back[b..b + n].copy_from_slice(&frame[a..a + n]);
    }
    back
}

/// Returns the number in a frame that contains a datagram; `None` for other frames.
pub fn number(frame: &[u8]) -> Option<u64> {
    let is_ours = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&17);
    let bytes = frame.get(42..50).filter(|_| is_ours)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Sends numbered datagrams from the stack to `port`, which returns each datagram, while `during` runs on another
/// thread, and for a while afterwards. All datagrams must arrive once and in order in both directions. Returns the
/// number of datagrams.
pub fn ping_pong(port: &mut Port, during: impl FnOnce() + Send) -> u64 {
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.connect((PEER, 9)).unwrap();
    socket.set_nonblocking(true).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(during);
        rounds(&socket, port, &other)
    })
}

fn rounds(socket: &UdpSocket, port: &mut Port, during: &ScopedJoinHandle<'_, ()>) -> u64 {
    let mut sent = 0u64;
    let mut there = 0u64;
    let mut back = 0u64;
    let mut last = Instant::now();
    let mut more = 500;
    let mut place = vec![0; 4096];
    while more > 0 || back < sent {
        if during.is_finished() && more > 0 {
            more -= 1;
        }
        // The rate is moderate, and the first datagrams are sent one by one: a TAP with several queues moves a flow to
        // the queue on which the answers arrive, where its frames could overtake frames that still wait in another
        // queue.
        let window = if back < ONE_BY_ONE { 1 } else { WINDOW };
        if more > 0 && sent < back + window && socket.send(&sent.to_le_bytes()).is_ok() {
            sent += 1;
        }
        port.wait(Interest::Rx, Some(Duration::from_micros(300))).unwrap();
        while let Some(n) = port.rx()[0].recv(&mut place) {
            if let Some(got) = number(&place[..n]) {
                assert_eq!(got, there, "on the way there");
                there += 1;
                last = Instant::now();
                until("room", || {
                    port.tx()[0].sync();
                    port.tx()[0].send(&answer(&place[..n]))
                });
            }
        }
        port.sync();
        while let Ok(n) = socket.recv(&mut place) {
            assert_eq!(place[..n], back.to_le_bytes(), "on the way back");
            back += 1;
            last = Instant::now();
        }
        assert!(last.elapsed() < LIMIT, "{sent} sent, {there} there, {back} back");
    }
    back
}
