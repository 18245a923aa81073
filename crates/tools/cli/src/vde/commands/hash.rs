//! Commands on the table of learned addresses.

use std::fmt::Write;

use netvale_control::types::{Mac, TableEntry};

use super::super::answers::VdeError;
use super::super::console::{HashNumbers, VdeConsole};
use super::super::vlans::of_switch;
use super::super::words::number;

/// `hash/showinfo`: prints the parameters of VDE's hash table, which the commands below set.
pub(super) fn show(console: &mut VdeConsole, _: &str) -> Result<String, VdeError> {
    let HashNumbers { size, collected, expires, persists } = console.facts.hash;
    Ok(format!(
        "Hash size {size}\nGC interval {collected} secs\nGC expire {expires} secs\nMin persistence {persists} secs\n"
    ))
}

/// `hash/setsize`: sets the size that `hash/showinfo` prints, rounded up to a power of two.
pub(super) fn set_size(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let size = u32::try_from(number(rest)).ok().filter(|size| *size > 0).and_then(u32::checked_next_power_of_two);
    console.facts.hash.size = size.and_then(|size| i32::try_from(size).ok()).ok_or(VdeError::Invalid)?;
    Ok(())
}

/// `hash/setgcint`: sets the garbage collection interval that `hash/showinfo` prints.
pub(super) fn set_collected(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    console.facts.hash.collected = number(rest);
    Ok(())
}

/// `hash/setexpire`: sets the expiry time that `hash/showinfo` prints.
pub(super) fn set_expires(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    console.facts.hash.expires = number(rest);
    Ok(())
}

/// `hash/setminper`: sets the minimum persistence that `hash/showinfo` prints.
pub(super) fn set_persists(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    console.facts.hash.persists = number(rest);
    Ok(())
}

/// `hash/print`: lists all learned addresses.
pub(super) fn print(console: &mut VdeConsole, _: &str) -> Result<String, VdeError> {
    lines(console, |_| true)
}

/// `hash/find`: prints the entry of an address in a VLAN. If the VLAN is omitted, it is 0.
pub(super) fn find(console: &mut VdeConsole, rest: &str) -> Result<String, VdeError> {
    let mut words = rest.split_whitespace();
    let mac: Mac = words.next().and_then(|word| word.parse().ok()).ok_or(VdeError::Invalid)?;
    let vlan = words.next().map_or(0, number);
    let text = lines(console, |entry| entry.mac == mac && i32::from(of_switch(entry.vlan)) == vlan)?;
    if text.is_empty() { Err(VdeError::NoAddress) } else { Ok(text) }
}

fn lines(console: &mut VdeConsole, fits: impl Fn(&TableEntry) -> bool) -> Result<String, VdeError> {
    let table = console.switch.table()?;
    let size = u64::try_from(console.facts.hash.size).unwrap_or(1).max(1);
    let mut text = String::new();
    for entry in table.iter().filter(|entry| fits(entry)) {
        let Some(port) = console.switch.number_of(&entry.port) else { continue };
        let vlan = of_switch(entry.vlan);
        let slot = entry.mac.0.iter().fold(u64::from(vlan), |sum, byte| sum * 31 + u64::from(*byte)) % size;
        let TableEntry { mac, age_seconds, .. } = entry;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "Hash: {slot:04} Addr: {mac} VLAN {vlan:04} to port: {port:03}  age {age_seconds} secs");
    }
    Ok(text)
}
