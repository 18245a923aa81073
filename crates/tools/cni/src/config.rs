//! The network's configuration. Options with the same meaning have the same names as in the bridge plugin.

use std::path::PathBuf;

use netvale_control::dirs;
use netvale_control::types::Mac;
use netvale_portspec::SwitchName;
use serde::Deserialize;
use serde_json::Value;

use crate::call::{CniCommand, VERSIONS, is_name};
use crate::error::{CniError, Code};
use crate::policies::PodPolicies;

/// The form in which a container is connected to the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceMode {
    /// A network interface: a TAP in the container's network namespace.
    #[default]
    Tap,
    /// A vhost-user socket, for a virtual machine.
    VhostUser,
}

/// The configuration of a network: the keys that the plugin uses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CniConfig {
    /// The network's name.
    #[serde(default)]
    pub name: String,
    /// The switch's name.
    #[serde(default = "default_switch")]
    pub bridge: String,
    /// MTU of the interface in bytes; 0 means 1500.
    #[serde(default)]
    pub mtu: u32,
    /// Whether to add a default route through the gateway that the address plugin returns.
    #[serde(default)]
    pub is_default_gateway: bool,
    /// Whether the container gets a TAP or a vhost-user socket.
    #[serde(default)]
    pub mode: InterfaceMode,
    /// Number of queues of the TAP, or of queue pairs of the vhost device; 0 means 1.
    #[serde(default)]
    pub queues: u32,
    /// Whether the switch merges TCP segments and UDP datagrams to the container (GRO).
    #[serde(default)]
    pub gro: bool,
    /// The daemon's run directory; `None` for the default run directory.
    pub run_dir: Option<PathBuf>,
    /// The folder of vhost-user sockets; `None` for the folder `cni` in the run directory.
    pub socket_dir: Option<PathBuf>,
    /// The folder in which Kata Containers looks for files of directly attachable networks; `None` if no such files are
    /// written.
    pub kata_dir: Option<PathBuf>,
    /// The address plugin (IPAM).
    #[serde(default)]
    pub ipam: Ipam,
    /// Policies of the containers' ports, which only ADD and STATUS use.
    #[serde(skip)]
    pub policies: PodPolicies,
    /// DNS settings, which are copied to the result.
    pub dns: Option<Value>,
    /// Parameters that the runtime sets.
    #[serde(default)]
    pub runtime_config: RuntimeConfig,
    /// The same parameters under the older key `args.cni`; parameters in `runtimeConfig` take precedence.
    #[serde(default)]
    pub args: ConfigArgs,
    /// For ADD, the result of the previous plugin; for CHECK and DEL, the result of ADD.
    pub prev_result: Option<Value>,
    /// The containers that still exist; `None` if the list is missing or null.
    #[serde(rename = "cni.dev/valid-attachments", default)]
    pub valid: Option<Vec<ContainerAttachment>>,
}

/// The configuration of the address plugin.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Ipam {
    /// The plugin's name; empty if there is none.
    #[serde(rename = "type", default)]
    pub kind: String,
}

/// The keys of `runtimeConfig` that the plugin uses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RuntimeConfig {
    /// The MAC address that the container's interface must have.
    pub mac: Option<Mac>,
}

/// The keys of `args` that the plugin uses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ConfigArgs {
    /// The parameters under the key `cni`, which CNI's conventions define.
    #[serde(default)]
    pub cni: RuntimeConfig,
}

/// A container that still exists, and its interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ContainerAttachment {
    /// The container's ID.
    #[serde(rename = "containerID")]
    pub container: String,
    /// The interface's name in the container.
    pub ifname: String,
}

fn default_switch() -> String {
    "vale0".into()
}

/// Options of the bridge plugin that are refused rather than ignored, because containers depend on their effect. The
/// second text is the reason why the option is refused.
const MISSING: [(&str, &str); 7] = [
    ("isGateway", "the switch has no address on the host: attach tap:NAME there, and give it the gateway's address"),
    ("ipMasq", "the switch does not translate addresses: do that on the host, behind a tap: port"),
    ("ipMasqBackend", "the switch does not translate addresses"),
    ("hairpinMode", "the switch never sends a frame back to the port it came from"),
    ("promiscMode", "a port receives only frames for its container and for unknown addresses"),
    ("forceAddress", "the switch has no address"),
    ("disableContainerInterface", "a container without an interface has no use for a port"),
];

