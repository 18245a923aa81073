//! DPDK's memif between two processes: the peer of a pipe between processes.

use crate::case::Case;
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::peers::dpdk::{DpdkSession, burst};
use crate::peers::testpmd::{self, Place, Setup, Testpmd};
use crate::{crowd, pin};

/// The best burst, measured on two cores: 32 gives 34 / 40 Mpps (copy / zero-copy), 64 gives 36 / 49, 256 gives 23
/// / 18.
const BEST_BURST: u32 = 64;

/// The peer, copying or lending buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memif {
    /// Frames are copied into and out of the shared ring's buffers.
    Copy,
    /// The client's buffers are the shared ones (`zero-copy=yes`).
    ZeroCopy,
}

impl Memif {
    fn device(self, role: &str, socket: &str) -> String {
        let base = format!("net_memif0,role={role},id=0,socket={socket},socket-abstract=no,rsize=10");
        if self == Self::ZeroCopy && role == "client" { format!("{base},zero-copy=yes") } else { base }
    }

    fn process(self, side: &Side<'_>, case: &Case, place: &Place) -> Result<Testpmd> {
        let setup = Setup {
            name: side.role,
            cores: &[side.core],
            vdevs: &[self.device(side.role, &place.file("memif.sock"))],
            single_file: true,
            forward: side.forward,
            frame_bytes: case.frame_bytes,
            burst: burst(case, BEST_BURST),
            more: &[],
            eal: &[],
        };
        Testpmd::start(&setup, place)
    }
}

struct Side<'a> {
    role: &'a str,
    core: usize,
    forward: &'a str,
}

impl Contender for Memif {
    fn name(&self) -> &str {
        match self {
            Self::Copy => "dpdk-memif",
            Self::ZeroCopy => "dpdk-memif-zc",
        }
    }

    fn about(&self) -> &str {
        match self {
            Self::Copy => "DPDK memif between two processes, copying",
            Self::ZeroCopy => "DPDK memif between two processes, zero-copy",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        (case.scenario == "pipe" && case.touches()) || case.is_crowded("pipe")
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        testpmd::available(env, 2)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (first, second) = env.two_cores()?;
        let place = Place::new(2, 0)?;
        // From the server to the client: the faster direction.
        let mut sender = self.process(&Side { role: "server", core: first, forward: "txonly" }, case, &place)?;
        let mut receiver = self.process(&Side { role: "client", core: second, forward: "rxonly" }, case, &place)?;
        receiver.command("start")?;
        sender.command("start")?;
        let mut cores = format!("sender {first}, receiver {second}");
        if case.foreign.is_some() {
            [&sender, &receiver].into_iter().try_for_each(|process| pin::release(process.pid()))?;
            cores = "sender and receiver poll, not pinned".into();
        }
        let session = DpdkSession {
            processes: vec![sender, receiver],
            others: Vec::new(),
            keep: Box::new(place),
            name: self.name().to_owned(),
            unit: case.unit,
            frame_bytes: case.frame_bytes,
            cores,
            touched: true,
            context: vec![("peer_burst".into(), burst(case, BEST_BURST).to_string())],
        };
        crowd::beside(case, Box::new(session.settled()?))
    }
}
