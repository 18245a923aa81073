//! A network interface of the kernel: one end of a veth pair, whose other end is the wire. The contender is the program
//! under test. For sending and forwarding, the figure is the kernel's count at the far end; for receiving, the
//! program's count.
//!
//! ```text
//!   tx      contender ─► p0 ══ p1: counted
//!   rx      AF_PACKET ─► p0 ══ p1 ─► contender: counts
//!   bridge  AF_PACKET ─► p0 ══ p1 ─► contender ─► p2 ══ p3: counted
//! ```

mod forwarders;
mod xdp;

use netvale::{RxRing, TxRing};

use super::*;
use crate::peers::open_vswitch;
use crate::peers::testpmd::{Arguments, Place, Testpmd};
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role};

const INTERFACES: &[Need] = &[Need::Root("XDP programs and network namespaces"), Need::Program("ip", "iproute2")];
const TESTPMD: &[Need] = &[Need::Program("dpdk-testpmd", "dpdk-dev")];

/// The scenario: a netmap program on the daemon's interface.
pub const SCENARIO: Scenario = Scenario {
    name: "nic",
    about: "frames to, from and between ends of veth pairs, through the interface's rings in a program",
    variants: variants![Variant::SHORT => "tx", "rx", "bridge"],
    needs: &[INTERFACES, TWO],
    start: |case, cores| start("netvale", case, cores, netvale),
};

/// Returns other programs that use the interface.
pub fn peers() -> Vec<Contender> {
    let is_here = |case: &Case| SCENARIO.has(case);
    let is_bridge = move |case: &Case| is_here(case) && case.variant == "bridge";
    contenders! {
        "af-xdp", "a loop over a bare AF_XDP socket, nothing else: the kernel's own limit";
        SCENARIO.needs, is_here, |case, cores| start("af-xdp", case, cores, bare);
        "dpdk-af-xdp", "testpmd on DPDK's net_af_xdp";
        &[INTERFACES, TESTPMD, TWO], is_here, |case, cores| start("dpdk-af-xdp", case, cores, dpdk);
        "af-packet", "AF_PACKET, 64 frames per call, bypassing the queueing discipline";
        SCENARIO.needs, move |case| is_here(case) && case.variant != "bridge",
        |case, cores| start("af-packet", case, cores, |at| packet(at, MAX_BATCH));
        "sendto", "AF_PACKET, one frame per call, bypassing the queueing discipline";
        SCENARIO.needs, move |case| is_here(case) && case.variant == "tx",
        |case, cores| start("sendto", case, cores, |at| packet(at, 1));
        "netvale-guest", "a guest with the interface passed through (ptnet, simulated); a worker on the second core";
        SCENARIO.needs, move |case| is_here(case) && case.variant != "bridge",
        |case, cores| start("netvale-guest", case, cores, passed);
        "linux-bridge", "the kernel's bridge between the pairs; its work is done in the sender's thread";
        SCENARIO.needs, is_bridge, |case, cores| start("linux-bridge", case, cores, forwarders::kernel);
        "pcap", "a program that forwards through the system's libpcap, one packet at a time";
        SCENARIO.needs, is_bridge, |case, cores| start("pcap", case, cores, forwarders::pcap);
        "pcap-netvale", "the same program with netvale's libpcap, on the daemon's interfaces";
        SCENARIO.needs, is_bridge, |case, cores| start("pcap-netvale", case, cores, forwarders::pcap_on_netvale);
        "ovs-netdev", "Open vSwitch in user space on packet sockets, a learning switch";
        &[INTERFACES, open_vswitch::NEEDS, TESTPMD, TWO], is_bridge,
        |case, cores| start("ovs-netdev", case, cores, forwarders::open_vswitch);
    }
}

/// What a program is started with: its case, its cores, and a namespace with two veth pairs: `p0` and `p1`, `p2` and
/// `p3`.
struct Site<'a> {
    case: &'a Case,
    cores: Cores,
    namespace: &'a Netns,
}

impl Site<'_> {
    /// Returns the value for the case's variant: sending, receiving, or forwarding.
    fn choose<T>(&self, tx: T, rx: T, bridge: T) -> T {
        match self.case.variant.as_str() {
            "tx" => tx,
            "rx" => rx,
            _ => bridge,
        }
    }

    fn socket(&self, name: &str, role: Role) -> Result<PacketSocket> {
        self.namespace.inside(|| PacketSocket::open(name, role))
    }
}

