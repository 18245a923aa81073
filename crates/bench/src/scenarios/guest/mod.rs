//! A guest that is really booted, with one network interface of each kind after the other: what its own programs get out of it.
//!
//! The machine is emulated in software: figures compare interfaces with each other, not with real hardware.

pub mod agent;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netvale::Port;
use netvale_control::types::{AttachParams, PortOptions};

use super::own::{Daemon, failed};
use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result, Skip};
use crate::sys;
use crate::sys::machine::{Image, LIMIT, Machine};
use crate::sys::netns::Netns;

/// Who answers, at the host's end.
const ECHO: &str = "10.1.0.1:7";
/// Who takes what is sent and does nothing with it: it has an Ethernet address, and nobody behind it.
const SINK: &str = "10.1.0.9:9";
const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

const SMALL: Variant = Variant { unit: Unit::PerSecond, frame_bytes: &[60], ..Variant::TWO_PORTS };

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "guest",
    about: "a guest that is really booted (QEMU, emulated): UDP by sockets, round trips, netmap programs; ptnet, virtio-net, e1000",
    variants: &[
        Variant { name: "udp-small", ..SMALL },
        Variant { name: "udp-large", unit: Unit::Gbps, frame_bytes: &[1502], ..SMALL },
        Variant { name: "round-trips", ..SMALL },
        Variant { name: "netmap", ..SMALL },
    ],
    ours: Some(|| Box::new(Interface::Ptnet)),
};

/// A frame to the sink, for programs that make their own.
fn sink_frame(bytes: usize) -> Vec<u8> {
    let mut frame = [&SINK_MAC[..], &[2, 0, 0, 0, 0, 2], &[0x88, 0xb5]].concat();
    frame.resize(bytes.max(60), 0);
    frame
}

/// The guest's interface, and what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Our driver on a ptnet port.
    Ptnet,
    /// The kernel's virtio-net on a vhost-user port.
    Vhost,
    /// The kernel's e1000 on the one that QEMU emulates, with a TAP.
    QemuE1000,
}

impl Contender for Interface {
    fn name(&self) -> &str {
        match self {
            Interface::Ptnet => "netvale",
            Interface::Vhost => "netvale-vhost",
            Interface::QemuE1000 => "qemu-e1000",
        }
    }

    fn about(&self) -> &str {
        match self {
            Interface::Ptnet => "ptnet on a VALE switch, our driver in the guest",
            Interface::Vhost => "virtio-net on the same switch by vhost-user, the kernel's driver",
            Interface::QemuE1000 => "QEMU's own e1000 on a TAP, the kernel's driver",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        sys::need_root("network namespaces")?;
        for (program, package) in [("nsenter", "util-linux"), ("cpio", "cpio"), ("strip", "binutils")] {
            sys::need_program(program, package)?;
        }
        Image::find()?;
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (core, worker_core) = env.two_cores()?;
        let hub = Netns::new()?;
        crate::peers::frames::silence_ipv6(&hub)?;
        let (switch, devices) = match self {
            Interface::QemuE1000 => (None, e1000()),
            _ => {
                let switch = Switch::start(&hub, worker_core)?;
                let devices = switch.attach(*self)?;
                (Some(switch), devices)
            }
        };
        let image = Image::find().map_err(BenchError::from)?;
        let mut machine = Machine::boot(&image, (&hub, core), SCRIPT, &devices)?;
        machine.child().expect("agent: ready", LIMIT)?;
        if switch.is_none() {
            host_end(&hub, TAP)?;
        }
        let echo = Echo::start(&hub)?;
        let mut running = Running {
            interface: *self,
            case: case.clone(),
            machine,
            exits: None,
            interrupts: 0.0,
            switch,
            hub,
            _echo: echo,
        };
        // Both ends know each other's addresses then.
        running.play("trips", Duration::from_millis(100))?;
        running.pause()?;
        Ok(Box::new(running))
    }
}

/// The machine's interface on the host, where there is no switch.
const TAP: &str = "nvg0";

fn e1000() -> Vec<String> {
    let tap = format!("tap,id=n0,ifname={TAP},script=no,downscript=no,vhost=off");
    ["-netdev", &tap, "-device", "e1000,netdev=n0,mac=52:54:00:00:00:02"].map(String::from).to_vec()
}

fn host_end(hub: &Netns, tap: &str) -> Result<()> {
    hub.ip(&format!("addr add 10.1.0.1/24 dev {tap}"))?;
    hub.ip(&format!("link set {tap} up"))
}

/// The agent's task stands in the environment, as for all of our worker processes.
const SCRIPT: &str = r#"
stty -echo </dev/ttyS0
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do [ $(cat /sys/class/net/eth0/carrier) = 1 ] && break; sleep 0.1; done
busybox arp -i eth0 -s 10.1.0.9 02:00:00:00:00:09
export NETVALE_BENCH_WORKER='{"role":"guest-agent","core":0,"counters":"","arguments":null}'
echo agent: ready
netvale bench-worker </dev/ttyS0
"#;

/// A daemon with the guest's port, the host's TAP and the sink.
struct Switch {
    daemon: Daemon,
    _sink: Port,
}

impl Switch {
    fn start(hub: &Netns, core: usize) -> Result<Switch> {
        let daemon = Daemon::start_in(hub, core, "")?;
        let tap = AttachParams { switch: "vale0".into(), port: format!("tap:{TAP}"), ..AttachParams::default() };
        daemon.control()?.attach(tap).map_err(|e| failed(&e))?;
        host_end(hub, TAP)?;
        let mut sink = daemon.open("vale0:sink", 256)?;
        let mut hello = sink_frame(60);
        hello.copy_within(0..6, 6);
        if let Some(ring) = sink.tx().first_mut() {
            ring.send(&hello);
            ring.sync();
        }
        daemon.wait_for_frames(1)?;
        Ok(Switch { daemon, _sink: sink })
    }

