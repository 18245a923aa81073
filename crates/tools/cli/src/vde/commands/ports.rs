//! Commands on ports.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::answers::VdeError;
use super::super::console::VdeConsole;
use super::super::options::MOST_PORTS;
use super::super::switch::{PortCounts, ShownPeer, ShownPort};
use super::super::words::{number, number_and_word, two_numbers};

/// `port/showinfo`: prints the maximum number of ports, and whether the switch is a hub.
pub(super) fn show(console: &mut VdeConsole, _: &str) -> Result<String, VdeError> {
    let most = console.vlans.most;
    let is_hub = console.vlans.is_hub;
    Ok(format!("Numports={most}\nHUB={is_hub}\ncounters=true\n"))
}

/// `port/setnumports`: sets the maximum number of ports.
pub(super) fn set_most(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let most =
        u32::try_from(number(rest)).ok().filter(|most| (1..=MOST_PORTS).contains(most)).ok_or(VdeError::Invalid)?;
    console.look()?;
    if console.vlans.ports().keys().any(|port| u32::from(*port) >= most) {
        return Err(VdeError::InUse);
    }
    console.switch.limit(most)?;
    console.vlans.most = most;
    Ok(())
}

/// `port/sethub`: makes the switch a hub, or a switch again.
pub(super) fn set_hub(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let is_hub = number(rest) != 0;
    console.change(|vlans| {
        vlans.is_hub = is_hub;
        Ok(())
    })
}

/// `port/create`: creates a port for plugs that request its number. For 0, chooses a free number.
pub(super) fn create(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    console.look()?;
    let number = match number(rest) {
        0 => console.vlans.free()?,
        number => console.vlans.number(number)?,
    };
    if console.vlans.ports().contains_key(&number) {
        return Err(VdeError::Exists);
    }
    console.switch.reserve(number)
}

/// `port/createauto`: creates a port with a free number, and prints the number.
pub(super) fn create_any(console: &mut VdeConsole, _: &str) -> Result<String, VdeError> {
    console.look()?;
    let number = console.vlans.free()?;
    console.switch.reserve(number)?;
    Ok(format!("Port {number:04}\n"))
}

/// Finds a port by its number. Returns the valid number and the port.
fn found(console: &mut VdeConsole, number: i32) -> Result<(u16, ShownPort), VdeError> {
    let mut ports = console.look()?;
    let number = console.vlans.port(number)?;
    ports.remove(&number).map(|port| (number, port)).ok_or(VdeError::NotFound)
}

/// `port/remove`: removes a port without a plug.
pub(super) fn remove(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let (_, port) = found(console, number(rest))?;
    if port.is_active() { Err(VdeError::InUse) } else { console.switch.remove(&port.name) }
}

/// `port/allocatable`: sets whether the port is given to any plug, or only to a plug that requests its number.
pub(super) fn set_allocatable(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let (number, is_for_any) = two_numbers(rest).ok_or(VdeError::Invalid)?;
    let (number, port) = found(console, number)?;
    match port.of {
        ShownPeer::Tap(_) => Ok(()),
        ShownPeer::Plug(_) if is_for_any != 0 => console.switch.release(number),
        ShownPeer::Plug(_) => console.switch.reserve(number),
    }
}

/// `port/setuser`, `port/setgroup`: refuses any owner of a port except `NONE`, because only the control socket's mode
/// decides who may connect. `file` lists the users or groups.
pub(super) fn own(console: &mut VdeConsole, rest: &str, file: &str) -> Result<(), VdeError> {
    let (number, name) = number_and_word(rest).ok_or(VdeError::Invalid)?;
    found(console, number)?;
    let names = std::fs::read_to_string(file).unwrap_or_default();
    match name {
        "NONE" => Ok(()),
        _ if names.lines().any(|line| line.split(':').next() == Some(name)) => Err(VdeError::Unsupported),
        _ => Err(VdeError::Invalid),
    }
}

/// `port/epclose`: disconnects a plug; its port stays.
pub(super) fn disconnect(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let (number, plug) = two_numbers(rest).ok_or(VdeError::Invalid)?;
    let (number, port) = found(console, number)?;
    let ShownPeer::Plug(info) = &port.of else { return Err(VdeError::NotFound) };
    let count = info.plug.as_ref().map(|plug| plug.count);
    if count.is_none() || count != u64::try_from(plug).ok() {
        return Err(VdeError::NotFound);
    }
    let policies = console.vlans.ports().get(&number).map(|vlans| console.vlans.policies(vlans)).unwrap_or_default();
    console.switch.remove(&port.name)?;
    console.switch.reserve(number)?;
    console.switch.set(&port.name, policies)?;
    if info.reserved { Ok(()) } else { console.switch.release(number) }
}

/// `port/resetcounter`: resets the counters of one port, or of all ports, to 0.
pub(super) fn reset(console: &mut VdeConsole, rest: &str) -> Result<(), VdeError> {
    let ports = console.look()?;
    let one = match rest {
        "" => None,
        rest => Some(console.vlans.number(number(rest))?),
    };
    let counts = console.switch.counts()?;
    for (_, port) in ports.into_iter().filter(|(number, _)| one.is_none_or(|one| one == *number)) {
        let now = counts.get(&port.name).copied().unwrap_or_default();
        console.since.insert(port.name, now);
    }
    Ok(())
}

