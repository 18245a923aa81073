//! The plugin under netavark itself, from a newer Debian whose netavark supports plugins.

use crate::common::guest::folder;
use crate::common::runtime;
use crate::common::up;

use std::path::{Path, PathBuf};
use std::process::Command;

use netvale_harness::net::NamespaceHost;
use runtime::{Runtime, described, finish, inside, path, start};
use serde_json::{Value, json};
use up::until;

/// netavark, with the plugin as the driver `netvale`, in a namespace that acts as the host's namespace.
struct Netavark {
    runtime: Runtime,
    host: NamespaceHost,
    tree: PathBuf,
}

/// Returns a file in a folder or below, at any depth, whose name `is_it` accepts; `None` if there is none.
fn find(folder: &Path, is_it: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    let named = |file: &&PathBuf| file.file_name().and_then(|name| name.to_str()).is_some_and(is_it);
    let here = entries.iter().filter(|file| file.is_file()).find(named).cloned();
    let below = || entries.iter().filter(|entry| entry.is_dir() && !entry.is_symlink());
    here.or_else(|| below().find_map(|folder| find(folder, is_it)))
}

impl Netavark {
    fn new() -> Option<Netavark> {
        let runtime = Runtime::start()?;
        let tree = folder("newer-netavark.sh")?;
        let plugins = runtime.dir.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        let plugin = netvale_system_tests::programs().join("netvale-cni");
        std::os::unix::fs::symlink(plugin, plugins.join("netvale")).unwrap();
        Some(Netavark { runtime, host: NamespaceHost::new().unwrap(), tree })
    }

    fn command(&self, operation: &str, place: &str) -> Command {
        let file = |is_it: &dyn Fn(&str) -> bool| find(&self.tree, is_it).expect("a file of the packages");
        let loader = file(&|name| name.starts_with("ld-linux") && name.contains(".so."));
        let libraries = file(&|name| name == "libc.so.6");
        let gcc = file(&|name| name == "libgcc_s.so.1");
        let folders = [&libraries, &gcc].map(|file| file.parent().unwrap().display().to_string()).join(":");
        let own = self.runtime.dir.path();
        let mut command = self.host.command(loader.to_str().unwrap(), &["--library-path", &folders]);
        command.arg(file(&|name| name == "netavark")).arg("--config").arg(own).arg("--plugin-directory");
        command.arg(own.join("plugins")).args(["--rootless", "false", "--firewall-driver", "none", operation, place]);
        command
    }

    fn run(&self, operation: &str, place: &str, input: &Value) -> Result<Value, Value> {
        finish(start(&mut self.command(operation, place), input.to_string().as_bytes()))
    }

    /// Returns the input that podman gives netavark for a container on these networks.
    fn container(&self, id: &str, networks: &[(&str, &str)]) -> Value {
        let mut input =
            json!({"container_id": id, "container_name": id, "networks": {}, "network_info": {}, "port_mappings": []});
        for (at, (name, address)) in networks.iter().enumerate() {
            let mut one = described(id, address);
            one["network"]["name"] = json!(name);
            one["network"]["options"] = json!({"run_dir": self.runtime.up.dir(), "switch": name});
            one["network_options"]["interface_name"] = json!(format!("eth{at}"));
            input["networks"][*name] = one["network_options"].take();
            input["network_info"][*name] = one["network"].take();
        }
        input
    }
}

/// Objective: netavark accepts the plugin's results: two containers reach each other; they are removed, even twice, and
/// even after their namespaces are gone, about which netavark itself may report an error.
#[test]
fn netavark_takes_the_results_of_the_plugin() {
    let Some(netavark) = Netavark::new() else { return };
    let [one, two] = [NamespaceHost::new().unwrap(), NamespaceHost::new().unwrap()];
    let inputs = [("one", "10.1.0.2"), ("two", "10.1.0.3")].map(|(id, ip)| netavark.container(id, &[("lab", ip)]));
    let status = netavark.run("setup", &path(&one), &inputs[0]).unwrap();
    let shown = &status["lab"]["interfaces"]["eth0"];
    assert_eq!(shown["subnets"], json!([{"gateway": "10.1.0.1", "ipnet": "10.1.0.2/24"}]));
    assert!(inside(&one, "ip link show eth0").contains(shown["mac_address"].as_str().unwrap()));
    netavark.run("setup", &path(&two), &inputs[1]).unwrap();
    inside(&one, "ping -c 2 -i 0.2 -W 20 10.1.0.3");
    for _ in 0..2 {
        assert_eq!(netavark.run("teardown", &path(&one), &inputs[0]), Ok(Value::Null));
    }
    assert_eq!(netavark.runtime.ports().len(), 1);
    assert!(!inside(&one, "ip link").contains("eth0"));
    let gone = path(&two);
    drop(two);
    let output = start(&mut netavark.command("teardown", &gone), inputs[1].to_string().as_bytes());
    let said = String::from_utf8(output.wait_with_output().unwrap().stdout).unwrap();
    assert!(!said.contains("plugin"), "{said}");
    until("nothing is left", || netavark.runtime.ports().is_empty());
}

/// Objective: if one of a container's two networks fails, netavark passes on the plugin's error, and nothing of either
/// network is left.
#[test]
fn a_network_that_fails_under_netavark_leaves_nothing() {
    let Some(netavark) = Netavark::new() else { return };
    let one = NamespaceHost::new().unwrap();
    let mut input = netavark.container("one", &[("lab", "10.1.0.2"), ("other", "10.1.0.9")]);
    input["network_info"]["other"]["options"]["vlan"] = json!("7");
    let error = netavark.run("setup", &path(&one), &input).expect_err("an error");
    assert!(error["error"].as_str().is_some_and(|text| text.contains("vlan: unknown network option")), "{error}");
    assert!(netavark.runtime.ports().is_empty() && !inside(&one, "ip link").contains("eth"));
    input["network_info"]["other"]["options"] = input["network_info"]["lab"]["options"].clone();
    netavark.run("setup", &path(&one), &input).unwrap();
    assert_eq!(netavark.runtime.ports().len(), 2);
}
