//! The file of `--config`: YAML, with gvproxy's keys. Unknown keys are ignored, as in gvproxy.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::GvFailure;
use super::zones::GvZone;

/// Maximum length of the file in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The contents of the file. Empty text and 0 mean that a key is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct GvConfig {
    pub listen: Vec<String>,
    pub log_level: String,
    pub stack: StackConfig,
    pub interfaces: InterfacesConfig,
    pub forwards: Vec<SshForward>,
    pub pid_file: String,
    pub log_file: String,
    pub services: String,
    pub ec2_metadata_access: bool,
    pub notification: String,
}

/// The key `stack`: the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StackConfig {
    #[serde(rename = "capture-file")]
    pub capture_file: String,
    pub mtu: i64,
    pub subnet: String,
    #[serde(rename = "gatewayIP")]
    pub gateway_ip: String,
    pub gateway_mac_address: String,
    pub dns: Vec<GvZone>,
    pub dns_search_domains: Vec<String>,
    pub forwards: BTreeMap<String, String>,
    pub nat: BTreeMap<String, String>,
    #[serde(rename = "gatewayVirtualIPs")]
    pub gateway_virtual_ips: Vec<String>,
    pub dhcp_static_leases: BTreeMap<String, String>,
    pub ec2_metadata_access: bool,
}

/// The key `interfaces`: the addresses of guests' sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct InterfacesConfig {
    pub vpnkit: String,
    pub qemu: String,
    pub bess: String,
    pub stdio: String,
    pub vfkit: String,
}

/// A socket of the host that leads to a socket in the guest, over SSH.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct SshForward {
    pub socket: String,
    pub dest: String,
    pub user: String,
    pub identity: String,
}

/// Reads the file.
///
/// # Errors
/// The file cannot be read, is too long, or is not YAML of this form.
pub(super) fn read(path: &Path) -> Result<GvConfig, GvFailure> {
    let len = std::fs::metadata(path).map_err(GvFailure::step("failed to read config file"))?.len();
    if len > MAX_FILE {
        let path = path.display();
        return Err(GvFailure(format!("{path} has {len} bytes: expected a configuration of at most {MAX_FILE}")));
    }
    let text = std::fs::read_to_string(path).map_err(GvFailure::step("failed to read config file"))?;
    parse(&text)
}

fn parse(text: &str) -> Result<GvConfig, GvFailure> {
    let is_empty = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if is_empty {
        return Ok(GvConfig::default());
    }
    serde_saphyr::from_str(text).map_err(GvFailure::step("failed to parse configuration"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a file in the form of gvproxy's documentation is read; a scalar with colons, such as a MAC address,
    /// is not taken for a number.
    #[test]
    fn gvproxys_files_are_read() {
        let config = parse(
            "listen:\n    - unix:///tmp/a.sock\nlog-level: warning\ninterfaces:\n    qemu: unix:///tmp/qemu.sock\n\
             stack:\n    mtu: 1480\n    subnet: 10.0.0.0/16\n    gatewayMacAddress: 10:11:11:11:11:00\n\
             \x20   dns:\n    - name: containers.internal.\n      records:\n      - name: gateway\n\
             \x20       ip: 10.0.0.1\n\
             \x20     - regexp: \"^a\"\n        ip: 10.0.0.2\n      defaultIP: 10.0.0.3\n\
             \x20   forwards:\n        127.0.0.1:59022: 192.168.127.2:22\n\
             \x20       \"udp:127.0.0.1:53\": 192.168.127.2:53\n\
             \x20   dhcpStaticLeases:\n        10.0.0.2: \"10:11:11:11:11:02\"\n        10.0.0.100: 10:11:11:11:11:dd\n\
             forwards:\n- socket: /a\n  dest: /b\n  user: core\n  identity: /k\nunknown: 1\n",
        )
        .unwrap();
        assert_eq!((config.listen, config.log_level.as_str()), (vec!["unix:///tmp/a.sock".into()], "warning"));
        let stack = config.stack;
        assert_eq!((stack.mtu, stack.gateway_mac_address.as_str()), (1480, "10:11:11:11:11:00"));
        assert_eq!(stack.dns[0].records.as_ref().map(Vec::len), Some(2));
        assert_eq!(stack.dns[0].default_ip, Some([10, 0, 0, 3].into()));
        assert_eq!(stack.forwards["127.0.0.1:59022"], "192.168.127.2:22");
        assert_eq!(stack.dhcp_static_leases["10.0.0.100"], "10:11:11:11:11:dd");
        assert_eq!(config.forwards[0].user, "core");
    }

    #[test]
    fn an_empty_file_has_no_settings_and_malformed_ones_are_refused() {
        for text in ["", "\n# nothing\n"] {
            assert_eq!(parse(text).unwrap(), GvConfig::default());
        }
        for text in ["a", "listen: {", "stack:\n  mtu: many\n", "- a"] {
            assert!(parse(text).unwrap_err().to_string().starts_with("failed to parse configuration"), "{text}");
        }
    }
}
