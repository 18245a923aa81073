//! The gateways that are compared, each in its best configuration.

use super::network::{HOST, INTERFACE, Network, PORT};
use super::*;
use crate::peers::gvproxy::{self, Gvproxy};
use crate::scenarios::sockets::{self, SocketKind};
use crate::sys::trees;

const SLIRP: &[Need] = &[Need::Program("slirp4netns", "slirp4netns")];
const PASTA: &[Need] = &[Need::Program("pasta", "passt")];
const NEWER: &str = "needs a newer Debian's passt: run scripts/newer-passt.sh";
/// The largest MTU that slirp4netns and pasta recommend, which needs fewer segments.
const LARGE: u32 = 65520;
/// Time limit until a program first answers.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Returns the peers.
pub fn peers() -> Vec<Contender> {
    let fits = |case: &Case| case.scenario == SCENARIO.name && case.variant != OWN_NAMES;
    let has_names = |case: &Case| case.scenario == SCENARIO.name;
    // The kernel does not answer DNS queries, and has no process whose CPU time or memory could be measured.
    let kernels = |case: &Case| {
        case.scenario == SCENARIO.name
            && matches!(case.unit, Unit::Gbps | Unit::PerSecond | Unit::Micros)
            && !case.variant.starts_with("dns")
    };
    contenders! {
        "slirp4netns", "slirp4netns, MTU 65,520";
        &[TWO, NETWORKS, iperf::NEEDS, SLIRP], fits, |case, cores| measured("slirp4netns", case, cores, slirp4netns);
        "pasta", "Debian's pasta, MTU 65,520";
        &[TWO, NETWORKS, iperf::NEEDS, PASTA], fits, |case, cores| measured("pasta", case, cores, |network| {
            with_pasta(network, &["pasta".into()])
        });
        "pasta-sid", "pasta of Debian's development release, MTU 65,520";
        &[TWO, NETWORKS, iperf::NEEDS, &[Need::Found(|| newer().map(drop))]], fits,
        |case, cores| measured("pasta-sid", case, cores, |network| with_pasta(network, &newer()?));
        "gvproxy", "gvproxy, whose stream in QEMU's form the benchmark joins to a TAP";
        &[TWO, NETWORKS, iperf::NEEDS, gvproxy::NEEDS], has_names,
        |case, cores| measured("gvproxy", case, cores, gvproxy);
        "kernel-routed", "no gateway: the kernel routes between two veth pairs";
        &[TWO, NETWORKS, iperf::NEEDS], kernels, |case, cores| measured("kernel-routed", case, cores, kernel);
    }
}

fn gateway(parts: Parts, guest: &'static str, names: &'static str) -> RunningGateway {
    RunningGateway { parts, names, own_name: "", guest, inbound: HOST, kept: Vec::new() }
}

/// Starts netvale's daemon and its gateway.
pub fn netvale(network: &Network) -> Result<RunningGateway> {
    let daemon = Daemon::start(Some(&network.host), network.core, "")?;
    daemon.attach(VALE, format!("tap:{INTERFACE}"), PortOptions::default())?;
    network.host.ip(&format!("link set {INTERFACE} netns {}", network.guest.path()))?;
    network.set_up_guest("10.0.0.2", "10.0.0.1", 1500)?;
    let program = sys::netvale()?;
    let publish = format!("{HOST}:{PORT}:10.0.0.2:{PORT}");
    let mut command = network.command(&program);
    command.arg("--run-dir").arg(daemon.dir()).args(["gateway", VALE, "10.0.0.1/24", "--publish", &publish]);
    command.args(["--allow", "192.0.2.0/24", "--allow", "198.51.100.0/24"]);
    let child = Rc::new(Child::spawn(command, &network.log("netvale"))?);
    // The daemon is frozen last, and continued first.
    let own = gateway(vec![child, daemon], "10.0.0.2", "10.0.0.1");
    Ok(RunningGateway { own_name: "gateway.lan", ..own })
}

