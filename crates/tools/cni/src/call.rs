//! The parameters of a CNI operation, from the environment.

use netvale_control::types::Mac;
use netvale_portspec::{TapName, is_hidden};

use crate::error::{CniError, Code};

/// The supported versions of the CNI specification, oldest first.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", NEWEST];
/// The newest supported version of the CNI specification.
pub const NEWEST: &str = "1.1.0";

/// The requested operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CniCommand {
    /// Create the container's interface.
    Add,
    /// Remove the container's interface.
    Del,
    /// Check that the interface is still as ADD created it.
    Check,
    /// Remove ports and folders of containers that no longer exist.
    Gc,
    /// Report whether ADD would work.
    Status,
    /// Report the supported versions.
    Version,
}

/// The container and the interface that an operation concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The container's ID (`CNI_CONTAINERID`).
    pub id: String,
    /// The interface's name in the container (`CNI_IFNAME`).
    pub ifname: String,
    /// Path of the container's network namespace (`CNI_NETNS`); empty if the runtime does not set it.
    pub netns: String,
    /// The MAC address in `CNI_ARGS`, if there is one.
    pub mac: Option<Mac>,
    /// A readable name of the container: the pod in `CNI_ARGS`, or the first characters of the container's ID.
    pub about: String,
}

/// The known keys of `CNI_ARGS`.
#[derive(Debug, Default, PartialEq, Eq)]
struct CniArgs<'a> {
    mac: Option<Mac>,
    pod: Option<&'a str>,
    namespace: Option<&'a str>,
}

impl CniArgs<'_> {
    fn about(&self, id: &str) -> String {
        // Number of characters of the ID that are shown. Runtimes commonly show this number.
        const KNOWN_BY: usize = 12;
        let name = match (self.namespace, self.pod) {
            (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
            (None, Some(pod)) => pod.to_owned(),
            (_, None) => id.chars().take(KNOWN_BY).collect(),
        };
        display_name(&name)
    }
}

/// Makes a name valid as a port's `info`: removes invisible characters, and truncates the name to 128 bytes.
pub fn display_name(name: &str) -> String {
    const LONGEST: usize = 128;
    let mut name: String = name.chars().filter(|c| !is_hidden(*c)).collect();
    name.truncate(name.floor_char_boundary(LONGEST));
    name
}

fn bad(message: String) -> CniError {
    CniError::new(Code::Environment, message)
}

/// Returns an environment variable; `None` if it is empty or not set.
fn variable(name: &str) -> Result<Option<String>, CniError> {
    match std::env::var_os(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => value.into_string().map(Some).map_err(|_| bad(format!("{name}: expected UTF-8 text"))),
    }
}

fn needed(name: &str) -> Result<String, CniError> {
    variable(name)?.ok_or_else(|| bad(format!("{name} is not set")))
}

impl CniCommand {
    /// Reads `CNI_COMMAND`.
    ///
    /// # Errors
    /// [`Code::Environment`] if the variable is missing or its value is unknown.
    pub fn read() -> Result<CniCommand, CniError> {
        Ok(match needed("CNI_COMMAND")?.as_str() {
            "ADD" => CniCommand::Add,
            "DEL" => CniCommand::Del,
            "CHECK" => CniCommand::Check,
            "GC" => CniCommand::Gc,
            "STATUS" => CniCommand::Status,
            "VERSION" => CniCommand::Version,
            other => {
                return Err(bad(format!("CNI_COMMAND={other:?}: expected ADD, DEL, CHECK, GC, STATUS or VERSION")));
            }
        })
    }

    /// Returns the version of the specification that introduced the operation.
    pub fn since(self) -> &'static str {
        match self {
            CniCommand::Add | CniCommand::Del | CniCommand::Version => "0.3.0",
            CniCommand::Check => "0.4.0",
            CniCommand::Gc | CniCommand::Status => "1.1.0",
        }
    }
}

impl Container {
    /// Reads the parameters of ADD, DEL and CHECK. `needs_netns` is set if `CNI_NETNS` must not be missing.
    ///
    /// # Errors
    /// [`Code::Environment`] if a parameter is missing or wrong.
    pub fn read(needs_netns: bool) -> Result<Container, CniError> {
        let id = needed("CNI_CONTAINERID")?;
        let ifname = needed("CNI_IFNAME")?;
        let netns = if needs_netns { needed("CNI_NETNS")? } else { variable("CNI_NETNS")?.unwrap_or_default() };
        let text = variable("CNI_ARGS")?.unwrap_or_default();
        let args = args(&text)?;
        let container = Container { about: args.about(&id), mac: args.mac, id, ifname, netns };
        container.check(["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"])?;
        Ok(container)
    }

