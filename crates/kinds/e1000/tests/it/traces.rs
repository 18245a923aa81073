//! Replays of real drivers: register accesses that were recorded at a port (`RUST_LOG=netvale_e1000=trace netvale up`)
//! while no packet was sent.
//!
//! Each line is an access: `r` or `w`, the register, and the value read or written, in hexadecimal; `#` begins a
//! comment.

use netvale_e1000::core::{Core, SharedCore};
use netvale_e1000::device::{Card, E1000};
use netvale_e1000::paravirt::SUBSYSTEM;
use netvale_e1000::regs::{ICR, IMS, STATUS, STATUS_LU};

/// The card with which the traces were recorded.
const CARD: Card = Card { mac: [2, 0, 0, 0, 0, 1], subsystem: SUBSYSTEM, forced_interval: None };

fn replay(name: &str, trace: &str, core: &mut Core) -> (usize, usize) {
    let mut reads = 0;
    let mut writes = 0;
    for (i, line) in trace.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let what = words.next().unwrap();
        let [at, value] = [words.next(), words.next()].map(|word| u32::from_str_radix(word.unwrap(), 16).unwrap());
        if what == "w" {
            core.write(at, value);
            writes += 1;
        } else {
            assert_eq!(format!("{:08x}", core.read(at)), format!("{value:08x}"), "{name}:{}: register {at:05x}", i + 1);
            reads += 1;
        }
    }
    (reads, writes)
}

/// Objective: each driver, from its probe until the interface is up, reads the recorded values, and at the end the link
/// is up and interrupts are enabled.
#[test]
fn recorded_drivers_read_the_recorded_values() {
    for (name, trace) in [
        ("linux-6.1-e1000", include_str!("../traces/linux-6.1-e1000.txt")),
        ("nve1000", include_str!("../traces/nve1000.txt")),
    ] {
        let shared = SharedCore::new(E1000::new(CARD)).unwrap();
        let mut inside = shared.enter();
        let core = inside.as_mut().unwrap();
        let (reads, writes) = replay(name, trace, core);
        assert!(reads > 5 && writes > 20, "{name}: {reads} reads, {writes} writes");
        assert!(
            core.read(STATUS) & STATUS_LU != 0 && core.read(IMS) != 0 && core.read(ICR) & !core.read(IMS) == 0,
            "{name}"
        );
    }
}
