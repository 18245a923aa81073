//! VDE's VLANs, and the policies that they are. Pure: what a command means for which port.
//!
//! A port has one VLAN whose frames have no tag there, or none, and several with tags. Number 0 is the VLAN that all
//! ports begin with; on the switch it is [`VLAN_0`], which VDE has not. A hub has no VLANs: it passes all frames to
//! all ports, and learns nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::answers::VdeError;

/// The VLAN on the switch that is VDE's number 0: a number that no VLAN of VDE's has.
pub const VLAN_0: u16 = 4094;
/// The number that says that frames without a tag belong nowhere.
const NO_VLAN: u16 = 4095;
/// VLANs that can be made.
const MAKEABLE: std::ops::Range<i32> = 1..4094;
/// Numbers that a VLAN may have.
const NUMBERS: std::ops::Range<i32> = 0..4095;

/// A port's VLANs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortVlans {
    /// That of frames without a tag.
    untagged: Option<u16>,
    /// Those of frames with one.
    tagged: BTreeSet<u16>,
}

impl PortVlans {
    fn new() -> PortVlans {
        PortVlans { untagged: Some(0), tagged: BTreeSet::new() }
    }

    fn has(&self, vlan: u16) -> bool {
        self.untagged == Some(vlan) || self.tagged.contains(&vlan)
    }

    /// The VLAN of frames without a tag, as it is shown.
    pub fn shown(&self) -> u16 {
        self.untagged.unwrap_or(NO_VLAN)
    }
}

/// The VLANs of a switch, and of its ports.
#[derive(Clone, Debug)]
pub struct VlanTable {
    vlans: BTreeSet<u16>,
    ports: BTreeMap<u16, PortVlans>,
    /// Ports, with the unused number 0.
    pub most: u32,
    /// Whether it is a hub.
    pub is_hub: bool,
    /// Whether it watches for loops.
    pub is_guarded: bool,
}

impl VlanTable {
    /// A switch without ports, and with one VLAN.
    pub fn new(most: u32) -> VlanTable {
        VlanTable { vlans: BTreeSet::from([0]), ports: BTreeMap::new(), most, is_hub: false, is_guarded: false }
    }

    /// Its ports.
    pub fn ports(&self) -> &BTreeMap<u16, PortVlans> {
        &self.ports
    }

    /// Has exactly these ports from now on; new ones are as all begin.
    pub fn keep(&mut self, numbers: &BTreeSet<u16>) {
        self.ports.retain(|number, _| numbers.contains(number));
        for &number in numbers {
            self.ports.entry(number).or_insert_with(PortVlans::new);
        }
    }

    /// A number of a port, if a port can have it.
    ///
    /// # Errors
    /// [`VdeError::Invalid`].
    pub fn number(&self, number: i32) -> Result<u16, VdeError> {
        let fits = u32::try_from(number).is_ok_and(|number| number < self.most);
        u16::try_from(number).ok().filter(|_| fits).ok_or(VdeError::Invalid)
    }

    /// A number of a port, if there is that port.
    ///
    /// # Errors
    /// [`VdeError::Invalid`], [`VdeError::NotFound`].
    pub fn port(&self, number: i32) -> Result<u16, VdeError> {
        let number = self.number(number)?;
        if self.ports.contains_key(&number) { Ok(number) } else { Err(VdeError::NotFound) }
    }

    /// The first number that no port has.
    ///
    /// # Errors
    /// [`VdeError::Full`].
    pub fn free(&self) -> Result<u16, VdeError> {
        let most = u16::try_from(self.most).unwrap_or(u16::MAX);
        (1..most).find(|number| !self.ports.contains_key(number)).ok_or(VdeError::Full)
    }

    fn vlan(&self, number: i32) -> Result<u16, VdeError> {
        let number = vlan_number(number)?;
        if self.vlans.contains(&number) { Ok(number) } else { Err(VdeError::NotFound) }
    }

    /// `vlan/create`.
    ///
    /// # Errors
    /// [`VdeError::Invalid`], [`VdeError::Exists`].
    pub fn create(&mut self, vlan: i32) -> Result<(), VdeError> {
        let vlan = u16::try_from(vlan).ok().filter(|_| MAKEABLE.contains(&vlan)).ok_or(VdeError::Invalid)?;
        if self.vlans.insert(vlan) { Ok(()) } else { Err(VdeError::Exists) }
    }

