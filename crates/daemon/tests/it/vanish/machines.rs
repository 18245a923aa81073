//! Hypervisors that use devices by vfio-user: first in the states of the protocol itself, then in the states of the
//! drivers of an e1000 and of a published ptnet device.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use netvale::Port;
use netvale_e1000::driver::ram::GUEST;
use netvale_e1000::driver::remote::{SimulatedGuest, give};
use netvale_e1000::driver::{CardDriverOptions, CardRegisters};
use netvale_e1000::regs::{CTRL, CTRL_RST, IMC, RCTL, TDT};
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_mem::notify::Doorbell;
use netvale_port::Ingress;
use netvale_ptnet::vfio::memory_path;
use netvale_vfio_user::irqs::{MSI, MSIX};
use netvale_vfio_user::wire::{HEADER, NO_REPLY, VfioHeader, WireWriter, command};
use rustix::net::SendFlags;
use serde_json::json;

use super::engine::{Peer, State, offer, say, serve, socket_in, traffic};
use super::ptnet::attach;
use crate::common::card::{frames_at, send_from};
use crate::common::published::{Driver, Plugged};
use crate::common::{Daemon, frame, until};

const SOCKET: &str = "vfio";
/// Size of a guest's memory in bytes.
const SIZE: u64 = 1 << 16;
/// Address of the guest's memory in the guest's address space.
const BASE: u64 = 0x10_0000;
/// Flags that connect an interrupt's trigger to a descriptor (linux/vfio.h).
const BY_DESCRIPTOR: u32 = 1 << 5 | 1 << 2;
/// Flags that disconnect an interrupt's trigger.
const BY_NOTHING: u32 = 1 << 5 | 1;
/// Index of the configuration space region.
const CONFIG: u32 = 7;

/// A connection to a device: to an e1000 if `CARD` is set, otherwise to a published ptnet device.
pub struct Line<const CARD: bool> {
    dir: PathBuf,
    socket: UnixStream,
    memory: OwnedFd,
    bell: Doorbell,
}

impl<const CARD: bool> Peer for Line<CARD> {
    const NAME: &'static str = if CARD { "vfio-user, e1000" } else { "vfio-user, ptnet" };
    const SERVED: &'static str = "";
    const STATES: &'static [State<Self>] = &[
        ("connected", "", |_| ()),
        ("half a header sent", "connected", |p| say(&p.socket, &[0; 7])),
        ("a length that cannot be", "connected", |p| say(&p.socket, &[0xff; HEADER])),
        ("no version", "connected", |p| p.ask(command::DEVICE_GET_INFO, &[16], None)),
        ("version asked", "connected", |p| p.ask(command::VERSION, &[1 << 16], None)),
        ("greeted", "version asked", Self::hear),
        ("half a message sent", "greeted", |p| say(&p.socket, &p.write(CONFIG, 4, 0)[..HEADER + 6])),
        ("device asked", "greeted", |p| p.ask(command::DEVICE_GET_INFO, &[16, 0, 0, 0], None)),
        ("device described", "device asked", Self::hear),
        ("all regions asked", "greeted", |p| {
            (0..9).for_each(|i| p.ask(command::DEVICE_GET_REGION_INFO, &[64, 0, i, 0, 0, 0, 0, 0], None))
        }),
        ("half a map of memory", "greeted", |p| p.tell(&p.map(BASE)[..HEADER + 10], Some(p.memory.as_fd()))),
        ("memory given", "greeted", |p| p.tell(&p.map(BASE), Some(p.memory.as_fd()))),
        ("memory known to be given", "memory given", Self::hear),
        ("memory given twice", "memory known to be given", |p| p.tell(&p.map(BASE + SIZE), Some(p.memory.as_fd()))),
        ("memory without a file", "greeted", |p| p.tell(&p.map(BASE), None)),
        ("memory taken away", "memory known to be given", |p| {
            p.ask(command::DMA_UNMAP, &[24, 0, BASE as u32, 0, SIZE as u32, 0], None)
        }),
        ("an interrupt led", "memory known to be given", |p| {
            p.ask(command::DEVICE_SET_IRQS, &[20, BY_DESCRIPTOR, Self::KIND, 0, 1], Some(p.bell.as_fd()))
        }),
        ("an interrupt known to be led", "an interrupt led", Self::hear),
        ("no interrupt led", "an interrupt known to be led", |p| {
            p.ask(command::DEVICE_SET_IRQS, &[20, BY_NOTHING, Self::KIND, 0, 0], None)
        }),
        ("a register asked", "an interrupt known to be led", |p| p.ask(command::REGION_READ, &[0, 0, 0, 4], None)),
        ("many registers asked", "a register asked", |p| {
            (0..200).for_each(|_| p.ask(command::REGION_READ, &[0, 0, 0, 4], None))
        }),
        ("the bus mastered", "an interrupt known to be led", |p| say(&p.socket, &p.write(CONFIG, 4, 0x0407_0000))),
        ("reset", "an interrupt known to be led", |p| p.ask(command::DEVICE_RESET, &[], None)),
    ];

    fn attach(d: &Daemon) {
        let (kind, options) = if CARD { ("e1000", json!({})) } else { ("ptnet", json!({"vfio_user": true})) };
        attach(d, kind, SOCKET, options);
    }

    fn new(dir: &Path) -> Self {
        let (memory, ..) = sealed_memfd("guest", SIZE, PageKind::Ordinary).unwrap();
        let socket = UnixStream::connect(socket_in(dir, SOCKET)).unwrap();
        Line { dir: dir.into(), socket, memory, bell: Doorbell::new().unwrap() }
    }

    fn exchange(self, local: &mut Port) {
        let dir = self.dir.clone();
        drop(self);
        if CARD { serve::<Card>(&dir, local) } else { serve::<Published>(&dir, local) }
    }
}

