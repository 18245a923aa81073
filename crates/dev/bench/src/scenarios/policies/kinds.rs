//! Policies to measure: what each kind sets at the two ports that frames pass.

use netvale_policy::bpf::{FilterProgram, Insn};
use netvale_policy::bucket::RateLimit;
use netvale_policy::guard::Guard;
use netvale_policy::vlan::Vlans;
use netvale_switch::filters::{FilterRule, Filters};
use netvale_switch::{CompiledPolicies, PortId, Switch};

use super::*;
use crate::scenarios::embedded::word;

/// Where the frames come from and where they go: the sender's port and the receiver's (the sender came first), and the
/// stations behind them.
const ENDS: [(PortId, u16); 2] = [(0, FIRST_SENDER), (1, 0)];

/// A rate that no frame has to wait for: a terabit, and a second of it together.
const BITS: u64 = 1_000_000_000_000;
/// The VLAN of the ports.
pub const VLAN: u16 = 10;

/// What the ports are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nothing.
    None,
    /// One VLAN from port to port, without tags.
    Vlan,
    /// The same, and the receiver gets it with tags.
    Trunk,
    /// Addresses are fixed at both ports, the sender's are guarded, limited in number, and no others are taken.
    Security,
    /// The sender has a rate.
    Rate,
    /// Each frame goes through a filter of twelve instructions.
    Filter,
    /// [`Kind::Vlan`], [`Kind::Security`], [`Kind::Rate`] and [`Kind::Filter`].
    All,
}

impl Kind {
    /// The kind of that name.
    pub fn named(name: &str) -> Result<Kind> {
        let found = serde_json::from_value(name.into());
        found.map_err(|_| BenchError::Usage(format!("no policies are called {name}")))
    }

    fn has(self, part: Kind) -> bool {
        self == part || self == Kind::All && part != Kind::Trunk
    }

    /// Sets it at both ports, and teaches the switch where the stations are, as a frame of each would.
    pub fn set(self, switch: &Switch) -> Result<()> {
        let vlan = if self.has(Kind::Vlan) || self == Kind::Trunk { VLAN } else { 0 };
        for (port, station) in ENDS {
            if self != Kind::None {
                switch.set_policies(port, Some(Arc::new(self.policies(station, port == 0)?)), None);
            }
        }
        ENDS.iter().for_each(|(port, station)| switch.learn(vlan, word(*station), *port));
        Ok(())
    }

    /// As if nothing had been said of both ports.
    pub fn clear(switch: &Switch) {
        ENDS.iter().for_each(|(port, _)| switch.set_policies(*port, None, None));
    }

    fn policies(self, station: u16, sends: bool) -> Result<CompiledPolicies> {
        let mut policies = CompiledPolicies::default();
        if self.has(Kind::Vlan) || self == Kind::Trunk {
            policies.vlans = Some(self.vlans(sends).map_err(|e| failed(&e))?);
        }
        if self.has(Kind::Security) {
            policies.addresses = vec![word(station)];
            policies.most_addresses = Some(4);
            policies.locked = true;
            policies.guard = Some(guard(station)?);
        }
        if self.has(Kind::Rate) && sends {
            policies.rates = vec![RateLimit::bits(BITS, BITS / 8)];
        }
        if self.has(Kind::Filter) && sends {
            policies.filters[0] = Filters::new(vec![FilterRule::new(false, filter(station)?)]);
        }
        Ok(policies)
    }

    fn vlans(self, sends: bool) -> std::result::Result<Vlans, netvale_policy::vlan::BadVlans> {
        if self == Kind::Trunk && !sends { Vlans::trunk("10,20-30".parse()?, None) } else { Vlans::access(VLAN) }
    }
}

/// An address as people write it.
pub fn text([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn guard(station: u16) -> Result<Guard> {
    let addresses = text(address(station)).parse().map_err(|e| failed(&e))?;
    Guard::new("mac".parse().map_err(|e| failed(&e))?, addresses).map_err(|e| failed(&e))
}

/// What libpcap makes of `ether src 02:00:00:00:9c:40 and ether dst 02:00:00:00:00:00 and ether proto 0x88b5` (the
/// addresses are those of the first sender and the first receiver): eleven of its twelve instructions run for each
/// frame of the measurement.
fn filter(station: u16) -> Result<FilterProgram> {
    let insn = |code, jf, k| Insn { code, jt: 0, jf, k };
    let word = 0x20;
    let half = 0x28;
    let equal = 0x15;
    let answer = 0x06;
    let insns = [
        insn(word, 0, 8),
        insn(equal, 9, station.into()),
        insn(half, 0, 6),
        insn(equal, 7, 0x0200),
        insn(word, 0, 2),
        insn(equal, 5, 0),
        insn(half, 0, 0),
        insn(equal, 3, 0x0200),
        insn(half, 0, 12),
        insn(equal, 1, 0x88b5),
        insn(answer, 0, 262_144),
        insn(answer, 0, 0),
    ];
    FilterProgram::verify(&insns).map_err(|e| failed(&e))
}
