//! The parameters of an operation, in the environment.

use netvale_control::types::Mac;
use netvale_portspec::TapName;

use crate::error::{CniError, Code};

/// Versions of the specification that the plugin speaks.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", NEWEST];
/// The newest of them.
pub const NEWEST: &str = "1.1.0";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make the container's interface.
    Add,
    /// Remove it.
    Del,
    /// See that it is as it was made.
    Check,
    /// Remove what belongs to no container that is left.
    Gc,
    /// Say whether ADD would work.
    Status,
    /// Say which versions are spoken.
    Version,
}

/// The container, and its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// `CNI_CONTAINERID`.
    pub id: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_NETNS`; empty if the runtime does not say.
    pub netns: String,
    /// The Ethernet address of `CNI_ARGS`.
    pub mac: Option<Mac>,
}

fn bad(message: String) -> CniError {
    CniError::new(Code::Environment, message)
}

/// A variable; none if it is empty.
fn variable(name: &str) -> Result<Option<String>, CniError> {
    match std::env::var_os(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => value.into_string().map(Some).map_err(|_| bad(format!("{name} is not text (UTF-8)"))),
    }
}

fn needed(name: &str) -> Result<String, CniError> {
    variable(name)?.ok_or_else(|| bad(format!("{name} is not set")))
}

impl Command {
    /// Reads `CNI_COMMAND`.
    ///
    /// # Errors
    /// [`Code::Environment`] if it is missing or unknown.
    pub fn read() -> Result<Command, CniError> {
        Ok(match needed("CNI_COMMAND")?.as_str() {
            "ADD" => Command::Add,
            "DEL" => Command::Del,
            "CHECK" => Command::Check,
            "GC" => Command::Gc,
            "STATUS" => Command::Status,
            "VERSION" => Command::Version,
            other => return Err(bad(format!("CNI_COMMAND is {other:?}: ADD, DEL, CHECK, GC, STATUS or VERSION"))),
        })
    }

    /// The version of the specification that it came with.
    pub fn since(self) -> &'static str {
        match self {
            Command::Add | Command::Del | Command::Version => "0.3.0",
            Command::Check => "0.4.0",
            Command::Gc | Command::Status => "1.1.0",
        }
    }
}

impl Container {
    /// Reads the parameters of ADD, DEL and CHECK.
    ///
    /// # Errors
    /// [`Code::Environment`] if one is missing or wrong.
    pub fn read(needs_netns: bool) -> Result<Container, CniError> {
        let id = needed("CNI_CONTAINERID")?;
        if !is_name(&id) {
            return Err(bad(format!(
                "CNI_CONTAINERID is {id:?}: letters, digits, '_', '.' and '-', the first a letter or digit"
            )));
        }
        let ifname = needed("CNI_IFNAME")?;
        TapName::parse(&ifname).map_err(|e| bad(format!("CNI_IFNAME cannot be an interface's name: {e:#}")))?;
        let netns = if needs_netns { needed("CNI_NETNS")? } else { variable("CNI_NETNS")?.unwrap_or_default() };
        if netns.len() > 4095 || netns.contains(char::is_control) {
            return Err(bad("CNI_NETNS is no path".into()));
        }
        let mac = variable("CNI_ARGS")?.map_or(Ok(None), |args| mac(&args))?;
        Ok(Container { id, ifname, netns, mac })
    }
}

/// Whether a text can name a container or a network.
pub fn is_name(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_word)
}

/// The Ethernet address that `CNI_ARGS` name. Keys that nobody knows are an error, unless they are to be ignored.
fn mac(args: &str) -> Result<Option<Mac>, CniError> {
    let (mut mac, mut unknown, mut ignore) = (None, None, false);
    for pair in args.split(';').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| bad(format!("CNI_ARGS: {pair:?} is no KEY=VALUE")))?;
        match key {
            "IgnoreUnknown" => ignore = matches!(value, "1" | "true" | "True" | "TRUE" | "t" | "T"),
            "MAC" => mac = Some(value.parse().map_err(|e| bad(format!("CNI_ARGS: MAC={value}: {e}")))?),
            // For the plugin that hands out addresses.
            "IP" | "GATEWAY" => {}
            _ if key.starts_with("K8S_POD_") => {}
            _ => unknown = Some(key),
        }
    }
    match unknown {
        Some(key) if !ignore => {
            Err(bad(format!("CNI_ARGS: {key} is not known here; IgnoreUnknown=1 has such keys ignored")))
        }
        _ => Ok(mac),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: of CNI_ARGS the address is read, what others need is left to them, and an unknown key is an error unless it is to be ignored.
    #[test]
    fn args() {
        assert_eq!(mac("").unwrap(), None);
        assert_eq!(mac("IP=10.1.0.9;K8S_POD_NAME=web;MAC=02:00:00:00:00:0a;").unwrap(), Some(Mac([2, 0, 0, 0, 0, 10])));
        assert_eq!(mac("IgnoreUnknown=1;FOO=bar").unwrap(), None);
        assert_eq!(mac("FOO=bar;IgnoreUnknown=true").unwrap(), None);
        for wrong in ["FOO=bar", "IgnoreUnknown=0;FOO=bar", "MAC", "MAC=02:00", "=;x"] {
            assert!(mac(wrong).is_err(), "{wrong}");
        }
    }

    /// Objective: names are those that the specification allows.
    #[test]
    fn names() {
        for (name, good) in
            [("a", true), ("0a_b.c-d", true), ("", false), ("-a", false), (".a", false), ("a/b", false), ("ä", false)]
        {
            assert_eq!(is_name(name), good, "{name}");
        }
    }
}
