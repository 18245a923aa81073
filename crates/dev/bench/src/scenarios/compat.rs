//! Unmodified programs: netmap's API and libpcap under `netvale run`, compared with netvale's own programs on the same
//! ports.

use super::programs::{NETMAP_RECEIVER, NETMAP_SENDER, PCAP_RECEIVER, PKT_GEN, Program, SENDER};
use super::*;
use crate::peers::packets;

/// The scenario. Across a switch, programs do not touch the frames, as in pkt-gen; over a pipe, they write and read the
/// first cache line of each frame.
pub const SCENARIO: Scenario = Scenario {
    name: "compat",
    about: "unmodified programs for netmap and libpcap, against ours on the same ports; sender, switch and receiver \
        on two cores",
    variants: variants![Variant::SHORT => "netmap-vale-untouched", "netmap-pipe", "pcap-vale", "pcap-pipe"],
    needs: &[TWO],
    start: |case, cores| match is_pcap(case) {
        true => on_daemon(case, cores, SENDER, PCAP_RECEIVER),
        false => on_daemon(case, cores, NETMAP_SENDER, NETMAP_RECEIVER),
    },
};

/// Returns the peers: our own programs on the same ports (pkt-gen across the switch, the loops of the scenario `pipe`
/// over a pipe), and the same libpcap program with the system's libpcap.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "netvale-native", "the same ports with our own API: the receiver (and sender) of `netvale pkt-gen`";
        SCENARIO.needs, |case| SCENARIO.has(case), |case, cores| on_daemon(case, cores, SENDER, PKT_GEN);
        "pcap-veth", "the same libpcap receiver with the system's libpcap on a veth, fed by an AF_PACKET sender";
        &[NETWORKS, TWO], |case| SCENARIO.has(case) && is_pcap(case), on_veth;
    }
}

fn is_pcap(case: &Case) -> bool {
    case.variant.starts_with("pcap")
}

fn over_pipe(case: &Case) -> bool {
    case.variant.ends_with("pipe")
}

fn program(case: &Case, dir: PathBuf, port: &str) -> Program {
    let touch = if over_pipe(case) { Touch::Line } else { Touch::Nothing };
    Program { dir, port: port.into(), case: case.clone(), touch, sleeps: true }
}

/// Measures on ports of a daemon: the receiver runs on the second core, all other programs on the first core.
fn on_daemon(case: &Case, cores: Cores, sender: &str, receiver: &str) -> Result<Session> {
    let daemon = Daemon::start(None, cores.0, "")?;
    let spawn = |role: &str, core: usize, port: &str| {
        let is_own = [SENDER, PKT_GEN].contains(&role);
        let is_prefixed = over_pipe(case) && (is_own || role == PCAP_RECEIVER);
        let port = if is_prefixed { format!("netmap:{port}") } else { port.to_owned() };
        let how = if is_own { Wrapper::None } else { Wrapper::Run(daemon.dir()) };
        let worker = Worker::spawn(how, role, Some(core), &program(case, daemon.dir().into(), &port))?;
        worker.freeze().map(|()| worker)
    };
    let (from, to) = if over_pipe(case) { ("bench{1", "bench}1") } else { ("vale0:from", "vale0:to") };
    let receiver = spawn(receiver, cores.1, to)?;
    let sender = spawn(sender, cores.0, from)?;
    session(case, cores, [sender, receiver], &[daemon.pid()]).with(&daemon).idle()
}

/// Measures on a veth pair.
fn on_veth(case: &Case, cores: Cores) -> Result<Session> {
    let namespace = Netns::with_wire()?;
    let inside = Wrapper::Network(&namespace);
    let receiver = Worker::spawn(inside, PCAP_RECEIVER, Some(cores.1), &program(case, PathBuf::new(), "p1"))?;
    receiver.freeze()?;
    let wire = packets::Wire { interface: "p0".into(), case: case.clone() };
    let sender = Worker::spawn(inside, packets::SENDER, Some(cores.0), &wire)?;
    session(case, cores, [sender, receiver], &[]).keeping(namespace).idle()
}

/// Starts a session. The sender and the switch share a core; only a receiver that has to wait for its CPU counts as
/// disturbed.
fn session(case: &Case, cores: Cores, [sender, receiver]: [Rc<Worker>; 2], more: &[u32]) -> Session {
    let pid = receiver.pid();
    let pids = Some([&[pid, sender.pid()], more].concat());
    let how = CountOptions { settle: SETTLE, pids, threads: vec![(pid, pid)], asks: false, who: Some("the receiver") };
    let words = format!("sender and switch on CPU {}, receiver on CPU {}", cores.0, cores.1);
    let session = received(case, words, over_pipe(case), [&sender, &receiver], how);
    let check = move || match receiver.count(WRONG) {
        0 => Ok(()),
        wrong => Err(BenchError::Usage(format!("{wrong} frames had corrupt content"))),
    };
    session.checked(check).fact("bytes", program(case, PathBuf::new(), "").touch.words())
}
