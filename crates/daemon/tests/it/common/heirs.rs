//! Replaces a daemon by a successor while frames pass, which must not be affected.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use netvale::{Interest, Port};
use netvale_control::succession::Succession;
use netvale_harness::Pretender;

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
        let pretender = Pretender::admitted(self.dir()).unwrap();
        pretender.say(&Succession::Begin.encode()).unwrap();
        let mut is_over = false;
        while !is_over {
            let said = pretender.hear().expect("the daemon says more");
            let said = String::from_utf8_lossy(&said);
            is_over = said.ends_with("\"end\"") || said.contains("\"failed\"");
        }
    }
}

/// Brings an interface up, and gives it an address and a neighbour at the far end. Without IPv6, the stack itself sends
/// no multicasts, so that tests see only their own frames.
pub fn address(name: &str) {
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").unwrap();
    ip(&format!("addr add 10.9.0.1/24 dev {name}"));
    ip(&format!("link set {name} up"));
    ip(&format!("neigh add {PEER} lladdr 02:00:00:00:00:02 dev {name}"));
}

/// Creates a cable whose far end belongs to the stack. Offloads are off at that end, so that the stack completes its
/// frames itself.
pub fn cable_to_the_stack(queues: u32) {
    super::cable("nva", "nvb", queues);
    let quiet = std::process::Command::new("ethtool").args(["-K", "nvb", "tx", "off", "gso", "off"]).output().unwrap();
    assert!(quiet.status.success(), "{quiet:?}");
    address("nvb");
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

/// Numbered datagrams that the stack sends to a port, which returns each datagram.
pub struct PingPong {
    socket: UdpSocket,
    pub sent: u64,
    there: u64,
    pub back: u64,
    pub came: Came,
    last: Instant,
}

/// Numbers of datagrams that arrived repeatedly at the port (`there`) and at the stack (`back`), and of missing
/// datagrams.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Came {
    pub there: u64,
    pub back: u64,
    pub missing: u64,
}

impl PingPong {
    pub fn new() -> PingPong {
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.connect((PEER, 9)).unwrap();
        socket.set_nonblocking(true).unwrap();
        PingPong { socket, sent: 0, there: 0, back: 0, came: Came::default(), last: Instant::now() }
    }

    /// Sends a datagram if `more` is set and few are in flight. Forwards the datagrams that have arrived.
    pub fn round(&mut self, port: &mut Port, more: bool) {
        // The rate is moderate, and the first datagrams are sent one by one: a TAP with several queues moves a flow to
        // the queue on which the answers arrive, where its frames could overtake frames that still wait in another
        // queue.
        let window = if self.back < ONE_BY_ONE { 1 } else { WINDOW };
        if more && self.sent < self.back + window && self.socket.send(&self.sent.to_le_bytes()).is_ok() {
            self.sent += 1;
        }
        let mut place = vec![0; 4096];
        port.wait(Interest::Rx, Some(Duration::from_micros(300))).unwrap();
        while let Some(n) = port.rx()[0].recv(&mut place) {
            let Some(got) = number(&place[..n]) else { continue };
            self.came.missing += got.saturating_sub(self.there);
            self.came.there += u64::from(got < self.there);
            self.there = self.there.max(got + 1);
            self.last = Instant::now();
            until("room", || {
                port.tx()[0].sync();
                port.tx()[0].send(&answer(&place[..n]))
            });
        }
        port.sync();
        while let Ok(n) = self.socket.recv(&mut place) {
            let got = u64::from_le_bytes(place[..n].try_into().unwrap());
            self.came.missing += got.saturating_sub(self.back);
            self.came.back += u64::from(got < self.back);
            self.back = self.back.max(got + 1);
            self.last = Instant::now();
        }
        let PingPong { sent, there, back, .. } = self;
        assert!(self.last.elapsed() < LIMIT, "{sent} sent, {there} there, {back} back");
    }
}

/// Sends numbered datagrams from the stack to `port`, which returns each datagram, while `during` runs on another
/// thread, and for a while afterwards. All datagrams must arrive once and in order in both directions. Returns the
/// number of datagrams.
pub fn ping_pong(port: &mut Port, during: impl FnOnce() + Send) -> u64 {
    let mut all = PingPong::new();
    std::thread::scope(|scope| {
        let other = scope.spawn(during);
        let mut more = 500;
        while more > 0 || all.back < all.sent {
            if other.is_finished() && more > 0 {
                more -= 1;
            }
            all.round(port, more > 0);
            assert_eq!(all.came, Came::default(), "{} there, {} back", all.there, all.back);
        }
    });
    all.back
}