/// Returns whether a value enables the option to which it belongs.
fn asks(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

fn refuse_missing(input: &Value) -> Result<(), CniError> {
    match MISSING.iter().find(|(key, _)| input.get(*key).is_some_and(asks)) {
        None => Ok(()),
        Some((key, why)) => {
            let said: String = input[*key].to_string().chars().take(80).collect();
            let text = format!("{key} is {said}, which is not supported: {why}");
            Err(CniError::advised(Code::Unsupported, text, format!("omit {key}")))
        }
    }
}

impl CniConfig {
    /// Reads and checks the configuration of an operation.
    ///
    /// # Errors
    /// [`CniError`] if the version is not supported, or an option is invalid or not supported.
    pub fn read(input: &Value, command: CniCommand) -> Result<CniConfig, CniError> {
        check_version(input, command)?;
        let bad = |text: String| CniError::new(Code::Config, text);
        let mut config: CniConfig =
            serde_json::from_value(input.clone()).map_err(|e| bad(format!("invalid configuration: {e}")))?;
        if !is_name(&config.name) {
            let text =
                "name is missing or invalid: expected letters, digits, '_', '.' and '-', the first a letter or digit";
            return Err(bad(text.into()));
        }
        SwitchName::parse(&config.bridge).map_err(|e| bad(format!("bridge: {e:#}")))?;
        if config.mtu != 0 && !(68..=65_535).contains(&config.mtu) {
            return Err(bad(format!("invalid mtu {}: expected a number from 68 to 65535", config.mtu)));
        }
        if config.ipam.kind.contains('/') {
            return Err(bad("ipam.type: expected a plugin's name, without a folder".into()));
        }
        if config.mode == InterfaceMode::VhostUser && config.is_default_gateway {
            return Err(bad("isDefaultGateway does not apply to mode vhostuser: the machine sets its routes".into()));
        }
        // Only ADD and STATUS refuse options: DEL must be able to remove ports that an earlier version of this plugin
        // created with such options.
        if matches!(command, CniCommand::Add | CniCommand::Status) {
            refuse_missing(input)?;
            config.policies = PodPolicies::read(input)?;
        }
        Ok(config)
    }

    /// Returns the requested MTU; `None` for the default.
    pub fn asked_mtu(&self) -> Option<u32> {
        (self.mtu != 0).then_some(self.mtu)
    }

    /// Returns the requested MAC address; `None` if none is requested. The address from the runtime's configuration
    /// takes precedence over `of_args`, the address in `CNI_ARGS`.
    pub fn mac(&self, of_args: Option<Mac>) -> Option<Mac> {
        self.runtime_config.mac.or(self.args.cni.mac).or(of_args)
    }

    /// Returns the daemon's run directory.
    pub fn daemon_dir(&self) -> PathBuf {
        self.run_dir.clone().unwrap_or_else(|| dirs::daemon_run_dir(dirs::CONTROL_SOCKET))
    }
}

fn check_version(input: &Value, command: CniCommand) -> Result<(), CniError> {
    let said = input.get("cniVersion").and_then(Value::as_str).unwrap_or("0.1.0");
    let text = match VERSIONS.iter().position(|version| *version == said) {
        None => format!("cniVersion {said} is not supported"),
        Some(at) if VERSIONS.get(at).is_some_and(|version| *version < command.since()) => {
            format!("this command needs cniVersion {}, found {said}", command.since())
        }
        Some(_) => return Ok(()),
    };
    Err(CniError::advised(Code::Version, text, format!("supported: {}", VERSIONS.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(more: Value) -> Result<CniConfig, CniError> {
        let mut input = json!({"cniVersion": "1.0.0", "name": "n", "type": "netvale-cni"});
        for (key, value) in more.as_object().expect("members") {
            input[key] = value.clone();
        }
        CniConfig::read(&input, CniCommand::Add)
    }

    fn code(more: Value) -> u64 {
        read(more.clone()).expect_err(&more.to_string()).json("1.0.0")["code"].as_u64().unwrap_or_default()
    }

    /// Objective: missing options have their defaults, and options that are unknown or switched off are ignored.
    #[test]
    fn missing_options_have_their_defaults() {
        let config =
            read(json!({"capabilities": {"mac": true}, "vlan": 0, "ipMasq": false, "hairpinMode": null})).unwrap();
        assert_eq!((config.bridge.as_str(), config.asked_mtu(), config.mode), ("vale0", None, InterfaceMode::Tap));
        assert_eq!(config.ipam.kind, "");
    }

    /// Objective: options that the switch cannot implement are refused, with their name and the code from the
    /// specification; for DEL, they are not refused.
    #[test]
    fn options_beyond_the_switch_are_refused_by_name() {
        for (key, _) in MISSING {
            assert_eq!(code(json!({key: true})), 2, "{key}");
        }
        for wrong in [
            json!({"bridge": "tap"}),
            json!({"bridge": "br 0"}),
            json!({"mtu": 20}),
            json!({"mtu": "x"}),
            json!({"name": "a b"}),
            json!({"ipam": {"type": "../x"}}),
            json!({"runtimeConfig": {"mac": "x"}}),
            json!({"vlan": 70_000}),
        ] {
            assert_eq!(code(wrong.clone()), 7, "{wrong}");
        }
        let input = json!({"cniVersion": "1.0.0", "name": "n", "ipMasq": true, "vlan": 70_000});
        assert!(CniConfig::read(&input, CniCommand::Del).is_ok());
    }

    /// Objective: a version that is not supported, or that does not have the requested operation, is refused with the
    /// specification's code for it.
    #[test]
    fn unsupported_versions_are_refused_with_their_code() {
        for version in ["0.1.0", "0.2.0", "1.2.0", "", "2"] {
            assert_eq!(code(json!({"cniVersion": version})), 1, "{version}");
        }
        let of =
            |version: &str, command| CniConfig::read(&json!({"cniVersion": version, "name": "n"}), command).is_ok();
        assert!(of("0.3.0", CniCommand::Add) && of("1.1.0", CniCommand::Gc) && of("0.4.0", CniCommand::Check));
        assert!(!of("0.3.1", CniCommand::Check) && !of("1.0.0", CniCommand::Gc) && !of("1.0.0", CniCommand::Status));
    }
}
