//! The e1000: in booted guests, as in the paper "Speeding Up Packet I/O in Virtual Machines", and between guests that a
//! process simulates.

pub mod roles;

use super::guest::interface::{Interface, NETMAP_E1000, NETMAP_VIRTIO, QEMU_E1000, ROWS, SHORT_ITR, VHOST};
use super::*;
use roles::{CardPath, CardUser, Cards};

const SHORT: Variant = Variant { batch: &[32], ..Variant::SHORT };
const LARGE: Variant = Variant { unit: Unit::Gbps, frame_bytes: &[1502], ..Variant::TWO_PORTS };
const STREAM: Variant = Variant { unit: Unit::Gbps, ..Variant::TWO_PORTS };
/// TCP streams with writes of 1,460 bytes.
const WRITES: Variant = Variant { frame_bytes: &[1460], ..STREAM };
const TRIPS: Variant = Variant { unit: Unit::PerSecond, ..STREAM };
const SHORT_LARGE: Variant = Variant { unit: Unit::Gbps, frame_bytes: &[1502], ..SHORT };

/// Creates variants from rows of names, one row for each direction and number of processors: small and large datagrams
/// or frames, and optionally TCP, TCPw, and round trips. Further variants follow as in [`variants`].
macro_rules! arrangements {
    ($($small:literal, $large:literal $(, $tcp:literal, $wide:literal $(, $trips:literal)?)?;)+ => $($more:tt)+) => {
        variants![
            $(
                Variant::SMALL => $small;
                LARGE => $large;
                $(WRITES => $tcp; STREAM => $wide; $(TRIPS => $trips;)?)?
            )+
            $($more)+
        ]
    };
}

/// The scenario: the paper's columns from a guest to the host, in the other direction and between guests, with one
/// processor and with two; then simulated guests. netvale's side is the best configuration: status block, and
/// moderation if there are interrupts. Cases that the same machines can measure are adjacent.
pub const SCENARIO: Scenario = Scenario {
    name: "e1000",
    about: "the e1000 in a booted guest (QEMU, emulated), by the paper's rows BASE, ITR, ITR+SC, CSB, CSB+ITR; and \
        played by a process",
    variants: arrangements![
        "udp-small", "udp-large";
        "udp-small-tap", "udp-large-tap", "tcp", "tcp-wide", "tcp-rr";
        "udp-small-in", "udp-large-in", "tcp-in", "tcp-wide-in";
        "udp-small-tap-2cpus", "udp-large-tap-2cpus", "tcp-2cpus", "tcp-wide-2cpus", "tcp-rr-2cpus";
        "udp-small-in-2cpus", "udp-large-in-2cpus", "tcp-in-2cpus", "tcp-wide-in-2cpus";
        "netmap-small-tap-2cpus", "netmap-large-tap-2cpus";
        "netmap-small-2cpus", "netmap-large-2cpus";
        "netmap-small-in-2cpus", "netmap-large-in-2cpus";
        "udp-small-between", "udp-large-between";
        "udp-small-bridged-2cpus", "udp-large-bridged-2cpus",
            "tcp-bridged-2cpus", "tcp-wide-bridged-2cpus", "tcp-rr-bridged-2cpus";
        "udp-small-between-2cpus", "udp-large-between-2cpus",
            "tcp-between-2cpus", "tcp-wide-between-2cpus", "tcp-rr-between-2cpus";
        "netmap-small-between-2cpus", "netmap-large-between-2cpus";
        => SHORT => "played", "played-sent", "played-out", "played-in";
        SHORT_LARGE => "played-large", "played-large-sent", "played-large-out", "played-large-in"
    ],
    needs: &[TWO],
    start: |case, cores| {
        if is_played(case) {
            return played("netvale", case, cores, true, 0);
        }
        crate::sys::need(guest::NEEDS, 2)?;
        guest::start(case, cores, BEST, "netvale")
    },
};

const BEST: Interface = ROWS[4];

fn is_played(case: &Case) -> bool {
    case.variant.starts_with("played")
}

/// Returns the other ways in which a simulated driver notifies the card of packets: by a write to TDT for each batch,
/// or only once earlier packets have been sent.
pub fn players() -> Vec<Contender> {
    let is_here = |case: &Case| SCENARIO.has(case) && matches!(&*case.variant, "played" | "played-large");
    contenders! {
        "netvale-base", "e1000 ports on a VALE switch; the driver writes TDT for each batch";
        SCENARIO.needs, is_here, |case, cores| played("netvale-base", case, cores, false, 0);
        "netvale-sc", "the same with Send Combining";
        SCENARIO.needs, is_here, |case, cores| played("netvale-sc", case, cores, false, COMBINE);
    }
}

