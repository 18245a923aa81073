//! The attackers, each with a well-behaved program of the same kind.

use super::company::Company;
use super::programs::receives;
use super::vmm::Shape;
use super::*;

type Make = fn(&Daemon) -> Result<Company>;

/// An attack, and the program with which it is compared.
pub struct Row {
    /// The variant's name.
    pub name: &'static str,
    /// Starts the attacker.
    pub attacker: Make,
    /// Starts the well-behaved program.
    pub well_behaved: Make,
    /// Whether the bystander sends every other frame to the program beside it.
    pub is_talked_to: bool,
}

/// Interval at which a slow receiver reads a frame; with this interval, the receiver never counts as stalled.
const SLOW: Duration = Duration::from_millis(400);

/// Starts a receiver that reads all frames as they arrive.
fn reads(daemon: &Daemon) -> Result<Company> {
    receives(daemon, false, None)
}

/// Starts no program.
fn nobody(_: &Daemon) -> Result<Company> {
    Ok(Box::new(|| Ok(())))
}

const BESIDES: Variant = Variant { frame_bytes: &[60], batch: &[256], ports: &[3], ..Variant::TWO_PORTS };

/// Creates the table from rows: a name, an attacker, a well-behaved program, and whether the bystander sends to the
/// program beside it. Each row has two variants.
macro_rules! rows {
    ($($name:literal, $attacker:expr, $well_behaved:expr, $is_talked_to:literal;)+) => {
        /// All attacks.
        pub const TABLE: &[Row] = &[$(
            Row { name: $name, attacker: $attacker, well_behaved: $well_behaved, is_talked_to: $is_talked_to },
        )+];
        /// Two variants for each attack: the rate of frames, and the latency of the slowest of 100 frames.
        pub const VARIANTS: &[Variant] = &[$(
            Variant { name: $name, ..BESIDES },
            Variant { name: concat!($name, "-p99"), unit: Unit::Micros, batch: &[1], ..BESIDES },
        )+];
    };
}

rows! {
    "flood-receiver", |d| programs::floods_to(d, address(RECEIVER)), programs::to_a_partner, false;
    "flood-broadcast", |d| programs::floods_to(d, [0xff; 6]), programs::to_a_partner, false;
    "flood-unknown", |d| programs::floods_to(d, address(NOBODY)), programs::to_a_partner, false;
    "flood-addresses", programs::from_many, programs::to_a_partner, false;
    "doorbell", storms::rings, nobody, false;
    "reattach", storms::reattaches, nobody, false;
    "connect", storms::connects, nobody, false;
    "refused", storms::is_refused, nobody, false;
    "never-reads", |d| receives(d, false, Some(Duration::MAX)), reads, true;
    "lossless-never-reads", |d| receives(d, true, Some(Duration::MAX)), reads, true;
    "lossless-slow", |d| receives(d, true, Some(SLOW)), reads, true;
    "blocked-wakeup", programs::blocks, reads, true;
    "vhost-chains", |d| vmm::start(d, Shape::Chain), |d| vmm::start(d, Shape::Plain), false;
    "vhost-indirect", |d| vmm::start(d, Shape::Indirect), |d| vmm::start(d, Shape::Plain), false;
    "vhost-kicks", |d| vmm::start(d, Shape::OnlyKicks), nobody, false;
    "holes", users::makes_holes, reads, true;
    "watchers", |d| users::is_woken(d, users::WATCHES), |d| users::is_woken(d, 1), true;
    "filtering-sockets", |d| users::is_heard(d, users::SOCKETS), |d| users::is_heard(d, 1), false;
    "rules", users::has_rules, |d| programs::stranger_to(d, address(NOBODY)), false;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each variant has a row, and each row two variants.
    #[test]
    fn each_variant_has_a_row() {
        let mut names: Vec<_> = super::super::SCENARIO.variants.iter().map(|variant| variant.name).collect();
        for row in TABLE {
            let single = format!("{}-p99", row.name);
            names.retain(|name| *name != row.name && *name != single);
        }
        assert!(names.is_empty(), "{names:?}");
        assert_eq!(super::super::SCENARIO.variants.len(), 2 * TABLE.len());
    }
}
