//! Actions of the soak on the daemon itself: ports that come and go, resource limits, captures that are read back.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use netvale::{Options, Port};
use netvale_control::dirs::CONTROL_SOCKET;
use netvale_control::types::{Mac, VxlanAddress, VxlanChanges, VxlanInfo, VxlanNeighbor, VxlanSetParams};
use netvale_harness::until;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::ends::station;
use crate::frames::FrameNumber;
use crate::netvale::Netvale;
use crate::replayed;
use crate::rng::Rng;
use crate::users;
use crate::world::{ATTACKED, ATTACKED_TUNNEL, ATTACKING_VTEP, VTEPS, World};

/// Time limit of steps that do not depend on peers.
const LIMIT: Duration = Duration::from_secs(30);

/// An action that takes about the given time. An error is a failure of the soak.
pub type SoakAct = fn(&World, &mut Rng, Duration) -> Result<(), String>;

/// All actions, by name. The names appear in the report.
pub const ACTS: &[(&str, SoakAct)] = &[
    ("ports attached and detached", storm),
    ("descriptors exhausted", descriptors),
    ("address space exhausted", memory),
    ("capture, read back", capture),
    ("VTEPs and addresses changed", vteps),
    ("policies of two users", users::policies),
    ("links in the way", users::links),
];

/// Attaches and detaches ports of all kinds.
fn storm(w: &World, rng: &mut Rng, life: Duration) -> Result<(), String> {
    let start = Instant::now();
    let first = w.first();
    let socket = |kind: &str| format!("{kind}:{}", first.path("storm.sock").display());
    let capture = format!("pcap:out={}", w.file("storm.pcap").display());
    let ports = [
        "null:".into(),
        "echo:".into(),
        "a".into(),
        "tap:nvsoaks".into(),
        capture,
        socket("vhost"),
        socket("ptnet"),
        socket("e1000"),
        socket("virtio"),
        "vxlan:20,local=127.0.0.20".into(),
        // A tunnel at a bystander's endpoint, which therefore shares the bystander's UDP socket.
        format!("vxlan:20,local={}", VTEPS[0]),
    ];
    while start.elapsed() < life {
        let port: &String = &ports[rng.index(ports.len())];
        first.attach("vale20", port, json!({"name": "storm"}))?;
        if rng.one_in(3) {
            let taken = first.attach("vale20", "null:", json!({"name": "storm"}));
            if taken.is_ok() {
                return Err("a second port was attached under the name of an existing one".into());
            }
        }
        first.control()?.detach("vale20", "storm").map_err(|e| format!("detach {port}: {e}"))?;
    }
    Ok(())
}

/// A resource limit of a process, restored on drop.
struct ProcessLimit {
    process: Option<Pid>,
    which: Resource,
    before: Rlimit,
}

impl ProcessLimit {
    fn new(daemon: &Netvale, which: Resource, most: u64) -> Result<ProcessLimit, String> {
        let process = Pid::from_raw(daemon.id().cast_signed());
        let name = if which == Resource::Nofile { "Max open files" } else { "Max address space" };
        // Only the soft limit changes: a lowered hard limit could not be raised again.
        let limit = Rlimit { current: Some(most), maximum: most_possible(daemon, name) };
        let before = prlimit(process, which, limit).map_err(|e| e.to_string())?;
        Ok(ProcessLimit { process, which, before })
    }
}

impl Drop for ProcessLimit {
    fn drop(&mut self) {
        // A daemon that has ended needs no limits; other code notices the daemon's end.
        let _ = prlimit(self.process, self.which, self.before);
    }
}

/// Returns the daemon's hard limit `name` of /proc/PID/limits; `None` if it is unlimited.
fn most_possible(daemon: &Netvale, name: &str) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.id())).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Lets the daemon run out of descriptors while many clients connect.
fn descriptors(w: &World, rng: &mut Rng, life: Duration) -> Result<(), String> {
    let daemon = w.first();
    // The limit applies to descriptor numbers, so it is relative to the numbers in use.
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.id())).map_err(|e| e.to_string())?;
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let limit = ProcessLimit::new(daemon, Resource::Nofile, 1 + numbers.max().unwrap_or(0_u64) + rng.below(8))?;
    // Ports are opened before the clients connect: otherwise the programs would wait while the clients are refused one
    // by one.
    let ports: Vec<_> = (0..20).filter_map(|i| w.open(0, &format!("vale21:p{i}")).ok()).collect();
    let crowd: Vec<OwnedFd> = (0..200).map_while(|_| connect(daemon).ok()).collect();
    std::thread::sleep(life);
    drop((crowd, ports, limit));
    answers(daemon)
}

/// Connects to the control socket without waiting; fails if the socket's backlog is full.
fn connect(daemon: &Netvale) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(daemon.path(CONTROL_SOCKET))?)?;
    Ok(socket)
}

/// Lets the daemon map only a little more memory while programs request large ports.
fn memory(w: &World, _rng: &mut Rng, life: Duration) -> Result<(), String> {
    let daemon = w.first();
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).map_err(|e| e.to_string())?;
    let mapped = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")?.parse().ok());
    // Rust's allocator aborts a process that gets no memory, so the limit must refuse regions but leave room for small
    // allocations.
    let most = (mapped.unwrap_or(0_u64) << 10) + (64 << 20);
    let limit = ProcessLimit::new(daemon, Resource::As, most)?;
    let options = Options { run_dir: Some(daemon.dir().into()), extra_bufs: 20_000, ..Options::default() };
    // Each port needs about 40 MiB, so not all four fit.
    let outcomes: Vec<_> = (0..4).map(|i| Port::open_with(&format!("vale21:m{i}"), &options)).collect();
    std::thread::sleep(life);
    drop(limit);
    let is_refused = |outcome: &Result<Port, _>| matches!(outcome, Err(netvale::Error::Refused { .. }));
    if !outcomes.iter().any(is_refused) {
        let errors: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        return Err(format!("large ports were not refused for lack of memory: {errors:?}"));
    }
    answers(daemon)
}

