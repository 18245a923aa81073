//! The scenarios: rows of [`ALL`]. Each scenario has a file with the code that starts netvale's side.

pub mod bursts;
pub mod compat;
pub mod copy;
pub mod crowded;
pub mod e1000;
pub mod embedded;
pub mod fairness;
pub mod filter;
pub mod gateway;
pub mod generators;
pub mod guest;
pub mod idle;
pub mod latency;
pub mod nic;
pub mod own;
pub mod parts;
pub mod pipe;
pub mod policies;
pub mod ports;
pub mod programs;
pub mod ptnet;
pub mod sockets;
pub mod stations;
pub mod tap;
pub mod traffic;
pub mod vale;
pub mod vhost;
pub mod vxlan;
pub mod workers;

use crate::crowd;
use crate::frames::{address, frame};
use crate::measure::Measure;
use crate::peers::{datagrams, packets};
use crate::prelude::*;
use crate::sys::worker::Role;
use own::{Daemon, VALE, failed};
use stations::{FIRST_SENDER, Plan, Stations};
use traffic::{Receiver, SLOTS, Sender, Touch};

/// The roles of the bench's worker processes, by name.
pub const ROLES: &[(&str, Role)] = &[
    (own::DAEMON, own::daemon_role),
    (programs::SENDER, programs::sender),
    (programs::RECEIVER, programs::receiver),
    (programs::PKT_GEN, programs::pkt_gen),
    (programs::NETMAP_SENDER, programs::netmap_sender),
    (programs::NETMAP_RECEIVER, programs::netmap_receiver),
    (programs::PCAP_RECEIVER, programs::pcap_receiver),
    (programs::PCAP_FORWARDER, programs::pcap_forwarder),
    (packets::SENDER, packets::send),
    (packets::RECEIVER, packets::receive),
    (datagrams::SENDER, datagrams::send),
    (filter::FLOWS, filter::flows),
    (parts::ON_VALE, parts::on_vale),
    (parts::ON_PIPE, parts::on_pipe),
    (guest::agent::AGENT, guest::agent::agent_role),
    (guest::services::SERVICES, guest::services::services),
    (vhost::roles::DEVICE, vhost::roles::device),
    (vhost::roles::DRIVER, vhost::roles::driver),
    (e1000::roles::GUESTS, e1000::roles::guests),
    (sockets::FORWARDER, sockets::forward),
    (sockets::BRIDGE, sockets::bridge),
    (gateway::CLOSER, gateway::closer),
    (gateway::OPENER, gateway::opener),
    (gateway::NAMES, gateway::names),
    (gateway::ASKER, gateway::asker),
    (gateway::KEEPER, gateway::keeper),
    (gateway::HOLDER, gateway::holder),
    crowd::ROLE,
];

/// A kind of measurement.
pub struct Scenario {
    /// The scenario's name on the command line.
    pub name: &'static str,
    /// The scenario's description, in one line.
    pub about: &'static str,
    /// The scenario's variants.
    pub variants: &'static [Variant],
    /// What netvale's side needs to run.
    pub needs: Needs,
    /// Starts netvale's side.
    pub start: fn(&Case, Cores) -> Result<Session>,
}

/// Creates variants from names, each with the values before the names:
/// `variants![SHORT => "tx", "rx"; LARGE => "tx-large"]`.
macro_rules! variants {
    ($($like:expr => $($name:expr),+);+) => {
        &[$($($crate::scenarios::Variant { name: $name, ..$like }),+),+]
    };
}
use variants;

/// A variant of a scenario, with the values for which it is measured by default.
pub struct Variant {
    /// The variant's name.
    pub name: &'static str,
    /// The unit of the variant's figure.
    pub unit: Unit,
    /// Frame lengths in bytes. `[0]` if frames have no fixed length; options then do not change the value.
    pub frame_bytes: &'static [u32],
    /// Batch sizes in frames. `[0]` if there are no batches; options then do not change the value.
    pub batch: &'static [u32],
    /// Numbers of ports. Several values are a sweep, which options may replace; a single value is part of the variant.
    pub ports: &'static [u32],
    /// Spin budgets in µs; empty if no thread waits.
    pub spin_us: &'static [u32],
    /// Numbers of destination addresses; empty if they do not vary.
    pub addresses: &'static [u32],
    /// Numbers of foreign threads: busy threads that do not belong to the contender. Empty if there are none by design.
    pub foreign: &'static [u32],
}

impl Variant {
    /// Two ports, and no other dimension: the base from which other variants are derived.
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

