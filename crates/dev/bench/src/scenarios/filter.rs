//! A packet filter between an interface's rings and its host rings: the example `firewall`, which swaps the buffers of
//! permitted frames.
//!
//! ```text
//!   to the stack     sender ─► p0 ══ p1: counted ─► rings ─► firewall ─► host rings ─► stack: counted
//!   from the stack   counted: p0 ══ p1 ◄─ rings ◄─ firewall ◄─ host rings ◄─ stack ◄─ sender
//! ```

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use super::*;
use crate::counted::counted;
use crate::frames::{self, UdpStation};
use crate::peers::datagrams::UdpWay;
use crate::peers::packets::Wire;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role};

/// Name of the worker role [`flows`].
pub const FLOWS: &str = "flows-tx";
/// The UDP ports to which the flows go.
const PORTS: [u16; 2] = [7000, 7001];
/// The IP address of the host's stack.
const STACK: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
/// The IP address of the sender.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// Time limit for the firewall to open its rings.
const START_LIMIT: Duration = Duration::from_secs(10);
const EXAMPLE: &[Need] = &[Need::Found(|| example().map(drop))];

/// The scenario: the example `firewall` between an interface and its host rings.
pub const SCENARIO: Scenario = Scenario {
    name: "filter",
    about: "frames between an interface and its stack, by the example firewall on its rings and host rings",
    variants: variants![Variant::SHORT => "all-pass", "half-dropped", "all-dropped", "from-stack"],
    needs: &[NETWORKS, EXAMPLE, TWO],
    start: |case, cores| start("netvale", case, cores, true),
};

/// Returns the peer: the stack without a filter program.
pub fn peers() -> Vec<Contender> {
    let fits = |case: &Case| SCENARIO.has(case) && ["all-pass", "from-stack"].contains(&case.variant.as_str());
    contenders! {
        "linux-stack", "the same frames to and from the stack, without a filter";
        &[NETWORKS, TWO], fits, |case, cores| start("linux-stack", case, cores, false);
    }
}

/// Returns the path of the example program, which is built beside this one.
fn example() -> std::result::Result<PathBuf, Skip> {
    const MISSING: &str =
        "needs the example firewall beside this program: cargo build --release -p netvale --example firewall";
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join("examples").join("firewall")));
    beside.filter(|file| file.is_file()).ok_or(Skip::NotBuilt(MISSING))
}

/// Returns the firewall's rule, which states the frames to drop.
fn rule(case: &Case) -> &'static str {
    match case.variant.as_str() {
        "half-dropped" => "udp,-,-,-,7001",
        "all-dropped" => "udp,-,-,-,-",
        _ => "tcp,-,-,-,22",
    }
}

fn start(who: &'static str, case: &Case, cores: Cores, is_filtered: bool) -> Result<Session> {
    let cable = Rc::new(Cable::new(case)?);
    let mut parts = Parts::new();
    let mut folder = None;
    if is_filtered {
        let daemon = Daemon::start(Some(&cable.namespace), cores.1, "")?;
        let log = sys::scratch("filter")?;
        parts.push(firewall(&daemon, rule(case), cores.1, &log.path().join("log"))?);
        parts.push(daemon);
        folder = Some(log);
    }
    parts.insert(0, cable.sender(case, cores.0)?);
    let pids = Some(parts.iter().flat_map(|part| part.pids()).collect());
    let how = CountOptions { settle: SETTLE, pids, who: Some(who), ..CountOptions::default() };
    let counts = Rc::clone(&cable);
    let measuring = counted(case, how, move || Ok((counts.tally()?.judged, Instant::now())));
    let words = match is_filtered {
        true => format!("sender and cable on CPU {}, firewall and worker on CPU {}", cores.0, cores.1),
        false => format!("sender, cable and stack on CPU {}", cores.0),
    };
    let session = Session::new(words, true, measuring).with_all(parts).keeping(folder);
    with_tallies(session, who, cable).idle()
}

/// Adds the numbers of passed and dropped frames to the session's samples.
fn with_tallies(session: Session, who: &'static str, cable: Rc<Cable>) -> Session {
    session.wrapped(move |inner, window| {
        let before = cable.tally()?;
        let begun = Instant::now();
        let sample = inner(window)?;
        let after = cable.tally()?;
        let seconds = begun.elapsed().as_secs_f64();
        let passed = after.passed - before.passed;
        let dropped = (after.judged - before.judged).saturating_sub(passed);
        let mpps = |frames: u64| format!("{:.3}", frames as f64 / seconds / 1e6);
        let sample = sample.fact(&format!("{who} passed"), mpps(passed));
        Ok(sample.fact(&format!("{who} dropped"), mpps(dropped)))
    })
}

