//! DPDK's `net_ring`: rte_rings between two threads of one process, the peer of a pipe inside one process.
//!
//! Two ports, each a ring; thread A moves frames from port 0 to port 1, thread B back. Every frame crosses between the
//! cores on each hop; the figure is hops of both directions together. With `io` only pointers move; with `macswap` each
//! side reads and writes the frame's first line, which is what an application does.

use crate::case::Case;
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::peers::dpdk::{DpdkSession, burst};
use crate::peers::testpmd::{self, Place, Setup, Testpmd};

/// The peer, moving pointers only or touching each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetRing {
    /// Pointers only (`--forward-mode=io`).
    Io,
    /// Each frame read and written (`--forward-mode=macswap`).
    Macswap,
}

impl NetRing {
    /// The best burst, measured on two cores: pointers only 270, 415 and 725 Mpps at 32, 64 and 256; touched 76, 91
    /// and 88.
    fn best_burst(self) -> u32 {
        match self {
            Self::Io => 512,
            Self::Macswap => 64,
        }
    }
}

impl Contender for NetRing {
    fn name(&self) -> &str {
        match self {
            Self::Io => "dpdk-ring-io",
            Self::Macswap => "dpdk-ring",
        }
    }

    fn about(&self) -> &str {
        match self {
            Self::Io => "DPDK net_ring between two threads, pointers only; hops of both directions",
            Self::Macswap => "DPDK net_ring between two threads, frames touched (macswap); hops of both directions",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == "pipe" && case.touches() == (*self == Self::Macswap)
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        testpmd::available(env, 2)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (first, second) = env.two_cores()?;
        let place = Place::new(1, 0)?;
        let forward = if *self == Self::Io { "io" } else { "macswap" };
        let mut process = Testpmd::start(
            &Setup {
                name: "ring",
                cores: &[first, second],
                vdevs: &["net_ring0".to_owned(), "net_ring1".to_owned()],
                single_file: false,
                forward,
                frame_bytes: case.frame_bytes,
                burst: burst(case, self.best_burst()),
                more: &[],
                eal: &[],
            },
            &place,
        )?;
        process.command("start tx_first 32")?;
        let session = DpdkSession {
            processes: vec![process],
            others: Vec::new(),
            keep: Box::new(place),
            name: self.name().to_owned(),
            unit: case.unit,
            frame_bytes: case.frame_bytes,
            cores: format!("one thread each on {first} and {second}, both directions"),
            touched: *self == Self::Macswap,
            context: vec![("peer_burst".into(), burst(case, self.best_burst()).to_string())],
        };
        Ok(Box::new(session.settled()?))
    }
}