/// The program that uses the interface.
#[derive(Default)]
struct Program {
    /// The program's work, if it runs in a thread of this process; returns the number of received frames.
    round: Option<Round<'static>>,
    /// The program's process, if the program is testpmd, which counts the frames that it received.
    testpmd: Option<Rc<Testpmd>>,
    parts: Parts,
    place: Option<Place>,
}

fn netvale(site: &Site<'_>) -> Result<Program> {
    let daemon = Daemon::start(Some(site.namespace), site.cores.1, "")?;
    let names = site.choose::<&[&str]>(&["netmap:p0"], &["netmap:p1"], &["netmap:p1", "netmap:p2"]);
    let mut rings = names.iter().map(|name| daemon.open(name, 512)).collect::<Result<Vec<_>>>()?;
    let case = site.case.clone();
    let bytes = frame(1, 0, site.case.frame_bytes);
    let round = move || Ok(netmap_round(&mut rings, &case, &bytes));
    Ok(Program { round: Some(Box::new(round)), parts: vec![daemon], ..Program::default() })
}

/// Starts netvale's program on a guest's rings, to which the interface is passed through: a worker moves frames between
/// the guest's rings and the interface's rings. A receiver that finds no frames sleeps, because it shares the worker's
/// core.
fn passed(site: &Site<'_>) -> Result<Program> {
    let daemon = Daemon::start(Some(site.namespace), site.cores.1, "")?;
    let interface = if site.case.variant == "tx" { "netmap:p0" } else { "netmap:p1" };
    let mut rings = [ptnet::passed(&daemon, interface, "guest")?];
    let case = site.case.clone();
    let bytes = frame(1, 0, site.case.frame_bytes);
    let round = move || {
        let came = netmap_round(&mut rings, &case, &bytes);
        if came == 0 && case.variant == "rx" {
            rings[0].wait(Interest::Rx, Some(Duration::from_millis(10))).map_err(|e| own::failed(&e))?;
        }
        Ok::<_, BenchError>(came)
    };
    Ok(Program { round: Some(Box::new(round)), parts: vec![daemon], ..Program::default() })
}

fn bare(site: &Site<'_>) -> Result<Program> {
    let mut sockets = xdp::Loop::new(site.case, site.namespace)?;
    Ok(Program { round: Some(Box::new(move || Ok(sockets.round()))), ..Program::default() })
}

fn packet(site: &Site<'_>, at_once: usize) -> Result<Program> {
    let bytes = frame(1, 0, site.case.frame_bytes);
    let round: Round<'static> = if site.case.variant == "tx" {
        let mut socket = site.socket("p0", Role::Send)?;
        Box::new(move || socket.send(&bytes, at_once).map(|_| 0))
    } else {
        let mut socket = site.socket("p1", Role::Receive)?;
        Box::new(move || socket.receive(MAX_BATCH))
    };
    Ok(Program { round: Some(round), ..Program::default() })
}

fn dpdk(site: &Site<'_>) -> Result<Program> {
    let place = Place::new(1, 0)?;
    let device = |i: usize, name: &str| format!("net_af_xdp{i},iface={name},start_queue=0,queue_count=1,busy_budget=0");
    let devices = site.choose(vec![device(0, "p0")], vec![device(0, "p1")], vec![device(0, "p1"), device(1, "p2")]);
    let core = site.choose(site.cores.0, site.cores.1, site.cores.1);
    let forward = site.choose("txonly", "rxonly", "io");
    let arguments = Arguments {
        burst: 64,
        namespace: Some(site.namespace),
        ..Arguments::new("nic", site.case, &[core], &devices, forward)
    };
    let testpmd = Testpmd::start(&arguments, &place, &["start"])?;
    Ok(Program { testpmd: Some(testpmd.clone()), parts: vec![testpmd], place: Some(place), ..Program::default() })
}

