//! A UDP round trip over a veth pair between two namespaces: the cost of a message through the kernel's stack.

use std::net::UdpSocket;

use crate::error::in_time;
use crate::peers::pingpong::{self, Game, Side};
use crate::prelude::*;

/// Length of the payload in a frame of 60 bytes: 60 − 14 (Ethernet) − 20 (IPv4) − 8 (UDP).
const PAYLOAD: usize = 18;

/// Returns the peers, which differ in the CPUs of their two threads.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "udp-veth", "UDP over a veth pair, blocking sockets, threads on two cores; half a round trip";
        &[NETWORKS, TWO], |case| case.sleeps_across() == Some(true), |_, cores| start("udp-veth", cores);
        "udp-veth-one-core", "UDP over a veth pair, blocking sockets, threads on one core; half a round trip";
        &[NETWORKS, ONE], |case| case.sleeps_across() == Some(false),
        |_, cores| start("udp-veth-one-core", Cores(cores.0, cores.0));
    }
}

fn start(who: &'static str, cores: Cores) -> Result<Session> {
    let near = Netns::new()?;
    let far = Netns::new()?;
    near.ip(&format!("link add eth0 type veth peer name eth0 netns {}", far.path()))?;
    for (namespace, host) in [(&near, 1), (&far, 2)] {
        namespace.set_up("eth0", &format!("10.78.0.{host}/24"))?;
    }
    let here = near.inside(|| socket("10.78.0.1:7000", "10.78.0.2:7000"))?;
    let there = far.inside(|| socket("10.78.0.2:7000", "10.78.0.1:7000"))?;
    let words = format!("one thread each on CPUs {} and {}", cores.0, cores.1);
    let game = Game { who, cores: Some(cores), processes: Vec::new() };
    Ok(Session::new(words, true, pingpong::between(game, End(here), End(there))).keeping([near, far]))
}

fn socket(own: &str, other: &str) -> Result<UdpSocket> {
    let made = sys::udp_between(own, other)
        .and_then(|socket| socket.set_read_timeout(Some(Duration::from_secs(1))).map(|()| socket));
    made.map_err(BenchError::io(format!("opening a UDP socket on {own}")))
}

struct End(UdpSocket);

impl Side for End {
    fn send(&mut self) -> Result<()> {
        self.0.send(&[0; PAYLOAD]).map(drop).map_err(BenchError::io("sending UDP"))
    }

    fn wait(&mut self) -> Result<bool> {
        let came = in_time(self.0.recv(&mut [0; PAYLOAD])).map_err(BenchError::io("receiving UDP"))?;
        Ok(came.is_some())
    }
}
