//! `netvale attach … --netns`: TAPs that the command makes in other network namespaces, as root and as an ordinary
//! user.

use crate::common;
use crate::common::up;

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::{netvale, stderr, stdout};
use netvale_harness::ChildProcess;
use netvale_harness::net::NamespaceHost;
use up::{Up, until};

/// A user ID that no account of the system has.
const USER: u32 = 70_310;

fn is_root() -> bool {
    common::is_root("only root can make namespaces and become another user")
}

fn must(command: &mut Command) -> String {
    stdout(&command.output().expect("it starts"))
}

/// Objective: two namespaces, given by a process and by a path, reach each other through TAPs with the requested
/// options; the port is removed with its namespace, and `list` gives the reason.
#[test]
fn by_process_and_by_path() {
    if !is_root() {
        return;
    }
    let up = Up::start(&["--user", &USER.to_string()]);
    let one = NamespaceHost::new().unwrap();
    let two = NamespaceHost::new().unwrap();
    let path = format!("/proc/{}/ns/net", two.pid());
    let mac = "02:00:00:00:77:01";
    let said = up
        .run(&format!("attach vale0 tap:eth0 --netns {} --name one --mac {mac} --mtu 1400 --rings 2 --gro", one.pid()));
    assert_eq!(stdout(&said).trim(), "vale0:one attached");
    stdout(&up.run(&format!("attach vale0 tap:eth0 --netns {path} --name two --json")));
    for (host, address) in [(&one, "10.1.0.1/24"), (&two, "10.1.0.2/24")] {
        must(&mut host.command("ip", &["addr", "add", address, "dev", "eth0"]));
        must(&mut host.command("ip", &["link", "set", "eth0", "up"]));
    }
    let link = must(&mut one.command("ip", &["link", "show", "eth0"]));
    assert!(link.contains(mac) && link.contains("mtu 1400"), "{link}");
    must(&mut one.command("ping", &["-c", "2", "-i", "0.2", "-W", "20", "10.1.0.2"]));
    let notes = up.notes("vale0:two");
    assert!(notes.contains(&format!("({path})")), "{notes}");
    drop(two);
    until("the port is gone", || up.show("vale0:two").is_null());
    let list = stdout(&up.run("list"));
    assert!(list.contains("the interface is gone"), "{list}");
    assert!(!up.show("vale0:one").is_null());
}

/// Objective: an ordinary user's daemon accepts TAPs in that user's namespaces, which belong to a user namespace of
/// this user; other files, and other users' namespaces, are refused with a reason.
#[test]
fn of_an_ordinary_user() {
    if !is_root() {
        return;
    }
    let dir = netvale_harness::daemon::scratch("rootless").unwrap();
    chown(dir.path(), Some(USER), Some(USER)).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("netvale");
    netvale_system_tests::copy_program("netvale", &program);
    let as_user = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).uid(USER).gid(USER).current_dir("/").stdin(Stdio::null());
        command
    };
    let run_dir = dir.path().join("run");
    let own = |words: &str| {
        let mut command = as_user(&[program.to_str().unwrap(), "--run-dir", run_dir.to_str().unwrap()]);
        command.args(words.split_whitespace()).env_remove("NETVALE_RUN_DIR");
        command
    };
    let mut daemon = ChildProcess::start(own("up").stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    let alive = || matches!(daemon.child().try_wait(), Ok(None));
    assert!(netvale_harness::daemon::ready(&run_dir, up::LIMIT, alive));
    let unshared = || {
        let script = ["unshare", "--user", "--map-root-user", "--net", "--", "sh", "-c", "echo in; exec sleep 300"];
        let mut process = ChildProcess::start(as_user(&script).stdout(Stdio::piped())).unwrap();
        let mut word = String::new();
        std::io::BufRead::read_line(&mut process.lines().unwrap(), &mut word).unwrap();
        (word.trim() == "in").then_some(process)
    };
    let (Some(one), Some(two)) = (unshared(), unshared()) else {
        netvale_harness::skip("ordinary users may not make user namespaces here");
        return;
    };
    for (process, address) in [(&one, "10.1.0.1/24"), (&two, "10.1.0.2/24")] {
        let id = process.id().to_string();
        must(&mut own(&format!("attach vale0 tap:eth0 --netns {id} --name n{id}")));
        for line in [format!("addr add {address} dev eth0"), "link set eth0 up".into()] {
            must(Command::new("nsenter").args(["--target", &id, "--user", "--net", "ip"]).args(line.split(' ')));
        }
    }
    let ping =
        ["--target", &one.id().to_string(), "--user", "--net", "ping", "-c", "2", "-i", "0.2", "-W", "20", "10.1.0.2"];
    must(Command::new("nsenter").args(ping));
    let theirs = NamespaceHost::new().unwrap();
    let refused = |place: &str, why: &str| {
        let output = own(&format!("attach vale0 tap:eth0 --netns {place} --name x")).output().unwrap();
        assert!(!output.status.success() && stderr(&output).contains(why), "{}", stderr(&output));
    };
    refused(&theirs.pid().to_string(), "Permission denied");
    refused("/nowhere", "network namespace /nowhere");
    refused("/dev/null", "another kind of namespace or file");
}

/// Objective: ports in the configuration, and ports other than TAPs, cannot have a namespace.
#[test]
fn only_attached_taps_name_a_namespace() {
    let dir = netvale_harness::daemon::scratch("netns").unwrap();
    let file = dir.path().join("netvale.toml");
    let port = "[[port]]\nswitch = \"vale0\"\nport = \"tap:eth0\"\nnetns = \"/run/netns/web\"\n";
    std::fs::write(&file, port).unwrap();
    let output = netvale().arg("--run-dir").arg(dir.path()).arg("up").arg("--config").arg(&file).output().unwrap();
    assert!(
        !output.status.success() && stderr(&output).contains("does not enter network namespaces"),
        "{}",
        stderr(&output)
    );
    let output = common::run(["attach", "vale0", "null:", "--netns", "/run/netns/web"]);
    assert!(stderr(&output).contains("--netns applies only to TAP ports"), "{}", stderr(&output));
}
