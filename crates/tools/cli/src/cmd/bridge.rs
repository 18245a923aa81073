//! `netvale bridge`: joins two ports.

use netvale::{Options, Port, RxRing, TxRing};
use netvale_mem::RingMem;

use crate::forward::engine::{MovedCounts, move_frames};
use crate::forward::run::{self, ForwardPace};
use crate::{CliContext, CliError};

/// Move frames between two ports in both directions: netmap's bridge.
///
/// If both ports share a region, buffers are swapped and nothing is copied. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
pub struct BridgeArgs {
    /// A port; give it twice.
    #[arg(short = 'i', value_name = "PORT", required = true)]
    pub interface: Vec<String>,

    /// Frames per sync (the batch).
    #[arg(short = 'b', value_name = "FRAMES", default_value_t = 1024, value_parser = crate::values::positive())]
    pub burst: u32,

    /// Seconds to wait before the first frame.
    #[arg(short = 'w', value_name = "S", default_value_t = 0)]
    pub wait_link: u32,

    /// Copy, even where buffers could be swapped.
    #[arg(short = 'c')]
    pub copy: bool,

    /// Never sleep; always poll.
    #[arg(long)]
    pub poll_always: bool,

    /// Print more details.
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// The options common to all commands that forward frames.
    #[command(flatten)]
    pub usual: run::ForwardOptions,
}

/// Runs the subcommand.
///
/// # Errors
/// A port cannot be opened.
pub fn run(args: &BridgeArgs, ctx: &CliContext) -> Result<(), CliError> {
    let [a, b] = &args.interface[..] else {
        return Err(CliError::usage("expected two ports", "give -i twice; VALE ports have no host rings to join"));
    };
    let mut ports = open(&args.interface, ctx)?;
    if args.verbose > 0 {
        ports.iter_mut().for_each(run::describe);
    }
    let stop = crate::signals::stop_flag()?;
    run::wait_link(args.wait_link, &stop);
    let pace = ForwardPace { poll_always: args.poll_always, ..args.usual.pace(&stop) };
    let names = [format!("{a} -> {b}"), format!("{b} -> {a}")];
    run::forward(&pace, &names, &mut ports, |ports, moved| {
        let [a, b] = ports else { return false };
        between(a, b, args.burst, !args.copy, &mut moved[..], |_, _| {})
    })
}

/// Opens the ports of a command that forwards frames.
///
/// # Errors
/// A port cannot be opened; the error is about the first such port.
pub(super) fn open(names: &[String], ctx: &CliContext) -> Result<Vec<Port>, CliError> {
    names.iter().map(|name| ctx.open_port(name, Options::default())).collect()
}

/// Performs one round of moving frames in both directions. Frames from ring k of one port go to ring k of the other
/// port, modulo the number of that port's rings. Returns whether any frame moved.
pub(super) fn between(
    a: &mut Port,
    b: &mut Port,
    burst: u32,
    swap: bool,
    moved: &mut [MovedCounts],
    mut edit: impl FnMut(&RingMem, u32),
) -> bool {
    let (a_tx, a_rx) = a.rings();
    let (b_tx, b_rx) = b.rings();
    let forth = rings(a_rx, b_tx, burst, swap, &mut edit);
    let back = rings(b_rx, a_tx, burst, swap, &mut edit);
    for (sum, new) in moved.iter_mut().zip([forth, back]) {
        *sum = MovedCounts { frames: sum.frames + new.frames, bytes: sum.bytes + new.bytes };
    }
    forth.frames + back.frames > 0
}

/// Moves up to `burst` frames from each receive ring to the transmit rings. Returns the counts of the moved frames.
pub(super) fn rings(
    from: &mut [RxRing],
    to: &mut [TxRing],
    burst: u32,
    swap: bool,
    edit: &mut impl FnMut(&RingMem, u32),
) -> MovedCounts {
    let mut sum = MovedCounts::default();
    let n = to.len().max(1);
    for (k, rx) in from.iter_mut().enumerate() {
        let _ = rx.sync();
        let Some(tx) = to.get_mut(k % n) else { continue };
        let m = move_frames(rx, tx, burst, swap, &mut *edit);
        if m.frames > 0 {
            let _ = rx.sync();
            sum = MovedCounts { frames: sum.frames + m.frames, bytes: sum.bytes + m.bytes };
        }
    }
    sum
}
