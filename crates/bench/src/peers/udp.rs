//! A UDP round trip over a veth pair between two namespaces: what a message costs through the kernel's stack.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use crate::case::Case;
use crate::contender::{Contender, Env, Sample, Session};
use crate::error::{BenchError, Result, Skip};
use crate::peers::eventfd::placed;
use crate::peers::pingpong::{self, Side};
use crate::sys::netns::Netns;
use crate::{pin, sys};

/// The payload that makes a 60-byte frame: 60 − 14 (Ethernet) − 20 (IPv4) − 8 (UDP).
const PAYLOAD: usize = 18;

/// The peer, by where its two threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpEcho {
    /// On two cores.
    AcrossCores,
    /// On one core.
    OneCore,
}

impl Contender for UdpEcho {
    fn name(&self) -> &str {
        match self {
            Self::AcrossCores => "udp-veth",
            Self::OneCore => "udp-veth-one-core",
        }
    }

    fn about(&self) -> &str {
        match self {
            Self::AcrossCores => "UDP over a veth pair, blocking sockets, threads on two cores; half a round trip",
            Self::OneCore => "UDP over a veth pair, blocking sockets, threads on one core; half a round trip",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.sleeps_across() == Some(*self == Self::AcrossCores)
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        sys::need_root("network namespaces")?;
        sys::need_program("ip", "iproute2")?;
        pin::need(if *self == Self::AcrossCores { 2 } else { 1 }, &env.cores)
    }

    fn start(&self, _case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = placed(env, *self == Self::AcrossCores)?;
        let (near, far) = (Netns::new()?, Netns::new()?);
        near.ip(&format!("link add eth0 type veth peer name eth0 netns {}", far.path()))?;
        for (namespace, host) in [(&near, 1), (&far, 2)] {
            namespace.ip(&format!("addr add 10.78.0.{host}/24 dev eth0"))?;
            namespace.ip("link set eth0 up")?;
        }
        let here = near.inside(|| socket("10.78.0.1:7000", "10.78.0.2:7000"))?;
        let there = far.inside(|| socket("10.78.0.2:7000", "10.78.0.1:7000"))?;
        Ok(Box::new(Echo {
            name: self.name().to_owned(),
            near: End(here),
            far: End(there),
            cores,
            _links: (near, far),
        }))
    }
}

fn socket(own: &str, other: &str) -> Result<UdpSocket> {
    let made = UdpSocket::bind(own).and_then(|socket| {
        socket.connect(other)?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(socket)
    });
    made.map_err(BenchError::io(format!("opening a UDP socket on {own}")))
}

struct End(UdpSocket);

impl Side for End {
    fn send(&mut self) -> Result<()> {
        self.0.send(&[0; PAYLOAD]).map(drop).map_err(BenchError::io("sending UDP"))
    }

    fn wait(&mut self) -> Result<bool> {
        match self.0.recv(&mut [0; PAYLOAD]) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(BenchError::io("receiving UDP")(error)),
        }
    }
}

struct Echo {
    name: String,
    near: End,
    far: End,
    cores: (usize, usize),
    _links: (Netns, Netns),
}

impl Session for Echo {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        pingpong::play(&self.name, &mut self.near, &mut self.far, Some(self.cores), &[], window)
    }

    fn cores(&self) -> String {
        format!("one thread each on {} and {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        true
    }
}
