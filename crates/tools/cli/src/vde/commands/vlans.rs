//! Commands on VLANs. [`VlanTable`](super::super::vlans::VlanTable) implements the rules of VLANs.

use std::collections::BTreeMap;

use super::super::answers::VdeError;
use super::super::console::VdeConsole;
use super::super::words::{number, two_numbers};

/// `vlan/create`: creates a VLAN.
pub(super) fn create(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    console.change(|vlans| vlans.create(number(rest)))
}

/// `vlan/remove`: removes a VLAN without ports.
pub(super) fn remove(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    console.change(|vlans| vlans.remove(number(rest)))
}

/// `vlan/addport`: makes a port a tagged member of a VLAN.
pub(super) fn add(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let (vlan, port) = two_numbers(rest).ok_or(VdeError::Invalid)?;
    console.change(|vlans| vlans.add(vlan, port)).map(drop)
}

/// `vlan/delport`: ends a port's tagged membership in a VLAN.
pub(super) fn delete(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let (vlan, port) = two_numbers(rest).ok_or(VdeError::Invalid)?;
    console.change(|vlans| vlans.delete(vlan, port)).map(drop)
}

/// `port/setvlan`: sets a port's untagged VLAN.
pub(super) fn set(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let (port, vlan) = two_numbers(rest).ok_or(VdeError::Invalid)?;
    console.change(|vlans| vlans.set(port, vlan)).map(drop)
}

/// `vlan/print`, `vlan/allprint`: lists one VLAN or all VLANs, with those of their ports that have a plug, or with all
/// their ports.
pub(super) fn print(console: &mut VdeConsole, rest: &str, is_all: bool) -> Result<String, VdeError> {
    let ports = console.look()?;
    let active = ports.iter().map(|(number, port)| (*number, port.is_active()));
    let active: BTreeMap<u16, bool> = active.filter(|(_, is_active)| is_all || *is_active).collect();
    let one = (!rest.is_empty()).then(|| number(rest));
    console.vlans.print(one, &active)
}
