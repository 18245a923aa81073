//! The switch embedded in the program that sends and receives: one thread does everything.

use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RegionSizes};
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_switch::{AttachedPort, ForwardMemory, Forwarder, PassResult, PortId, Switch};

use super::*;

/// Rounds between two checks of the clock.
const ROUNDS: u32 = 32;

/// A path whose steps one thread runs in turn.
pub struct Lane {
    /// Senders and receivers.
    pub stations: Stations<AppRing, AppRing>,
    /// Forwards the frames from the senders' port.
    pub forwarder: Forwarder,
    work: ForwardMemory,
}

impl Lane {
    /// Creates a path from `tx`, from which the forwarder takes frames, to `rx`.
    pub fn new(stations: Stations<AppRing, AppRing>, forwarder: Forwarder) -> Self {
        Self { stations, forwarder, work: ForwardMemory::default() }
    }

    /// Lets the next sender send, forwards all frames, and takes the frames that have arrived at any receiver. Returns
    /// the number of frames taken.
    pub fn round(&mut self) -> u64 {
        self.stations.send();
        while let PassResult::Frames(_) = self.forwarder.pass(&mut self.work) {}
        self.stations.receive()
    }
}

/// Attaches two ports to the switch: a sender's port, and a receiver's port behind which are all receiving stations of
/// the case. Returns the path between them.
pub fn pair(case: &Case, switch: &Arc<Switch>) -> Result<Lane> {
    let (forwarder, tx, _) = port(switch, "from", SLOTS, 0)?;
    let (_, _, rx) = port(switch, "to", SLOTS, 0)?;
    Ok(Lane::new(Stations::new(Plan::of(case), case, 0, Touch::of(case), vec![tx], vec![rx]), forwarder))
}

/// Enters the stations' addresses into the switch's table, behind the ports `receiver(0)`, `receiver(1)` and so on.
pub fn learn(switch: &Switch, plan: Plan, receiver: impl Fn(u16) -> PortId) {
    for index in 0..plan.receivers {
        for station in plan.behind(index) {
            switch.fdb().learn(word(station), receiver(index));
        }
    }
}

/// Returns a station's address as the word by which the switch's table stores it.
pub fn word(station: u16) -> u64 {
    let [a, b, c, d, e, f] = address(station);
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Measures the whole path, from sender to receiver, in one thread of this process.
pub fn start(case: &Case, cores: Cores) -> Result<Session> {
    let switch = Switch::new("vale0");
    let mut lane = pair(case, &switch)?;
    // The sender's port was attached first and has the index 0.
    learn(&switch, Plan::of(case), |index| index as PortId + 1);
    let own = case.clone();
    let measuring = move |window| {
        let round = || Ok((0..ROUNDS).map(|_| lane.round()).sum());
        let (done, beside) = run_pinned(vec![Job::new(cores.0, round)], window)?;
        lane.stations.books(0).check("netvale's embedded switch")?;
        Ok(Sample::new(own.rate(total_rate("netvale", &done)?), beside))
    };
    let words = format!("sender, switch and receiver in one thread on CPU {}", cores.0);
    let session = Session::new(words, case.touches(), measuring);
    Ok(session.fact("slots", SLOTS).fact("bytes", Touch::of(case).words()))
}

/// Creates an eventfd.
pub fn bell() -> Result<Doorbell> {
    Doorbell::new().map_err(|error| failed(&error))
}

/// Creates the memory of a port with a ring in each direction.
pub fn memory(slots: u32) -> Result<Arc<PortMem>> {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: slots, rx_slots: slots };
    let region = Region::private(RegionSizes::for_port(2, slots, DEFAULT_BUF_SIZE, 0, 0));
    region.and_then(|region| region.port(shape)).map(Arc::new).map_err(|error| failed(&error))
}

/// Returns the only ring of a direction.
pub fn only(sides: &[RingSide]) -> Result<RingSide> {
    sides.first().cloned().ok_or_else(|| BenchError::Usage("the port lacks a ring".into()))
}

/// Creates a port of the switch with virtio-net headers of `hdr_len` bytes. Returns its forwarder, and its two rings
/// for the application.
pub fn port(switch: &Arc<Switch>, name: &str, slots: u32, hdr_len: u32) -> Result<(Forwarder, AppRing, AppRing)> {
    port_like(switch, AttachedPort { name: name.into(), ..AttachedPort::default() }, slots, hdr_len)
}

/// As [`port`], with the values of `attached` but for its egresses.
pub fn port_like(
    switch: &Arc<Switch>,
    attached: AttachedPort,
    slots: u32,
    hdr_len: u32,
) -> Result<(Forwarder, AppRing, AppRing)> {
    let mem = memory(slots)?;
    let tx = only(&mem.tx)?;
    let rx = only(&mem.rx)?;
    let egress = RingEgress::new(Arc::clone(&mem), HostRx::new(rx.clone(), bell()?), hdr_len, Arc::default());
    let attached = AttachedPort { egresses: vec![Arc::new(egress)], ..attached };
    let id = switch.attach(attached).map_err(|error| failed(&error))?;
    let ingress = RingIngress::new(mem, HostTx::new(tx.clone(), bell()?), bell()?, hdr_len, Arc::default());
    ingress.quiet();
    let forwarder = Forwarder::new(Arc::clone(switch), id, 0, Box::new(ingress));
    Ok((forwarder, AppRing::new(tx, Dir::Tx, bell()?), AppRing::new(rx, Dir::Rx, bell()?)))
}