    /// `vlan/remove`.
    ///
    /// # Errors
    /// [`VdeError::Invalid`], [`VdeError::NotFound`], [`VdeError::InUse`] if it has ports.
    pub fn remove(&mut self, vlan: i32) -> Result<(), VdeError> {
        let vlan = self.vlan(vlan)?;
        if vlan == 0 || self.ports.values().any(|port| port.has(vlan)) {
            return Err(VdeError::InUse);
        }
        self.vlans.remove(&vlan);
        Ok(())
    }

    /// `port/setvlan`: frames without a tag belong there from now on, and to nothing else. Returns the port.
    ///
    /// # Errors
    /// [`VdeError::Invalid`], [`VdeError::NotFound`].
    pub fn set(&mut self, port: i32, vlan: i32) -> Result<u16, VdeError> {
        let number = self.number(port)?;
        let untagged = if vlan == i32::from(NO_VLAN) { None } else { Some(self.vlan(vlan)?) };
        let port = self.ports.get_mut(&number).ok_or(VdeError::NotFound)?;
        port.untagged = untagged;
        port.tagged.retain(|tagged| Some(*tagged) != untagged);
        Ok(number)
    }

    /// `vlan/addport`: frames of that VLAN have a tag at the port. Returns the port.
    ///
    /// # Errors
    /// [`VdeError::Invalid`], [`VdeError::NotFound`], [`VdeError::Unsupported`] for VLAN 0, whose number no tag has.
    pub fn add(&mut self, vlan: i32, port: i32) -> Result<u16, VdeError> {
        let number = self.number(port)?;
        let vlan = self.vlan(vlan)?;
        let port = self.ports.get_mut(&number).ok_or(VdeError::NotFound)?;
        match vlan {
            _ if port.untagged == Some(vlan) => {}
            0 => return Err(VdeError::Unsupported),
            _ => drop(port.tagged.insert(vlan)),
        }
        Ok(number)
    }

    /// `vlan/delport`: the port has no frames of that VLAN. Returns the port.
    ///
    /// # Errors
    /// [`VdeError::Invalid`], [`VdeError::NotFound`], [`VdeError::InUse`] if its frames have no tag there.
    pub fn delete(&mut self, vlan: i32, port: i32) -> Result<u16, VdeError> {
        let number = self.number(port)?;
        let vlan = self.vlan(vlan)?;
        let port = self.ports.get_mut(&number).ok_or(VdeError::NotFound)?;
        if port.untagged == Some(vlan) {
            return Err(VdeError::InUse);
        }
        port.tagged.remove(&vlan);
        Ok(number)
    }

    /// `vlan/print`, `vlan/allprint`: those VLANs, or one, with the ports of which `active` says something: whether a
    /// plug is there.
    ///
    /// # Errors
    /// [`VdeError::Invalid`], [`VdeError::NotFound`].
    pub fn print(&self, one: Option<i32>, active: &BTreeMap<u16, bool>) -> Result<String, VdeError> {
        let vlans = match one {
            Some(vlan) => BTreeSet::from([self.vlan(vlan)?]),
            None => self.vlans.clone(),
        };
        let mut text = String::new();
        for vlan in vlans {
            // A string takes all that is written.
            let _ = writeln!(text, "VLAN {vlan:04}");
            for (number, port) in self.ports.iter().filter(|(_, port)| port.has(vlan)) {
                let Some(is_active) = active.get(number) else { continue };
                let tagged = u8::from(port.untagged != Some(vlan));
                let status = if *is_active { "Forwarding" } else { "Learning" };
                let active = u8::from(*is_active);
                let _ = writeln!(text, " -- Port {number:04} tagged={tagged} active={active} status={status}");
            }
        }
        Ok(text)
    }

    /// The policies that new ports begin with.
    pub fn usual(&self) -> Map<String, Value> {
        self.policies(&PortVlans::new())
    }

