//! Runs socket ports with peers that send valid and invalid data: streams, cut at any byte, and messages. Frames are
//! sent in both directions. Requests of VDE plugs are parsed, too.
//!
//! Input: a byte that selects the kind of peer, and for each step, a byte that selects the kind of step, and the step's
//! parameters.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_fuzz::{FuzzInput, RingReceiver, copied, fuzz_target};
use netvale_mem::fault::news;
use netvale_port::{Batch, DropReason, Egress, MAX_FRAME, Scratch, Source};
use netvale_socket::vde::PlugRequest;
use netvale_socket::{FrameFormat, FrameRules, SocketLine, SocketPeer};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

const MTU: u32 = 1500;
/// Maximum length of an untagged frame that a peer without a virtio-net header receives.
const LONGEST: usize = 14 + MTU as usize;
/// Number of bytes of the length that precedes a frame in a stream.
const PREFIX: usize = 4;
/// Maximum number of steps of an input.
const STEPS: usize = 32;
/// After this number of reads of the socket, all frames must have arrived. A frame that is cut in two needs three
/// reads.
const LOOKS: usize = 8;

struct FuzzedPeer {
    line: SocketLine,
    egress: Arc<dyn Egress>,
    source: Source,
    socket: OwnedFd,
    format: FrameFormat,
    /// Length of the virtio-net header in bytes.
    header: usize,
    /// The bytes that the port's socket accepted from the peer. For a stream, all bytes are in one element; otherwise
    /// each message is an element.
    sent: Vec<Vec<u8>>,
    /// Frames that the switch received from the peer.
    arrived: Vec<Vec<u8>>,
    /// Frames that the switch sent to the peer.
    delivered: Vec<Vec<u8>>,
    /// The bytes that the peer read, in the same form as `sent`.
    read: Vec<Vec<u8>>,
    scratch: Scratch,
}

thread_local! {
    static RECEIVER: std::cell::RefCell<RingReceiver> = std::cell::RefCell::new(RingReceiver::new().expect("memory"));
}

/// Returns a frame of `len` bytes, but at least 15 bytes, to an unknown address.
fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, number];
    frame.extend((frame.len()..len.max(15)).map(|at| at as u8));
    frame
}

