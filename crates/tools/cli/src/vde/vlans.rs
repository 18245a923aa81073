//! VDE's VLANs, and the port policies that implement them. This module has no I/O: it computes what a command changes
//! on each port.
//!
//! A port has at most one untagged VLAN and any number of tagged ones. VLAN 0 is the untagged VLAN of a new port. The
//! netvale switch represents VLAN 0 by the number [`VLAN_0`], which VDE does not use. A hub ignores VLANs: it passes
//! all frames to all ports and learns no addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::answers::VdeError;

/// The netvale switch's VLAN for VDE's VLAN 0. VDE cannot create a VLAN with this number.
pub const VLAN_0: u16 = 4094;
/// In commands and output, this VLAN number means that a port has no untagged VLAN.
const NO_VLAN: u16 = 4095;
/// The VLAN numbers that `vlan/create` accepts.
const MAKEABLE: std::ops::Range<i32> = 1..4094;
/// The VLAN numbers that all other commands accept.
const NUMBERS: std::ops::Range<i32> = 0..4095;

/// The VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortVlans {
    /// The VLAN whose frames are untagged on the port. If it is `None`, untagged frames from the port reach no other
    /// port.
    untagged: Option<u16>,
    /// The VLANs whose frames are tagged on the port.
    tagged: BTreeSet<u16>,
}

impl Default for PortVlans {
    fn default() -> PortVlans {
        PortVlans { untagged: Some(0), tagged: BTreeSet::new() }
    }
}

impl PortVlans {
    fn has(&self, vlan: u16) -> bool {
        self.untagged == Some(vlan) || self.tagged.contains(&vlan)
    }

    /// Returns the number of the untagged VLAN as VDE prints it; 4095 if the port has none.
    pub fn shown(&self) -> u16 {
        self.untagged.unwrap_or(NO_VLAN)
    }
}

/// The VLANs of a switch and of each of its ports.
#[derive(Clone, Debug)]
pub struct VlanTable {
    vlans: BTreeSet<u16>,
    ports: BTreeMap<u16, PortVlans>,
    /// Maximum number of ports, including the unused number 0.
    pub most: u32,
    /// Whether the switch is a hub.
    pub is_hub: bool,
    /// Whether the switch detects loops.
    pub is_guarded: bool,
}

impl VlanTable {
    /// Creates the table of a switch with at most `most` ports. The table has no ports, and only VLAN 0.
    pub fn new(most: u32) -> VlanTable {
        VlanTable { vlans: BTreeSet::from([0]), ports: BTreeMap::new(), most, is_hub: false, is_guarded: false }
    }

    /// Returns the VLANs of each port, by port number.
    pub fn ports(&self) -> &BTreeMap<u16, PortVlans> {
        &self.ports
    }

    /// Removes ports that are not in `numbers`, and adds ports that are in `numbers` but missing in the table. VLAN 0
    /// becomes their untagged VLAN.
    pub fn keep(&mut self, numbers: &BTreeSet<u16>) {
        self.ports.retain(|number, _| numbers.contains(number));
        for &number in numbers {
            self.ports.entry(number).or_default();
        }
    }

    /// Checks a port number; a port with this number need not exist.
    ///
    /// # Errors
    /// [`VdeError::Invalid`] if the number is negative, or not below `most`.
    pub fn number(&self, number: i32) -> Result<u16, VdeError> {
        let fits = u32::try_from(number).is_ok_and(|number| number < self.most);
        u16::try_from(number).ok().filter(|_| fits).ok_or(VdeError::Invalid)
    }

    /// Checks the number of an existing port.
    ///
    /// # Errors
    /// [`VdeError::Invalid`] if no port can have the number; [`VdeError::NotFound`] if there is no port with this
    /// number.
    pub fn port(&self, number: i32) -> Result<u16, VdeError> {
        let number = self.number(number)?;
        if self.ports.contains_key(&number) { Ok(number) } else { Err(VdeError::NotFound) }
    }

    /// Returns the lowest free port number.
    ///
    /// # Errors
    /// [`VdeError::Full`] if all numbers are in use.
    pub fn free(&self) -> Result<u16, VdeError> {
        let most = u16::try_from(self.most).unwrap_or(u16::MAX);
        (1..most).find(|number| !self.ports.contains_key(number)).ok_or(VdeError::Full)
    }

