//! The switch inside the program that sends and receives: one thread does all.

use std::sync::Arc;
use std::time::Duration;

use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RegionSizes};
use netvale_mem::notify::Doorbell;
use netvale_mem::{PortShape, Region};
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_switch::{Forwarder, Passed, Port, Switch, Work};

use super::own::failed;
use super::stations::{Plan, Stations};
use super::traffic::{SLOTS, Touch, address};
use crate::case::Case;
use crate::contender::{Sample, Session};
use crate::error::{BenchError, Result};
use crate::sys::threads::{Job, run_pinned, total_rate};

/// Rounds between two looks at the clock.
const ROUNDS: u32 = 32;

/// Two ports and what forwards from the first.
pub struct Embedded {
    case: Case,
    core: usize,
    stations: Stations<AppRing, AppRing>,
    forwarder: Forwarder,
    work: Work,
}

impl Embedded {
    /// A switch with two ports, private to this process.
    ///
    /// # Errors
    /// No memory.
    pub fn start(case: &Case, core: usize) -> Result<Self> {
        let (plan, switch) = (Plan::of(case), Switch::new("vale0"));
        let (forwarder, tx, _) = port(&switch, "from", SLOTS, 0)?;
        let (_, _, rx) = port(&switch, "to", SLOTS, 0)?;
        let receiver = switch.ports().iter().find(|(_, name)| name == "to").map_or(0, |(id, _)| *id);
        for station in plan.behind(0) {
            let [a, b, c, d, e, f] = address(station);
            switch.fdb().learn(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), receiver);
        }
        let stations = Stations::new(plan, case, Touch::of(case), vec![tx], vec![rx]);
        Ok(Self { case: case.clone(), core, stations, forwarder, work: Work::default() })
    }
}

/// An eventfd.
///
/// # Errors
/// No descriptors.
pub fn bell() -> Result<Doorbell> {
    Doorbell::new().map_err(|error| failed(&error))
}

/// A port of the switch, with headers of that length before its frames: what forwards from it, and its two rings as its
/// application uses them.
///
/// # Errors
/// No memory, no descriptors.
pub fn port(switch: &Arc<Switch>, name: &str, slots: u32, hdr_len: u32) -> Result<(Forwarder, AppRing, AppRing)> {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: slots, rx_slots: slots };
    let region = Region::private(RegionSizes::for_port(2, slots, DEFAULT_BUF_SIZE, 0, 0));
    let mem = region.and_then(|region| region.port(shape)).map(Arc::new).map_err(|error| failed(&error))?;
    let ([tx], [rx]) = (&mem.tx[..], &mem.rx[..]) else {
        return Err(BenchError::Usage("a port without its rings".into()));
    };
    let (tx, rx) = (tx.clone(), rx.clone());
    let egress = RingEgress::new(Arc::clone(&mem), HostRx::new(rx.clone(), bell()?), hdr_len, Arc::default());
    let attached = Port { name: name.into(), egresses: vec![Arc::new(egress)], lossless: false, ..Port::default() };
    let id = switch.attach(attached).map_err(|error| failed(&error))?;
    let ingress = RingIngress::new(mem, HostTx::new(tx.clone(), bell()?), bell()?, hdr_len, Arc::default());
    ingress.quiet();
    let forwarder = Forwarder::new(Arc::clone(switch), id, 0, Box::new(ingress));
    Ok((forwarder, AppRing::new(tx, Dir::Tx, bell()?), AppRing::new(rx, Dir::Rx, bell()?)))
}

impl Session for Embedded {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let (stations, forwarder, work) = (&mut self.stations, &mut self.forwarder, &mut self.work);
        let round = move || {
            let mut received = 0;
            for _ in 0..ROUNDS {
                stations.send();
                while let Passed::Frames(_) = forwarder.pass(work) {}
                received += stations.receive();
            }
            Ok(received)
        };
        let (done, beside) = run_pinned(vec![Job::new(self.core, round)], window)?;
        self.stations.books(0).check("netvale's embedded switch")?;
        Ok(Sample::new(self.case.rate(total_rate("netvale", &done)?), beside))
    }

    fn cores(&self) -> String {
        format!("sender, switch and receiver in one thread on {}", self.core)
    }

    fn touched(&self) -> bool {
        self.case.touches()
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![("slots".into(), SLOTS.to_string()), ("bytes".into(), Touch::of(&self.case).words().into())]
    }
}
