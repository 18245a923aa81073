//! Container runtimes that use the CNI plugin: podman, and containerd as Kubernetes uses it.

use crate::common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use netvale_harness::ChildProcess;

/// Time limit of a script.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a script in namespaces of its own, if its requirements are met.
fn run(script: &str, needs: &[&str]) {
    let missing = needs.iter().find(|file| !Path::new(file).exists());
    if let Some(missing) = missing {
        netvale_harness::skip(&format!(
            "{missing} is missing; scripts/install-deps.sh test-system installs what these tests need"
        ));
        return;
    }
    if !rustix::process::geteuid().is_root() || netvale_harness::net::NamespaceHost::new().is_err() {
        netvale_harness::skip("only root can make network namespaces");
        return;
    }
    let dir = netvale_harness::daemon::scratch("containers").unwrap();
    let file = netvale_system_tests::root().join("crates/dev/system-tests/tests/containers").join(script);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "bash"]).arg(file);
    command.current_dir(dir.path()).env("PROGRAMS", netvale_system_tests::programs());
    for name in ["NETVALE_RUN_DIR", "XDG_RUNTIME_DIR", "NOTIFY_SOCKET", "LISTEN_FDS"] {
        command.env_remove(name);
    }
    let process = ChildProcess::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    let output = process.output(Some(LIMIT)).unwrap();
    let said = common::stderr(&output) + &String::from_utf8_lossy(&output.stdout);
    let log = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    let whole = output.status.success() && said.contains("reached the end");
    assert!(whole, "{}: {said}\n{}\n{}", output.status, log("netvale.log"), log("containerd.log"));
}

/// Objective: podman's containers reach each other over a switch, have the requested address, and leave nothing behind
/// when they are removed, even if they were killed before.
#[test]
fn containers_of_podman_reach_each_other() {
    run("podman.sh", &["/usr/bin/podman", "/usr/bin/crun", "/usr/lib/cni/host-local", "/bin/busybox"]);
}

/// Objective: pods of containerd reach each other over a switch, and leave nothing behind when they are removed.
#[test]
fn pods_of_containerd_reach_each_other() {
    let needs = ["/usr/bin/containerd", "/usr/sbin/runc", "/usr/bin/podman", "/usr/lib/cni/host-local", "/bin/busybox"];
    run("containerd.sh", &[&needs[..], &["/usr/lib/python3/dist-packages/grpc"]].concat());
}
