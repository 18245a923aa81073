//! Generators: how many frames a program sends with a share of a CPU, and with several CPUs.
//!
//! ```text
//!   cable    sender 0 ─► a0 ══ b0: counted     sender 1 ─► a1 ══ b1: counted     …
//!   switch   sender 0 ─► vale0 ─► receiver     counted: what the switch took
//!   pipe     sender 0 ─► receiver              counted: what the pipe took
//! ```
//!
//! Each sender is a process on a CPU of its own. The kernel processes the far end of a cable on the sender's CPU; no
//! program receives the frames there.

mod pktgen;

use super::programs::{PKT_GEN, Program, SENDER};
use super::*;
use crate::counted::counted;
use crate::peers::datagrams::UdpWay;
use crate::peers::packets::Wire;
use crate::sys::quota::CpuQuota;

/// One sender, short frames.
pub const ONE_SENDER: Variant = Variant { ports: &[1], ..Variant::SHORT };

/// The scenario: netvale's sender sends into a cable (a veth pair).
pub const SCENARIO: Scenario = Scenario {
    name: "generators",
    about: "frames sent into cables, a switch and a pipe, by share of a CPU and number of programs",
    variants: variants![
        ONE_SENDER => "10-percent", "25-percent", "50-percent", "75-percent", "100-percent";
        Variant { ports: &[2], ..Variant::SHORT } => "2-senders";
        Variant { ports: &[4], ..Variant::SHORT } => "4-senders"
    ],
    needs: &[NETWORKS, TWO],
    start: |case, cores| start("netvale", case, cores, on_cables),
};

/// Returns the peers: the same sender on other ports, and other senders on a cable. The scenario `parts` shows how
/// these other senders spend their time.
pub fn peers() -> Vec<Contender> {
    let is_here = |case: &Case| SCENARIO.has(case);
    let is_either = |case: &Case| SCENARIO.has(case) || parts::SCENARIO.has(case);
    contenders! {
        "udp-sendto", "a UDP socket, one datagram per call";
        SCENARIO.needs, is_either, |case, cores| start("udp-sendto", case, cores, |bench| by_udp(bench, false));
        "udp-sendmmsg", "a UDP socket, 64 datagrams per call";
        SCENARIO.needs, is_either, |case, cores| start("udp-sendmmsg", case, cores, |bench| by_udp(bench, true));
        "af-packet", "AF_PACKET, 64 frames per call, bypassing the queueing discipline";
        SCENARIO.needs, is_either, |case, cores| start("af-packet", case, cores, by_packets);
        "netvale-vale", "netvale's sender on a VALE switch; the switch and a receiver on another CPU";
        SCENARIO.needs, is_here, |case, cores| start("netvale-vale", case, cores, |bench| {
            through(bench, |index| [format!("vale{index}:from"), format!("vale{index}:to")])
        });
        "netvale-pipe", "netvale's sender on a pipe; a receiver on another CPU";
        SCENARIO.needs, is_here, |case, cores| start("netvale-pipe", case, cores, |bench| {
            through(bench, |index| [format!("netmap:bench{{{index}"), format!("netmap:bench}}{index}")])
        });
        "pktgen", "the kernel's own generator, to which quotas do not apply";
        &[NETWORKS, pktgen::MODULE, TWO], move |case| is_here(case) && share(case) == 100,
        |case, cores| start("pktgen", case, cores, pktgen::begin);
    }
}

/// Returns the share of a CPU that each sender gets, in per cent.
fn share(case: &Case) -> u32 {
    case.variant.strip_suffix("-percent").and_then(|share| share.parse().ok()).unwrap_or(100)
}

/// Returns the name of the interface at the near end of a cable.
fn near(index: usize) -> String {
    format!("a{index}")
}

/// Returns the name of the interface at the far end of a cable, where frames are counted.
fn far(index: usize) -> String {
    format!("b{index}")
}

/// What contenders run on: namespaces, cables, CPUs.
pub struct TestBench<'a> {
    case: &'a Case,
    namespace: Rc<Netns>,
    /// The CPUs of the senders, then all other CPUs.
    cpus: Vec<usize>,
}

