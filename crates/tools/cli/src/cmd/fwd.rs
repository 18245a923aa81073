//! `netvale fwd`: forwards between two ports, as testpmd does.

use netvale_control::types::Mac;
use netvale_mem::RingMem;

use crate::forward::engine::MovedCounts;
use crate::forward::run::{self, ForwardPace};
use crate::{CliContext, CliError};

/// Forward frames between two ports as DPDK's testpmd does.
///
/// Unlike `bridge`, it can change the frames' addresses. If both ports share a region, buffers are swapped. Ctrl-C ends
/// it.
#[derive(Debug, clap::Args)]
pub struct FwdArgs {
    /// A port; given once (frames return to it) or twice.
    #[arg(short = 'i', value_name = "PORT", required = true)]
    pub interface: Vec<String>,

    /// The forwarding mode.
    #[arg(long, value_enum, value_name = "MODE", default_value = "io")]
    pub mode: ForwardMode,

    /// Destination address of the frames in mode mac [default: 02:00:00:00:00:01].
    #[arg(long, value_name = "MAC")]
    pub eth_peer: Option<String>,

    /// Frames per sync (the batch).
    #[arg(short = 'b', long, value_name = "FRAMES", default_value_t = 32, value_parser = crate::values::positive())]
    pub burst: u32,

    /// Never sleep; always poll, as testpmd does.
    #[arg(long)]
    pub poll_always: bool,

    /// Stop after this many frames; 0: no limit.
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 0)]
    pub count: u64,

    /// The options common to all commands that forward frames.
    #[command(flatten)]
    pub usual: run::ForwardOptions,
}

/// testpmd's forwarding modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ForwardMode {
    /// Frames stay unchanged.
    Io,
    /// Source and destination addresses are replaced.
    Mac,
    /// Source and destination addresses are swapped.
    Macswap,
}

/// Runs the subcommand.
///
/// # Errors
/// A port cannot be opened.
pub fn run(args: &FwdArgs, ctx: &CliContext) -> Result<(), CliError> {
    if args.interface.len() > 2 {
        let next = "give -i once (frames return to the same port) or twice";
        return Err(CliError::usage("expected one or two ports", next));
    }
    let mut ports = super::bridge::open(&args.interface, ctx)?;
    let peer = args.eth_peer.as_deref().map(str::parse::<Mac>).transpose();
    let peer = peer.map_err(|e| CliError::usage(format!("--eth-peer: {e}"), "write e.g. 02:00:00:00:00:0a"))?;
    let mut edit = edit(args.mode, peer.map_or([2, 0, 0, 0, 0, 1], |m| m.0));
    let stop = crate::signals::stop_flag()?;
    let pace = ForwardPace { poll_always: args.poll_always, count: args.count, ..args.usual.pace(&stop) };
    let lanes = match &args.interface[..] {
        [a, b] => vec![format!("{a} -> {b}"), format!("{b} -> {a}")],
        one => one.iter().map(|a| format!("{a} -> {a}")).collect(),
    };
    run::forward(&pace, &lanes, &mut ports, |ports, moved| match ports {
        [a, b] => super::bridge::between(a, b, args.burst, true, moved, &mut edit),
        [a] => {
            let (tx, rx) = a.rings();
            let m = super::bridge::rings(rx, tx, args.burst, true, &mut edit);
            if let Some(sum) = moved.first_mut() {
                *sum = MovedCounts { frames: sum.frames + m.frames, bytes: sum.bytes + m.bytes };
            }
            m.frames > 0
        }
        _ => false,
    })
}

/// Returns the function that changes a frame's MAC addresses as the mode requires.
fn edit(mode: ForwardMode, peer: [u8; 6]) -> impl FnMut(&RingMem, u32) {
    // testpmd uses this address for a port without a MAC address.
    let own = [2, 0, 0, 0, 0, 0];
    move |mem, buf| {
        let mut addresses = [0u8; 12];
        match mode {
            ForwardMode::Io => return,
            ForwardMode::Mac => {
                addresses[..6].copy_from_slice(&peer);
                addresses[6..].copy_from_slice(&own);
            }
            ForwardMode::Macswap => {
                mem.read(buf, 0, &mut addresses);
                addresses.rotate_left(6);
            }
        }
        mem.write(buf, 0, &addresses);
    }
}
