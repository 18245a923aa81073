//! Runs the client library against a daemon that sends arbitrary answers and writes arbitrary values to the shared
//! memory, even during a call of the library.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use netvale::raw::{AttachedRings, attach, release, resume};
use netvale_control::attach::{AttachReply, AttachRequest, IN_FILE, PORT_OF_SWITCH, Role};
use netvale_fuzz::{FuzzInput, bell, bounded, fuzz_target, meddle, words};
use netvale_mem::mapping::PageKind;
use netvale_mem::words::Words;
use netvale_mem::{PortMem, PortShape, Region, RegionSizes};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

const SLOTS: u32 = 8;
const SHAPE: PortShape = PortShape { tx_rings: 2, rx_rings: 2, tx_slots: SLOTS, rx_slots: SLOTS };
/// Maximum number of times that one call reads shared memory. It is this large because the daemon may claim that rings
/// have netmap's maximum length.
const MOST: u64 = 64 + 32 * 16_384;
/// Maximum number of descriptors in an answer of this daemon.
const FDS: usize = 16;

/// An answer: its bytes and descriptors.
type DaemonAnswer = (Vec<u8>, Vec<OwnedFd>);

/// The client's connection to a thread that acts as the daemon: it answers each message with the next answer in
/// `answers`.
struct ScriptedDaemon {
    conn: OwnedFd,
    answers: Sender<DaemonAnswer>,
}

fn daemon() -> Option<ScriptedDaemon> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (conn, theirs) = pair.ok()?;
    let (answers, to_give) = channel();
    std::thread::spawn(move || answer(&theirs, &to_give));
    Some(ScriptedDaemon { conn, answers })
}

fn answer(socket: &OwnedFd, answers: &Receiver<DaemonAnswer>) {
    let mut bytes = [0u8; 2048];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        if !matches!(got, Ok(ref got) if got.bytes > 0) {
            return;
        }
        let fds: Vec<OwnedFd> = control
            .drain()
            .filter_map(|m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None })
            .flatten()
            .collect();
        let Ok((message, theirs)) = answers.recv() else { return };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let theirs: Vec<BorrowedFd<'_>> = theirs.iter().map(AsFd::as_fd).collect();
        if !theirs.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&theirs));
        }
        if let Some(to) = fds.first() {
            let _ = sendmsg(to, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL);
        }
    }
}

struct ClientRig {
    daemon: ScriptedDaemon,
    region: Arc<Region>,
    frame: Vec<u8>,
}

thread_local! {
    static RIG: Option<ClientRig> = (|| {
        let sizes = RegionSizes::for_port(8, SLOTS, 128, 0, 4);
        let region = Region::shared("fuzz", sizes, PageKind::Ordinary).ok()?;
        Some(ClientRig { daemon: daemon()?, region, frame: vec![5; 700] })
    })();
}

/// Returns a valid answer, of which the caller changes some bytes according to the input.
fn reply(port: &PortMem, peer: &PortMem, kind: u8) -> AttachReply {
    let l = *port.region().layout();
    let role = [Role::Switch, Role::Pipe, Role::Monitor, Role::Switch][usize::from(kind & 3)];
    AttachReply {
        role,
        memsize: l.total,
        nifp: l.if_pool,
        csb_atok: l.csb_atok,
        csb_ktoa: l.csb_ktoa,
        csb_first: port.csb_first(),
        peer_csb_first: peer.csb_first(),
        ring_pool: l.ring_pool,
        ring_size: l.sizes.rings.size,
        buf_pool: l.buf_pool,
        num_bufs: l.sizes.bufs.num,
        buf_size: l.sizes.bufs.size,
        tx_rings: SHAPE.tx_rings,
        rx_rings: SHAPE.rx_rings,
        tx_slots: SLOTS,
        rx_slots: SLOTS,
        mem_id: 2,
        tx_bound: 0..SHAPE.tx_rings,
        rx_bound: 0..SHAPE.rx_rings,
        if_pool: l.if_pool,
        if_size: l.sizes.ifs.size,
        num_ifs: l.sizes.ifs.num,
        num_rings: l.sizes.rings.num,
        port_flags: if kind & 4 != 0 { PORT_OF_SWITCH } else { 0 } | if kind & 8 != 0 { IN_FILE } else { 0 },
        alone: kind & 16 != 0,
        ..AttachReply::default()
    }
}

