//! A guest that is really booted, with one network interface of each kind after the other: what its own programs get
//! out of it.
//!
//! The machine is emulated in software: figures compare interfaces with each other, not with real hardware.

pub mod agent;
pub mod interface;
pub mod services;
pub mod switch;

use std::net::UdpSocket;
use std::time::Duration;

use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result, Skip};
use crate::sys;
use crate::sys::machine::{Image, LIMIT, Machine};
use crate::sys::netns::Netns;
use interface::{Interface, TAP};
use services::{Busy, Services};
use switch::Switch;

/// The host's end.
const HOST: &str = "10.1.0.1";
/// The ports of the services: one echoes, one discards.
const ECHO: u16 = 7;
const DISCARD: u16 = 9;
/// The address of a sink: it has an Ethernet address, and no host behind it.
const SINK: &str = "10.1.0.9";
const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The last byte of the guests' addresses: the one that is measured, and the one that it sends to.
const GUEST: u8 = 2;
const PEER: u8 = 3;

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
    ours: Some(|| Box::new(Booted(Interface::Ptnet))),
};

/// A frame to the sink, for programs that make their own.
fn sink_frame(bytes: usize) -> Vec<u8> {
    let mut frame = [&SINK_MAC[..], &[2, 0, 0, 0, 0, 2], &[0x88, 0xb5]].concat();
    frame.resize(bytes.max(60), 0);
    frame
}

fn host_end(hub: &Netns, tap: &str) -> Result<()> {
    hub.ip(&format!("addr add {HOST}/24 dev {tap}"))?;
    hub.ip(&format!("link set {tap} up"))
}

/// The agent's task stands in the environment, as for all of our worker processes.
fn script(interface: Interface, number: u8) -> String {
    let preparation = interface.preparation();
    format!(
        r#"
stty -echo </dev/ttyS0
{preparation}ip addr add 10.1.0.{number}/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do [ $(cat /sys/class/net/eth0/carrier) = 1 ] && break; sleep 0.1; done
busybox arp -i eth0 -s {SINK} 02:00:00:00:00:09
export NETVALE_BENCH_WORKER='{{"role":"guest-agent","core":0,"counters":"","arguments":null}}'
echo agent: ready
netvale-bench worker </dev/ttyS0
"#
    )
}

/// The kind of traffic and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traffic {
    /// The name of the agent's task.
    task: &'static str,
    direction: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From the guest to the host.
    Out,
    /// From the guest to the host's stack, by a TAP.
    Up,
    /// From the host to the guest.
    In,
    /// From the guest to another one.
    Between,
}

impl Traffic {
    fn of(case: &Case) -> Traffic {
        let variant = &*case.variant;
        let direction = match variant {
            _ if variant.ends_with("-in") => Direction::In,
            _ if variant.ends_with("-between") => Direction::Between,
            _ if variant.ends_with("-tap") => Direction::Up,
            _ => Direction::Out,
        };
        let task = match variant {
            _ if direction == Direction::In => "take",
            "round-trips" => "trips",
            "netmap" => "netmap",
            "tcp" => "tcp",
            "tcp-wide" => "tcpw",
            "tcp-rr" => "tcprr",
            _ => "udp",
        };
        Traffic { task, direction }
    }

    /// Round trips are counted by who makes them.
    fn is_round_trips(self) -> bool {
        matches!(self.task, "trips" | "tcprr")
    }

    /// Whether bytes are counted, not frames.
    fn is_stream(self) -> bool {
        matches!(self.task, "tcp" | "tcpw")
    }
}

/// A contender: a guest with that interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booted(pub Interface);

impl Contender for Booted {
    fn name(&self) -> &str {
        self.0.name(Interface::Ptnet)
    }

    fn about(&self) -> &str {
        self.0.about()
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        available(env)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        start((self.0, self.0.name(Interface::Ptnet)), case, env)
    }
}

/// Whether machines can be booted here.
///
/// # Errors
/// Why not.
pub fn available(env: &Env) -> std::result::Result<(), Skip> {
    sys::need_root("network namespaces")?;
    for (program, package) in [("nsenter", "util-linux"), ("cpio", "cpio"), ("strip", "binutils")] {
        sys::need_program(program, package)?;
    }
    Image::find()?;
    env.two_cores().map(|_| ())
}