impl TestBench<'_> {
    fn senders(&self) -> usize {
        self.case.ports.max(1) as usize
    }

    /// Returns the CPU of a sender.
    fn own(&self, index: usize) -> usize {
        self.cpus[index]
    }

    /// Returns the CPU of the receiver that belongs to a sender: another CPU than the sender's if there are enough
    /// CPUs.
    fn other(&self, index: usize) -> usize {
        self.cpus[(index + self.senders()) % self.cpus.len()]
    }

    fn cables(&self) -> Result<()> {
        (0..self.senders()).try_for_each(|index| self.namespace.veth(&near(index), &far(index)))
    }

    fn each(&self, start: impl Fn(usize) -> Result<Rc<Worker>>) -> Result<Vec<Rc<Worker>>> {
        (0..self.senders()).map(start).collect()
    }

    /// Starts a program on a port of the daemon.
    fn program(&self, daemon: &Daemon, role: &str, cpu: usize, port: String) -> Result<Rc<Worker>> {
        let dir = daemon.dir().into();
        let program = Program { dir, port, case: self.case.clone(), touch: Touch::Line, sleeps: true };
        let worker = Worker::spawn(Wrapper::None, role, Some(cpu), &program)?;
        worker.freeze().map(|()| worker)
    }

    /// Starts a sender on a socket.
    fn on_socket(&self, role: &str, index: usize, told: &impl Serialize) -> Result<Rc<Worker>> {
        let worker = Worker::spawn(Wrapper::Network(&self.namespace), role, Some(self.own(index)), told)?;
        worker.freeze().map(|()| worker)
    }
}

/// The processes that a contender has started.
pub struct Crew {
    senders: Vec<Rc<Worker>>,
    /// The processes that work besides the senders, such as receivers and forwarders.
    others: Parts,
    /// Whether the senders count their frames, because there is no cable.
    counts_itself: bool,
    /// Describes the CPUs of all processes except the senders.
    words: String,
}

impl Crew {
    fn on_cables(senders: Vec<Rc<Worker>>, others: Parts) -> Crew {
        Crew { senders, others, counts_itself: false, words: "the same CPUs process the cables' far ends".into() }
    }

    fn session(self, who: &'static str, bench: &TestBench<'_>) -> Session {
        let Crew { senders, others, counts_itself, words } = self;
        let share = share(bench.case);
        let own: Vec<u32> = senders.iter().map(|sender| sender.pid()).collect();
        let parts: Parts = senders.iter().map(|sender| Rc::clone(sender) as Rc<dyn Part>).chain(others).collect();
        let pids = Some(parts.iter().flat_map(|part| part.pids()).collect());
        // A sender that gets only a share of its CPU, or shares the CPU with other programs, has to wait by design.
        let watched = own.iter().filter(|_| share == 100 && own.len() == 1).map(|&pid| (pid, pid)).collect();
        let how = CountOptions { settle: SETTLE, pids, threads: watched, asks: false, who: Some(who) };
        let cpus = &bench.cpus[..bench.senders()];
        let cores = format!("a sender on each of the CPUs {cpus:?}, with {share} % of that CPU; {words}");
        let cables: Vec<String> = (0..bench.senders()).map(far).collect();
        let counters = Rc::clone(&bench.namespace);
        let count = move || {
            let frames: Result<u64> = match counts_itself {
                true => Ok(senders.iter().map(|sender| sender.count(FRAMES)).sum()),
                false => cables.iter().map(|cable| counters.counter(cable, 1)).sum(),
            };
            Ok((frames?, Instant::now()))
        };
        Session::new(cores, true, counted(bench.case, how, count)).with_all(parts)
    }
}

