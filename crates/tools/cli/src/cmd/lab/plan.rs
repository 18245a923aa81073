//! Plans a lab from its file: assigns addresses, networks and ports to the members.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use netvale_control::types::AttachParams;
use netvale_gateway::net::GatewayAddresses;
use netvale_wire::MacAddr;
use serde_json::Value;

use super::file::{LabFile, LabGateway, LabMember};
use crate::cmd::sandbox::network::{INTERFACE, SandboxNet, address_list};
use crate::kinds::member::{MemberSocket, interface_port};

/// Maximum number of members: a member's number becomes the last byte of the member's MAC address.
const MOST: usize = 200;

/// A member, with values for all settings that the file omits.
#[derive(Clone, Debug)]
pub(super) struct PlannedMember {
    pub name: String,
    pub switch: String,
    pub socket: Option<(MemberSocket, PathBuf)>,
    pub mac: MacAddr,
    pub address: Option<Ipv4Addr>,
    pub command: Vec<String>,
    /// The network of a member in namespaces; `None` for a member whose program connects to a socket.
    pub net: Option<SandboxNet>,
    pub port: AttachParams,
}

/// Plans the members of a lab whose sockets are in `folder`.
///
/// # Errors
/// A message that says what the file contains, and what is expected.
pub(super) fn members(file: &LabFile, folder: &Path) -> Result<Vec<PlannedMember>, String> {
    check_switches(file)?;
    check_addresses(file)?;
    if file.members.len() > MOST {
        return Err(format!("{} members: expected at most {MOST}", file.members.len()));
    }
    let mut names = BTreeSet::new();
    let mut used: BTreeSet<(&str, Ipv4Addr)> =
        file.members.iter().filter_map(|member| Some((member.switch.as_str(), member.address?))).collect();
    let mut plans = Vec::new();
    for (member, number) in file.members.iter().zip(1..) {
        check(member)?;
        if !names.insert(&member.name) {
            return Err(format!("two members are called {:?}: expected names of their own", member.name));
        }
        let gateway = file.gateways.iter().find(|gateway| gateway.switch == member.switch);
        let gateway = gateway.map(|gateway| gateway.addresses);
        let address = address(member, gateway, &used)?;
        used.extend(address.map(|address| (member.switch.as_str(), address)));
        plans.push(planned(member, number, gateway, address, folder)?);
    }
    Ok(plans)
}

/// Returns the member's address from the file, or, if there is none, the next free address of the gateway's network;
/// `None` if the file has neither an address nor an IPv4 gateway.
fn address(
    member: &LabMember,
    gateway: Option<GatewayAddresses>,
    used: &BTreeSet<(&str, Ipv4Addr)>,
) -> Result<Option<Ipv4Addr>, String> {
    let LabMember { name, switch, address, .. } = member;
    let Some(own) = gateway.and_then(|gateway| gateway.v4) else { return Ok(*address) };
    match address {
        Some(address) if !own.is_host(*address) || own.address == *address => {
            Err(format!("member {name}: {address} is not a free address of {switch}'s network"))
        }
        Some(address) => Ok(Some(*address)),
        None => next_free(own.address, |at| own.is_host(at) && !used.contains(&(switch, at)))
            .map(Some)
            .ok_or_else(|| format!("member {name}: no address of {switch}'s network is free")),
    }
}

fn check_switches(file: &LabFile) -> Result<(), String> {
    let mut switches = BTreeSet::new();
    match file.gateways.iter().find(|gateway| !switches.insert(&gateway.switch)) {
        Some(twice) => Err(format!("{} has two gateways: expected one for each switch", twice.switch)),
        None => Ok(()),
    }
}

/// Refuses two members of a switch that have the same address, unless one of the two members has a private port, which
/// is a network of its own.
fn check_addresses(file: &LabFile) -> Result<(), String> {
    let mut owners = BTreeMap::new();
    for member in file.members.iter().filter(|member| !member.port.contains_key("private")) {
        let Some(address) = member.address else { continue };
        if let Some(other) = owners.insert((&member.switch, address), &member.name) {
            return Err(format!("members {other} and {}: both have {address}: expected different ones", member.name));
        }
    }
    Ok(())
}

