//! `netvale gateway` beside other user-space gateways: a guest, which is a namespace with a TAP, reaches a server
//! outside, and the server reaches a port of the guest.
//!
//! ```text
//!  guest ── TAP ── the gateway's processes, in `host` ── veth ── outside
//!                  192.0.2.1                     192.0.2.2, 198.51.100.1
//! ```
//!
//! Guest and server run on the first CPU, except for round trips; all processes of the gateway, including netvale's
//! daemon, run on the second CPU. The kernel's own figures are measured with a veth pair and routing in place of the
//! gateway.

mod contenders;
mod network;
mod roles;
mod works;

pub use contenders::peers;
pub use roles::{ASKER, CLOSER, HOLDER, KEEPER, NAMES, OPENER, asker, closer, holder, keeper, names, opener};

use self::network::Network;
use super::*;
use crate::peers::iperf;

const TCP: Variant = Variant { unit: Unit::Gbps, ports: &[0], ..Variant::TWO_PORTS };
const CPU: Variant = Variant { unit: Unit::SecondsPerGb, ..TCP };
const RATE: Variant = Variant { unit: Unit::PerSecond, ..TCP };
const ROUND_TRIP: Variant = Variant { unit: Unit::Micros, ..TCP };
const MEMORY: Variant = Variant { unit: Unit::Kib, ..TCP };

/// The variant with DNS queries that the gateway itself answers.
const OWN_NAMES: &str = "dns-own";

/// The scenario: the gateway of a switch's guests.
pub const SCENARIO: Scenario = Scenario {
    name: "gateway",
    about: "a gateway in user space: TCP out and in, connections, round trips, DNS, CPU time, memory",
    variants: variants![
        TCP => "tcp-out", "tcp-out-4", "tcp-in", "tcp-in-4";
        CPU => "tcp-out-cpu", "tcp-in-cpu";
        RATE => "connections-out", "connections-in", "dns", OWN_NAMES;
        ROUND_TRIP => "tcp-round-trip", "udp-round-trip";
        MEMORY => "memory-10000-connections"
    ],
    needs: &[TWO, NETWORKS, iperf::NEEDS, &[Need::Found(|| sys::netvale().map(drop))]],
    start: |case, cores| measured("netvale", case, cores, contenders::netvale),
};

/// A running gateway.
struct RunningGateway {
    /// The gateway's processes.
    parts: Parts,
    /// Address of the DNS server that the guest uses.
    names: &'static str,
    /// A host name that the gateway itself resolves; empty if there is none.
    own_name: &'static str,
    /// The guest's address, where its servers listen.
    guest: &'static str,
    /// The address at which `outside` reaches the guest's port.
    inbound: &'static str,
    /// Objects that must exist as long as the gateway runs.
    kept: Vec<Box<dyn std::any::Any>>,
}

type StartGateway = fn(&Network) -> Result<RunningGateway>;

/// Starts a gateway, and returns a session that measures a case with it.
fn measured(who: &'static str, case: &Case, cores: Cores, start: StartGateway) -> Result<Session> {
    allow_many_files()?;
    let network = Network::new(cores)?;
    let mut gateway = start(&network)?;
    network.wait_for_way_out(who)?;
    let kept = std::mem::take(&mut gateway.kept);
    let session = works::MeasuredGateway { who, case, cores, network: &network, gateway }.session()?;
    session.keeping(kept).keeping(network).idle()
}

/// Lets this process, and the processes that it starts, have as many open files as the system allows.
fn allow_many_files() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: maximum, maximum };
    setrlimit(Resource::Nofile, limit).map_err(BenchError::io("raising the limit of open files"))
}
