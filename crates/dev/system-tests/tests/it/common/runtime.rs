//! Acts as a container runtime: starts the plugin as the CNI specification or netavark requires, and makes network
//! namespaces.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use netvale_harness::net::NamespaceHost;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::up::Up;

/// An address plugin that returns the address in its configuration, and records its calls.
const IPAM: &str = r#"#!/bin/sh
input=$(cat)
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME" >>"$(dirname "$0")/asked"
address=$(printf %s "$input" | sed -n 's/.*"hand":"\([^"]*\)".*/\1/p')
case $CNI_COMMAND:$address in
ADD:fail) echo '{"cniVersion": "1.0.0", "code": 111, "msg": "none are left"}'; exit 1 ;;
ADD:nonsense) echo nonsense ;;
ADD:hang) echo >"$(dirname "$0")/hangs"; exec sleep 300 ;;
ADD:*) echo '{"cniVersion": "1.0.0", "ips": [{"address": "'"$address"'", "gateway": "10.1.0.1"}],' \
    '"routes": [{"dst": "10.9.0.0/16"}]}' ;;
esac
"#;

/// A container runtime with a netvale daemon and an address plugin for tests.
pub struct Runtime {
    pub up: Up,
    pub dir: TempDir,
}

impl Runtime {
    /// Starts a daemon, and prepares the address plugin; `None` if these tests cannot run here.
    pub fn start() -> Option<Runtime> {
        if !can_run() {
            return None;
        }
        let dir = netvale_harness::daemon::scratch("cni").expect("a folder");
        let plugin = dir.path().join("test-ipam");
        std::fs::write(&plugin, IPAM).expect("written");
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).expect("executable");
        Some(Runtime { up: Up::start(&[]), dir })
    }

    /// Returns a configuration whose address plugin returns `address`, with the further members `more`.
    pub fn config(&self, version: &str, address: &str, more: &Value) -> Value {
        let mut config = json!({"cniVersion": version, "name": "net", "type": "netvale-cni", "runDir": self.up.dir(),
            "ipam": {"type": "test-ipam", "hand": address}});
        for (key, value) in more.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        config
    }

    /// Returns the command that starts the plugin for an operation.
    pub fn command(&self, operation: &str, id: &str, netns: &str) -> Command {
        let mut command = Command::new(netvale_system_tests::programs().join("netvale-cni"));
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_PATH", format!("/nowhere:{}", self.dir.path().display()));
        command
            .env("CNI_COMMAND", operation)
            .env("CNI_CONTAINERID", id)
            .env("CNI_NETNS", netns)
            .env("CNI_IFNAME", "eth0");
        command
    }

    /// Runs a CNI operation. Returns the plugin's result, or its error.
    pub fn run(&self, operation: &str, id: &str, netns: &str, config: &Value) -> Result<Value, Value> {
        finish(start(&mut self.command(operation, id, netns), config.to_string().as_bytes()))
    }

    /// Returns the input of [`described`], with this daemon's run directory among the options.
    pub fn described(&self, id: &str, address: &str) -> Value {
        let mut input = described(id, address);
        input["network"]["options"] = json!({"run_dir": self.up.dir()});
        input
    }

    /// Returns the command that starts the plugin for an operation of netavark.
    pub fn netavark(&self, words: &[&str]) -> Command {
        let mut command = Command::new(netvale_system_tests::programs().join("netvale-cni"));
        command.args(words).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs an operation of netavark. Returns the plugin's result, or its error.
    pub fn ask(&self, words: &[&str], input: &Value) -> Result<Value, Value> {
        finish(start(&mut self.netavark(words), input.to_string().as_bytes()))
    }

    /// Returns the calls of the address plugin, one line each.
    pub fn asked(&self) -> Vec<String> {
        let asked = std::fs::read_to_string(self.dir.path().join("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }

    /// Returns the names of the daemon's ports.
    pub fn ports(&self) -> Vec<String> {
        let listed: Value = serde_json::from_slice(&self.up.run("list --json").stdout).unwrap_or_default();
        let ports = listed["ports"].as_array().cloned().unwrap_or_default();
        ports.iter().filter_map(|port| port["name"].as_str().map(str::to_owned)).collect()
    }
}

/// Returns the description of a container on the network `lab` that netavark gives its plugins.
pub fn described(id: &str, address: &str) -> Value {
    json!({"container_id": id, "container_name": format!("name-{id}"), "port_mappings": null,
        "network": {"name": "lab", "id": "2f259bab93aaaaa2", "driver": "netvale", "dns_enabled": false,
            "internal": false, "ipv6_enabled": false, "ipam_options": {"driver": "host-local"},
            "subnets": [{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}]},
        "network_options": {"interface_name": "eth0", "static_ips": [address]}})
}

/// Starts the plugin and writes its input.
pub fn start(command: &mut Command, input: &[u8]) -> Child {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the plugin starts");
    // The plugin may have ended without reading all its input.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child
}

/// Returns the plugin's result, or its error.
pub fn finish(child: Child) -> Result<Value, Value> {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(stdout).expect("text");
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    let value = if said.trim().is_empty() { Value::Null } else { serde_json::from_str(&said).expect(&said) };
    if status.success() { Ok(value) } else { Err(value) }
}

/// Returns the path of a namespace.
pub fn path(host: &NamespaceHost) -> String {
    format!("/proc/{}/ns/net", host.pid())
}

/// Returns whether these tests can run: their programs are installed, and namespaces are permitted.
pub fn can_run() -> bool {
    let can =
        rustix::process::geteuid().is_root() && Path::new("/dev/net/tun").exists() && NamespaceHost::new().is_ok();
    if !can {
        netvale_harness::skip("only root can make network namespaces, and a TAP needs /dev/net/tun");
    }
    can
}

/// Runs a command in a namespace, which must succeed. Returns its output.
pub fn inside(host: &NamespaceHost, line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    crate::common::stdout(&host.command(words[0], &words[1..]).output().expect("it starts"))
}