fn check(member: &LabMember) -> Result<(), String> {
    let of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let name = &member.name;
    if name.is_empty() || name.len() > 32 || !name.bytes().all(of_name) || name.starts_with('-') {
        return Err(format!("invalid name {name:?}: expected up to 32 lower-case letters, digits and hyphens"));
    }
    let has_socket = member.command.iter().any(|word| word.contains("{socket}"));
    match member.socket {
        Some(_) if !has_socket => {
            Err(format!("member {name}: its command has no {{socket}}: expected the socket's path"))
        }
        None if has_socket => {
            Err(format!("member {name}: it has no socket: expected socket = 'stream', 'vhost' or 'vde'"))
        }
        _ => Ok(()),
    }
}

/// Returns the first free address after `from`; if none is free after it, the nearest free address before it.
fn next_free(from: Ipv4Addr, is_free: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
    let start = u32::from(from);
    // Fewer than 512 addresses are in use, so a free address is found within this distance if the network has a free
    // address.
    let after = (1..=512).map(|by| start.wrapping_add(by));
    let before = (1..=512).map(|by| start.wrapping_sub(by));
    after.chain(before).map(Ipv4Addr::from).find(|address| is_free(*address))
}

fn planned(
    member: &LabMember,
    number: u8,
    gateway: Option<GatewayAddresses>,
    address: Option<Ipv4Addr>,
    folder: &Path,
) -> Result<PlannedMember, String> {
    let name = &member.name;
    let mac = [2, 0, 0, 0x6c, 0xab, number];
    let socket = member.socket.map(|kind| (kind, folder.join(format!("{name}.sock"))));
    let net = match (&socket, gateway) {
        (None, Some(gateway)) => Some(SandboxNet::station(gateway, address, mac, number)),
        (None, None) => {
            return Err(format!("member {name}: {} has no gateway: expected [[gateway]] for it", member.switch));
        }
        _ => None,
    };
    let port = port(member, socket.as_ref()).map_err(|why| format!("member {name}: {why}"))?;
    let filled = |word: &String| {
        let path = socket.as_ref().map(|(_, path)| path.display().to_string()).unwrap_or_default();
        word.replace("{socket}", &path).replace("{mac}", &MacAddr(mac).to_string()).replace("{name}", name)
    };
    Ok(PlannedMember {
        command: member.command.iter().map(filled).collect(),
        name: name.clone(),
        switch: member.switch.clone(),
        socket,
        mac: MacAddr(mac),
        address,
        net,
        port,
    })
}

/// Returns the parameters with which the member's port is attached.
fn port(member: &LabMember, socket: Option<&(MemberSocket, PathBuf)>) -> Result<AttachParams, String> {
    let mut options = member.port.clone();
    options.insert("name".into(), member.name.clone().into());
    let options = serde_json::from_value(Value::Object(options)).map_err(|why| format!("port: {why}"))?;
    let port = match socket {
        Some((kind, path)) => kind.port(path),
        None => interface_port(INTERFACE),
    };
    let params = AttachParams { switch: member.switch.clone(), port, options };
    params.check().map(drop).map_err(|misfit| format!("port: {misfit}"))?;
    Ok(params)
}

