//! `netvale lb`: spreads one port's frames over pipes.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use netvale::{Options, Port, RxRing, TxRing};
use netvale_wire::flow::{FlowKey, spread};

use crate::forward::engine::{MovedCounts, frame_at, move_slot};
use crate::forward::run;
use crate::{CliContext, CliError};

/// Spread a port's frames over pipes by a hash of their flow: netmap's lb.
///
/// Both directions of a connection go to the same pipe. Programs open the pipes' other ends: PORT}0, PORT}1 and so on.
/// Frames are not copied. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
pub struct LbArgs {
    /// The port.
    #[arg(short = 'i', value_name = "PORT")]
    pub interface: String,

    /// Number of pipes.
    #[arg(
        short = 'p', long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub pipes: u32,

    /// Number of frames to hold for slow readers, over all pipes. A held frame is a copy.
    #[arg(
        short = 'B', long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=1_000_000)
    )]
    pub extra_bufs: u32,

    /// Frames per sync (the batch).
    #[arg(short = 'b', value_name = "FRAMES", default_value_t = 512, value_parser = crate::values::positive())]
    pub burst: u32,

    /// Seconds to wait before the first frame.
    #[arg(short = 'w', value_name = "S", default_value_t = 0)]
    pub wait_link: u32,

    /// The options common to all commands that forward frames.
    #[command(flatten)]
    pub usual: run::ForwardOptions,
}

/// Runs the subcommand.
///
/// # Errors
/// The port or a pipe cannot be opened.
pub fn run(args: &LbArgs, ctx: &CliContext) -> Result<(), CliError> {
    let open = |name: &str| ctx.open_port(name, Options { pipes: args.pipes, ..Options::default() });
    let input = open(&args.interface)?;
    let header = input.info().hdr_len as usize;
    let held = (args.extra_bufs / args.pipes) as usize;
    let output = |k: u32| {
        open(&format!("{}{{{k}", args.interface)).map(|port| PipeOutput { port, waiting: VecDeque::new(), most: held })
    };
    let mut spreader = Spreader {
        key: FlowKey::new([RandomState::new().hash_one(0), RandomState::new().hash_one(1)]),
        header,
        burst: args.burst,
        outputs: (0..args.pipes).map(output).collect::<Result<_, _>>()?,
        frame: vec![0; LONGEST],
    };
    let stop = crate::signals::stop_flag()?;
    run::wait_link(args.wait_link, &stop);
    let pace = args.usual.pace(&stop);
    let lane = |what: &str| (0..args.pipes).map(|k| format!("{}}}{k}{what}", args.interface)).collect::<Vec<_>>();
    let names = [lane(""), lane(" dropped")].concat();
    run::forward(&pace, &names, &mut [input], |ports, moved| spreader.round(ports, moved))?;
    spreader.outputs.iter_mut().flat_map(|output| output.port.tx()).for_each(|ring| _ = run::drain(ring));
    Ok(())
}

/// Maximum length of a frame in bytes, with its virtio-net header.
const LONGEST: usize = 65_562;
/// This many bytes from the start of a frame contain the addresses and ports of the frame's flow, even if the frame has
/// VLAN tags and IP options.
const HEAD: usize = 160;

/// A pipe, and the frames that wait for room in it.
struct PipeOutput {
    port: Port,
    waiting: VecDeque<Vec<u8>>,
    /// Maximum number of waiting frames.
    most: usize,
}

impl PipeOutput {
    /// Sends waiting frames. Returns whether frames are still waiting.
    fn catch_up(&mut self) -> bool {
        let Some(tx) = self.port.tx().first_mut() else { return false };
        while let Some(frame) = self.waiting.front() {
            if !tx.send(frame) {
                break;
            }
            self.waiting.pop_front();
        }
        !self.waiting.is_empty()
    }

