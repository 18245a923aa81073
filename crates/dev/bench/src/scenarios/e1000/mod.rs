//! The e1000: in guests that are really booted, as the paper's figure has it, and between guests that a process plays.

pub mod roles;

use super::guest::interface::{Interface, QEMU_E1000, ROWS, VHOST};
use super::*;

const SHORT: Variant = Variant { batch: &[32], ..Variant::SHORT };
const LARGE: Variant = Variant { unit: Unit::Gbps, frame_bytes: &[1502], ..Variant::TWO_PORTS };
const STREAM: Variant = Variant { unit: Unit::Gbps, ..Variant::TWO_PORTS };

/// The scenario: the paper's columns from a guest to the host, datagrams the other way and between guests; then guests
/// that are played. Ours is the best configuration: status block, and moderation where there are interrupts.
pub const SCENARIO: Scenario = Scenario {
    name: "e1000",
    about: "the e1000 in a booted guest (QEMU, emulated), by the paper's rows BASE, ITR, ITR+SC, CSB, CSB+ITR; and \
        played by a process",
    variants: variants![
        Variant::SMALL => "udp-small";
        LARGE => "udp-large";
        Variant::SMALL => "udp-small-tap";
        LARGE => "udp-large-tap";
        STREAM => "tcp", "tcp-wide";
        Variant { unit: Unit::PerSecond, ..STREAM } => "tcp-rr";
        Variant::SMALL => "udp-small-in";
        LARGE => "udp-large-in";
        Variant::SMALL => "udp-small-between";
        LARGE => "udp-large-between";
        SHORT => "played";
        Variant { unit: Unit::Gbps, frame_bytes: &[1502], ..SHORT } => "played-large"
    ],
    needs: &[TWO],
    start: |case, cores| {
        if is_played(case) {
            return played(case, cores, true, 0);
        }
        crate::sys::need(guest::NEEDS, 2)?;
        guest::start(case, cores, BEST, "netvale")
    },
};

const BEST: Interface = ROWS[4];

fn is_played(case: &Case) -> bool {
    case.variant.starts_with("played")
}

/// The other ways in which a driver that is played tells the card of packets: by TDT, each time, or when what was told
/// before is sent.
pub fn players() -> Vec<Contender> {
    let is_here = |case: &Case| SCENARIO.has(case) && is_played(case);
    contenders! {
        "netvale-base", "e1000 ports on a VALE switch; the driver writes TDT for each batch";
        SCENARIO.needs, is_here, |case, cores| played(case, cores, false, 0);
        "netvale-sc", "the same with Send Combining";
        SCENARIO.needs, is_here, |case, cores| played(case, cores, false, COMBINE);
    }
}

/// The other rows, QEMU's own card, and virtio-net, in booted guests.
pub fn booted() -> Vec<Contender> {
    let one = |interface: Interface| {
        let reaches = move |case: &Case| interface.is_ours() || !case.variant.ends_with("-between");
        guest::peer(interface, move |case| SCENARIO.has(case) && !is_played(case) && reaches(case))
    };
    ROWS.into_iter().filter(|row| *row != BEST).chain([QEMU_E1000, VHOST]).map(one).collect()
}

/// Packets that may wait with Send Combining.
const COMBINE: u32 = 256;

fn played(case: &Case, cores: Cores, csb: bool, combine: u32) -> Result<Session> {
    let daemon = Daemon::start(None, cores.1, "")?;
    let paths = ["e0", "e1"].map(|name| daemon.dir().join(name));
    for path in &paths {
        daemon.attach(VALE, format!("e1000:{}", path.display()), PortOptions::default())?;
    }
    let frame_bytes = case.frame_bytes;
    let burst = case.batch.clamp(1, netvale_port::BATCH as u32);
    let cards = roles::Cards { paths, csb, combine, frame_bytes, burst };
    let guests = Worker::spawn(Wrapper::None, roles::GUESTS, Some(cores.0), &cards)?;
    let words = format!("switch {}, both guests {}", cores.1, cores.0);
    let counts = guests.clone();
    let set = ProcessSet { who: "the other end", is_strict: false, settle: SETTLE, parts: vec![guests, daemon] };
    set.session(case, words, true, move || Ok(counts.tally()))
}
