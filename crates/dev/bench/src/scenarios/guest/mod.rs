//! A guest that is really booted, with one network interface of each kind after the other: what its own programs get
//! out of it.
//!
//! The machine is emulated in software: figures compare interfaces with each other, not with real hardware.

pub mod agent;
pub mod interface;
pub mod pairs;
pub mod services;
mod switch;

use std::net::UdpSocket;

use interface::{Interface, PTNET, QEMU_E1000, TAP, VHOST};
use services::{Busy, SERVICES};
use switch::Switch;

use super::*;
use crate::sys::machine::{Image, LIMIT, Machine};

/// The host's end.
const HOST: &str = "10.1.0.1";
/// The ports of the services: one echoes, one discards.
const ECHO: u16 = 7;
const DISCARD: u16 = 9;
/// Where guests discard datagrams that nobody counts.
const DRAIN: u16 = 10;
/// The kernel's bridge.
const BRIDGE: &str = "br0";
/// The address of a sink: it has an Ethernet address, and no host behind it.
const SINK: &str = "10.1.0.9";
const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The last byte of the guests' addresses: the one that is measured, and the one that it sends to.
const GUEST: u8 = 2;
const PEER: u8 = 3;

/// What it takes to boot machines.
pub const BOOTING: &[Need] = &[
    Need::Root("network namespaces"),
    Need::Program("nsenter", "util-linux"),
    Need::Program("cpio", "cpio"),
    Need::Program("strip", "binutils"),
    Need::Found(|| Image::find().map(drop)),
];
/// The same beside something else.
pub const NEEDS: Needs = &[BOOTING, TWO];

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "guest",
    about: "a guest that is really booted (QEMU, emulated): UDP by sockets, round trips, netmap programs; ptnet, \
        virtio-net, e1000",
    variants: variants![
        Variant::SMALL => "udp-small";
        Variant { unit: Unit::Gbps, frame_bytes: &[1502], ..Variant::SMALL } => "udp-large";
        Variant::SMALL => "round-trips", "netmap"
    ],
    needs: NEEDS,
    start: |case, cores| start(case, cores, PTNET, "netvale"),
};

/// The same with other interfaces.
pub fn peers() -> Vec<Contender> {
    [VHOST, QEMU_E1000].map(|interface| peer(interface, |case| SCENARIO.has(case))).into()
}

/// A guest with that interface in these cases.
pub fn peer(interface: Interface, fits: impl Fn(&Case) -> bool + 'static) -> Contender {
    let start = move |case: &Case, cores| start(case, cores, interface, interface.name);
    Contender::new(interface.name, interface.about, NEEDS, fits, start)
}

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

/// The kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traffic {
    /// The name of the agent's task.
    task: &'static str,
    direction: Direction,
    /// Whether it is counted by who makes it: round trips, and what the switch does not see.
    by_agent: bool,
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
        let out = |task, by_agent| Traffic { task, direction: Direction::Out, by_agent };
        let udp = |direction, by_agent| Traffic { task: "udp", direction, by_agent };
        let between = |task| Traffic { task, direction: Direction::Between, by_agent: true };
        match &*case.variant {
            "round-trips" => out("trips", true),
            "netmap" => out("netmap", false),
            "tcp" => out("tcp", true),
            "tcp-wide" => out("tcpw", true),
            "tcp-rr" => out("tcprr", true),
            "udp-rr-between" => between("rr"),
            "tcp-rr-between" => between("tcprr"),
            "tcp-between" => between("tcp"),
            "udp-messages-between" => between("messages"),
            x if x.ends_with("-in") => Traffic { task: "take", ..udp(Direction::In, true) },
            x if x.ends_with("-between") => udp(Direction::Between, true),
            x if x.ends_with("-tap") => udp(Direction::Up, false),
            _ => udp(Direction::Out, false),
        }
    }

    fn is_round_trips(self) -> bool {
        matches!(self.task, "trips" | "rr" | "tcprr")
    }

    /// Whether bytes are counted, not frames.
    fn is_stream(self) -> bool {
        matches!(self.task, "tcp" | "tcpw")
    }
}

/// Boots what a case needs.
pub fn start(case: &Case, cores: Cores, interface: Interface, name: &'static str) -> Result<Session> {
    let traffic = Traffic::of(case);
    let hub = Netns::new()?;
    hub.silence_ipv6()?;
    let switch = if interface.is_ours() { Some(Switch::start(&hub, cores.1)?) } else { None };
    if interface.is_bridged() {
        hub.ip(&format!("link add {BRIDGE} type bridge mcast_snooping 0"))?;
        host_end(&hub, BRIDGE)?;
    }
    let image = Image::find().map_err(BenchError::from)?;
    let boot = |number: u8, core: usize| {
        let devices = match &switch {
            Some(switch) => switch.attach(interface, number)?,
            None => interface.devices("", number),
        };
        let machine = Machine::boot(&image, &hub, core, &script(interface, number), &devices)?;
        machine.child().expect("agent: ready", LIMIT)?;
        if interface.is_bridged() {
            hub.ip(&format!("link set {} master {BRIDGE} up", interface.tap(number)))?;
        }
        Ok::<_, BenchError>(Rc::new(machine))
    };
    let machine = boot(GUEST, cores.0)?;
    let peer = if traffic.direction == Direction::Between { Some(boot(PEER, cores.1)?) } else { None };
    if switch.is_none() && !interface.is_bridged() {
        host_end(&hub, TAP)?;
    }
    let tap = interface.tap(GUEST);
    let services = Worker::spawn(Wrapper::Network(&hub), SERVICES, None, &())?;
    let booted = BootedGuest { case: case.clone(), traffic, machine, peer, exits: None, switch, tap, hub, services };
    // Both ends know each other's addresses then.
    booted.play("trips", Duration::from_millis(100))?;
    session(name, booted)
}