impl<const CARD: bool> Line<CARD> {
    const KIND: u32 = if CARD { MSI } else { MSIX } as u32;

    /// Sends a message. Ignores errors, because the daemon may already have closed the connection.
    fn tell(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) {
        let _ = netvale_fdio::send(&self.socket, bytes, file.as_slice(), SendFlags::empty());
    }

    fn ask(&self, what: u16, words: &[u32], file: Option<BorrowedFd<'_>>) {
        self.tell(&question(what, 0, words), file);
    }

    fn hear(&mut self) {
        let mut head = [0; HEADER];
        self.socket.read_exact(&mut head).unwrap();
        let header = VfioHeader::parse(&head);
        assert_eq!(header.errno(), 0, "command {}", header.command);
        self.socket.read_exact(&mut vec![0; header.size as usize - HEADER]).unwrap();
    }

    /// Returns the message that writes a register and requests no answer.
    fn write(&self, region: u32, at: u32, value: u32) -> Vec<u8> {
        question(command::REGION_WRITE, NO_REPLY, &[at, 0, region, 4, value])
    }

    fn map(&self, at: u64) -> Vec<u8> {
        question(command::DMA_MAP, 0, &[32, 3, 0, 0, at as u32, 0, SIZE as u32, 0])
    }
}

fn question(what: u16, flags: u32, words: &[u32]) -> Vec<u8> {
    let mut w = WireWriter::default();
    words.iter().for_each(|word| _ = w.u32(*word));
    VfioHeader { command: what, flags, ..VfioHeader::default() }.question(&w.0)
}

/// An e1000's driver.
pub struct Card {
    path: PathBuf,
    guest: Option<SimulatedGuest>,
}