    /// The shortest frames in large batches.
    pub const SHORT: Self = Self { frame_bytes: &[60], batch: &[256], ..Self::TWO_PORTS };

    /// The shortest frames, one at a time, with rates so low that their unit is frames per second.
    pub const SMALL: Self = Self { unit: Unit::PerSecond, frame_bytes: &[60], ..Self::TWO_PORTS };

    fn cases(&self, scenario: &str, sweep: &Measure) -> Vec<Case> {
        let mut cases = vec![Case::new(scenario, self.name, self.unit)];
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

/// Replaces each case by one case for each value; if there are no values, all cases stay unchanged.
fn spread(cases: &mut Vec<Case>, values: &[u32], set: impl Fn(&mut Case, u32)) {
    if values.is_empty() {
        return;
    }
    for case in std::mem::take(cases) {
        for &value in values {
            let mut one = case.clone();
            set(&mut one, value);
            cases.push(one);
        }
    }
}

impl Scenario {
    /// Returns all cases of the sweep, variant by variant.
    pub fn cases(&self, sweep: &Measure) -> Vec<Case> {
        self.variants.iter().flat_map(|variant| variant.cases(self.name, sweep)).collect()
    }

    /// Returns netvale's side as a contender.
    pub fn ours(&'static self) -> Contender {
        Contender::new("netvale", self.about, self.needs, |case| self.has(case), self.start)
    }

    /// Returns whether the case belongs to this scenario.
    pub fn has(&self, case: &Case) -> bool {
        case.scenario == self.name
    }
}

fn chosen<'a>(asked: &'a [u32], own: &'a [u32]) -> &'a [u32] {
    if asked.is_empty() || own == [0] { own } else { asked }
}

/// Every scenario, in the order of the documentation.
pub static ALL: &[Scenario] = &[
    copy::SCENARIO,
    pipe::SCENARIO,
    vale::SCENARIO,
    workers::SCENARIO,
    policies::SCENARIO,
    tap::SCENARIO,
    vxlan::SCENARIO,
    latency::SCENARIO,
    idle::SCENARIO,
    ports::SCENARIO,
    compat::SCENARIO,
    vhost::SCENARIO,
    vhost::PVP,
    vhost::GUESTS,
    vhost::outside::SCENARIO,
    vhost::out::SCENARIO,
    vhost::booted::SCENARIO,
    nic::SCENARIO,
    generators::SCENARIO,
    parts::SCENARIO,
    filter::SCENARIO,
    ptnet::SCENARIO,
    e1000::SCENARIO,
    guest::SCENARIO,
    guest::pairs::SCENARIO,
    guest::pktgen::SCENARIO,
    fairness::SCENARIO,
    crowded::SCENARIO,
    sockets::SCENARIO,
    gateway::SCENARIO,
];

/// Returns the scenarios with these names; without names, all scenarios.
pub fn named(names: &[String]) -> Result<Vec<&'static Scenario>> {
    if names.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let known = || ALL.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let found = ALL.iter().find(|scenario| scenario.name == name);
        found.ok_or_else(|| BenchError::Unknown("scenario", name.clone(), known()))
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn find(name: &str) -> &'static Scenario {
        named(&[name.to_owned()]).expect("listed")[0]
    }

    /// Objective: names are unique and usable on a command line, and each scenario has something to measure.
    #[test]
    fn registry_is_sound() {
        let names: HashSet<_> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len());
        for scenario in ALL {
            assert!(scenario.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            assert!(!scenario.cases(&Measure::default()).is_empty());
            assert!(std::ptr::eq(find(scenario.name), scenario));
        }
        assert!(named(&["no-such".into()]).is_err());
    }

    /// Objective: numbers of foreign threads are swept only in scenarios that have them.
    #[test]
    fn foreign_threads_are_swept_only_where_there_are_any() {
        let sweep = Measure { foreign: vec![3], ..Measure::default() };
        for scenario in ALL {
            for case in scenario.cases(&sweep) {
                assert_eq!(case.foreign, (scenario.name == "crowded").then_some(3));
            }
        }
    }

    /// Objective: a sweep has a case for each combination of values, and does not add dimensions that a scenario lacks.
    #[test]
    fn a_sweep_multiplies_out() {
        let sweep = Measure { frame_bytes: vec![60, 1500], batch: vec![1, 32, 256], ..Measure::default() };
        let pipe = find("pipe");
        assert_eq!(pipe.cases(&sweep).len(), 6 * pipe.variants.len());
        let tap = find("tap").cases(&sweep);
        assert!(matches!(&tap[..], [case] if case.frame_bytes == 0 && case.batch == 0));
    }
}