    /// The guest's port. Returns QEMU's arguments for it.
    fn attach(&self, interface: Interface) -> Result<Vec<String>> {
        let socket = self.daemon.dir().join("guest.sock").display().to_string();
        let kind = if interface == Interface::Ptnet { "ptnet" } else { "vhost" };
        let options = PortOptions {
            vnet_hdr: if interface == Interface::Ptnet { 12 } else { 0 },
            name: Some("guest".into()),
            ..PortOptions::default()
        };
        let params = AttachParams { switch: "vale0".into(), port: format!("{kind}:{socket}"), options };
        self.daemon.control()?.attach(params).map_err(|e| failed(&e))?;
        let device = match interface {
            Interface::Ptnet => vec!["ivshmem-doorbell,chardev=c0,vectors=3".to_owned()],
            _ => vec![
                "virtio-net-pci,netdev=n0,mac=52:54:00:00:00:02,romfile=".to_owned(),
                "-netdev".to_owned(),
                "vhost-user,id=n0,chardev=c0".to_owned(),
            ],
        };
        let chardev = ["-chardev".to_owned(), format!("socket,id=c0,path={socket}"), "-device".to_owned()];
        Ok(chardev.into_iter().chain(device).collect())
    }
}

/// Answers datagrams until dropped.
struct Echo(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Echo {
    fn start(hub: &Netns) -> Result<Echo> {
        let opening = || BenchError::io(format!("opening a socket at {ECHO}"));
        let socket = hub.inside(|| UdpSocket::bind(ECHO).map_err(opening()))?;
        socket.set_read_timeout(Some(Duration::from_millis(200))).map_err(opening())?;
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let answer = move || {
            let mut place = [0; 2048];
            while !told.load(Ordering::Relaxed) {
                if let Ok((n, from)) = socket.recv_from(&mut place) {
                    // One that is lost is asked for again.
                    let _ = socket.send_to(place.get(..n).unwrap_or_default(), from);
                }
            }
        };
        Ok(Echo(over, Some(std::thread::spawn(answer))))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            // A panic was reported by the runtime.
            let _ = thread.join();
        }
    }
}

/// What the agent said.
struct Played {
    count: u64,
    seconds: f64,
    interrupts: u64,
}

struct Running {
    interface: Interface,
    case: Case,
    machine: Machine,
    /// Doorbells, or register accesses, a frame or round trip.
    exits: Option<f64>,
    interrupts: f64,
    switch: Option<Switch>,
    hub: Netns,
    _echo: Echo,
}

impl Running {
    /// What the agent is asked for.
    fn task(&self) -> &'static str {
        match &*self.case.variant {
            "round-trips" => "trips",
            "netmap" => "netmap",
            _ => "udp",
        }
    }

