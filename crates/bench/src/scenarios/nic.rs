//! A network interface of the kernel's: one end of a veth pair, whose other end is the wire. The figure of sending and
//! forwarding is what the kernel counts at the far end, for any sender; that of receiving, what the program got.
//!
//! ```text
//!   tx      contender ─► p0 ══ p1: counted
//!   rx      AF_PACKET ─► p0 ══ p1 ─► contender: counts
//!   bridge  AF_PACKET ─► p0 ══ p1 ─► contender ─► p2 ══ p3: counted
//! ```

mod xdp;

use std::time::{Duration, Instant};

use super::own::Daemon;
use super::{Scenario, Variant};
use crate::case::Case;
use crate::contender::{Contender, Env, Sample, Session};
use crate::error::{BenchError, Result, Skip};
use crate::peers::frames::{self, frame};
use crate::peers::testpmd::{Place, Setup, Testpmd};
use crate::sys::netns::Netns;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role};
use crate::sys::threads::{Job, run_pinned_with};
use crate::{pin, sys};

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "nic",
    about: "frames to, from and between ends of veth pairs: the interface's rings in a program",
    variants: &[
        Variant { name: "tx", frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS },
        Variant { name: "rx", frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS },
        Variant { name: "bridge", frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS },
    ],
    ours: Some(|| Box::new(Nic::Netvale)),
};

/// The program that has the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nic {
    /// A netmap program on the daemon's interface.
    Netvale,
    /// A bare loop over an AF_XDP socket: what the kernel allows.
    Xdp,
    /// AF_PACKET with whole batches a call.
    Packet,
    /// AF_PACKET, a call a frame.
    Sendto,
    /// DPDK's net_af_xdp.
    Dpdk,
}

impl Contender for Nic {
    fn name(&self) -> &str {
        match self {
            Nic::Netvale => "netvale",
            Nic::Xdp => "af-xdp",
            Nic::Packet => "af-packet",
            Nic::Sendto => "sendto",
            Nic::Dpdk => "dpdk-af-xdp",
        }
    }

    fn about(&self) -> &str {
        match self {
            Nic::Netvale => "a netmap program on rings of the interface, which the daemon opened for it",
            Nic::Xdp => "a loop over a bare AF_XDP socket, nothing else: the kernel's own limit",
            Nic::Packet => "AF_PACKET, 64 frames a call, past the queueing discipline",
            Nic::Sendto => "AF_PACKET, one frame a call, past the queueing discipline",
            Nic::Dpdk => "testpmd on DPDK's net_af_xdp",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        let (bridge, sends) = (case.variant == "bridge", case.variant == "tx");
        case.scenario == SCENARIO.name
            && match self {
                Nic::Packet => !bridge,
                Nic::Sendto => sends,
                _ => true,
            }
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        sys::need_root("XDP programs and network namespaces")?;
        sys::need_program("ip", "iproute2")?;
        if *self == Nic::Dpdk {
            sys::need_program("dpdk-testpmd", "dpdk-dev")?;
        }
        pin::need(2, &env.cores)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        let wires = Wires::new()?;
        let program = match self {
            Nic::Netvale => Program::netvale(case, cores, &wires)?,
            Nic::Xdp => Program::Xdp(Box::new(xdp::Loop::new(case, &wires.namespace)?)),
            Nic::Packet | Nic::Sendto => Program::packet(case, &wires, *self)?,
            Nic::Dpdk => Program::dpdk(case, cores, &wires)?,
        };
        let generator = if case.variant == "tx" { None } else { Some(wires.socket("p0", Role::Send)?) };
        let session = Running { name: self.name().to_owned(), case: case.clone(), cores, program, generator, wires };
        Ok(Box::new(session))
    }
}

/// Two veth pairs in a namespace: `p0` and `p1`, `p2` and `p3`.
pub struct Wires {
    namespace: Netns,
}

impl Wires {
    fn new() -> Result<Wires> {
        let namespace = Netns::new()?;
        frames::silence_ipv6(&namespace)?;
        for (a, b) in [("p0", "p1"), ("p2", "p3")] {
            namespace.ip(&format!("link add {a} type veth peer name {b}"))?;
            namespace.ip(&format!("link set {a} up"))?;
            namespace.ip(&format!("link set {b} up"))?;
        }
        Ok(Wires { namespace })
    }