/// Boots what a case needs.
///
/// # Errors
/// It does not start.
pub fn start(who: (Interface, &'static str), case: &Case, env: &Env) -> Result<Box<dyn Session>> {
    let ((core, worker_core), interface, traffic) = (env.two_cores()?, who.0, Traffic::of(case));
    let hub = Netns::new()?;
    crate::peers::frames::silence_ipv6(&hub)?;
    let switch = if interface.is_ours() { Some(Switch::start(&hub, worker_core)?) } else { None };
    let image = Image::find().map_err(BenchError::from)?;
    let boot = |number: u8, core: usize| {
        let devices = match &switch {
            Some(switch) => switch.attach(interface, number)?,
            None => interface.devices("", number),
        };
        let mut machine = Machine::boot(&image, &hub, core, &script(interface, number), &devices)?;
        machine.child().expect("agent: ready", LIMIT)?;
        Ok::<_, BenchError>(machine)
    };
    let machine = boot(GUEST, core)?;
    let peer = if traffic.direction == Direction::Between { Some(boot(PEER, worker_core)?) } else { None };
    if switch.is_none() {
        host_end(&hub, TAP)?;
    }
    let services = Services::start(&hub)?;
    let mut running = Running {
        name: who.1,
        case: case.clone(),
        traffic,
        machine,
        peer,
        exits: None,
        interrupts: 0.0,
        switch,
        hub,
        _services: services,
    };
    // Both ends know each other's addresses then.
    running.play("trips", Duration::from_millis(100))?;
    running.pause()?;
    Ok(Box::new(running))
}

/// The agent's answer.
#[derive(Clone, Copy)]
struct Played {
    count: u64,
    seconds: f64,
    interrupts: u64,
}

struct Running {
    name: &'static str,
    case: Case,
    traffic: Traffic,
    machine: Machine,
    /// The machine that it sends to.
    peer: Option<Machine>,
    /// Doorbells, or register accesses, a frame or round trip.
    exits: Option<f64>,
    interrupts: f64,
    switch: Option<Switch>,
    hub: Netns,
    _services: Services,
}

/// Reads the answer of a machine's agent at the end of its task.
fn answer(machine: &mut Machine) -> Result<Played> {
    loop {
        let line = machine.child().expect("\n", LIMIT)?;
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

/// The time that a receiver waits longer than the sender.
const LINGER: Duration = Duration::from_millis(300);

impl Running {
    fn play(&mut self, what: &str, window: Duration) -> Result<Played> {
        let line = |what: &str, window: Duration| format!("{what} {} {}", self.case.frame_bytes, window.as_millis());
        if let Some(peer) = &mut self.peer {
            peer.child().say(&line("take", window + LINGER))?;
            peer.child().expect("taking", LIMIT)?;
        }
        let to = match self.traffic.direction {
            Direction::Between if what == "udp" => format!(" 10.1.0.{PEER}"),
            Direction::Up => format!(" {HOST}"),
            _ => String::new(),
        };
        self.machine.child().say(&(line(what, window) + &to))?;
        let sent = answer(&mut self.machine)?;
        match &mut self.peer {
            Some(peer) => Ok(Played { seconds: sent.seconds, ..answer(peer)? }),
            None => Ok(sent),
        }
    }

    /// Sends to the guest until dropped, if the scenario does that.
    fn generator(&self) -> Result<Option<Busy>> {
        if self.traffic.direction != Direction::In {
            return Ok(None);
        }
        let bytes = self.case.frame_bytes as usize;
        if let Some(switch) = &self.switch {
            return switch.generator(bytes).map(|work| Some(Busy::start(work)));
        }
        let opening = || BenchError::io("opening a socket at the host's end");
        let socket = self.hub.inside(|| UdpSocket::bind((HOST, 0)).map_err(opening()))?;
        let payload = vec![0; bytes.saturating_sub(agent::HEADERS)];
        let send = move || {
            // A full queue is nothing else than frames lost.
            let _ = socket.send_to(&payload, (format!("10.1.0.{GUEST}"), DISCARD));
            Ok(())
        };
        Ok(Some(Busy::start(send)))
    }

    /// Frames that have come from the guest, and gone to it, and doorbells it has rung.
    fn counters(&self) -> Result<[u64; 3]> {
        if let Some(switch) = &self.switch {
            return switch.counters();
        }
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").map_err(BenchError::io("reading counters"));
        let text = self.hub.inside(read)?;
        // Name, bytes and packets received and six more, bytes and packets sent.
        let line = text.lines().find_map(|line| line.trim().strip_prefix(TAP)?.strip_prefix(':'));
        let numbers: Vec<u64> =
            line.into_iter().flat_map(str::split_whitespace).filter_map(|w| w.parse().ok()).collect();
        let at = |i: usize| numbers.get(i).copied().unwrap_or(0);
        Ok([at(1), at(9), 0])
    }

    /// Register accesses a frame or round trip, where each is an exit.
    fn count_exits(&mut self) -> Result<f64> {
        let before = self.counters()?[0];
        let what = self.traffic.task;
        let play = |machine: &mut Machine| {
            machine.child().say(&format!("{what} 60 100"))?;
            machine.child().expect("done ", LIMIT)
        };
        let (_, accesses) = self.machine.accesses("e1000", play)?;
        self.machine.child().expect("\n", LIMIT)?;
        Ok(accesses as f64 / (self.counters()?[0] - before).max(1) as f64)
    }
}

impl Session for Running {
    fn resume(&mut self) -> Result<()> {
        if let Some(switch) = &self.switch {
            switch.daemon.worker.thaw()?;
        }
        self.peer.iter().try_for_each(|peer| peer.run(true))?;
        self.machine.run(true)
    }

    fn pause(&mut self) -> Result<()> {
        self.machine.run(false)?;
        self.peer.iter().try_for_each(|peer| peer.run(false))?;
        self.switch.as_ref().map_or(Ok(()), |switch| switch.daemon.worker.freeze())
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let traffic = self.traffic;
        if self.exits.is_none() && self.switch.is_none() && matches!(traffic.direction, Direction::Out | Direction::Up)
        {
            self.exits = Some(self.count_exits()?);
        }
        let before = self.counters()?;
        let processes: Vec<u32> = self.switch.iter().map(|switch| switch.daemon.worker.pid()).collect();
        let generator = self.generator()?;
        let watch = Watch::start(&processes, &[]);
        let played = self.play(traffic.task, window)?;
        let beside = watch.finish();
        drop(generator);
        let after = self.counters()?;
        let moved: [u64; 3] = std::array::from_fn(|i| after[i] - before[i]);
        let frames = if traffic.direction == Direction::In { moved[1] } else { moved[0] };
        let by_agent = traffic.is_round_trips()
            || traffic.is_stream()
            || matches!(traffic.direction, Direction::In | Direction::Between);
        let done = if by_agent { played.count } else { frames };
        if done == 0 {
            return Err(BenchError::NoTraffic("the guest".into()));
        }
        let each = if traffic.is_round_trips() { done } else { frames }.max(1);
        self.interrupts = played.interrupts as f64 / each as f64;
        if self.switch.is_some() {
            self.exits = Some(moved[2] as f64 / each as f64);
        }
        let bytes = if traffic.is_stream() { 1 } else { self.case.frame_bytes };
        let rate = self.case.unit.rate(done, bytes, played.seconds).unwrap_or(0.0);
        Ok(Sample::new(rate, beside))
    }

    fn cores(&self) -> String {
        let worker = if self.switch.is_some() { ", the switch's worker on the second" } else { "" };
        let peer = if self.peer.is_some() { ", the receiving machine beside it" } else { "" };
        format!("the machine, emulated processor and devices, on the first{worker}{peer}")
    }

    fn touched(&self) -> bool {
        true
    }

    fn context(&self) -> Vec<(String, String)> {
        // Ours and a peer's stand in one record.
        let what = if self.switch.is_some() { "exits_each" } else { "register_accesses_each" };
        vec![
            (format!("{} {what}", self.name), format!("{:.4}", self.exits.unwrap_or(0.0))),
            (format!("{} interrupts_each", self.name), format!("{:.4}", self.interrupts)),
        ]
    }
}