/// Starts a program on the wires, with a generator at the other end unless the program is itself a generator.
fn start(
    who: &'static str,
    case: &Case,
    cores: Cores,
    program: impl FnOnce(&Site<'_>) -> Result<Program>,
) -> Result<Session> {
    let namespace = Netns::with_wire()?;
    namespace.veth("p2", "p3")?;
    let site = Site { case, cores, namespace: &namespace };
    let mut program = program(&site)?;
    let sends = case.variant == "tx";
    let generator = if sends { None } else { Some(site.socket("p0", Role::Send)?) };
    let far = site.choose(Some("p1"), None, Some("p3"));
    let words = match sends {
        true => format!("program on CPU {}", cores.0),
        false => format!("generator on CPU {}, program on CPU {}", cores.0, cores.1),
    };
    let parts = program.parts.clone();
    let place = program.place.take();
    let mut wires = Wires { who, case: case.clone(), cores, program, generator, far, namespace };
    let session = Session::new(words, case.variant != "bridge", move |window| wires.measure(window));
    session.with_all(parts).keeping(place).idle()
}

/// A program on the wires (veth pairs), with all that its measurement needs.
struct Wires {
    who: &'static str,
    case: Case,
    cores: Cores,
    program: Program,
    generator: Option<PacketSocket>,
    /// The interface at which frames are counted; `None` if the program counts them.
    far: Option<&'static str>,
    namespace: Netns,
}

impl Wires {
    fn count(&self) -> Result<Option<u64>> {
        match (self.far, &self.program.testpmd) {
            (Some(name), _) => self.namespace.counter(name, 1).map(Some),
            (None, Some(testpmd)) => testpmd.received(None).map(|(frames, _)| Some(frames)),
            (None, None) => Ok(None),
        }
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let before = self.count()?;
        let start = Instant::now();
        let (pids, threads): (Vec<_>, Vec<_>) =
            self.program.parts.iter().map(|part| (part.pids(), part.threads())).unzip();
        let has_own = self.program.round.is_some();
        let (done, beside) = run_pinned_with(self.jobs(), window, &pids.concat(), &threads.concat())?;
        let seconds = start.elapsed().as_secs_f64();
        let rate = match (before, self.count()?) {
            // Frames and time both include the warm-up.
            (Some(before), Some(after)) => (after - before) as f64 / seconds,
            _ => done.first().filter(|_| has_own).map_or(0.0, Done::rate),
        };
        if rate > 0.0 {
            return Ok(Sample::new(self.case.rate(rate), beside));
        }
        Err(BenchError::NoTraffic(self.who.to_owned()))
    }

    /// Returns the jobs of the program and of the generator; if there is neither, a job that only sleeps.
    fn jobs(&mut self) -> Vec<Job<'_>> {
        let core = if self.generator.is_some() { self.cores.1 } else { self.cores.0 };
        let mut jobs: Vec<Job<'_>> = self.program.round.iter_mut().map(|round| Job::new(core, round)).collect();
        if let Some(generator) = &mut self.generator {
            let bytes = frame(1, 0, self.case.frame_bytes);
            jobs.push(Job::new(self.cores.0, move || generator.send(&bytes, MAX_BATCH).map(|_| 0)));
        }
        if jobs.is_empty() {
            jobs.push(Job::new(self.cores.1, || {
                std::thread::sleep(Duration::from_millis(1));
                Ok(0)
            }));
        }
        jobs
    }
}

/// Runs one round of a netmap program: fills slots, reads filled slots, or swaps buffers of two ports.
fn netmap_round(ports: &mut [Port], case: &Case, bytes: &[u8]) -> u64 {
    let batch = case.batch.max(1);
    match ports {
        [port] if case.variant == "tx" => fill(&mut port.tx()[0], batch, bytes),
        [port] => return look(&mut port.rx()[0], batch),
        [from, to] => exchange(&mut from.rx()[0], &mut to.tx()[0], batch),
        _ => {}
    }
    0
}

fn fill(tx: &mut TxRing, batch: u32, bytes: &[u8]) {
    let n = tx.space().min(batch);
    for k in 0..n {
        let i = tx.at(k);
        tx.mem().write(tx.slot(i).buf_idx, 0, bytes);
        tx.set_len(i, bytes.len() as u16, 0);
    }
    tx.advance(n);
    tx.sync();
}

fn look(rx: &mut RxRing, batch: u32) -> u64 {
    let n = rx.space().min(batch);
    let mut first = [0u8; 14];
    for k in 0..n {
        std::hint::black_box(rx.read(rx.at(k), &mut first));
    }
    rx.advance(n);
    let _ = rx.sync();
    n.into()
}

fn exchange(rx: &mut RxRing, tx: &mut TxRing, batch: u32) {
    let n = rx.space().min(tx.space()).min(batch);
    for k in 0..n {
        netvale::swap_buffers(rx, rx.at(k), tx, tx.at(k));
    }
    tx.advance(n);
    tx.sync();
    rx.advance(n);
    let _ = rx.sync();
}