impl Peer for Card {
    const NAME: &'static str = "e1000";
    const SERVED: &'static str = "rings run";
    const STATES: &'static [State<Self>] = &[
        ("rings run", "", |p| p.start(CardDriverOptions { slots: 64, csb: false, combine: 0 })),
        ("with a status block", "", |p| p.start(CardDriverOptions { slots: 64, csb: true, combine: 0 })),
        ("asleep", "with a status block", |p| _ = p.guest().ingress.arm()),
        ("traffic by registers", "rings run", Self::flood),
        ("traffic by the status block", "with a status block", Self::flood),
        ("more to send than there is", "traffic by registers", |p| p.guest().remote.write(TDT, 5)),
        ("interrupts masked", "traffic by registers", |p| p.guest().remote.write(IMC, !0)),
        ("receiving stopped", "traffic by registers", |p| p.guest().remote.write(RCTL, 0)),
        ("reset under traffic", "traffic by registers", |p| p.guest().remote.write(CTRL, CTRL_RST)),
        ("memory taken away under traffic", "traffic by the status block", |p| {
            let size = p.guest().ram.mapping().len() as u64;
            p.guest().remote.with(|client| client.unmap(GUEST, size)).unwrap();
        }),
        ("memory given again", "memory taken away under traffic", |p| {
            let SimulatedGuest { remote, ram, .. } = p.guest();
            remote.with(|client| give(client, ram)).unwrap();
        }),
    ];

    fn attach(d: &Daemon) {
        Line::<true>::attach(d);
    }

    fn new(dir: &Path) -> Self {
        Card { path: socket_in(dir, SOCKET), guest: None }
    }

    fn send(&mut self, frame: &[u8]) {
        send_from(self.guest(), frame);
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        let guest = self.guest.as_mut().unwrap();
        guest.ingress.woken();
        frames_at(guest)
    }
}

impl Card {
    fn start(&mut self, options: CardDriverOptions) {
        self.guest = Some(SimulatedGuest::new(&self.path, options).unwrap());
    }

    fn guest(&mut self) -> &mut SimulatedGuest {
        self.guest.as_mut().unwrap()
    }

    fn flood(&mut self) {
        (0..100).for_each(|i| self.send(&traffic(i)));
    }
}

/// A driver of a published ptnet device.
pub struct Published {
    path: PathBuf,
    plugged: Option<Plugged>,
    /// The client of the memory device; set only if no other device is connected.
    only_memory: Option<vfio_user::Client>,
}

impl Peer for Published {
    const NAME: &'static str = "published";
    const SERVED: &'static str = "both devices found";
    const STATES: &'static [State<Self>] = &[
        ("only the memory found", "", |p| p.only_memory = Some(vfio_user::Client::new(&memory_path(&p.path)).unwrap())),
        ("both devices found", "", |p| p.plugged = Some(Plugged::new(&p.path))),
        ("probed", "both devices found", |p| _ = p.probe()),
        ("status blocks nowhere", "probed", |p| p.plugged().set_csb(1 << 40, 1 << 41)),
        ("memory forgotten", "probed", |p| p.plugged().remap()),
        ("rings run", "both devices found", |p| p.probe().start()),
        ("nonsense everywhere", "rings run", |p| p.plugged().scribble()),
        ("memory forgotten under rings", "rings run", |p| p.plugged().remap()),
        ("traffic under way", "both devices found", |p| {
            let mut driver = p.probe();
            driver.start();
            (0..100).for_each(|i| driver.send(0, &traffic(i)));
        }),
        ("closed", "both devices found", |p| {
            let mut driver = p.probe();
            driver.start();
            driver.close();
        }),
        ("removed", "both devices found", |p| {
            let mut driver = p.probe();
            driver.start();
            driver.remove();
        }),
    ];

    fn attach(d: &Daemon) {
        Line::<false>::attach(d);
    }

    fn new(dir: &Path) -> Self {
        Published { path: socket_in(dir, SOCKET), plugged: None, only_memory: None }
    }

    fn exchange(mut self, local: &mut Port) {
        let mut driver = self.probe();
        driver.start();
        let there = frame(255, 9, 77);
        let back = frame(9, 8, 78);
        until("a frame comes from the driver", || {
            driver.send(0, &there);
            let _ = local.wait(netvale::Interest::Rx, Some(std::time::Duration::from_millis(10))).unwrap();
            super::engine::frames_at(local).contains(&there.to_vec())
        });
        until("a frame comes to the driver", || {
            offer(local, &back);
            driver.receive() == back
        });
    }
}

impl Published {
    fn probe(&mut self) -> Driver<'_> {
        Driver::probe(self.plugged(), false)
    }

    fn plugged(&mut self) -> &mut Plugged {
        self.plugged.as_mut().unwrap()
    }
}