/// Starts a contender, and gives its senders their shares of the CPUs.
pub fn start(
    who: &'static str,
    case: &Case,
    cores: Cores,
    begin: impl Fn(&TestBench<'_>) -> Result<Crew>,
) -> Result<Session> {
    let namespace = Rc::new(Netns::silent()?);
    let bench = TestBench { case, namespace, cpus: cpus(case, cores)? };
    let crew = begin(&bench)?;
    let share = share(case);
    let limited = crew.senders.iter().filter(|_| share < 100);
    let quotas = limited.map(|sender| CpuQuota::of(sender.pid(), share)).collect::<Result<Vec<_>>>()?;
    let first = crew.senders.first().map(|sender| sender.pid());
    let session = crew.session(who, &bench).keeping(quotas).keeping(bench.namespace);
    match first {
        Some(pid) if parts::SCENARIO.has(case) => parts::by_parts(session, who, pid)?.idle(),
        _ => session.idle(),
    }
}

fn cpus(case: &Case, cores: Cores) -> Result<Vec<usize>> {
    let first = [cores.0, cores.1];
    let rest = pin::allowed()?.into_iter().filter(|cpu| !first.contains(cpu));
    let all: Vec<usize> = first.into_iter().chain(rest).collect();
    let needed = case.ports as usize;
    let given = all.len();
    if given < needed { Err(Skip::TooFewCpus { needed, given }.into()) } else { Ok(all) }
}

/// Starts netvale's sender on the cables: the sender uses the rings of the cables' near ends, which are AF_XDP sockets.
pub fn on_cables(bench: &TestBench<'_>) -> Result<Crew> {
    bench.cables()?;
    let daemon = Daemon::start(Some(&bench.namespace), bench.other(0), "")?;
    let start = |index| bench.program(&daemon, SENDER, bench.own(index), format!("netmap:{}", near(index)));
    Ok(Crew::on_cables(bench.each(start)?, vec![daemon]))
}

/// Starts a daemon, and senders and receivers on its ports. `ports` returns the sender's and the receiver's port of the
/// pair with this index.
fn through(bench: &TestBench<'_>, ports: impl Fn(usize) -> [String; 2]) -> Result<Crew> {
    let daemon = Daemon::start(None, bench.other(0), "")?;
    let program = |role, cpu, port: &str| bench.program(&daemon, role, cpu, port.to_owned());
    let receivers = bench.each(|index| program(PKT_GEN, bench.other(index), &ports(index)[1]))?;
    let senders = bench.each(|index| program(SENDER, bench.own(index), &ports(index)[0]))?;
    let cpus: Vec<usize> = (0..bench.senders()).map(|index| bench.other(index)).collect();
    let words = format!("receivers on CPUs {cpus:?}, the daemon's worker on CPU {}", bench.other(0));
    let receivers = receivers.into_iter().map(|receiver| receiver as Rc<dyn Part>);
    let others = receivers.chain([daemon as Rc<dyn Part>]).collect();
    Ok(Crew { senders, others, counts_itself: true, words })
}

/// Starts a sender on a UDP socket for each cable. As with the other senders, the frames' destination address belongs
/// to no host, so the far end drops them early.
fn by_udp(bench: &TestBench<'_>, is_batched: bool) -> Result<Crew> {
    bench.cables()?;
    let start = |index: usize| {
        let name = near(index);
        let to = format!("10.78.{index}.2");
        bench.namespace.ip(&format!("addr add 10.78.{index}.1/24 dev {name}"))?;
        bench.namespace.ip(&format!("neigh add {to} lladdr 02:00:00:00:00:01 dev {name} nud permanent"))?;
        let way = UdpWay { to: format!("{to}:9"), frame_bytes: bench.case.frame_bytes, is_batched };
        bench.on_socket(datagrams::SENDER, index, &way)
    };
    Ok(Crew::on_cables(bench.each(start)?, Parts::new()))
}

fn by_packets(bench: &TestBench<'_>) -> Result<Crew> {
    bench.cables()?;
    let start = |index| {
        let wire = Wire { interface: near(index), case: bench.case.clone() };
        bench.on_socket(packets::SENDER, index, &wire)
    };
    Ok(Crew::on_cables(bench.each(start)?, Parts::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each case has a share of the CPU and a number of senders.
    #[test]
    fn shares() {
        let cases = SCENARIO.cases(&Measure::default());
        let all: Vec<_> = cases.iter().map(|case| (share(case), case.ports)).collect();
        assert_eq!(all, [(10, 1), (25, 1), (50, 1), (75, 1), (100, 1), (100, 2), (100, 4)]);
    }
}