/// Starts the example `firewall` on the rings of `p1`.
fn firewall(daemon: &Daemon, rule: &str, core: usize, log: &Path) -> Result<Rc<Child>> {
    let mut command = Command::new(example()?);
    command.env("NETVALE_RUN_DIR", daemon.dir()).args(["p1", rule]);
    let child = Rc::new(Child::spawn(command, log)?);
    pin::pin_other(child.pid(), core)?;
    let is_open = || Ok(daemon.control()?.show("netmap:p1*").is_ok().then_some(()));
    let words = || std::fs::read_to_string(log).unwrap_or_default();
    let none = || BenchError::failed("the example firewall", "the interface was not opened", &words());
    interrupt::poll_until(START_LIMIT, is_open)?.ok_or_else(none)?;
    Ok(child)
}

/// Numbers of frames that reached the filter, and that it passed.
#[derive(Clone, Copy)]
struct Judged {
    /// Frames that reached the filter.
    judged: u64,
    /// Frames that the filter passed.
    passed: u64,
}

/// A veth pair in a namespace, one end of which is an interface of the stack.
struct Cable {
    namespace: Netns,
    from_stack: bool,
    /// Sockets to which the datagrams are sent; no program reads from them. Without sockets, the stack would answer
    /// with errors.
    _sockets: Vec<UdpSocket>,
}

impl Cable {
    fn new(case: &Case) -> Result<Cable> {
        let namespace = Netns::with_wire()?;
        namespace.ip("link set p1 address 02:00:00:00:00:01")?;
        namespace.ip(&format!("addr add {STACK}/24 dev p1"))?;
        namespace.ip(&format!("neigh add {OUTSIDE} lladdr 02:00:00:00:00:02 dev p1 nud permanent"))?;
        let bind = |port: u16| UdpSocket::bind((STACK, port)).map_err(BenchError::io("opening a UDP socket"));
        let sockets = namespace.inside(|| PORTS.into_iter().map(bind).collect::<Result<Vec<_>>>())?;
        Ok(Cable { namespace, from_stack: case.variant == "from-stack", _sockets: sockets })
    }

    fn sender(&self, case: &Case, core: usize) -> Result<Rc<Worker>> {
        let inside = Wrapper::Network(&self.namespace);
        if self.from_stack {
            let to = format!("{OUTSIDE}:{}", PORTS[0]);
            let way = UdpWay { to, frame_bytes: case.frame_bytes, is_batched: false };
            return Worker::spawn(inside, datagrams::SENDER, Some(core), &way);
        }
        Worker::spawn(inside, FLOWS, Some(core), &Wire { interface: "p0".into(), case: case.clone() })
    }

    /// Reads the counters: the interface counts the frames that it received, including frames for which a program had
    /// no room; the stack counts IP packets.
    fn tally(&self) -> Result<Judged> {
        if self.from_stack {
            let passed = self.namespace.counter("p0", 1)?;
            return Ok(Judged { judged: passed, passed });
        }
        let came = self.namespace.counter("p1", 1)?;
        let lost = self.namespace.counter("p1", 3)?;
        let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").map_err(BenchError::io("reading counters"));
        let text = self.namespace.inside(read)?;
        let passed = packets_in(&text).ok_or_else(|| BenchError::unreadable("the kernel", "its counters", &text))?;
        Ok(Judged { judged: came.saturating_sub(lost), passed })
    }
}

/// Returns the number of received IP packets in the text of the kernel's counters.
fn packets_in(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let names = lines.next()?;
    let column = names.split(' ').position(|name| name == "InReceives")?;
    lines.next()?.split(' ').nth(column)?.parse().ok()
}

/// Sends two flows in turn, 64 frames per call.
pub fn flows(context: &Context) -> Result<()> {
    let Wire { interface, case } = context.arguments()?;
    let mut socket = PacketSocket::open(&interface, Role::Send)?;
    let frames = [datagram(PORTS[0], case.frame_bytes)?, datagram(PORTS[1], case.frame_bytes)?];
    context.ready()?;
    loop {
        for frame in &frames {
            socket.send(frame, MAX_BATCH)?;
        }
    }
}

fn datagram(dst_port: u16, len: u32) -> Result<Vec<u8>> {
    let to = UdpStation { station: 1, at: SocketAddrV4::new(STACK, dst_port) };
    let from = UdpStation { station: 2, at: SocketAddrV4::new(OUTSIDE, 9) };
    frames::datagram(&to, &from, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the kernel's counter is found by its name, and a flow's frames have the requested length.
    #[test]
    fn counters_and_frames() {
        let text = "Ip: Forwarding DefaultTTL InReceives\nIp: 1 64 4711\nIcmp: InMsgs\nIcmp: 7\n";
        assert_eq!(packets_in(text), Some(4711));
        assert_eq!(packets_in("Ip: Forwarding\nIp: 1\n"), None);
        let frame = datagram(PORTS[1], 60).expect("long enough");
        assert_eq!((frame.len(), &frame[36..38]), (60, &PORTS[1].to_be_bytes()[..]));
        assert!(datagram(PORTS[0], 20).is_err());
    }
}
