//! The scenarios that can be measured. Each scenario is one file; adding one means adding a line to [`all`].

pub mod compat;
pub mod copy;
pub mod crowded;
pub mod e1000;
pub mod embedded;
pub mod fairness;
pub mod guest;
pub mod idle;
pub mod latency;
pub mod nic;
pub mod own;
pub mod pipe;
pub mod policies;
pub mod ptnet;
pub mod stations;
pub mod tap;
pub mod traffic;
pub mod vale;
pub mod vhost;
pub mod vxlan;

use crate::case::{Case, Unit};
use crate::contender::Contender;
use crate::crowd;
use crate::peers::packets;
use crate::sys::worker::Role;

/// The roles of our own worker processes, by name.
pub const ROLES: &[&[(&str, Role)]] = &[
    &[(own::DAEMON, own::daemon_role), (pipe::SENDER, pipe::sender_role), (pipe::RECEIVER, pipe::receiver_role)],
    &compat::ROLES,
    &[(guest::agent::AGENT, guest::agent::agent_role)],
    &vhost::roles::ROLES,
    &e1000::roles::ROLES,
    &[crowd::ROLE],
    &packets::ROLES,
];

/// The values to go through; an empty list means the scenario's own.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Frame lengths without FCS.
    pub frame_bytes: Vec<u32>,
    /// Frames a sync.
    pub batch: Vec<u32>,
    /// Ports or rings.
    pub ports: Vec<u32>,
    /// Foreign threads.
    pub foreign: Vec<u32>,
}

/// A kind of measurement.
pub struct Scenario {
    /// The scenario's name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// The scenario's variants.
    pub variants: &'static [Variant],
    /// Netvale's side; `None` while only the peers' side exists.
    pub ours: Option<fn() -> Box<dyn Contender>>,
}

/// A variant of a scenario and the values it is measured at unless others are asked for.
pub struct Variant {
    /// The variant's name.
    pub name: &'static str,
    /// The unit of its figure.
    pub unit: Unit,
    /// Frame lengths; `[0]` where frames have no fixed length, which no option changes.
    pub frame_bytes: &'static [u32],
    /// Batches; `[0]` where there is no such thing, which no option changes.
    pub batch: &'static [u32],
    /// Ports. Several values are a sweep, which options may replace; a single one is part of what the variant is.
    pub ports: &'static [u32],
    /// Spin budgets, µs; empty where nobody waits.
    pub spin_us: &'static [u32],
    /// Numbers of destination addresses; empty where they do not vary.
    pub addresses: &'static [u32],
    /// Numbers of foreign threads; empty where the machine is ours alone.
    pub foreign: &'static [u32],
}

impl Variant {
    /// Two ports and nothing else that varies: what the others are written as differences from.
    pub const TWO_PORTS: Self = Self {
        name: "",
        unit: Unit::Mpps,
        frame_bytes: &[0],
        batch: &[0],
        ports: &[2],
        spin_us: &[],
        addresses: &[],
        foreign: &[],
    };

    fn cases(&self, scenario: &str, sweep: &Sweep) -> Vec<Case> {
        let mut cases = vec![Case {
            scenario: scenario.to_owned(),
            variant: self.name.to_owned(),
            frame_bytes: 0,
            batch: 0,
            ports: 0,
            spin_us: None,
            addresses: None,
            foreign: None,
            unit: self.unit,
        }];
        let foreign: &[u32] = if self.foreign.is_empty() { &[] } else { &sweep.foreign };
        let ports: &[u32] = if self.ports.len() > 1 { &sweep.ports } else { &[] };
        spread(&mut cases, chosen(&sweep.frame_bytes, self.frame_bytes), |case, x| case.frame_bytes = x);
        spread(&mut cases, chosen(&sweep.batch, self.batch), |case, x| case.batch = x);
        spread(&mut cases, chosen(ports, self.ports), |case, x| case.ports = x);
        spread(&mut cases, self.spin_us, |case, x| case.spin_us = Some(x));
        spread(&mut cases, self.addresses, |case, x| case.addresses = Some(x));
        spread(&mut cases, chosen(foreign, self.foreign), |case, x| case.foreign = Some(x));
        cases
    }
}

/// Each case becomes one for each value; without values all stay as they are.
fn spread(cases: &mut Vec<Case>, values: &[u32], set: impl Fn(&mut Case, u32)) {
    if values.is_empty() {
        return;
    }
    let with = |case: Case| {
        values
            .iter()
            .map(|&value| {
                let mut one = case.clone();
                set(&mut one, value);
                one
            })
            .collect::<Vec<_>>()
    };
    *cases = std::mem::take(cases).into_iter().flat_map(with).collect();
}

impl Scenario {
    /// All cases of the sweep, variant by variant.
    #[must_use]
    pub fn cases(&self, sweep: &Sweep) -> Vec<Case> {
        self.variants.iter().flat_map(|variant| variant.cases(self.name, sweep)).collect()
    }
}

fn chosen<'a>(asked: &'a [u32], own: &'a [u32]) -> &'a [u32] {
    if asked.is_empty() || own == [0] { own } else { asked }
}

/// Every scenario, in the order of the documentation.
#[must_use]
pub fn all() -> &'static [Scenario] {
    ALL
}

static ALL: &[Scenario] = &[
    copy::SCENARIO,
    pipe::SCENARIO,
    vale::SCENARIO,
    policies::SCENARIO,
    tap::SCENARIO,
    vxlan::SCENARIO,
    latency::SCENARIO,
    idle::SCENARIO,
    compat::SCENARIO,
    vhost::SCENARIO,
    vhost::pvp::SCENARIO,
    vhost::guests::SCENARIO,
    nic::SCENARIO,
    ptnet::SCENARIO,
    e1000::SCENARIO,
    guest::SCENARIO,
    fairness::SCENARIO,
    crowded::SCENARIO,
];

/// The scenario of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Objective: names are unique and usable on a command line, and each scenario has something to measure.
    #[test]
    fn registry_is_sound() {
        let names: HashSet<_> = all().iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all().len());
        for scenario in all() {
            assert!(scenario.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            assert!(!scenario.cases(&Sweep::default()).is_empty());
            assert!(std::ptr::eq(find(scenario.name).expect("listed"), scenario));
        }
        assert!(find("no-such").is_none());
    }

    /// Objective: numbers of foreign threads are swept where there are any, and nowhere else.
    #[test]
    fn foreign_threads() {
        let sweep = Sweep { foreign: vec![3], ..Sweep::default() };
        for scenario in all() {
            for case in scenario.cases(&sweep) {
                assert_eq!(case.foreign, (scenario.name == "crowded").then_some(3));
            }
        }
    }

    /// Objective: a sweep multiplies out, and does not touch dimensions that a scenario does not have.
    #[test]
    fn sweeps() {
        let sweep = Sweep { frame_bytes: vec![60, 1500], batch: vec![1, 32, 256], ..Sweep::default() };
        let pipe = find("pipe").expect("listed");
        assert_eq!(pipe.cases(&sweep).len(), 6 * pipe.variants.len());
        let tap = find("tap").expect("listed").cases(&sweep);
        assert!(matches!(&tap[..], [case] if case.frame_bytes == 0 && case.batch == 0));
    }
}
