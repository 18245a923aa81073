//! A booted guest, with one network interface of each kind in turn: the rates of the programs in the guest.
//!
//! The machine is emulated in software: figures compare interfaces with each other, and say nothing about real
//! hardware.

pub mod agent;
mod booted;
mod flow;
pub mod interface;
pub mod pairs;
pub mod pktgen;
pub mod services;
mod switch;

use std::cell::RefCell;

use booted::BootedGuest;
use flow::{Arrangement, Direction, Traffic};
use interface::{Interface, PTNET, QEMU_E1000, TAP, VHOST, bridged_tap};
use services::SERVICES;
use switch::Switch;

use super::*;
use crate::sys::machine::{Image, LIMIT, Machine, MachineSpec, netmap_qemu};
use crate::sys::worker::READY;

/// The host's IP address.
const HOST: &str = "10.1.0.1";
/// UDP and TCP port of the service echo.
const ECHO: u16 = 7;
/// UDP and TCP port of the service discard.
const DISCARD: u16 = 9;
/// TCP port of the host's stream source.
const SOURCE: u16 = 19;
/// UDP port where guests discard datagrams that are not counted.
const DRAIN: u16 = 10;
/// The name of the kernel's bridge.
const BRIDGE: &str = "br0";
/// IP address of the sink, a port of the switch that discards frames. No host has this address.
const SINK: &str = "10.1.0.9";
/// Ethernet address of the sink.
const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Last byte of the measured guest's addresses.
const GUEST: u8 = 2;
/// Last byte of the addresses of the guest to which the measured guest sends.
const PEER: u8 = 3;

/// What is needed to boot machines.
pub const BOOTING: &[Need] = &[
    Need::Root("network namespaces"),
    Need::Program("nsenter", "util-linux"),
    Need::Program("cpio", "cpio"),
    Need::Program("strip", "binutils"),
    Need::Found(|| Image::find().map(drop)),
];
/// What booted guests need: [`BOOTING`], and two CPUs.
pub const NEEDS: Needs = &[BOOTING, TWO];

/// Like [`NEEDS`], and a QEMU with a netmap back end.
const NETMAP_NEEDS: Needs = &[NEEDS[0], NEEDS[1], &[Need::Found(|| netmap_qemu().map(drop)), NETVALE]];

/// The command through which programs use the daemon.
const NETVALE: Need = Need::Found(|| sys::netvale().map(drop));

/// The scenario: a guest that QEMU boots, on each kind of port.
pub const SCENARIO: Scenario = Scenario {
    name: "guest",
    about: "a booted guest (QEMU, emulated): UDP by sockets, round trips, netmap programs; ptnet, \
        virtio-net, e1000",
    variants: variants![
        Variant::SMALL => "udp-small";
        Variant { unit: Unit::Gbps, frame_bytes: &[1502], ..Variant::SMALL } => "udp-large";
        Variant::SMALL => "round-trips", "netmap"
    ],
    needs: NEEDS,
    start: |case, cores| start(case, cores, PTNET, "netvale"),
};

/// Returns the peers: the same guest with other interfaces.
pub fn peers() -> Vec<Contender> {
    [VHOST, QEMU_E1000].map(|interface| peer(interface, |case| SCENARIO.has(case))).into()
}

/// Returns the contender for a guest with `interface`, in the cases for which `fits` returns true.
pub fn peer(interface: Interface, fits: impl Fn(&Case) -> bool + 'static) -> Contender {
    let start = move |case: &Case, cores| start(case, cores, interface, interface.name);
    let needs = if interface.is_by_netmap() { NETMAP_NEEDS } else { NEEDS };
    Contender::new(interface.name, interface.about, needs, fits, start)
}

/// Returns a frame of EtherType 0x88b5, which no kernel sends, for programs that build their own frames.
fn raw_frame(to: [u8; 6], from: [u8; 6], bytes: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.resize(bytes.max(60), 0);
    frame
}

fn host_end(hub: &Netns, tap: &str) -> Result<()> {
    hub.set_up(tap, &format!("{HOST}/24"))
}

fn onto_bridge(hub: &Netns, tap: &str) -> Result<()> {
    hub.ip(&format!("link set {tap} master {BRIDGE} up"))
}

/// Returns the guest's script. The agent finds its task in the environment, as all worker processes of the bench do.
fn script(interface: Interface, number: u8) -> String {
    let preparation = interface.preparation();
    format!(
        r#"
stty -echo </dev/ttyS0
{preparation}ip addr add 10.1.0.{number}/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do [ $(cat /sys/class/net/eth0/carrier) = 1 ] && break; sleep 0.1; done
busybox arp -i eth0 -s {SINK} 02:00:00:00:00:09
export NETVALE_BENCH_WORKER='{{"role":"guest-agent","core":0,"counters":"","arguments":null}}'
netvale-bench worker </dev/ttyS0
"#
    )
}