/// Returns the answer's bytes, some of which are changed according to the input, and the answer's descriptors, some of
/// which may be wrong or missing.
fn answers(reply: &AttachReply, region: &Region, input: &mut FuzzInput<'_>) -> DaemonAnswer {
    let mut bytes = reply.encode().to_vec();
    for _ in 0..input.byte() & 7 {
        let at = usize::from(input.half()) % bytes.len();
        bytes[at] = input.byte();
    }
    let shorter = input.byte();
    if shorter > 250 {
        bytes.truncate(usize::from(shorter - 250) * 60);
    }
    let decoded = AttachReply::decode(&bytes).map_or(0, |reply| reply.num_fds());
    let count = match input.byte() {
        n @ 240.. => usize::from(n - 240),
        _ => decoded.min(FDS),
    };
    let memory = || region.fd().and_then(|fd| fd.try_clone_to_owned().ok());
    let first = if reply.port_flags & IN_FILE != 0 { 2 } else { 1 };
    let fds = (0..count).filter_map(|i| if i < first { memory() } else { bell() }).collect();
    (bytes, fds)
}

fn use_rings(held: &mut AttachedRings, memory: &Words, frame: &[u8], input: &mut FuzzInput<'_>) {
    let mut bytes = [0u8; 300];
    while !input.is_empty() {
        let op = input.byte() % 10;
        let n = input.below(4);
        let tx = held.tx.get_mut(n);
        let rx = held.rx.get_mut(n);
        match (op, tx, rx) {
            (0 | 1, ..) => memory.store(usize::from(input.half()), input.index(SLOTS)),
            (2, ..) => memory.store(usize::from(input.half()), input.word()),
            (3, Some(tx), _) => {
                let len = usize::from(input.half()) % frame.len();
                bounded(MOST, "send", || tx.send(&frame[..len]));
            }
            (4, Some(tx), _) => bounded(MOST, "sync", || tx.sync()),
            (5, Some(tx), _) => _ = bounded(MOST, "sync", || tx.sync_header(|_, _, _| ())),
            (6, Some(tx), _) => {
                bounded(MOST, "arm", || tx.arm());
                tx.disarm();
                assert!(tx.space() < tx.num_slots());
            }
            (7, _, Some(rx)) => _ = bounded(MOST, "sync", || rx.sync()),
            (8, _, Some(rx)) => {
                let got = bounded(MOST, "recv", || rx.recv(&mut bytes));
                assert!(got.is_none_or(|n| n <= bytes.len()));
            }
            (_, _, Some(rx)) => {
                bounded(MOST, "arm", || rx.arm());
                rx.disarm();
                _ = bounded(MOST, "sync", || rx.sync_header());
                assert!(rx.space() < rx.num_slots());
            }
            _ => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [kind, rest @ ..] = data else { return };
    RIG.with(|rig| {
        let Some(ClientRig { daemon, region, frame }) = rig else { return };
        let Ok(fresh) = region.renewed() else { return };
        let (Ok(port), Ok(peer)) = (fresh.port(SHAPE), fresh.port(SHAPE)) else { return };
        let memory = words(region.mapping());
        let layout = *region.layout();
        let mut input = FuzzInput(meddle(rest, &memory, 0, layout.total as usize / 4));
        let reply = reply(&port, &peer, *kind);
        let answer = answers(&reply, region, &mut input);
        if daemon.answers.send(answer).is_err() {
            return;
        }
        let conn = daemon.conn.as_fd();
        let opened = match kind >> 6 {
            0 => release(conn).map(|()| None),
            1 => resume(conn).map(Some),
            _ => attach(conn, &AttachRequest { name: "vale0:a".into(), ..AttachRequest::default() }).map(Some),
        };
        if let Ok(Some(mut held)) = opened {
            use_rings(&mut held, &memory, frame, &mut input);
        }
        netvale_mem::probe::unwatch();
    });
});
