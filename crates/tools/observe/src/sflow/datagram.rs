//! Datagrams with samples for the collectors. Several samples share a datagram, which is short enough for common MTUs;
//! no sample waits for longer than a second before it is sent.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::xdr::Xdr;

/// The UDP port of collectors.
pub const PORT: u16 = 6343;
/// Maximum length of a datagram in bytes, as sFlow recommends.
const MOST: usize = 1400;
/// Maximum time for which a sample waits for further samples in its datagram. sFlow permits one second.
const WAIT: Duration = Duration::from_millis(500);
const VERSION: u32 = 5;

/// A sender of datagrams with samples to all collectors.
#[derive(Debug)]
pub struct DatagramSender {
    sockets: Vec<UdpSocket>,
    agent: IpAddr,
    sub_agent: u32,
    began: Instant,
    sequence: u32,
    samples: Xdr,
    count: u32,
    /// When the oldest waiting sample was added.
    since: Option<Instant>,
    unsent: u64,
}

impl DatagramSender {
    /// Creates a sender for these collectors. If `agent` is `None`, the agent's address is the source address for
    /// datagrams to the first collector.
    ///
    /// # Errors
    /// There is no route to a collector.
    pub fn new(collectors: &[SocketAddr], agent: Option<IpAddr>, sub_agent: u32) -> io::Result<DatagramSender> {
        let sockets = collectors.iter().map(connect).collect::<io::Result<Vec<_>>>()?;
        let own = || sockets.first().and_then(|socket| socket.local_addr().ok()).map(|address| address.ip());
        let agent = agent.or_else(own).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let samples = Xdr::default();
        let began = Instant::now();
        Ok(DatagramSender { sockets, agent, sub_agent, began, sequence: 0, samples, count: 0, since: None, unsent: 0 })
    }

    /// Returns the agent's address, by which collectors identify this host.
    #[must_use]
    pub fn agent(&self) -> IpAddr {
        self.agent
    }

    /// Adds a sample to the current datagram. If the sample does not fit, sends the datagram first.
    pub fn put(&mut self, sample: &[u8]) {
        if self.samples.0.len() + sample.len() > MOST - self.head().0.len() {
            self.flush();
        }
        self.samples.0.extend(sample);
        self.count += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Sends the current datagram if its oldest sample has waited for the maximum time.
    pub fn tick(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() >= WAIT) {
            self.flush();
        }
    }

    /// Sends all waiting samples.
    pub fn flush(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut datagram = self.head();
        datagram.0.append(&mut self.samples.0);
        self.sequence = self.sequence.wrapping_add(1);
        self.count = 0;
        self.since = None;
        for socket in &self.sockets {
            // The send may fail because the collector or the network is down. The collector notices the loss by the
            // sequence numbers.
            self.unsent += u64::from(socket.send(&datagram.0).is_err());
        }
    }

    /// Returns the number of datagrams that could not be sent since the last call of this function.
    pub fn unsent(&mut self) -> u64 {
        std::mem::take(&mut self.unsent)
    }

    fn head(&self) -> Xdr {
        let mut head = Xdr::default();
        let uptime = self.began.elapsed().as_millis() as u32;
        head.u32(VERSION).address(self.agent).u32(self.sub_agent).u32(self.sequence.wrapping_add(1));
        head.u32(uptime).u32(self.count);
        head
    }
}

fn connect(to: &SocketAddr) -> io::Result<UdpSocket> {
    let any = if to.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    fn received(socket: &UdpSocket) -> Vec<u32> {
        let mut bytes = [0; 2000];
        let len = socket.recv(&mut bytes).unwrap();
        bytes[..len].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
    }

    /// Objective: each collector receives each datagram, with version, agent, sub-agent, sequence, uptime, the number
    /// of samples, and the samples.
    #[test]
    fn each_collector_receives_each_datagram() {
        let one = collector();
        let two = collector();
        let mut sender = DatagramSender::new(&[one.1, two.1], None, 3).unwrap();
        sender.put(&[0, 0, 0, 9]);
        sender.put(&[0, 0, 0, 8]);
        sender.flush();
        sender.put(&[0, 0, 0, 7]);
        sender.flush();
        sender.flush();
        for (socket, _) in [one, two] {
            let first = received(&socket);
            let second = received(&socket);
            assert_eq!(first[..5], [5, 1, 0x7f00_0001, 3, 1]);
            assert_eq!(first[6..], [2, 9, 8]);
            assert_eq!((second[4], &second[6..]), (2, &[1, 7][..]));
        }
    }

    /// Objective: a sample that does not fit goes into the next datagram; there is enough room even if the agent has an
    /// IPv6 address.
    #[test]
    fn no_datagram_is_too_long() {
        let (socket, address) = collector();
        let mut sender = DatagramSender::new(&[address], Some(Ipv6Addr::LOCALHOST.into()), 0).unwrap();
        (0..10).for_each(|_| sender.put(&[0; 400]));
        sender.flush();
        let words: Vec<usize> = (0..4).map(|_| received(&socket).len()).collect();
        assert!(words.iter().all(|words| words * 4 <= MOST), "{words:?}");
        assert_eq!(words.iter().map(|words| words - 10).sum::<usize>(), 1000, "all samples, behind heads of 40 bytes");
    }

    /// Objective: without a collector, the agent continues, and the unsent datagrams are counted.
    #[test]
    fn a_missing_collector_does_not_end_the_agent() {
        let (socket, address) = collector();
        drop(socket);
        let mut sender = DatagramSender::new(&[address], None, 0).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while sender.unsent() == 0 {
            assert!(Instant::now() < deadline);
            sender.put(&[0; 4]);
            sender.flush();
        }
    }
}