    fn socket(&self, name: &str, role: Role) -> Result<PacketSocket> {
        self.namespace.inside(|| PacketSocket::open(name, role))
    }

    /// Frames that an interface has received.
    fn received(&self, name: &str) -> Result<u64> {
        let devices = self.namespace.inside(|| {
            std::fs::read_to_string("/proc/thread-self/net/dev").map_err(BenchError::io("reading /proc/net/dev"))
        })?;
        let count = devices.lines().find_map(|line| {
            let counters = line.trim().strip_prefix(name)?.strip_prefix(':')?;
            counters.split_whitespace().nth(1)?.parse().ok()
        });
        count.ok_or_else(|| BenchError::NoTraffic(name.to_owned()))
    }
}

/// The program that has the interface.
enum Program {
    Netvale { rings: Vec<netvale::Port>, daemon: Daemon },
    Xdp(Box<xdp::Loop>),
    Packet { socket: PacketSocket, at_once: usize },
    Dpdk { process: Testpmd, _place: Place },
}

impl Program {
    fn netvale(case: &Case, cores: (usize, usize), wires: &Wires) -> Result<Program> {
        let daemon = Daemon::start_in(&wires.namespace, cores.1, "")?;
        let names: &[&str] = match case.variant.as_str() {
            "tx" => &["netmap:p0"],
            "rx" => &["netmap:p1"],
            _ => &["netmap:p1", "netmap:p2"],
        };
        let rings = names.iter().map(|name| daemon.open(name, 512)).collect::<Result<_>>()?;
        Ok(Program::Netvale { rings, daemon })
    }

    fn packet(case: &Case, wires: &Wires, who: Nic) -> Result<Program> {
        let (name, role) = if case.variant == "tx" { ("p0", Role::Send) } else { ("p1", Role::Receive) };
        let at_once = if who == Nic::Sendto { 1 } else { MAX_BATCH };
        Ok(Program::Packet { socket: wires.socket(name, role)?, at_once })
    }

    fn dpdk(case: &Case, cores: (usize, usize), wires: &Wires) -> Result<Program> {
        let place = Place::new(1, 0)?;
        let device =
            |i: usize, name: &str| format!("net_af_xdp{i},iface={name},start_queue=0,queue_count=1,busy_budget=0");
        let (devices, forward) = match case.variant.as_str() {
            "tx" => (vec![device(0, "p0")], "txonly"),
            "rx" => (vec![device(0, "p1")], "rxonly"),
            _ => (vec![device(0, "p1"), device(1, "p2")], "io"),
        };
        let core = if case.variant == "tx" { cores.0 } else { cores.1 };
        let setup = Setup {
            name: "nic",
            cores: &[core],
            vdevs: &devices,
            single_file: false,
            forward,
            frame_bytes: case.frame_bytes,
            burst: 64,
            more: &[],
            eal: &[],
        };
        let mut process = Testpmd::start_in(&setup, &place, Some(&wires.namespace.path()))?;
        process.command("start")?;
        process.freeze()?;
        Ok(Program::Dpdk { process, _place: place })
    }

    /// Processes and pinned threads beside those of this one.
    fn others(&self) -> (Vec<u32>, Vec<(u32, u32)>) {
        match self {
            Program::Netvale { daemon, .. } => (vec![daemon.worker.pid()], Vec::new()),
            Program::Dpdk { process, .. } => (vec![process.pid()], process.threads().to_vec()),
            _ => (Vec::new(), Vec::new()),
        }
    }

    /// Its work on `core`; none for a process of its own. The work's result is the frames received, for receivers.
    fn job<'a>(&'a mut self, case: &'a Case, core: usize) -> Option<Job<'a>> {
        let bytes = frame(0, 1, case.frame_bytes);
        match self {
            Program::Netvale { rings, .. } => {
                let case = case.clone();
                Some(Job::new(core, move || Ok(netmap_round(rings, &case, &bytes))))
            }
            Program::Xdp(xdp) => Some(Job::new(core, move || Ok(xdp.round()))),
            Program::Packet { socket, at_once } => {
                let (count, sends) = (*at_once, case.variant == "tx");
                Some(Job::new(core, move || {
                    if sends { socket.send(&bytes, count).map(|_| 0) } else { socket.receive(MAX_BATCH) }
                }))
            }
            Program::Dpdk { .. } => None,
        }
    }

