//! Commands on VLANs. [`VlanTable`](super::super::vlans::VlanTable) implements the rules of VLANs.

use std::collections::BTreeMap;

use super::super::answers::{VdeAnswer, VdeError};
use super::super::console::VdeConsole;
use super::super::words::{number, two_numbers};

/// `vlan/create`: creates a VLAN.
pub(super) fn create(console: &mut VdeConsole, rest: &str) -> VdeAnswer {
    console.change(|vlans| vlans.create(number(rest))).into()
}

/// `vlan/remove`: removes a VLAN without ports.
pub(super) fn remove(console: &mut VdeConsole, rest: &str) -> VdeAnswer {
    console.change(|vlans| vlans.remove(number(rest))).into()
}

/// `vlan/addport`: makes a port a tagged member of a VLAN.
pub(super) fn add(console: &mut VdeConsole, rest: &str) -> VdeAnswer {
    let numbers = two_numbers(rest).ok_or(VdeError::Invalid);
    numbers.and_then(|(vlan, port)| console.change(|vlans| vlans.add(vlan, port))).map(drop).into()
}

/// `vlan/delport`: ends a port's tagged membership in a VLAN.
pub(super) fn delete(console: &mut VdeConsole, rest: &str) -> VdeAnswer {
    let numbers = two_numbers(rest).ok_or(VdeError::Invalid);
    numbers.and_then(|(vlan, port)| console.change(|vlans| vlans.delete(vlan, port))).map(drop).into()
}

/// `port/setvlan`: sets a port's untagged VLAN.
pub(super) fn set(console: &mut VdeConsole, rest: &str) -> VdeAnswer {
    let numbers = two_numbers(rest).ok_or(VdeError::Invalid);
    numbers.and_then(|(port, vlan)| console.change(|vlans| vlans.set(port, vlan))).map(drop).into()
}

/// `vlan/print`: lists one VLAN or all VLANs, with those of their ports that have a plug.
pub(super) fn print_active(console: &mut VdeConsole, rest: &str) -> VdeAnswer {
    VdeAnswer::told(print(console, rest, false))
}

/// `vlan/allprint`: lists one VLAN or all VLANs, with all their ports.
pub(super) fn print_all(console: &mut VdeConsole, rest: &str) -> VdeAnswer {
    VdeAnswer::told(print(console, rest, true))
}

fn print(console: &mut VdeConsole, rest: &str, is_all: bool) -> Result<String, VdeError> {
    let ports = console.look()?;
    let active = ports.iter().map(|(number, port)| (*number, port.is_active()));
    let active: BTreeMap<u16, bool> = active.filter(|(_, is_active)| is_all || *is_active).collect();
    let one = (!rest.is_empty()).then(|| number(rest));
    console.vlans.print(one, &active)
}