/// Boots the machines of a case, and starts the host's services and the switch, if the case has one.
pub fn start(case: &Case, cores: Cores, interface: Interface, name: &'static str) -> Result<Session> {
    let traffic = Traffic::of(case).ok_or_else(|| BenchError::Usage(format!("no guest is booted for {case}")))?;
    let arrangement = traffic.arrangement();
    let hub = Netns::silent()?;
    let host = HostEnd::start(&hub, interface, arrangement, cores.1)?;
    let image = Image::find().map_err(BenchError::from)?;
    let boot = |number: u8, core: usize| {
        let cores = if arrangement.has_two_cpus { vec![cores.0, cores.1] } else { vec![core] };
        host.boot(&image, &hub, interface, number, cores)
    };
    let machine = boot(GUEST, cores.0)?;
    let peer = if arrangement.is_pair { Some(boot(PEER, cores.1)?) } else { None };
    let HostEnd { switch, tap } = host;
    if switch.is_none() && tap == TAP {
        host_end(&hub, TAP)?;
    }
    let services = Worker::spawn(Wrapper::Network(&hub), SERVICES, None, &())?;
    let registers = interface.registers();
    let has_doorbells = interface.has_doorbells();
    let case = case.clone();
    let booted =
        BootedGuest { case, traffic, machine, peer, exits: None, registers, has_doorbells, switch, tap, hub, services };
    // After these round trips, both ends know each other's addresses.
    booted.play("trips", Duration::from_millis(100))?;
    session(name, booted)
}

/// The host's network, to which guests are connected.
struct HostEnd {
    /// netvale's switch, if there is one.
    switch: Option<Switch>,
    /// The first guest's TAP, if there is no switch.
    tap: String,
}

impl HostEnd {
    fn start(hub: &Netns, interface: Interface, arrangement: Arrangement, core: usize) -> Result<HostEnd> {
        // Without netvale's switch, two guests are connected by the kernel's bridge.
        let is_bridged = arrangement.is_bridged || arrangement.is_pair && !interface.is_ours();
        if is_bridged {
            hub.ip(&format!("link add {BRIDGE} type bridge mcast_snooping 0"))?;
            host_end(hub, BRIDGE)?;
        }
        let start = if is_bridged { Switch::start_bridged } else { Switch::start };
        let switch = interface.is_ours().then(|| start(hub, core)).transpose()?;
        Ok(HostEnd { switch, tap: if is_bridged { bridged_tap(GUEST) } else { TAP.to_owned() } })
    }

    /// Returns the name of the TAP that QEMU makes for a guest.
    fn tap(&self, number: u8) -> String {
        if self.tap == TAP { TAP.to_owned() } else { bridged_tap(number) }
    }

    fn boot(
        &self,
        image: &Image,
        hub: &Netns,
        interface: Interface,
        number: u8,
        cores: Vec<usize>,
    ) -> Result<Rc<Machine>> {
        let devices = match &self.switch {
            Some(switch) => switch.attach(interface, number)?,
            None => interface.devices(&self.tap(number), number),
        };
        let emulator = match &self.switch {
            Some(switch) if interface.is_by_netmap() => netmap_emulator(switch.daemon.dir())?,
            _ => Vec::new(),
        };
        let spec =
            MachineSpec { cores, script: script(interface, number), devices, emulator, ..MachineSpec::default() };
        let machine = Machine::boot(image, hub, &spec)?;
        machine.child().expect(READY, LIMIT)?;
        if self.switch.is_none() && self.tap != TAP {
            onto_bridge(hub, &self.tap(number))?;
        }
        Ok(Rc::new(machine))
    }
}

/// Returns the beginning of a command line that starts QEMU with a netmap back end that opens ports of the daemon in
/// the run directory `dir`.
fn netmap_emulator(dir: &Path) -> Result<Vec<PathBuf>> {
    let run: [PathBuf; 5] = [sys::netvale()?, "--run-dir".into(), dir.into(), "run".into(), "--".into()];
    Ok(run.into_iter().chain([netmap_qemu()?]).collect())
}

fn session(name: &'static str, booted: BootedGuest) -> Result<Session> {
    let mut parts: Parts = vec![booted.machine.clone()];
    parts.extend(booted.peer.clone().map(|peer| peer as _));
    parts.extend(booted.switch.as_ref().map(|switch| switch.daemon.clone() as _));
    let words = booted.cores();
    // The names are prefixed, because netvale's facts and a peer's facts are in one record.
    let exits = format!("{name} exits_each");
    let interrupts = format!("{name} interrupts_each");
    let booted = Rc::new(RefCell::new(booted));
    let turned = Rc::clone(&booted);
    let measuring = move |window| {
        let mut booted = booted.borrow_mut();
        let (sample, each) = booted.measure(window)?;
        let sample = sample.fact(&interrupts, format!("{each:.4}"));
        Ok(match booted.exits {
            Some(each) => sample.fact(&exits, format!("{each:.4}")),
            None => sample,
        })
    };
    let turning = move |case: &Case| turned.borrow_mut().turn(case);
    Session::new(words, true, measuring).turning(turning).with_all(parts).idle()
}