/// `port/print`, `port/allprint`: prints one port or all ports. With `is_all`, includes ports without a plug.
pub(super) fn print(console: &mut VdeConsole, rest: &str, is_all: bool) -> Result<String, VdeError> {
    let mut ports = console.look()?;
    if !rest.is_empty() {
        let number = console.vlans.port(number(rest))?;
        ports.retain(|known, _| *known == number);
    }
    ports.retain(|_, port| is_all || port.is_active());
    if ports.is_empty() && !rest.is_empty() {
        return Err(VdeError::NotFound);
    }
    let counts = console.switch.counts()?;
    let mut text = String::new();
    for (number, port) in &ports {
        let vlan = console.vlans.ports().get(number).map_or(0, |vlans| vlans.shown());
        print_port(&mut text, *number, vlan, port);
        print_counts(&mut text, since(&counts, &console.since, &port.name));
        print_peer(&mut text, port);
    }
    Ok(text)
}

fn print_port(text: &mut String, number: u16, vlan: u16, port: &ShownPort) {
    let active = if port.is_active() { "ACTIVE" } else { "INACTIVE" };
    let (is_reserved, user) = match &port.of {
        ShownPeer::Plug(info) => (info.reserved, info.plug.as_ref().and_then(|plug| plug.user)),
        ShownPeer::Tap(_) => (false, Some(rustix::process::getuid().as_raw())),
    };
    let for_whom = if is_reserved { "NOT Unnamed" } else { "Unnamed" };
    let user = user.map_or_else(|| "NONE".to_owned(), name_of_user);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "Port {number:04} untagged_vlan={vlan:04} {active} - {for_whom} Allocatable");
    let _ = writeln!(text, " Current User: {user} Access Control: (User: NONE - Group: NONE)");
}

fn print_counts(text: &mut String, counts: PortCounts) {
    for (direction, (frames, bytes)) in ["IN: ", "OUT:"].iter().zip(counts) {
        let _ = writeln!(text, " {direction} pkts {frames:>10}          bytes {bytes:>20}");
    }
}

fn print_peer(text: &mut String, port: &ShownPort) {
    let (id, module, about) = match &port.of {
        ShownPeer::Plug(info) => match &info.plug {
            Some(plug) => (plug.count, "unix prog", plug.about.as_str()),
            None => return,
        },
        ShownPeer::Tap(name) => (1, "tap", name.as_str()),
    };
    let _ = writeln!(text, "  -- endpoint ID {id:04} module {module:<12}: {about}");
}

/// Returns a port's counters since their reset. If the port was created again after the reset, its counters started at
/// 0, and are returned unchanged.
fn since(now: &BTreeMap<String, PortCounts>, reset: &BTreeMap<String, PortCounts>, name: &str) -> PortCounts {
    let now = now.get(name).copied().unwrap_or_default();
    let before = reset.get(name).copied().unwrap_or_default();
    let less = |(now, before): (u64, u64)| now.checked_sub(before).unwrap_or(now);
    std::array::from_fn(|way| (less((now[way].0, before[way].0)), less((now[way].1, before[way].1))))
}

fn name_of_user(user: u32) -> String {
    let file = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| user.to_string())
}

#[cfg(test)]
mod tests {
    use netvale_control::types::{VdeInfo, VdePlug};

    use super::*;

    /// Objective: a port with a plug and a port without one are printed byte for byte as in VDE.
    #[test]
    fn a_port_is_shown_as_vde_shows_it() {
        let plug =
            VdePlug { count: 6, who: "process 9 of user 0".into(), user: Some(0), about: "vdeplug: pid=9".into() };
        let info = VdeInfo { number: 1, reserved: false, plug: Some(plug) };
        let mut port = ShownPort { name: "vale0:port0001".into(), of: ShownPeer::Plug(info) };
        let mut text = String::new();
        print_port(&mut text, 1, 10, &port);
        print_counts(&mut text, [(9, 12_200), (0, 0)]);
        print_peer(&mut text, &port);
        let expected = "\
Port 0001 untagged_vlan=0010 ACTIVE - Unnamed Allocatable
 Current User: root Access Control: (User: NONE - Group: NONE)
 IN:  pkts          9          bytes                12200
 OUT: pkts          0          bytes                    0
  -- endpoint ID 0006 module unix prog   : vdeplug: pid=9
";
        assert_eq!(text, expected);
        port.of = ShownPeer::Plug(VdeInfo { number: 1, reserved: true, plug: None });
        text.clear();
        print_port(&mut text, 1, 0, &port);
        print_peer(&mut text, &port);
        let expected = "Port 0001 untagged_vlan=0000 INACTIVE - NOT Unnamed Allocatable\n \
            Current User: NONE Access Control: (User: NONE - Group: NONE)\n";
        assert_eq!(text, expected);
    }

    /// Objective: counters start at 0 when they are reset, and when the port is created again.
    #[test]
    fn counters_begin_again() {
        let of = |frames| BTreeMap::from([("p".to_owned(), [(frames, 100 * frames), (0, 0)])]);
        assert_eq!(since(&of(7), &of(5), "p"), [(2, 200), (0, 0)]);
        assert_eq!(since(&of(3), &of(5), "p"), [(3, 300), (0, 0)]);
        assert_eq!(since(&of(3), &of(5), "q"), [(0, 0), (0, 0)]);
    }
}
