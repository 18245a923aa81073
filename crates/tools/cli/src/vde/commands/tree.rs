//! Commands on VDE's spanning tree. This switch has no spanning tree; it detects loops instead.

use std::fmt::Write;

use super::super::answers::VdeError;
use super::super::console::VdeConsole;
use super::super::words::{number, three_numbers};

/// `fstp/showinfo`: prints the switch's address and priority, and whether the switch detects loops.
pub(super) fn show(console: &mut VdeConsole, _: &str) -> Result<String, VdeError> {
    let mac = console.facts.mac;
    let priority = console.facts.priority;
    let is_guarded = console.vlans.is_guarded;
    Ok(format!("MAC {mac} Priority {priority} (0x{priority:04x})\nFSTP={is_guarded}\n"))
}

/// `fstp/setfstp`: sets whether the switch detects loops.
pub(super) fn set(console: &mut VdeConsole, rest: &str) -> Result<String, VdeError> {
    let is_guarded = number(rest) != 0;
    console.change(|vlans| {
        vlans.is_guarded = is_guarded;
        Ok(String::new())
    })
}

/// `fstp/setedge`, `fstp/bonus`: checks the arguments and changes nothing.
pub(super) fn accept(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let (vlan, port, _) = three_numbers(rest).ok_or(VdeError::Invalid)?;
    console.vlans.number(port)?;
    console.vlans.print(Some(vlan), &Default::default()).map(drop)
}

/// `fstp/print`: prints the tree of one VLAN, or the trees of all VLANs. This switch is always shown as the root.
pub(super) fn print(console: &mut VdeConsole, rest: &str) -> Result<String, VdeError> {
    let one = (!rest.is_empty()).then(|| number(rest));
    let mac = console.facts.mac;
    let [.., high, low] = console.facts.priority.to_be_bytes();
    let mut text = String::new();
    for vlan in console.vlans.print(one, &Default::default())?.lines() {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "FST DATA {vlan} ROOTSWITCH FSTP IS DISABLED\n ++ root {high:02x}:{low:02x}:{mac}\n \
             ++ designated ff:ff:ff:ff:ff:ff:ff:ff\n \
             ++ rootport 0000 cost 0 age 0 bonusport 0000 bonuscost 0\n"
        );
    }
    Ok(text)
}