impl FuzzedPeer {
    fn new(format: FrameFormat, header: u32) -> Option<FuzzedPeer> {
        let kind = if format == FrameFormat::Stream { SocketType::STREAM } else { SocketType::SEQPACKET };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, ports) = socketpair(AddressFamily::UNIX, kind, flags, None).ok()?;
        let rules = Arc::new(FrameRules::new(header, MTU));
        let (line, (mut egresses, mut ingresses)) = SocketLine::new(&rules, &news().ok()?).ok()?;
        line.begin(SocketPeer::connected(ports, format), None, None).ok()?;
        let egress = egresses.pop()?;
        let source = Source::new(ingresses.pop()?);
        let header = header as usize;
        let (sent, arrived, delivered, read) = Default::default();
        let scratch = Scratch::new();
        Some(FuzzedPeer { line, egress, source, socket, format, header, sent, arrived, delivered, read, scratch })
    }

    /// Sends bytes to the port. If the socket is nearly full, it accepts only a part of the bytes.
    fn write(&mut self, bytes: &[u8]) {
        let Ok(count) = rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) else { return };
        match self.format {
            FrameFormat::Stream => self.stream().extend_from_slice(&bytes[..count]),
            FrameFormat::Messages => self.sent.push(bytes.to_vec()),
        }
    }

    fn stream(&mut self) -> &mut Vec<u8> {
        if self.sent.is_empty() {
            self.sent.push(Vec::new());
        }
        &mut self.sent[0]
    }

    /// Sends a frame to the port, with a virtio-net header that consists of zeros or of bytes from the input.
    fn send_frame(&mut self, input: &mut FuzzInput<'_>) {
        let len = usize::from(input.half()) * usize::from(1 + (input.byte() & 3)) % (MAX_FRAME + 8);
        let mut bytes = vec![0; self.header];
        let head = input.bytes();
        let count = head.len().min(self.header);
        bytes[..count].copy_from_slice(&head[..count]);
        let whole = frame(0, len);
        bytes.extend(&whole[..len.min(whole.len())]);
        if self.format == FrameFormat::Stream {
            bytes.splice(..0, (bytes.len() as u32).to_be_bytes());
        }
        self.write(&bytes);
    }

    /// Records the frames that have arrived from the peer, and delivers them to the receiver.
    fn receive(&mut self, receiver: &mut RingReceiver) {
        let mut spare = Box::new(Batch::new());
        let batch = self.source.take(&mut spare);
        copied(batch, |bytes| {
            assert!((14..=MAX_FRAME).contains(&bytes.len()));
            self.arrived.push(bytes);
        });
        receiver.deliver(batch);
        self.source.release(&mut spare);
        self.source.woken();
    }

    /// Sends a frame to the peer.
    fn deliver(&mut self, input: &mut FuzzInput<'_>) {
        let sent = frame(self.delivered.len() as u8, 15 + usize::from(input.half()) % 2000);
        let egress = &self.egress;
        let scratch = &mut self.scratch;
        if Batch::new().lend(&sent, |batch| egress.deliver(batch, &[0], scratch)) == 1 {
            self.delivered.push(sent);
        }
    }

    /// Reads everything that the port has sent to the peer.
    fn read(&mut self) {
        let mut bytes = vec![0; PREFIX + self.header + MAX_FRAME];
        while let Ok((count, _)) = rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT)
            && count > 0
        {
            match self.format {
                FrameFormat::Stream if self.read.is_empty() => self.read.push(bytes[..count].to_vec()),
                FrameFormat::Stream => self.read[0].extend_from_slice(&bytes[..count]),
                FrameFormat::Messages => self.read.push(bytes[..count].to_vec()),
            }
        }
    }

    /// Returns the frames, with their headers, in the bytes that one side sent, up to the first invalid length. The
    /// `bool` is whether there is an invalid length or an empty message.
    fn frames(&self, all: &[Vec<u8>]) -> (Vec<Vec<u8>>, bool) {
        if self.format == FrameFormat::Messages {
            return (all.iter().filter(|one| !one.is_empty()).cloned().collect(), all.iter().any(Vec::is_empty));
        }
        let mut rest = all.first().map(Vec::as_slice).unwrap_or_default();
        let mut frames = Vec::new();
        while let Some((length, behind)) = rest.split_first_chunk::<PREFIX>() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > self.header + MAX_FRAME {
                return (frames, true);
            }
            let Some((one, behind)) = behind.split_at_checked(length) else { break };
            frames.push(one.to_vec());
            rest = behind;
        }
        (frames, false)
    }

    /// Checks that all valid frames have arrived in order, and that each invalid frame was counted as a drop.
    fn check_arrived(&self) {
        let (frames, ends) = self.frames(&self.sent);
        let mut rest = frames.iter();
        for one in &self.arrived {
            assert!(rest.any(|sent| sent.get(self.header..) == Some(one)), "a frame that the peer did not send");
        }
        let counters = self.source.ingress().counters();
        let dropped: u64 = DropReason::ALL.iter().map(|why| counters.drops(*why)).sum();
        // A message without bytes counts as a hang-up, after which further messages need not arrive.
        if !ends || self.format == FrameFormat::Stream {
            assert_eq!(self.arrived.len() as u64 + dropped, frames.len() as u64);
        }
        assert_eq!(self.line.over().is_some(), ends, "{:?}", self.line.over());
    }

    /// Checks the frames that the peer has read: the switch sent them to the peer in this order, they are unchanged,
    /// and none is longer than permitted.
    fn check_read(&self) {
        let (frames, is_bad) = self.frames(&self.read);
        assert!(!is_bad);
        let mut rest = self.delivered.iter();
        for one in &frames {
            let (header, bytes) = one.split_at(self.header);
            assert!(header.iter().all(|byte| *byte == 0));
            assert!(self.header > 0 || bytes.len() <= LONGEST);
            assert!(rest.any(|sent| sent == bytes), "a frame that was not sent");
        }
    }
}

fn peer(format: FrameFormat, header: u32, mut input: FuzzInput<'_>) {
    let mut peer = FuzzedPeer::new(format, header).expect("sockets");
    RECEIVER.with_borrow_mut(|receiver| {
        input.steps(STEPS, |input| match input.byte() % 5 {
            0 => peer.write(input.bytes()),
            1 => peer.send_frame(input),
            2 => peer.receive(receiver),
            3 => peer.deliver(input),
            _ => peer.read(),
        });
        let batches = peer.sent.len().max(STEPS) + LOOKS;
        (0..batches).for_each(|_| {
            peer.receive(receiver);
            peer.read();
        });
        peer.check_arrived();
        peer.check_read();
        drop(peer.line.end(None));
    });
}

/// Checks that a valid request of a VDE plug has a usable address and a printable description.
fn plug(bytes: &[u8]) {
    let Ok(request) = PlugRequest::parse(bytes) else { return };
    assert!(request.description.len() <= 134);
    assert!(request.description.chars().all(|c| c.is_ascii_graphic() || c == ' '));
    if let netvale_socket::vde::PlugAddress::Path(path) = request.address {
        assert!(path.is_absolute() && path.as_os_str().len() < 108);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = FuzzInput(data);
    match input.byte() % 4 {
        0 => plug(input.0),
        1 => peer(FrameFormat::Stream, 0, input),
        2 => peer(FrameFormat::Stream, 12, input),
        _ => peer(FrameFormat::Messages, 0, input),
    }
});
