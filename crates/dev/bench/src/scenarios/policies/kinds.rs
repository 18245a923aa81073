//! The policies to measure: what each kind sets at the two ports that frames pass.

use netvale_policy::bpf::{FilterProgram, Insn};
use netvale_policy::bucket::RateLimit;
use netvale_policy::guard::Guard;
use netvale_policy::vlan::Vlans;
use netvale_switch::filters::{FilterRule, Filters};
use netvale_switch::{CompiledPolicies, PortId, Switch};

use super::*;
use crate::scenarios::embedded::word;

/// The sender's port and the receiver's port, with the stations behind them. The sender's port was attached first.
const ENDS: [(PortId, u16); 2] = [(0, FIRST_SENDER), (1, 0)];

/// A rate that is never reached: a terabit per second, with a burst of one second.
const BITS: u64 = 1_000_000_000_000;
/// The VLAN of the ports.
pub const VLAN: u16 = 10;

/// A kind of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// No policies.
    None,
    /// One VLAN on both ports, without tags.
    Vlan,
    /// Like [`Kind::Vlan`], but the receiver gets tagged frames.
    Trunk,
    /// Both ports have fixed addresses; the sender's addresses are guarded and limited in number, and frames from other
    /// addresses are refused.
    Security,
    /// The sender has a rate limit.
    Rate,
    /// Each frame passes a filter of twelve instructions.
    Filter,
    /// [`Kind::Vlan`], [`Kind::Security`], [`Kind::Rate`] and [`Kind::Filter`].
    All,
}

impl Kind {
    /// Returns the kind of that name.
    pub fn named(name: &str) -> Result<Kind> {
        let found = serde_json::from_value(name.into());
        found.map_err(|_| BenchError::Usage(format!("unknown kind of policies {name}")))
    }

    fn has(self, part: Kind) -> bool {
        self == part || self == Kind::All && part != Kind::Trunk
    }

    /// Sets the policies at both ports, and enters the stations' addresses into the switch's table, as a frame from
    /// each station would.
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

    /// Removes all policies of both ports.
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

/// Formats an Ethernet address.
pub fn text([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn guard(station: u16) -> Result<Guard> {
    let addresses = text(address(station)).parse().map_err(|e| failed(&e))?;
    Guard::new("mac".parse().map_err(|e| failed(&e))?, addresses).map_err(|e| failed(&e))
}

/// Returns what libpcap compiles from
/// `ether src 02:00:00:00:9c:40 and ether dst 02:00:00:00:00:00 and ether proto 0x88b5`, with the addresses of the
/// first sender and the first receiver. Eleven of its twelve instructions run for each measured frame.
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