fn session(name: &'static str, mut booted: BootedGuest) -> Result<Session> {
    let has_switch = booted.switch.is_some();
    let worker = if has_switch { ", the switch's worker on the second" } else { "" };
    let peer = if booted.peer.is_some() { ", the receiving machine beside it" } else { "" };
    let words = format!("the machine, emulated processor and devices, on the first{worker}{peer}");
    let mut parts: Vec<Rc<dyn crate::sys::part::Part>> = vec![booted.machine.clone()];
    parts.extend(booted.peer.clone().map(|peer| peer as _));
    parts.extend(booted.switch.as_ref().map(|switch| switch.daemon.clone() as _));
    // Ours and a peer's stand in one record.
    let exits = format!("{name} {}", if has_switch { "exits_each" } else { "register_accesses_each" });
    let interrupts = format!("{name} interrupts_each");
    let measuring = move |window| {
        let (sample, each) = booted.measure(window)?;
        let sample = sample.fact(&exits, format!("{:.4}", booted.exits.unwrap_or(0.0)));
        Ok(sample.fact(&interrupts, format!("{each:.4}")))
    };
    Session::new(words, true, measuring).with_all(parts).idle()
}

/// The agent's answer.
#[derive(Clone, Copy)]
struct Played {
    count: u64,
    seconds: f64,
    interrupts: u64,
}

struct BootedGuest {
    case: Case,
    traffic: Traffic,
    machine: Rc<Machine>,
    /// The machine that it sends to.
    peer: Option<Rc<Machine>>,
    /// Doorbells, or register accesses, a frame or round trip.
    exits: Option<f64>,
    switch: Option<Switch>,
    /// The guest's TAP, if there is no switch.
    tap: String,
    hub: Netns,
    services: Rc<Worker>,
}

/// Reads the answer of a machine's agent at the end of its task.
fn answer(machine: &Machine) -> Result<Played> {
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

impl BootedGuest {
    fn play(&self, what: &str, window: Duration) -> Result<Played> {
        let line = |what: &str, window: Duration| format!("{what} {} {}", self.case.frame_bytes, window.as_millis());
        // Others count what comes themselves, or are answered.
        let taker = self.peer.as_ref().filter(|_| what == "udp");
        if let Some(peer) = taker {
            peer.child().say(&line("take", window + LINGER))?;
            peer.child().expect("taking", LIMIT)?;
        }
        let to = match self.traffic.direction {
            Direction::Between if what == self.traffic.task => format!(" 10.1.0.{PEER}"),
            Direction::Up => format!(" {HOST}"),
            _ => String::new(),
        };
        self.machine.child().say(&(line(what, window) + &to))?;
        let sent = answer(&self.machine)?;
        match taker {
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
        Ok([self.hub.counter(&self.tap, 1)?, self.hub.counter(&self.tap, 9)?, 0])
    }

    /// Register accesses a frame or round trip, where each is an exit.
    fn count_exits(&self) -> Result<f64> {
        let before = self.counters()?[0];
        let what = self.traffic.task;
        let play = |machine: &Machine| {
            machine.child().say(&format!("{what} 60 100"))?;
            machine.child().expect("done ", LIMIT)
        };
        let (_, accesses) = self.machine.accesses("e1000", play)?;
        self.machine.child().expect("\n", LIMIT)?;
        Ok(accesses as f64 / (self.counters()?[0] - before).max(1) as f64)
    }

    /// What was moved, and interrupts a frame or round trip.
    fn measure(&mut self, window: Duration) -> Result<(Sample, f64)> {
        let traffic = self.traffic;
        let is_out = matches!(traffic.direction, Direction::Out | Direction::Up);
        if self.exits.is_none() && self.switch.is_none() && is_out {
            self.exits = Some(self.count_exits()?);
        }
        let before = self.counters()?;
        let mut processes = vec![self.services.pid()];
        processes.extend(self.switch.iter().map(|switch| switch.daemon.pid()));
        let generator = self.generator()?;
        let watch = Watch::start(&processes, &[]);
        let played = self.play(traffic.task, window)?;
        let beside = watch.finish();
        drop(generator);
        let after = self.counters()?;
        let moved: [u64; 3] = std::array::from_fn(|i| after[i] - before[i]);
        let frames = if traffic.direction == Direction::In { moved[1] } else { moved[0] };
        let done = if traffic.by_agent { played.count } else { frames };
        if done == 0 {
            return Err(BenchError::NoTraffic("the guest".into()));
        }
        let each = if traffic.is_round_trips() { done } else { frames }.max(1) as f64;
        if self.switch.is_some() {
            self.exits = Some(moved[2] as f64 / each);
        }
        let bytes = if traffic.is_stream() { 1 } else { self.case.frame_bytes };
        let rate = self.case.unit.rate(done, bytes, played.seconds).unwrap_or(0.0);
        Ok((Sample::new(rate, beside), played.interrupts as f64 / each))
    }
}
