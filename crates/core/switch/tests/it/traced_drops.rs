//! How a trace shows every drop reason. This module compiles only if [`told`] has an arm for each reason.
#![allow(unsafe_code)]

use std::net::UdpSocket;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Make, TestPort, attach, frame, mac};
use guard_frames::{ALIEN, ARP, GUARDED, OWN, arp, ethernet, icmp6, ipv6, neighbor, udp4};
use netvale_abi::slot::{NS_INDIRECT, NS_MOREFRAG, NS_UNREADABLE};
use netvale_mem::steps::Step;
use netvale_pcapport::{CaptureOptions, PcapEgress};
use netvale_policy::bpf::{FilterProgram, Insn};
use netvale_policy::bucket::RateLimit;
use netvale_policy::guard::Guard;
use netvale_policy::snoop::{Multicast, Router};
use netvale_policy::vlan::Vlans;
use netvale_port::link::{Link, LinkEnd, LinkSettings};
use netvale_port::loopback::{LoopbackIngress, loopback};
use netvale_port::{Batch, DropReason, Egress, Ingress, RingCounters, Scratch};
use netvale_ptnet::seats::RxSeat;
use netvale_switch::filters::{FilterRule, Filters};
use netvale_switch::policies::Classes;
use netvale_switch::trace::{Trace, TraceOptions, TraceRecord};
use netvale_switch::{AttachedPort, CompiledPolicies, ForwardMemory, Forwarder, PassResult, Switch};
use netvale_tap::{TapEgress, TapLink};
use netvale_vxlan::endpoint::SendOptions;
use netvale_vxlan::{Endpoint, Tunnel, TunnelEgress, TunnelIngress, TunnelOptions};

use crate::common;
#[allow(dead_code, reason = "frames of other tests")]
#[path = "../../../policy/tests/it/guard/frames.rs"]
mod guard_frames;

const LIMIT: Duration = Duration::from_secs(20);

