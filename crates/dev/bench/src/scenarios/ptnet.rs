//! Guests on ptnet ports, simulated by a process on the same shared memory: sender and receiver on one core, the switch
//! on the other core.

use super::vale::across;
use super::*;

/// Batch sizes in frames.
const BATCHES: &[u32] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The scenario: a sender and a receiver, each on a simulated guest's ptnet port.
pub const SCENARIO: Scenario = Scenario {
    name: "ptnet",
    about: "guests on ptnet ports of a switch (simulated by a process on their memory), with and without virtio-net \
        header, by batch, by slots of a ring; vhost beside it; a pipe, passed through",
    variants: variants![
        Variant::SHORT => "guests", "guests-header", "guests-untouched";
        Variant { unit: Unit::Gbps, frame_bytes: &[1500], ..Variant::SHORT } => "guests-large";
        Variant { batch: BATCHES, ..Variant::SHORT } => "batches";
        Variant::SHORT => "slots-256", "slots-512", "slots-1024", "slots-2048", "pipe", "pipe-untouched"
    ],
    needs: &[TWO],
    start,
};

fn start(case: &Case, cores: Cores) -> Result<Session> {
    let hdr_len = if case.variant == "guests-header" { 12 } else { 0 };
    let is_pipe = case.variant.starts_with("pipe");
    let open = |daemon: &Daemon, name: &str| match name {
        "from0" if is_pipe => passed(daemon, "netmap:bench{1", "pipe"),
        _ if is_pipe => daemon.open("netmap:bench}1", SLOTS),
        _ => guest(
            daemon,
            VALE,
            name,
            PortOptions { name: Some(name.into()), vnet_hdr: hdr_len, slots: slots(case), ..PortOptions::default() },
        ),
    };
    across(case, hdr_len, cores, open, |_, _| Ok(()))
}

/// Prefix of variants that differ in the number of slots per ring, which follows the prefix.
const BY_SLOTS: &str = "slots-";

fn slots(case: &Case) -> u32 {
    case.variant.strip_prefix(BY_SLOTS).and_then(|slots| slots.parse().ok()).unwrap_or(SLOTS)
}

/// Attaches a guest to which a pipe's end or an interface is passed through. On a pipe, the guest is the sender and a
/// program has the other end.
pub fn passed(daemon: &Daemon, backend: &str, name: &str) -> Result<Port> {
    let options = PortOptions { backend: Some(backend.into()), slots: SLOTS, ..PortOptions::default() };
    guest(daemon, "", name, options)
}

/// Attaches a ptnet port, and opens it as its guest would.
fn guest(daemon: &Daemon, switch: &str, name: &str, options: PortOptions) -> Result<Port> {
    let socket = daemon.dir().join(format!("{name}.sock"));
    let hdr_len = options.vnet_hdr;
    daemon.attach(switch, format!("ptnet:{}", socket.display()), options)?;
    Port::as_guest(&socket, hdr_len).map_err(|e| failed(&e))
}

/// Returns the peer: local ports, to show the additional cost of ptnet ports.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "netvale-local", "local ports on a VALE switch, one worker"; SCENARIO.needs,
        |case| has_peers(case) || SCENARIO.has(case) && case.variant.starts_with(BY_SLOTS),
        |case, cores| {
            let open = |daemon: &Daemon, name: &str| daemon.open(&format!("{VALE}:{name}"), slots(case));
            across(case, 0, cores, open, |_, _| Ok(()))
        };
    }
}

/// Returns whether the case is the path from guest to guest, in which ptnet is compared with peers.
fn has_peers(case: &Case) -> bool {
    SCENARIO.has(case) && case.variant == "guests"
}

/// Returns the contenders of the virtio scenarios that are also compared with ptnet, under names of their own.
pub fn virtio() -> Vec<Contender> {
    // The virtio scenarios' name for this direction and path: one direction, mergeable queues.
    let alike = |case: &Case| Case { variant: "to-host mergeable".into(), ..case.clone() };
    contenders! {
        "netvale-vhost", vhost::BOTH_GUESTS; vhost::GUESTS.needs, has_peers,
        move |case, cores| vhost::guests(&alike(case), cores, true);
        "dpdk-vhost", vhost::DPDK; vhost::SCENARIO.needs, has_peers,
        move |case, cores| vhost::pairing(&alike(case), cores, false, false);
    }
}