    /// Frames that a process of its own has received.
    fn counted(&mut self) -> Result<Option<u64>> {
        match self {
            Program::Dpdk { process, .. } => Ok(Some(process.counters()?.0.iter().map(|port| port.rx).sum())),
            _ => Ok(None),
        }
    }

    fn freeze(&self) -> Result<()> {
        match self {
            Program::Netvale { daemon, .. } => daemon.worker.freeze(),
            Program::Dpdk { process, .. } => process.freeze(),
            _ => Ok(()),
        }
    }

    fn thaw(&self) -> Result<()> {
        match self {
            Program::Netvale { daemon, .. } => daemon.worker.thaw(),
            Program::Dpdk { process, .. } => process.thaw(),
            _ => Ok(()),
        }
    }
}

/// One round of a netmap program: fills slots, looks at filled ones, or exchanges buffers of two ports.
fn netmap_round(ports: &mut [netvale::Port], case: &Case, bytes: &[u8]) -> u64 {
    let batch = case.batch.max(1);
    match (case.variant.as_str(), ports) {
        ("tx", [port]) => {
            let tx = &mut port.tx()[0];
            let n = tx.space().min(batch);
            for k in 0..n {
                let i = tx.at(k);
                tx.mem().write(tx.slot(i).buf_idx, 0, bytes);
                tx.set_len(i, bytes.len() as u16, 0);
            }
            tx.advance(n);
            tx.sync();
            0
        }
        ("rx", [port]) => {
            let rx = &mut port.rx()[0];
            let n = rx.space().min(batch);
            let mut first = [0u8; 14];
            for k in 0..n {
                std::hint::black_box(rx.read(rx.at(k), &mut first));
            }
            rx.advance(n);
            let _ = rx.sync();
            n.into()
        }
        (_, [from, to]) => {
            let (rx, tx) = (&mut from.rx()[0], &mut to.tx()[0]);
            let n = rx.space().min(tx.space()).min(batch);
            for k in 0..n {
                netvale::swap_buffers(rx, rx.at(k), tx, tx.at(k));
            }
            tx.advance(n);
            tx.sync();
            rx.advance(n);
            let _ = rx.sync();
            0
        }
        _ => 0,
    }
}

struct Running {
    name: String,
    case: Case,
    cores: (usize, usize),
    program: Program,
    generator: Option<PacketSocket>,
    wires: Wires,
}

impl Session for Running {
    fn resume(&mut self) -> Result<()> {
        self.program.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.program.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let far = match self.case.variant.as_str() {
            "tx" => Some("p1"),
            "bridge" => Some("p3"),
            _ => None,
        };
        let (pids, threads) = self.program.others();
        let bytes = frame(0, 1, self.case.frame_bytes);
        let count = |wires: &Wires, program: &mut Program| match far {
            Some(name) => wires.received(name).map(Some),
            None => program.counted(),
        };
        let before = count(&self.wires, &mut self.program)?;
        let start = Instant::now();
        let program_core = if self.generator.is_some() { self.cores.1 } else { self.cores.0 };
        let mut jobs: Vec<Job<'_>> = self.program.job(&self.case, program_core).into_iter().collect();
        let own = !jobs.is_empty();
        if let Some(generator) = &mut self.generator {
            jobs.push(Job::new(self.cores.0, move || generator.send(&bytes, MAX_BATCH).map(|_| 0)));
        }
        if jobs.is_empty() {
            jobs.push(Job::new(self.cores.1, || {
                std::thread::sleep(Duration::from_millis(1));
                Ok(0)
            }));
        }
        let (done, beside) = run_pinned_with(jobs, window, &pids, &threads)?;
        let seconds = start.elapsed().as_secs_f64();
        let rate = match (before, count(&self.wires, &mut self.program)?) {
            // Warm-up included, in frames as in time.
            (Some(before), Some(after)) => (after - before) as f64 / seconds,
            _ => done.first().filter(|_| own).map_or(0.0, crate::sys::threads::Done::rate),
        };
        if rate > 0.0 {
            Ok(Sample::new(frames::in_unit(&self.case, rate), beside))
        } else {
            Err(BenchError::NoTraffic(self.name.clone()))
        }
    }

    fn cores(&self) -> String {
        let (first, second) = self.cores;
        if self.generator.is_some() {
            format!("generator {first}, program {second}")
        } else {
            format!("program {first}")
        }
    }

    fn touched(&self) -> bool {
        self.case.variant != "bridge"
    }
}