/// How a trace shows frames that are dropped for a reason, and a function that causes such a drop.
enum Told {
    /// The drop is a step in the record of the frame.
    Frame(fn() -> Vec<TraceRecord>),
    /// The drop is in a record without a frame; the text explains why there is no frame.
    Line(&'static str, fn() -> Vec<TraceRecord>),
}

use Told::{Frame, Line};

const SLOTS: &str = "an invalid slot is refused before it is a frame";
const LINK: &str = "a link drops frames long after the line of the frame";
const DATAGRAM: &str = "a refused datagram contains no frame for this port";

fn told(why: DropReason) -> Told {
    match why {
        DropReason::NoRoom => Frame(no_room),
        DropReason::NoPort => Frame(no_port),
        DropReason::SamePort => Frame(|| Bed::new().send(&[frame(1, 1, 0, 60)])),
        DropReason::Runt => Frame(|| Bed::new().send_slot(|a, i| a.tx.mem().set_len_flags(i, 13, 0))),
        DropReason::TooLong => Frame(too_long),
        DropReason::BadBuffer => {
            Line(SLOTS, || Bed::new().send_slot(|a, i| a.tx.mem().set_slot_word(i, u32::MAX, 60, 0)))
        }
        DropReason::BadLength => Line(SLOTS, || Bed::new().send_slot(|a, i| a.tx.mem().set_len_flags(i, 9999, 0))),
        DropReason::EndlessFrame => Line(SLOTS, endless),
        DropReason::Indirect => {
            Line(SLOTS, || Bed::new().send_slot(|a, i| a.tx.mem().set_len_flags(i, 60, NS_INDIRECT | NS_UNREADABLE)))
        }
        DropReason::BadVnetHeader => Line(SLOTS, bad_header),
        DropReason::BadHead => Line(SLOTS, bad_head),
        DropReason::BadRxBuffer => Frame(bad_rx_buffer),
        DropReason::Device => Frame(refused_by_a_device),
        DropReason::CaptureFull => Frame(capture_full),
        DropReason::Stalled => Frame(stalled),
        DropReason::Idle => Frame(|| Bed::new().to(Arc::new(RxSeat::default()))),
        DropReason::Vlan => Frame(|| Bed::under(access(7)).send(&[tagged(9)])),
        DropReason::BadTag => Frame(|| Bed::under(access(7)).send(&[tagged(4095)])),
        DropReason::Filter => {
            Frame(|| Bed::under(CompiledPolicies { filters: [all(), Filters::default()], ..none() }).send(&[known()]))
        }
        DropReason::Rate => Frame(no_time),
        DropReason::Storm => {
            Frame(|| Bed::under(CompiledPolicies { storm: Classes([few(); 3]), ..none() }).send(&vec![flood(); 9]))
        }
        DropReason::AddressTaken => Frame(address_taken),
        DropReason::AddressLimit => Frame(|| {
            Bed::under(CompiledPolicies { most_addresses: Some(1), ..none() }).send(&[flood(), frame(255, 5, 0, 60)])
        }),
        DropReason::Locked => Frame(|| Bed::under(CompiledPolicies { locked: true, ..none() }).send(&[flood()])),
        DropReason::Isolated => Frame(isolated),
        DropReason::Loop => Frame(looped),
        DropReason::SpoofedMac => Frame(|| guarded("mac", ethernet(ALIEN, 0x1234, &[0; 46]))),
        DropReason::SpoofedIp => Frame(|| guarded("ip", udp4("1.2.3.4", 1, 2))),
        DropReason::SpoofedArp => Frame(|| guarded("arp", ethernet(OWN, ARP, &arp(2, OWN, "10.9.9.9")))),
        DropReason::SpoofedNd => Frame(|| guarded("nd", ipv6("fe80::1", 58, &neighbor(136, "2001:db8::99", &[])))),
        DropReason::RogueDhcp => Frame(|| guarded("dhcp", udp4("10.0.0.5", 67, 68))),
        DropReason::RogueRa => Frame(|| guarded("ra", ipv6("fe80::1", 58, &icmp6(134, &[0; 12])))),
        DropReason::RogueQuery => Frame(rogue_query),
        DropReason::LinkLoss => Line(LINK, link_loss),
        DropReason::LinkFull => Frame(|| Bed::linked("delay 1s", 600).0.send(&vec![frame(255, 1, 0, 240); 9])),
        DropReason::BadVxlan => Line(DATAGRAM, || datagram(11, &[8; 7])),
        DropReason::UnknownVni => Line(DATAGRAM, || datagram(12, &[&[8, 0, 0, 0, 0, 0, 9, 0], &[0; 60][..]].concat())),
        DropReason::UnknownVtep => Line(DATAGRAM, || datagram(13, &[&[8, 0, 0, 0, 0, 0, 7, 0], &[0; 60][..]].concat())),
        DropReason::Congestion => Line(DATAGRAM, || marked(16)),
        DropReason::NoVtep => Frame(|| tunnelled(14, &[])),
        DropReason::Unreachable => Frame(|| tunnelled(15, &["255.255.255.255"])),
    }
}

/// Objective: a trace of drops shows every drop reason: in the record of the frame, or in a separate record if there is
/// no frame to show.
#[test]
fn a_trace_of_drops_shows_every_reason() {
    let wrong: Vec<_> = DropReason::ALL.iter().filter_map(|&why| differs(why)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns how the records for a reason differ from the expected ones; `None` if they do not differ.
fn differs(why: DropReason) -> Option<String> {
    let (make, has_frame, because) = match told(why) {
        Frame(make) => (make, true, ""),
        Line(because, make) => (make, false, because),
    };
    let records = make();
    let drops_it = |step: &Step| matches!(step, Step::Dropped(reason, _) if *reason == why);
    let is_it = |record: &TraceRecord| (record.len > 0) == has_frame && record.steps.list().iter().any(drops_it);
    let is_right = records.iter().any(is_it) && records.iter().all(|record| record.steps.has_drop());
    let told: Vec<_> = records.iter().map(|record| (record.len, record.steps.list())).collect();
    (!is_right).then(|| format!("{} {because}: {told:?}", why.name()))
}

/// Two ports, the first of which has a trace of drops.
struct Bed {
    switch: Arc<Switch>,
    a: TestPort,
    b: TestPort,
    trace: Arc<Trace>,
    work: ForwardMemory,
}

impl Bed {
    fn new() -> Bed {
        Bed::made(Make { slots: 64, ..Make::default() }, Make { slots: 64, ..Make::default() })
    }

    fn made(a: Make, b: Make) -> Bed {
        let switch = Switch::new("vale0");
        let a = attach(&switch, "a", a);
        let b = attach(&switch, "b", b);
        let trace = Arc::new(Trace::new(TraceOptions { filter: None, only_drops: true, one_of: 1, room: 256 }));
        ["a", "b"].iter().for_each(|port| switch.trace(port, &trace).unwrap());
        Bed { switch, a, b, trace, work: ForwardMemory::default() }
    }

    /// A test bed whose sender has these policies, and whose receiver's address is known.
    fn under(policies: CompiledPolicies) -> Bed {
        let bed = Bed::new();
        bed.switch.learn(0, word(2), bed.b.id);
        bed.switch.set_policies(bed.a.id, Some(Arc::new(policies)), None);
        bed
    }

    /// A test bed whose sender has an impaired link.
    fn linked(words: &str, bytes: u64) -> (Bed, LinkEnd) {
        let settings =
            LinkSettings { impair: Some(words.parse().unwrap()), rates: Vec::new(), bytes, frames: None, seed: 7 };
        let (link, end) = Link::new(settings, 1, None, Arc::default()).unwrap();
        (Bed::under(CompiledPolicies { link: Some(link), ..none() }), end)
    }

    fn send(&mut self, frames: &[Vec<u8>]) -> Vec<TraceRecord> {
        frames.iter().for_each(|frame| assert!(self.a.send(frame)));
        self.a.forward(&mut self.work);
        self.told()
    }

    /// Sends a frame in one slot after `change` has modified that slot.
    fn send_slot(&mut self, change: impl FnOnce(&TestPort, u32)) -> Vec<TraceRecord> {
        let i = self.a.tx.at(0);
        assert!(self.a.send(&flood()));
        change(&self.a, i);
        self.a.forward(&mut self.work);
        self.told()
    }

    /// Sends frames to a port with this egress until there is a record.
    fn to(&mut self, egress: Arc<dyn Egress>) -> Vec<TraceRecord> {
        let id = self
            .switch
            .attach(AttachedPort { name: "c".into(), egresses: vec![egress], ..AttachedPort::default() })
            .unwrap();
        self.switch.learn(0, word(3), id);
        until(|| self.send(&[frame(3, 1, 0, 200)]))
    }

    /// Forwards frames from `ingress` instead of the sender's ring. Returns the records.
    fn from(&mut self, ingress: Box<dyn Ingress>) -> Vec<TraceRecord> {
        self.pass(Forwarder::new(Arc::clone(&self.switch), self.a.id, 0, ingress))
    }

    fn pass(&mut self, mut forwarder: Forwarder) -> Vec<TraceRecord> {
        until(|| {
            let passed = forwarder.pass(&mut self.work);
            assert!(!matches!(passed, PassResult::Held));
            self.told()
        })
    }

    fn told(&self) -> Vec<TraceRecord> {
        std::iter::from_fn(|| self.trace.next()).collect()
    }
}

/// Repeats an action until it returns the record of a drop.
fn until(mut f: impl FnMut() -> Vec<TraceRecord>) -> Vec<TraceRecord> {
    let begun = Instant::now();
    loop {
        let records = f();
        if !records.is_empty() || begun.elapsed() > LIMIT {
            return records;
        }
        std::thread::yield_now();
    }
}

fn none() -> CompiledPolicies {
    CompiledPolicies::default()
}

fn few() -> Option<RateLimit> {
    Some(RateLimit::frames(1, 1))
}

fn flood() -> Vec<u8> {
    frame(255, 1, 0, 60)
}

fn known() -> Vec<u8> {
    frame(2, 1, 0, 60)
}

fn tagged(vlan: u16) -> Vec<u8> {
    let [high, low] = vlan.to_be_bytes();
    [&flood()[..12], &[0x81, 0, high, low], &flood()[12..]].concat()
}

fn word(n: u8) -> u64 {
    let [a, b, c, d, e, f] = mac(n);
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn access(vlan: u16) -> CompiledPolicies {
    CompiledPolicies { vlans: Some(Vlans::access(vlan).unwrap()), ..none() }
}

/// Filters with one rule, which drops every frame.
fn all() -> Filters {
    let any = FilterProgram::verify(&[Insn { code: 6, jt: 0, jf: 0, k: 1 }]).unwrap();
    Filters::new(vec![FilterRule::new(true, any)])
}

fn no_room() -> Vec<TraceRecord> {
    let mut bed = Bed::made(Make::default(), Make { slots: 4, ..Make::default() });
    assert!(bed.b.send(&frame(255, 2, 0, 60)));
    bed.b.forward(&mut bed.work);
    until(|| bed.send(&[known()]))
}

fn no_port() -> Vec<TraceRecord> {
    let mut bed = Bed::new();
    bed.switch.detach(bed.b.id);
    bed.send(&[flood()])
}

fn too_long() -> Vec<TraceRecord> {
    let mut bed = Bed::made(Make::default(), Make { slots: 4, buf_size: 128, ..Make::default() });
    bed.send(&[frame(255, 1, 0, 1000)])
}

fn endless() -> Vec<TraceRecord> {
    let mut bed = Bed::made(Make::default(), Make::default());
    (0..15).for_each(|_| assert!(bed.a.send_with(&[0; 60], NS_MOREFRAG)));
    bed.send(&[])
}

fn bad_header() -> Vec<TraceRecord> {
    let mut bed = Bed::made(Make { hdr_len: 12, ..Make::default() }, Make::default());
    // The pending checksum begins in the Ethernet header, so the virtio-net header is refused.
    let mut bytes = vec![0; 12];
    bytes[0] = 1;
    bed.send(&[[bytes, flood()].concat()])
}

fn bad_head() -> Vec<TraceRecord> {
    let mut bed = Bed::made(Make::default(), Make::default());
    bed.a.mem.tx[0].csb.publish_head(1 << 31, 1 << 31);
    let _ = bed.a.forwarder.pass(&mut bed.work);
    bed.told()
}

fn bad_rx_buffer() -> Vec<TraceRecord> {
    let mut bed = Bed::new();
    bed.b.rx.mem().set_slot_word(0, u32::MAX, 0, 0);
    bed.send(&[flood()])
}

/// Returns the records of frames that a device refuses: `/dev/full` has no space.
fn refused_by_a_device() -> Vec<TraceRecord> {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    Bed::new().to(Arc::new(TapEgress::new(Arc::new(OwnedFd::from(full)), TapLink::default())))
}

fn capture_full() -> Vec<TraceRecord> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.pcap");
    let limit = netvale_pcapport::CaptureLimit { bytes: Some(300), shared: None };
    let file = std::fs::File::create(&path).unwrap();
    let capture = PcapEgress::new(file, &path, CaptureOptions::of(&path), limit, Arc::default()).unwrap();
    Bed::new().to(Arc::new(capture))
}

/// An ingress that contains these frames.
fn ingress_of(frames: &[Vec<u8>]) -> LoopbackIngress {
    let (egress, ingress) = loopback(frames.len()).unwrap();
    for frame in frames {
        Batch::new().lend(frame, |batch| assert_eq!(egress.deliver(batch, &[0], &mut Scratch::new()), 1));
    }
    ingress
}

fn stalled() -> Vec<TraceRecord> {
    let lossless = Make { lossless: true, slots: 4, ..Make::default() };
    let mut bed = Bed::made(Make::default(), lossless);
    bed.switch.learn(0, word(2), bed.b.id);
    (0..5).for_each(|_| assert!(bed.a.send(&known())));
    until(|| bed.send(&[]))
}

/// An ingress whose frames cannot wait in their ring, like that of a network interface.
struct NoTime(LoopbackIngress);

impl Ingress for NoTime {
    // SAFETY: as for the inner ingress, which is released together with this ingress.
    unsafe fn take(&mut self, batch: &mut Batch) {
        // SAFETY: the caller fulfils the same contract as for `take` of the inner ingress.
        unsafe { self.0.take(batch) }
    }

    fn release(&mut self) {
        self.0.release();
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wake_fd()
    }

    fn can_wait(&self) -> bool {
        false
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.0.counters()
    }
}

fn no_time() -> Vec<TraceRecord> {
    let mut bed = Bed::under(CompiledPolicies { rates: vec![RateLimit::frames(1, 1)], ..none() });
    bed.from(Box::new(NoTime(ingress_of(&vec![flood(); 9]))))
}

fn address_taken() -> Vec<TraceRecord> {
    let mut bed = Bed::new();
    let policies = CompiledPolicies { addresses: vec![word(1)], ..none() };
    bed.switch.set_policies(bed.b.id, Some(Arc::new(policies)), None);
    bed.send(&[flood()])
}

fn isolated() -> Vec<TraceRecord> {
    let isolated = || CompiledPolicies { isolated: true, ..none() };
    let mut bed = Bed::under(isolated());
    bed.switch.set_policies(bed.b.id, Some(Arc::new(isolated())), None);
    bed.send(&[known()])
}

fn looped() -> Vec<TraceRecord> {
    let mut bed = Bed::under(CompiledPolicies { loop_guard: true, ..none() });
    until(|| {
        assert!(bed.b.send(&flood()));
        bed.b.forward(&mut bed.work);
        bed.a.take();
        bed.b.take();
        bed.send(&[flood()])
    })
}

fn guarded(checks: &str, frame: Vec<u8>) -> Vec<TraceRecord> {
    let guard = Guard::new(checks.parse().unwrap(), GUARDED.parse().unwrap()).unwrap();
    Bed::under(CompiledPolicies { guard: Some(guard), ..none() }).send(&[frame])
}

fn rogue_query() -> Vec<TraceRecord> {
    let mut query = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2(mac(1), [1, 0, 0x5e, 0, 0, 1]);
    let builder = builder.ipv4([10, 0, 0, 1], [224, 0, 0, 1], 1);
    builder.write(&mut query, etherparse::ip_number::IGMP, &[0x11, 100, 0xee, 0x9b, 0, 0, 0, 0]).unwrap();
    let multicast = Multicast { snooping: true, router: Router::Never, ..Multicast::default() };
    Bed::under(CompiledPolicies { multicast, ..none() }).send(&[query])
}

fn link_loss() -> Vec<TraceRecord> {
    let (mut bed, end) = Bed::linked("loss 100%", 1 << 20);
    assert!(bed.send(&[flood()]).is_empty());
    let far_end = Forwarder::of_link(Arc::clone(&bed.switch), bed.a.id, end);
    bed.pass(far_end)
}

/// A loopback address that only this test uses.
fn local(n: u8) -> std::net::IpAddr {
    let [a, b, ..] = std::process::id().to_le_bytes();
    std::net::IpAddr::from([127, 1 | a, b, n])
}

fn tunnel(n: u8, remotes: &[&str]) -> Arc<Tunnel> {
    let options = TunnelOptions {
        vni: 7,
        remotes: remotes.iter().map(|ip| ip.parse().unwrap()).collect(),
        learning: true,
        any_peer: false,
        ageing: 300,
        send: SendOptions::default(),
        mtu: None,
        key: [1, 3],
    };
    Tunnel::new(Arc::new(Endpoint::new(local(n), 4789).unwrap()), options).unwrap()
}

/// Returns the records for a datagram from an unknown VTEP.
fn datagram(n: u8, bytes: &[u8]) -> Vec<TraceRecord> {
    let tunnel = tunnel(n, &[]);
    let raw = UdpSocket::bind((local(n + 100), 0)).unwrap();
    raw.send_to(bytes, (local(n), 4789)).unwrap();
    Bed::new().from(Box::new(TunnelIngress::new(tunnel)))
}

/// Returns the records for a frame whose outer packet was ECN-marked although the inner packet is not ECN-capable.
fn marked(n: u8) -> Vec<TraceRecord> {
    let tunnel = tunnel(n, &[&local(n + 100).to_string()]);
    let raw = UdpSocket::bind((local(n + 100), 0)).unwrap();
    rustix::net::sockopt::set_ip_tos(&raw, 3).unwrap();
    let frame = udp4("10.0.0.1", 1, 2);
    raw.send_to(&[&[8, 0, 0, 0, 0, 0, 7, 0], &frame[..]].concat(), (local(n), 4789)).unwrap();
    Bed::new().from(Box::new(TunnelIngress::new(tunnel)))
}

fn tunnelled(n: u8, remotes: &[&str]) -> Vec<TraceRecord> {
    Bed::new().to(Arc::new(TunnelEgress::new(tunnel(n, remotes))))
}