/// Returns the arguments of `netvale gateway` for a gateway, with its options and a lease for each member of its
/// switch.
pub(super) fn gateway_words(gateway: &LabGateway, members: &[PlannedMember]) -> Vec<String> {
    let addresses = address_list(gateway.addresses);
    let here = members.iter().filter(|member| member.switch == gateway.switch);
    let leases = here.filter_map(|member| Some(format!("{}={},{}", member.mac, member.address?, member.name)));
    let leases = leases.flat_map(|lease| ["--lease".to_owned(), lease]);
    let words = ["gateway".to_owned(), gateway.switch.clone(), addresses, "--log-level".to_owned(), "warn".to_owned()];
    words.into_iter().chain(leases).chain(gateway.options.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> LabFile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab.toml");
        std::fs::write(&path, text).unwrap();
        LabFile::read(&path).unwrap()
    }

    fn plan(members_text: &str) -> Result<Vec<PlannedMember>, String> {
        let gateway = "[[gateway]]\nswitch = 'vale0'\naddresses = '10.0.0.1/29,fd00::1/64'\noptions = ['--private']\n";
        members(&file(&format!("{gateway}{members_text}")), Path::new("/run/lab"))
    }

    fn member(name: &str, more: &str) -> String {
        format!("[[member]]\nname = '{name}'\nswitch = 'vale0'\n{more}\n")
    }

    /// Objective: members get the free addresses in the order of the file, except addresses that the file gives to
    /// other members.
    #[test]
    fn addresses_are_the_next_free_ones() {
        let text = member("a", "") + &member("b", "address = '10.0.0.3'") + &member("c", "") + &member("d", "");
        let found: Vec<_> = plan(&text).unwrap().iter().map(|member| member.address.unwrap().to_string()).collect();
        assert_eq!(found, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]);
        let all: String = (0..6).map(|n| member(&format!("m{n}"), "")).collect();
        assert!(plan(&all).unwrap_err().contains("no address of vale0's network is free"));
    }

    #[test]
    fn a_command_has_the_members_socket_and_address() {
        let text = member("vm", "socket = 'vhost'\ncommand = ['qemu', 'path={socket}', '{mac},{name}']");
        let [vm] = &plan(&text).unwrap()[..] else { panic!("one member") };
        assert_eq!(vm.command, ["qemu", "path=/run/lab/vm.sock", "02:00:00:6c:ab:01,vm"]);
        assert_eq!((vm.port.port.as_str(), vm.net), ("vhost:/run/lab/vm.sock", None));
    }

    #[test]
    fn members_are_reserved_at_their_gateway() {
        let file = file(
            "[[gateway]]\nswitch = 'vale0'\naddresses = '10.0.0.1/24'\noptions = ['--private']\n\
            [[member]]\nname = 'a'\nswitch = 'vale0'\n",
        );
        let words = gateway_words(&file.gateways[0], &members(&file, Path::new("/run/lab")).unwrap());
        assert_eq!(
            words.join(" "),
            "gateway vale0 10.0.0.1/24 --log-level warn --lease 02:00:00:6c:ab:01=10.0.0.2,a --private"
        );
    }

    #[test]
    fn private_members_may_have_one_address() {
        let clone = |name| member(name, "address = '10.0.0.3'\nport = { private = true }");
        let found = plan(&(clone("a") + &clone("b") + &member("c", "address = '10.0.0.3'"))).unwrap();
        assert!(found.iter().all(|member| member.address == Some(Ipv4Addr::new(10, 0, 0, 3))));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, expected) in [
            (member("a", "") + &member("a", ""), "two members are called \"a\""),
            (member("A", ""), "invalid name \"A\""),
            (member("a", "address = '10.0.0.1'"), "10.0.0.1 is not a free address"),
            (member("a", "address = '10.0.1.2'"), "10.0.1.2 is not a free address"),
            (
                member("a", "address = '10.0.0.3'") + &member("b", "address = '10.0.0.3'"),
                "members a and b: both have 10.0.0.3",
            ),
            (member("a", "socket = 'stream'\ncommand = ['qemu']"), "its command has no {socket}"),
            (member("a", "command = ['{socket}']"), "it has no socket"),
            (member("a", "port = { speed = 1 }"), "member a: port: "),
            ("[[member]]\nname = 'a'\nswitch = 'vale1'\n".to_owned(), "vale1 has no gateway"),
            ("[[gateway]]\nswitch = 'vale0'\naddresses = '10.1.0.1/24'\n".to_owned(), "vale0 has two gateways"),
        ] {
            let why = plan(&text).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
