//! The output for Wireshark: each line is a sentence whose words are in braces (see "extcap: Developer Guide" of
//! Wireshark's developer's guide).

use netvale_control::types::PortInfo;
use netvale_portspec::is_hidden;

use super::names::{InterfaceName, REMOTE, of_port};

/// The link types of each interface.
pub const DLTS: &str = "dlt {number=1}{name=EN10MB}{display=Ethernet}\n";

const DIRECTIONS: [(&str, &str); 3] =
    [("rt", "what the port sends and receives"), ("t", "what it sends"), ("r", "what it receives")];

/// The options of the interface for ports of other hosts: option, name, type and tooltip.
const SSH_OPTIONS: [(&str, &str, &str, &str); 6] = [
    ("--remote-host", "Host", "{type=string}{required=true}", "name or address, as for ssh"),
    ("--remote-port", "TCP port", "{type=unsigned}{range=1,65535}", "of the ssh server, if not the default"),
    ("--remote-username", "User", "{type=string}", "user on that host, if not the same as here"),
    ("--remote-interface", "Port", "{type=string}{required=true}", "port on that host, e.g. vale0:vm1"),
    (
        "--remote-command",
        "Command",
        "{type=string}{default=netvale}",
        "netvale's command on that host, such as sudo netvale",
    ),
    ("--ssh-identity", "Key", "{type=fileselect}{mustexist=true}", "a file with the private key"),
];

/// Lists all interfaces.
pub fn interfaces(ports: &[PortInfo]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("extcap {{version={version}}}{{display=netvale}}\n");
    for port in ports {
        let display = plain(&format!("netvale port {} ({}, {})", port.name, port.kind, port.state));
        text.push_str(&format!("interface {{value={}}}{{display={display}}}\n", of_port(&port.name)));
    }
    text + &format!("interface {{value={REMOTE}}}{{display=netvale port of another host (ssh)}}\n")
}

/// Lists the options of an interface.
pub fn config(name: &InterfaceName) -> String {
    let mut options = OptionList::default();
    if let InterfaceName::Remote(_) = name {
        for (call, display, kind, tooltip) in SSH_OPTIONS {
            options.add(call, display, kind, tooltip);
        }
    }
    let number = options.add("--direction", "Frames", "{type=selector}", "which frames are captured");
    for (value, display) in DIRECTIONS {
        let default = if value == "rt" { "{default=true}" } else { "" };
        options.text.push_str(&format!("value {{arg={number}}}{{value={value}}}{{display={display}}}{default}\n"));
    }
    options.add("--snaplen", "Bytes of a frame", "{type=unsigned}{default=0}", "0: all");
    options.text
}

#[derive(Default)]
struct OptionList {
    text: String,
    count: u32,
}

impl OptionList {
    /// Adds an option. Returns the option's number.
    fn add(&mut self, call: &str, display: &str, kind: &str, tooltip: &str) -> u32 {
        let number = self.count;
        self.count += 1;
        let line = format!("arg {{number={number}}}{{call={call}}}{{display={display}}}{{tooltip={tooltip}}}{kind}\n");
        self.text.push_str(&line);
        number
    }
}

/// Replaces characters that would end a word in braces or the line.
fn plain(text: &str) -> String {
    let plain = |c: char| match c {
        '{' | '}' => '|',
        _ if is_hidden(c) => '?',
        _ => c,
    };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the list has one sentence per port and one for other hosts, even if a port's name contains braces or
    /// line breaks.
    #[test]
    fn the_list_has_one_sentence_a_port() {
        let port = |name: &str| PortInfo { name: name.into(), ..PortInfo::default() };
        let text = interfaces(&[port("vale0:a"), port("p{1\n}{x")]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[1], "interface {value=netvale-vale0:a}{display=netvale port vale0:a (local, idle)}");
        assert_eq!(lines[2], "interface {value=netvale-p%7B1%0A%7D%7Bx}{display=netvale port p|1?||x (local, idle)}");
    }

    /// Objective: options are numbered in order, and the values of the selector refer to the selector's number.
    #[test]
    fn options_are_numbered_in_order() {
        let text = config(&InterfaceName::Remote(Default::default()));
        let numbers: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("arg {number=")).collect();
        assert!(numbers.iter().enumerate().all(|(n, rest)| rest.starts_with(&format!("{n}}}"))), "{text}");
        assert_eq!((numbers.len(), text.matches("value {arg=6}").count()), (8, 3));
        assert_eq!(config(&InterfaceName::Port("a".into())).matches("arg {number=").count(), 2);
    }
}