/// Checks that the daemon runs and serves new clients.
fn answers(daemon: &Netvale) -> Result<(), String> {
    let does = || daemon.control().is_ok_and(|mut client| client.version().is_ok());
    if until(LIMIT, Duration::from_millis(10), does) { Ok(()) } else { Err("the daemon does not answer".into()) }
}

/// Returns the address of a VTEP that does not exist.
fn nowhere(rng: &mut Rng) -> [u8; 4] {
    [127, 0, 1, rng.below(250) as u8 + 1]
}

/// Returns random changes of a tunnel that do not affect its bystanders.
fn change_of(port: String, replace: bool, keeps: &str, rng: &mut Rng) -> Result<VxlanSetParams, String> {
    let mac = |rng: &mut Rng| Mac([2, 0x99, 0, 0, 0, rng.below(200) as u8]);
    let mut set = VxlanSetParams { port, replace, ..VxlanSetParams::default() };
    set.flood = VxlanChanges { add: vec![keeps.parse().map_err(|e| format!("{keeps}: {e}"))?], remove: Vec::new() };
    for _ in 0..rng.below(100) {
        match rng.below(6) {
            0 => set.flood.add.push(nowhere(rng).into()),
            1 => set.flood.remove.push(nowhere(rng).into()),
            2 => {
                let mac = mac(rng);
                let vtep = nowhere(rng).into();
                let sticky = rng.one_in(4);
                set.addresses.add.push(VxlanAddress { mac, vtep, sticky, sequence: rng.below(9) as u32 });
            }
            3 => set.addresses.remove.push(mac(rng)),
            4 => {
                let ip = nowhere(rng).into();
                let mac = mac(rng);
                let router = rng.one_in(4);
                set.neighbors.add.push(VxlanNeighbor { ip, mac, router });
            }
            _ => set.neighbors.remove.push(nowhere(rng).into()),
        }
    }
    Ok(set)
}

/// Like a control plane, changes VTEPs and addresses of the attacked tunnel and of a bystander's tunnel. The new VTEPs
/// do not exist, and are removed at the end.
fn vteps(w: &World, rng: &mut Rng, life: Duration) -> Result<(), String> {
    let start = Instant::now();
    let mut client = w.first().control()?;
    let tunnels = [(format!("{ATTACKED}:{ATTACKED_TUNNEL}"), ATTACKING_VTEP), ("vale11:tunnel".to_owned(), VTEPS[1])];
    while start.elapsed() < life {
        let (port, keeps) = &tunnels[rng.index(2)];
        let set = change_of(port.clone(), rng.one_in(4), keeps, rng)?;
        client.vxlan_set(set).map_err(|e| format!("{port}: {e}"))?;
    }
    for (port, keeps) in tunnels {
        let keeps = VxlanChanges { add: vec![keeps.parse().map_err(|e| format!("{keeps}: {e}"))?], remove: Vec::new() };
        let set = VxlanSetParams { port: port.clone(), replace: true, flood: keeps, ..VxlanSetParams::default() };
        client.vxlan_set(set).map_err(|e| format!("{port}: {e}"))?;
        let shown = client.show(&port).map_err(|e| format!("{port}: {e}"))?;
        let left =
            shown.detail::<VxlanInfo>().map_or(0, |tunnel| tunnel.remotes.iter().filter(|remote| remote.flood).count());
        if left != 1 {
            return Err(format!("{port} floods to {left} VTEPs: expected 1"));
        }
    }
    Ok(())
}

/// Captures numbered frames into a file, and reads them back.
fn capture(w: &World, rng: &mut Rng, _life: Duration) -> Result<(), String> {
    const FRAMES: u64 = 300;
    let file = w.file("capture.pcap");
    let daemon = w.first();
    let mut port = w.open(0, "vale22:a")?;
    daemon.attach("vale22", &format!("pcap:out={}", file.display()), json!({"name": "file"}))?;
    let first = rng.below(1 << 40);
    let header = [&station(41)[..], &station(40), &[0x88, 0xb5]].concat();
    let mut payload = Vec::new();
    for sequence in first..first + FRAMES {
        FrameNumber { flow: 0, epoch: 0, sequence }.payload(&mut payload);
        if !port.tx()[0].send_now(&[&header[..], &payload].concat(), LIMIT) {
            return Err("the sending port's ring stayed full".into());
        }
    }
    let mut seen = 0;
    let has_all = || {
        let shown = daemon.control().ok().and_then(|mut client| client.show("vale22:file").ok());
        seen = shown.map_or(seen, |info| {
            info.rings.iter().map(|ring| ring.frames).sum::<u64>() + info.drops.values().sum::<u64>()
        });
        seen >= FRAMES
    };
    let all = until(LIMIT, Duration::from_millis(5), has_all);
    let drops = daemon.drops("vale22:file").unwrap_or_default();
    daemon.control()?.detach("vale22", "file").map_err(|e| e.to_string())?;
    let numbers = replayed::numbers(&file)?;
    let in_order = numbers.windows(2).all(|two| two[0] < two[1]);
    if !all || !in_order || numbers.len() as u64 + drops != FRAMES {
        return Err(format!(
            "captured {FRAMES} frames, found {} (in order: {in_order}), dropped: {drops}",
            numbers.len()
        ));
    }
    Ok(())
}