fn slirp4netns(network: &Network) -> Result<RunningGateway> {
    let api = network.path("api");
    let api_option = format!("--api-socket={}", api.display());
    let mtu = format!("--mtu={LARGE}");
    let options = ["--configure", &mtu, "--disable-host-loopback", "--netns-type=path", &api_option];
    let namespace = network.guest_file().display().to_string();
    let child = network.start("slirp4netns", &[&options[..], &[&namespace, INTERFACE]].concat())?;
    let request = format!(
        r#"{{"execute":"add_hostfwd","arguments":{{"proto":"tcp","host_addr":"{HOST}","host_port":{PORT},
        "guest_addr":"10.0.2.100","guest_port":{PORT}}}}}"#
    );
    let answer = interrupt::poll_until(START_LIMIT, || Ok(asked(&api, &request).ok()))?.unwrap_or_default();
    if !answer.contains("\"return\"") {
        return Err(BenchError::unreadable("slirp4netns", "the published port", &answer));
    }
    Ok(gateway(vec![child], "10.0.2.100", "10.0.2.3"))
}

/// Sends a request to a UNIX socket, and returns the answer.
fn asked(path: &Path, request: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut socket = std::os::unix::net::UnixStream::connect(path)?;
    socket.write_all(request.replace('\n', "").as_bytes())?;
    socket.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).map(|_| answer)
}

fn newer() -> std::result::Result<Vec<PathBuf>, Skip> {
    let tree = trees::newest("passt-").ok_or(Skip::NotBuilt(NEWER))?;
    // Because the tree's own loader starts pasta, pasta cannot find and run its AVX2 build by itself.
    let has_avx2 = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" avx2 "));
    let own = if has_avx2 { "usr/bin/pasta.avx2" } else { "usr/bin/pasta" };
    Ok(trees::program(&tree, own))
}

/// Starts pasta. The guest gets the host's address, and sends DNS queries to an address that pasta replaces by the
/// resolver's address.
fn with_pasta(network: &Network, program: &[PathBuf]) -> Result<RunningGateway> {
    let mut words = program.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let options = format!(
        "--foreground --ipv4-only --config-net --runas 0 --ns-ifname {INTERFACE} -t {HOST}/{PORT} -u none -T none \
         -U none --dns-forward 192.0.2.53 --no-map-gw --netns-only --netns"
    );
    words.extend(options.split(' ').map(str::to_owned));
    words.push(network.guest_file().display().to_string());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (first, rest) = words.split_first().ok_or(Skip::NotBuilt(NEWER))?;
    let child = network.start(first, rest)?;
    Ok(gateway(vec![child], HOST, "192.0.2.53"))
}

fn gvproxy(network: &Network) -> Result<RunningGateway> {
    const MTU: u32 = LARGE;
    let proxy = Gvproxy::start(|program| network.command(program), &network.path("gvproxy"), MTU)?;
    let ends = [proxy.guest.clone(), network.path("own")];
    let bridge = sockets::joined(&network.guest, network.core, INTERFACE, SocketKind::Stream, ends)?;
    network.guest.ip(&format!("link set {INTERFACE} address 5a:94:ef:e4:0c:ee"))?;
    network.set_up_guest("192.168.127.2", "192.168.127.1", MTU)?;
    proxy.publish(&format!("{HOST}:{PORT}"), &format!("192.168.127.2:{PORT}"))?;
    let own = gateway(vec![bridge, Rc::clone(&proxy.child) as Rc<dyn Part>], "192.168.127.2", "192.168.127.1");
    Ok(RunningGateway { own_name: "gateway.containers.internal", kept: vec![Box::new(proxy)], ..own })
}

/// Connects guest and host by a veth pair; the host's kernel routes the guest's packets.
fn kernel(network: &Network) -> Result<RunningGateway> {
    let Network { guest, host, outside, .. } = network;
    host.ip(&format!("link add guest0 type veth peer name {INTERFACE} netns {}", guest.path()))?;
    host.set_up("guest0", "10.0.0.1/24")?;
    host.set("ipv4/ip_forward", "1")?;
    outside.ip(&format!("route add 10.0.0.0/24 via {HOST}"))?;
    network.set_up_guest("10.0.0.2", "10.0.0.1", 1500)?;
    Ok(RunningGateway { inbound: "10.0.0.2", ..gateway(Vec::new(), "10.0.0.2", "") })
}