    /// Checks ID, interface name and namespace path. The arguments are the names of these parameters, for the error.
    ///
    /// # Errors
    /// [`Code::Environment`] with the name of the invalid parameter.
    pub fn check(&self, [id, ifname, netns]: [&str; 3]) -> Result<(), CniError> {
        if !is_name(&self.id) {
            let expected = "letters, digits, '_', '.' and '-', the first a letter or digit";
            return Err(bad(format!("invalid {id} {:?}: expected {expected}", self.id)));
        }
        let named = TapName::parse(&self.ifname);
        named.map_err(|e| bad(format!("{ifname} is not a valid interface name: {e:#}")))?;
        if self.netns.len() > 4095 || self.netns.contains(char::is_control) {
            return Err(bad(format!("invalid {netns}: expected the path of a network namespace")));
        }
        Ok(())
    }
}

/// Returns whether a text is a valid name of a container or a network.
pub fn is_name(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_word)
}

/// Parses `CNI_ARGS`. Unknown keys are an error, unless `IgnoreUnknown` is set.
fn args(text: &str) -> Result<CniArgs<'_>, CniError> {
    let mut args = CniArgs::default();
    let mut unknown = None;
    let mut ignore = false;
    for pair in text.split(';').filter(|pair| !pair.is_empty()) {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| bad(format!("CNI_ARGS: {pair:?}: expected KEY=VALUE")))?;
        match key {
            "IgnoreUnknown" => ignore = matches!(value, "1" | "true" | "True" | "TRUE" | "t" | "T"),
            "MAC" => args.mac = Some(value.parse().map_err(|e| bad(format!("CNI_ARGS: MAC={value}: {e}")))?),
            "K8S_POD_NAME" => args.pod = Some(value).filter(|name| !name.is_empty()),
            "K8S_POD_NAMESPACE" => args.namespace = Some(value).filter(|name| !name.is_empty()),
            // These keys are for the address plugin.
            "IP" | "GATEWAY" => {}
            _ if key.starts_with("K8S_POD_") => {}
            _ => unknown = Some(key),
        }
    }
    match unknown {
        Some(key) if !ignore => {
            Err(bad(format!("CNI_ARGS: unknown key {key}; with IgnoreUnknown=1, unknown keys are ignored")))
        }
        _ => Ok(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the MAC address and the pod are read from CNI_ARGS, keys for other plugins are accepted, and an
    /// unknown key is an error unless IgnoreUnknown is set.
    #[test]
    fn address_and_pod_are_read_from_the_arguments() {
        let mac = |text| args(text).unwrap().mac;
        assert_eq!(mac(""), None);
        assert_eq!(mac("IP=10.1.0.9;K8S_POD_UID=7;MAC=02:00:00:00:00:0a;"), Some(Mac([2, 0, 0, 0, 0, 10])));
        assert_eq!(mac("IgnoreUnknown=1;FOO=bar"), None);
        assert_eq!(mac("FOO=bar;IgnoreUnknown=true"), None);
        for wrong in ["FOO=bar", "IgnoreUnknown=0;FOO=bar", "MAC", "MAC=02:00", "=;x"] {
            assert!(args(wrong).is_err(), "{wrong}");
        }
        let about = |text| args(text).unwrap().about("0123456789abcdef");
        assert_eq!(about(""), "0123456789ab");
        assert_eq!(about("K8S_POD_NAME=web"), "web");
        assert_eq!(about("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1\n"), "shop/web-1");
        assert_eq!(about("K8S_POD_NAMESPACE=shop;K8S_POD_NAME="), "0123456789ab");
        assert_eq!(about(&format!("K8S_POD_NAME=a{}", "ü".repeat(99))).len(), 127);
    }

    /// Objective: exactly the names that the specification allows are valid.
    #[test]
    fn names_are_valid_as_the_specification_defines() {
        for (name, good) in
            [("a", true), ("0a_b.c-d", true), ("", false), ("-a", false), (".a", false), ("a/b", false), ("ä", false)]
        {
            assert_eq!(is_name(name), good, "{name}");
        }
    }
}
