//! Frames and TCP between two hosts over VXLAN, and the cost of encapsulation per frame without the system call.

pub mod encapsulate;

use super::*;
use crate::peers::across::{OneWay, stream};
use crate::peers::iperf;
use crate::peers::underlay::{self, CUT, Underlay, VNI, vtep};

/// The variant that measures TCP.
const TCP: &str = "tcp";
/// The variant that measures encapsulation in a single thread.
const ENCAPSULATE: &str = "encapsulate";
/// Maximum sleep of the programs.
const PATIENCE: Duration = Duration::from_millis(10);
/// Number of the receiving station.
const STATION: u16 = 0;

/// The scenario: a VALE switch with a VXLAN tunnel on each of two hosts.
pub const SCENARIO: Scenario = Scenario {
    name: "vxlan",
    about: "frames and TCP between two hosts' switches over VXLAN; the cost of encapsulation beside the system call",
    variants: variants![
        Variant::SHORT => "frames", CUT;
        Variant { unit: Unit::Gbps, ..Variant::TWO_PORTS } => TCP;
        Variant { unit: Unit::Nanos, ..Variant::SHORT } => ENCAPSULATE
    ],
    needs: &[TWO],
    start,
};

fn start(case: &Case, cores: Cores) -> Result<Session> {
    match case.variant.as_str() {
        ENCAPSULATE => return encapsulate::start(case, cores),
        TCP => need(&[iperf::NEEDS], 2)?,
        _ => need(&[NETWORKS], 2)?,
    }
    let underlay = Underlay::new(case, cores)?;
    let [near, far] = &underlay.hosts;
    let daemons = [Daemon::start(Some(near), cores.0, "")?, Daemon::start(Some(far), cores.1, "")?];
    for (host, daemon) in daemons.iter().enumerate() {
        let tunnel = format!("vxlan:{VNI},local={},remote={}", vtep(host), vtep(1 - host));
        daemon.attach(VALE, tunnel, PortOptions::default())?;
    }
    let session = if case.variant == TCP {
        let stations = [attached(&daemons[0], near, 0)?, attached(&daemons[1], far, 1)?];
        stream(vec![daemons[0].clone(), daemons[1].clone()], stations, cores)?.fact("tap", "gro")
    } else {
        one_way(case, cores, daemons)?
    };
    Ok(session.keeping(underlay))
}

/// Creates a namespace with a TAP of a host's daemon.
fn attached(daemon: &Daemon, hub: &Netns, host: usize) -> Result<Netns> {
    let namespace = Netns::new()?;
    daemon.attach(VALE, "tap:nv0".into(), PortOptions { gro: true, ..PortOptions::default() })?;
    hub.ip(&format!("link set nv0 netns {}", namespace.path()))?;
    underlay::set_up_station(&namespace, host, "nv0")?;
    Ok(namespace)
}

/// Sends frames across the tunnel in one direction, from a sender on one host's switch to a receiver on the other
/// host's switch. Sender and receiver sleep when there is no work, which leaves their core to the host's daemon.
/// Switches and tunnels learn where the receiver is.
fn one_way(case: &Case, cores: Cores, [near, far]: [Rc<Daemon>; 2]) -> Result<Session> {
    let touch = Touch::of(case);
    let batch = case.batch.max(1);
    let mut from = near.port("from")?;
    let mut to = far.port("to")?;
    let mut sender = Sender::new(FIRST_SENDER, (STATION, 1), case.frame_bytes, touch);
    sender.fill(&from.tx()[0]);
    // No station has the destination address, so the frame is flooded to all ports, including the tunnel.
    to.tx()[0].send(&frame(u16::MAX, STATION, case.frame_bytes));
    to.sync();
    near.wait_for_frames(1)?;
    let mut receiver = Receiver::new(touch);
    let one_way = OneWay {
        who: "netvale's tunnel",
        hosts: vec![near, far],
        sender: move || {
            from.wait(Interest::Tx, Some(PATIENCE)).map_err(|error| failed(&error))?;
            Ok(sender.send(&mut from.tx()[0], batch).into())
        },
        receiver: move |wrong: &mut u64| {
            to.wait(Interest::Rx, Some(PATIENCE)).map_err(|error| failed(&error))?;
            let taken = receiver.receive(&mut to.rx()[0], batch);
            *wrong = receiver.wrong;
            Ok(taken.into())
        },
    };
    let session = one_way.session(case, cores, case.touches(), true)?;
    Ok(session.fact("slots", SLOTS).fact("bytes", touch.words()))
}