    /// Sends the frame of `slots` slots that begins `at` slots after the head of `rx`, or queues it if the pipe is
    /// full. Returns `false` if the frame was dropped because the queue is full, too. If both rings are in one memory
    /// region, buffers are swapped instead of copied.
    fn take(&mut self, rx: &RxRing, at: u32, slots: u32, room: &mut [u8]) -> bool {
        let Some(tx) = self.port.tx().first_mut() else { return false };
        if self.waiting.is_empty() && rx.mem().shares_buffers_with(tx.mem()) && tx.space() >= slots {
            for k in 0..slots {
                move_slot(rx, rx.at(at + k), tx, tx.at(k), true);
            }
            tx.advance(slots);
            return true;
        }
        let len = read_frame(rx, at, slots, room);
        let frame = room.get(..len).unwrap_or_default();
        if self.waiting.is_empty() && tx.send(frame) {
            return true;
        }
        let has_room = self.waiting.len() < self.most;
        if has_room {
            self.waiting.push_back(frame.to_vec());
        }
        has_room
    }
}

/// Copies a frame of several slots. Returns the number of copied bytes, at most the length of `room`.
fn read_frame(rx: &RxRing, at: u32, slots: u32, room: &mut [u8]) -> usize {
    let mut len = 0;
    for k in 0..slots {
        let slot = rx.slot(rx.at(at + k));
        let Some(part) = room.get_mut(len..len + usize::from(slot.len)) else { break };
        if rx.mem().read(slot.buf_idx, 0, part) {
            len += usize::from(slot.len);
        }
    }
    len
}

/// Spreads received frames over the pipes.
struct Spreader {
    key: FlowKey,
    /// Bytes of virtio-net header before each frame.
    header: usize,
    burst: u32,
    outputs: Vec<PipeOutput>,
    frame: Vec<u8>,
}

impl Spreader {
    fn round(&mut self, ports: &mut [Port], moved: &mut [MovedCounts]) -> bool {
        let mut any = self.outputs.iter_mut().fold(false, |any, output| output.catch_up() | any);
        for rx in ports.iter_mut().flat_map(Port::rx) {
            let _ = rx.sync();
            let taken = self.spread(rx, moved);
            if taken > 0 {
                // The pipes are synced before the receive ring's head moves: after a swap, a pipe's slots refer to
                // buffers that the receive ring releases when its head moves.
                self.outputs.iter_mut().flat_map(|output| output.port.tx()).for_each(TxRing::sync);
                rx.advance(taken);
                let _ = rx.sync();
                any = true;
            }
        }
        self.outputs.iter_mut().flat_map(|output| output.port.tx()).for_each(TxRing::sync);
        any
    }

    /// Distributes at most one burst of received frames. Returns the number of slots that they occupy.
    fn spread(&mut self, rx: &RxRing, moved: &mut [MovedCounts]) -> u32 {
        let mut at = 0;
        let mut frames = 0;
        while frames < self.burst
            && let Some((slots, bytes)) = frame_at(rx, at)
        {
            let pipe = self.pipe_of(rx, at);
            let pipes = self.outputs.len();
            let Some(output) = self.outputs.get_mut(pipe) else { break };
            let lane = if output.take(rx, at, slots, &mut self.frame) { pipe } else { pipes + pipe };
            if let Some(sum) = moved.get_mut(lane) {
                *sum = MovedCounts { frames: sum.frames + 1, bytes: sum.bytes + bytes };
            }
            at += slots;
            frames += 1;
        }
        at
    }

    /// Returns the index of the pipe for the flow of the frame that begins `at` slots after the head of `rx`.
    fn pipe_of(&self, rx: &RxRing, at: u32) -> usize {
        let slot = rx.slot(rx.at(at));
        let mut head = [0u8; HEAD];
        let len = usize::from(slot.len).min(HEAD);
        let known = rx.mem().read(slot.buf_idx, 0, &mut head[..len]);
        let frame = head[..len].get(self.header..).filter(|_| known).unwrap_or_default();
        spread(self.key.hash(frame), self.outputs.len() as u32) as usize
    }
}