    fn vlan(&self, number: i32) -> Result<u16, VdeError> {
        let number = u16::try_from(number).ok().filter(|_| NUMBERS.contains(&number)).ok_or(VdeError::Invalid)?;
        if self.vlans.contains(&number) { Ok(number) } else { Err(VdeError::NotFound) }
    }

    /// `vlan/create`: creates a VLAN without ports.
    ///
    /// # Errors
    /// [`VdeError::Invalid`] for a number that is not allowed, [`VdeError::Exists`] for a VLAN that already exists.
    pub fn create(&mut self, vlan: i32) -> Result<(), VdeError> {
        let vlan = u16::try_from(vlan).ok().filter(|_| MAKEABLE.contains(&vlan)).ok_or(VdeError::Invalid)?;
        if self.vlans.insert(vlan) { Ok(()) } else { Err(VdeError::Exists) }
    }

    /// `vlan/remove`: removes a VLAN without ports.
    ///
    /// # Errors
    /// [`VdeError::Invalid`] for a number that is not allowed, [`VdeError::NotFound`] for a VLAN that does not exist,
    /// [`VdeError::InUse`] for VLAN 0 or a VLAN with ports.
    pub fn remove(&mut self, vlan: i32) -> Result<(), VdeError> {
        let vlan = self.vlan(vlan)?;
        if vlan == 0 || self.ports.values().any(|port| port.has(vlan)) {
            return Err(VdeError::InUse);
        }
        self.vlans.remove(&vlan);
        Ok(())
    }

    /// `port/setvlan`: sets a port's untagged VLAN; if `vlan` is 4095, the port then has no untagged VLAN. Returns the
    /// port's number.
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

    /// `vlan/addport`: adds a tagged VLAN to a port; changes nothing if it is the port's untagged VLAN. Returns the
    /// port's number.
    ///
    /// # Errors
    /// [`VdeError::Invalid`], [`VdeError::NotFound`], [`VdeError::Unsupported`] for VLAN 0: no tag can carry that
    /// number.
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

    /// `vlan/delport`: removes a tagged VLAN from a port. Returns the port's number.
    ///
    /// # Errors
    /// [`VdeError::Invalid`], [`VdeError::NotFound`], [`VdeError::InUse`] if `vlan` is the port's untagged VLAN.
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

    /// `vlan/print`, `vlan/allprint`: lists all VLANs, or only the VLAN `one`. Each VLAN is listed with those of its
    /// ports that are in `active`; the value in `active` is whether a plug is connected to the port.
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
            // Writing to a string cannot fail.
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

    /// Returns the policies of new ports.
    pub fn usual(&self) -> Map<String, Value> {
        self.policies(&PortVlans::default())
    }

    /// Returns those policies of a port that VDE's commands control. `null` resets a policy to its default.
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
                // A port without VLANs exchanges no frames with other ports: it becomes an isolated port in a VLAN that
                // no VDE command has created.
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

    /// Returns the highest VLAN number that has not been created.
    fn unused(&self) -> u16 {
        (1..VLAN_0).rev().find(|vlan| !self.vlans.contains(vlan)).unwrap_or(VLAN_0)
    }
}

/// Returns the netvale switch's number for a VLAN of VDE.
fn on_switch(vlan: u16) -> u16 {
    if vlan == 0 { VLAN_0 } else { vlan }
}

/// Returns VDE's number for a VLAN of the netvale switch. `None`, for frames of a hub, becomes 0.
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

    /// Objective: commands that do not fit the state of a port or VLAN fail with the same errors as in VDE.
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

    /// Objective: when a VLAN becomes the untagged VLAN of a port, it is no longer a tagged VLAN of the port; this
    /// remains so when another VLAN becomes the untagged one.
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

    /// Objective: a hub applies no VLANs and learns no addresses; when the hub becomes a switch again, the VLANs apply
    /// as before.
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
        /// Objective: after any sequence of commands, a netvale switch accepts the policies of each port, and untagged
        /// frames are in the VLAN that VDE prints.
        #[test]
        fn policies_are_ones_that_a_switch_takes(asked in vec((0..6, -1..6, -1..6), 0..60)) {
            let mut t = with_ports(&[1, 2, 3]);
            for (what, a, b) in asked {
                // Most of these random commands are refused.
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

    /// Objective: VLANs are printed as in VDE, with the ports that are in `active`.
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

    /// Objective: ports that no longer exist are removed from the table, new ports are in VLAN 0, and the lowest free
    /// port number is found.
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