    fn play(&mut self, what: &str, window: Duration) -> Result<Played> {
        let child = self.machine.child();
        child.say(&format!("{what} {} {}", self.case.frame_bytes, window.as_millis()))?;
        loop {
            let line = child.expect("\n", LIMIT)?;
            if let Some(why) = line.trim().strip_prefix("failed ") {
                return Err(BenchError::Usage(format!("in the guest: {why}")));
            }
            let Some(numbers) = line.trim().strip_prefix("done ") else { continue };
            let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            if let [count, nanos, interrupts] = numbers[..] {
                return Ok(Played { count, seconds: nanos as f64 / 1e9, interrupts });
            }
        }
    }

    /// Frames that have come from the guest, and doorbells it has rung.
    fn arrived(&self) -> Result<(u64, u64)> {
        let Some(switch) = &self.switch else {
            let read =
                || std::fs::read_to_string("/proc/thread-self/net/dev").map_err(BenchError::io("reading counters"));
            let text = self.hub.inside(read)?;
            // Name, bytes received, packets received.
            let line = text.lines().find_map(|line| line.trim().strip_prefix(TAP)?.strip_prefix(':'));
            let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            return Ok((packets.unwrap_or(0), 0));
        };
        let stats = switch.daemon.stats()?;
        let port = stats.ports.iter().find(|port| port.name == "vale0:guest");
        Ok(port.map_or((0, 0), |port| (port.in_frames, port.kicks_received)))
    }

    /// Register accesses a frame or round trip, where each is an exit.
    fn count_exits(&mut self) -> Result<f64> {
        let before = self.arrived()?.0;
        let what = self.task();
        let play = |machine: &mut Machine| {
            machine.child().say(&format!("{what} 60 100"))?;
            machine.child().expect("done ", LIMIT)
        };
        let (_, accesses) = self.machine.accesses("e1000", play)?;
        self.machine.child().expect("\n", LIMIT)?;
        Ok(accesses as f64 / (self.arrived()?.0 - before).max(1) as f64)
    }
}

impl Session for Running {
    fn resume(&mut self) -> Result<()> {
        if let Some(switch) = &self.switch {
            switch.daemon.worker.thaw()?;
        }
        self.machine.run(true)
    }

    fn pause(&mut self) -> Result<()> {
        self.machine.run(false)?;
        self.switch.as_ref().map_or(Ok(()), |switch| switch.daemon.worker.freeze())
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        if self.exits.is_none() && self.switch.is_none() {
            self.exits = Some(self.count_exits()?);
        }
        let before = self.arrived()?;
        let processes: Vec<u32> = self.switch.iter().map(|switch| switch.daemon.worker.pid()).collect();
        let watch = Watch::start(&processes, &[]);
        let played = self.play(self.task(), window)?;
        let beside = watch.finish();
        let after = self.arrived()?;
        let frames = after.0 - before.0;
        let done = if self.task() == "trips" { played.count } else { frames };
        if done == 0 {
            return Err(BenchError::NoTraffic("the guest".into()));
        }
        self.interrupts = played.interrupts as f64 / done as f64;
        if self.switch.is_some() {
            self.exits = Some((after.1 - before.1) as f64 / done as f64);
        }
        let rate = self.case.unit.rate(done, self.case.frame_bytes, played.seconds).unwrap_or(0.0);
        Ok(Sample::new(rate, beside))
    }

    fn cores(&self) -> String {
        let worker = if self.switch.is_some() { ", the switch's worker on the second" } else { "" };
        format!("the machine, emulated processor and devices, on the first{worker}")
    }

    fn touched(&self) -> bool {
        true
    }

    fn context(&self) -> Vec<(String, String)> {
        // Ours and a peer's stand in one record.
        let what = if self.switch.is_some() { "doorbells_each" } else { "register_accesses_each" };
        let name = self.interface.name();
        vec![
            (format!("{name} {what}"), format!("{:.4}", self.exits.unwrap_or(0.0))),
            (format!("{name} interrupts_each"), format!("{:.4}", self.interrupts)),
        ]
    }
}