/// Returns the paper's other rows, QEMU's own card on a TAP and by netmap, and virtio-net, in booted guests.
pub fn booted() -> Vec<Contender> {
    let others = [SHORT_ITR, QEMU_E1000, NETMAP_E1000, NETMAP_VIRTIO, VHOST];
    let rows = ROWS.into_iter().filter(|row| *row != BEST);
    rows.chain(others).map(|interface| guest::peer(interface, move |case| is_for(interface, case))).collect()
}

/// Returns whether guests with `interface` are measured in the case.
fn is_for(interface: Interface, case: &Case) -> bool {
    let name = case.variant.strip_suffix("-2cpus").unwrap_or(&case.variant);
    // Between guests, the interface must be on netvale's switch; on the bridge, it must have a TAP.
    let is_reached = if name.ends_with("-between") {
        interface.is_ours()
    } else if name.ends_with("-bridged") {
        interface.is_our_e1000() || !interface.is_ours()
    } else {
        true
    };
    SCENARIO.has(case) && !is_played(case) && !name.starts_with("netmap") && is_reached
}

/// Packets that may wait with Send Combining.
const COMBINE: u32 = 256;

/// Returns the direction of frames of simulated guests.
fn card_path(case: &Case) -> CardPath {
    match case.variant.rsplit('-').next() {
        Some("out") => CardPath::ToHost,
        Some("in") => CardPath::FromHost,
        _ => CardPath::Between,
    }
}

fn played(name: &'static str, case: &Case, cores: Cores, csb: bool, combine: u32) -> Result<Session> {
    let daemon = Daemon::start(None, cores.1, "")?;
    for card in [CardUser::FROM, CardUser::TO] {
        let options = PortOptions { name: Some(card.into()), ..PortOptions::default() };
        daemon.attach(VALE, format!("e1000:{}", daemon.dir().join(card).display()), options)?;
    }
    let frame_bytes = case.frame_bytes;
    let burst = case.batch.clamp(1, netvale_port::BATCH as u32);
    let path = card_path(case);
    let cards = Cards { dir: daemon.dir().into(), path, csb, combine, frame_bytes, burst };
    let guests = Worker::spawn(Wrapper::None, roles::GUESTS, Some(cores.0), &cards)?;
    let words = format!("switch on CPU {}, both ends on CPU {}", cores.1, cores.0);
    let counts = guests.clone();
    let parts: Parts = vec![guests, daemon.clone()];
    let set = ProcessSet { who: "the other end", is_strict: false, settle: SETTLE, parts };
    let is_sent = case.variant.ends_with("-sent");
    let asked = daemon.clone();
    let tally = move || match is_sent {
        true => Ok((asked.port_counts(CardUser::FROM)?[SENT], Instant::now())),
        false => Ok(counts.tally()),
    };
    let card = if path == CardPath::FromHost { CardUser::TO } else { CardUser::FROM };
    Ok(with_accesses(set.session(case, words, true, tally)?, name, daemon, card))
}

/// Adds the register accesses per frame to the samples, as the card counts them.
fn with_accesses(session: Session, name: &'static str, daemon: Rc<Daemon>, card: &'static str) -> Session {
    session.wrapped(move |inner, window| {
        let before = daemon.port_counts(card)?;
        let sample = inner(window)?;
        let after = daemon.port_counts(card)?;
        let [accesses, sent, got]: [u64; 3] = std::array::from_fn(|i| after[i] - before[i]);
        let each = accesses as f64 / (sent + got).max(1) as f64;
        Ok(sample.fact(&format!("{name} exits_each"), format!("{each:.4}")))
    })
}

/// Index of the frames sent by the card in the result of [`Daemon::port_counts`].
const SENT: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a guest without a port on netvale's switch is not measured between guests of that switch; a guest
    /// without a TAP is not measured on the bridge; only netvale's driver is measured in netmap mode.
    #[test]
    fn who_is_measured_where() {
        let all = [("udp-small-tap", 9), ("tcp-between-2cpus", 8), ("tcp-bridged-2cpus", 6), ("netmap-small-2cpus", 0)];
        for (variant, expected) in all {
            let case = Case::new(SCENARIO.name, variant, Unit::PerSecond);
            let count = booted().iter().filter(|who| who.fits(&case)).count();
            assert_eq!(count, expected, "{variant}");
        }
    }
}