    /// The policies of a port: all that VDE says something about.
    pub fn policies(&self, port: &PortVlans) -> Map<String, Value> {
        let guard = if self.is_guarded && !self.is_hub { json!(true) } else { Value::Null };
        let mut policies = Map::from_iter(
            [
                ("access", Value::Null),
                ("trunk", Value::Null),
                ("native", Value::Null),
                ("isolated", Value::Null),
                ("learning", Value::Null),
                ("loop_guard", guard),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        let mut put = |key: &str, value: Value| policies.insert(key.to_owned(), value);
        match (port.untagged, port.tagged.is_empty()) {
            _ if self.is_hub => put("learning", json!(false)),
            (Some(vlan), true) => put("access", json!(on_switch(vlan))),
            (None, true) => {
                // It is alone in a VLAN that nobody else is in.
                put("isolated", json!(true));
                put("access", json!(self.unused()))
            }
            (untagged, false) => {
                let numbers: Vec<String> = port.tagged.iter().map(|vlan| on_switch(*vlan).to_string()).collect();
                untagged.map(|vlan| put("native", json!(on_switch(vlan))));
                put("trunk", json!(numbers.join(",")))
            }
        };
        policies
    }

    /// A VLAN that VDE has not.
    fn unused(&self) -> u16 {
        (1..VLAN_0).rev().find(|vlan| !self.vlans.contains(vlan)).unwrap_or(VLAN_0)
    }
}

fn vlan_number(number: i32) -> Result<u16, VdeError> {
    u16::try_from(number).ok().filter(|_| NUMBERS.contains(&number)).ok_or(VdeError::Invalid)
}

/// The number of a VLAN of VDE's on the switch.
fn on_switch(vlan: u16) -> u16 {
    if vlan == 0 { VLAN_0 } else { vlan }
}

/// The number that VDE has for a VLAN of the switch's.
pub fn of_switch(vlan: Option<u16>) -> u16 {
    vlan.filter(|vlan| *vlan != VLAN_0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use netvale_control::types::Policies;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn with_ports(numbers: &[u16]) -> VlanTable {
        let mut table = VlanTable::new(32);
        table.keep(&numbers.iter().copied().collect());
        table
    }

    fn said(table: &VlanTable, port: u16) -> Value {
        let policies = table.policies(&table.ports()[&port]);
        Value::from_iter(policies.into_iter().filter(|(_, value)| !value.is_null()))
    }

    /// Objective: the commands of VDE's console have its errors, in any order of theirs.
    #[test]
    fn commands_out_of_order_have_the_errors_of_vde() {
        let mut t = with_ports(&[1]);
        for (vlan, expected) in [(10, Ok(())), (10, Err(VdeError::Exists)), (4093, Ok(()))] {
            assert_eq!(t.create(vlan), expected, "{vlan}");
        }
        for vlan in [0, -1, 4094, 4095, 4096] {
            assert_eq!(t.create(vlan), Err(VdeError::Invalid), "{vlan}");
        }
        assert_eq!(t.add(10, 3), Err(VdeError::NotFound));
        assert_eq!(t.add(11, 1), Err(VdeError::NotFound));
        assert_eq!(t.add(10, 99), Err(VdeError::Invalid));
        assert_eq!(t.add(4095, 1), Err(VdeError::Invalid));
        assert_eq!(t.set(1, 11), Err(VdeError::NotFound));
        assert_eq!(t.set(5, 10), Err(VdeError::NotFound));
        assert_eq!(t.set(0, 0), Err(VdeError::NotFound));
        assert_eq!(t.set(32, 0), Err(VdeError::Invalid));
        assert_eq!(t.set(-1, 0), Err(VdeError::Invalid));
        assert_eq!(t.set(1, -1), Err(VdeError::Invalid));
        assert_eq!(t.set(1, 4094), Err(VdeError::NotFound));
        assert_eq!(t.set(1, 10), Ok(1));
        assert_eq!(t.delete(10, 1), Err(VdeError::InUse));
        assert_eq!(t.remove(10), Err(VdeError::InUse));
        assert_eq!(t.remove(11), Err(VdeError::NotFound));
        assert_eq!(t.remove(0), Err(VdeError::InUse));
        assert_eq!(t.remove(4095), Err(VdeError::Invalid));
        assert_eq!(t.set(1, 0), Ok(1));
        assert_eq!((t.delete(10, 1), t.remove(10)), (Ok(1), Ok(())));
    }

    /// Objective: a port's VLAN without tags is no longer one with tags, and does not come back as one.
    #[test]
    fn a_vlan_is_with_tags_or_without() {
        let mut t = with_ports(&[1]);
        t.create(10).unwrap();
        t.add(10, 1).unwrap();
        assert_eq!(said(&t, 1), json!({"trunk": "10", "native": 4094}));
        t.set(1, 10).unwrap();
        t.add(10, 1).unwrap();
        assert_eq!(said(&t, 1), json!({"access": 10}));
        t.set(1, 0).unwrap();
        assert_eq!(said(&t, 1), json!({"access": 4094}));
        t.set(1, 4095).unwrap();
        assert_eq!(said(&t, 1), json!({"access": 4093, "isolated": true}));
        assert_eq!(t.ports()[&1].shown(), 4095);
        assert_eq!(t.add(0, 1), Err(VdeError::Unsupported));
        t.add(10, 1).unwrap();
        assert_eq!(said(&t, 1), json!({"trunk": "10"}));
        t.set(1, 0).unwrap();
        assert_eq!(t.add(0, 1), Ok(1));
    }

    /// Objective: a hub has no VLANs, and learns nothing; a switch has them again afterwards.
    #[test]
    fn a_hub_keeps_its_vlans_for_later() {
        let mut t = with_ports(&[1]);
        t.create(10).unwrap();
        t.set(1, 10).unwrap();
        t.is_guarded = true;
        t.is_hub = true;
        assert_eq!(said(&t, 1), json!({"learning": false}));
        assert_eq!(Value::from_iter(t.usual().into_iter().filter(|(_, v)| !v.is_null())), json!({"learning": false}));
        t.is_hub = false;
        assert_eq!(said(&t, 1), json!({"access": 10, "loop_guard": true}));
    }

    proptest! {
        /// Objective: whatever is asked for, in any order, the policies of each port are ones that a switch takes, and
        /// frames without a tag are in the VLAN that is shown.
        #[test]
        fn policies_are_ones_that_a_switch_takes(asked in vec((0..6, -1..6, -1..6), 0..60)) {
            let mut t = with_ports(&[1, 2, 3]);
            for (what, a, b) in asked {
                // Most of it is refused.
                let _ = match what {
                    0 => t.create(a),
                    1 => t.remove(a),
                    2 => t.set(a, if b == 5 { 4095 } else { b }).map(drop),
                    3 => t.add(a, b).map(drop),
                    4 => t.delete(a, b).map(drop),
                    _ => { t.is_hub = a > 2; Ok(()) }
                };
            }
            for (number, port) in t.ports() {
                let policies = Policies::default().with(&t.policies(port)).unwrap();
                prop_assert!(policies.check().is_ok(), "{number}: {policies:?}");
                let untagged = policies.access.filter(|_| policies.isolated != Some(true)).or(policies.native);
                let expected = (!t.is_hub && port.shown() != 4095).then_some(port.shown());
                prop_assert_eq!(untagged.map(|vlan| of_switch(Some(vlan))), expected);
                prop_assert!(expected.is_none_or(|vlan| t.vlans.contains(&vlan)));
            }
        }
    }

    /// Objective: VLANs are shown with those ports that are asked for, in VDE's words.
    #[test]
    fn vlans_are_shown_in_vdes_words() {
        let mut t = with_ports(&[1, 7]);
        t.create(10).unwrap();
        t.add(10, 7).unwrap();
        let all = BTreeMap::from([(1, true), (7, false)]);
        let first = "VLAN 0000\n -- Port 0001 tagged=0 active=1 status=Forwarding\n";
        let rest = " -- Port 0007 tagged=0 active=0 status=Learning\n";
        let ten = "VLAN 0010\n -- Port 0007 tagged=1 active=0 status=Learning\n";
        assert_eq!(t.print(None, &all), Ok([first, rest, ten].concat()));
        assert_eq!(t.print(None, &BTreeMap::from([(1, true)])), Ok(format!("{first}VLAN 0010\n")));
        assert_eq!(t.print(Some(10), &all), Ok(ten.to_owned()));
        assert_eq!(
            (t.print(Some(11), &all), t.print(Some(-1), &all)),
            (Err(VdeError::NotFound), Err(VdeError::Invalid))
        );
    }

    /// Objective: ports that are gone are forgotten, new ones begin as all do, and a free number is the first.
    #[test]
    fn ports_come_and_go() {
        let mut t = with_ports(&[1, 2]);
        t.create(10).unwrap();
        t.set(1, 10).unwrap();
        t.keep(&BTreeSet::from([1, 3]));
        assert_eq!(t.ports().keys().copied().collect::<Vec<_>>(), [1, 3]);
        assert_eq!((said(&t, 1), said(&t, 3)), (json!({"access": 10}), json!({"access": 4094})));
        assert_eq!(t.free(), Ok(2));
        t.most = 2;
        assert_eq!(t.free(), Err(VdeError::Full));
        assert_eq!((of_switch(None), of_switch(Some(VLAN_0)), of_switch(Some(10))), (0, 0, 10));
    }
}
