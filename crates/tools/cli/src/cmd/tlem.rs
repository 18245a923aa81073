//! `netvale tlem`: joins two ports by an emulated link, with the options of netmap's tlem.

use std::time::Instant;

use netvale::{RxRing, TxRing};
use netvale_policy::impair::tlem;

use super::bridge::open;
use crate::forward::engine::{MovedCounts, frame_at};
use crate::forward::run;
use crate::forward::under_way::LinkDirection;
use crate::{CliContext, CliError};

/// Join two ports by an emulated link: netmap's tlem.
///
/// An option given once applies to both directions; if given twice, the second is for the reverse direction. Frames in
/// flight are kept in the program's own memory, 64 MiB for each direction; while there are any, the program polls.
/// `netvale link` does the same for a port of a switch, without a program.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct TlemArgs {
    /// A port; give it twice.
    #[arg(short = 'i', value_name = "PORT", required = true)]
    pub interface: Vec<String>,

    /// Delay in seconds, or with a unit: T or constant,T; uniform,MIN,MAX; exp,AVG,MIN.
    #[arg(short = 'D', value_name = "DELAY")]
    pub delay: Vec<String>,

    /// Bandwidth in bits a second: RATE or constant,RATE; ether,RATE with framing.
    #[arg(short = 'B', value_name = "BANDWIDTH")]
    pub bandwidth: Vec<String>,

    /// Losses: PART or plr,PART of frames; ber,PART of bits.
    #[arg(short = 'L', value_name = "LOSS")]
    pub loss: Vec<String>,

    /// Bytes that may wait for the bandwidth.
    #[arg(short = 'Q', value_name = "BYTES")]
    pub queue: Vec<String>,

    /// Frames per sync (the batch).
    #[arg(short = 'b', value_name = "FRAMES", default_value_t = 256, value_parser = crate::values::positive())]
    pub burst: u32,

    /// Seed of the random numbers, for repeatable losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print more details.
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// The options common to all commands that forward frames.
    #[command(flatten)]
    pub usual: run::ForwardOptions,
}

const EXAMPLES: &str = "\
Examples:
  netvale tlem -i vale0:a -i vale1:b -D 20ms -B 100m
  netvale tlem -i netmap:eth1 -i netmap:eth2 -D uniform,5ms,15ms -L plr,0.01 -B 1g -B 10m
";

/// Runs the subcommand.
///
/// # Errors
/// tlem has no such option, or a port cannot be opened.
pub fn run(args: &TlemArgs, ctx: &CliContext) -> Result<(), CliError> {
    let [a, b] = &args.interface[..] else {
        return Err(CliError::usage("expected two ports", "give -i twice"));
    };
    let mut links = links(args)?;
    let mut ports = open(&args.interface, ctx)?;
    if args.verbose > 0 {
        ports.iter_mut().for_each(run::describe);
    }
    let stop = crate::signals::stop_flag()?;
    let pace = args.usual.pace(&stop);
    let begun = Instant::now();
    let names = [format!("{a} -> {b}"), format!("{b} -> {a}")];
    run::forward(&pace, &names, &mut ports, |ports, moved| {
        let [a, b] = ports else { return false };
        let (a_tx, a_rx) = a.rings();
        let (b_tx, b_rx) = b.rings();
        let ways = [(a_rx, b_tx), (b_rx, a_tx)];
        let mut any = false;
        for ((link, (rx, tx)), sum) in links.iter_mut().zip(ways).zip(moved) {
            let new = round(link, rx, tx, args.burst, begun);
            *sum = MovedCounts { frames: sum.frames + new.frames, bytes: sum.bytes + new.bytes };
            any |= new.frames > 0 || !link.is_empty();
        }
        any
    })?;
    for (name, link) in names.iter().zip(&links) {
        netvale_control::note!("{name}: {} frames lost as configured, {} for lack of room", link.lost, link.full);
    }
    Ok(())
}

fn links(args: &TlemArgs) -> Result<[LinkDirection; 2], CliError> {
    let options = [("-D", &args.delay), ("-B", &args.bandwidth), ("-L", &args.loss), ("-Q", &args.queue)];
    let words = options.iter().flat_map(|(flag, values)| values.iter().flat_map(move |value| [*flag, value.as_str()]));
    let specs = tlem::directions(words).map_err(|why| CliError::usage(why.to_string(), "see 'netvale tlem --help'"))?;
    let [forth, back] = &specs;
    Ok([LinkDirection::new(forth, args.seed), LinkDirection::new(back, args.seed.wrapping_add(1))])
}

/// Stores received frames, and sends stored frames whose time has come. Returns the counts of sent frames.
fn round(link: &mut LinkDirection, rx: &mut [RxRing], tx: &mut [TxRing], burst: u32, begun: Instant) -> MovedCounts {
    let now = begun.elapsed().as_nanos() as u64;
    for rx in rx {
        let _ = rx.sync();
        let mut taken = 0;
        while taken < burst
            && let Some((_, bytes)) = frame_at(rx, 0)
        {
            link.put(now, bytes as usize, |memory| {
                let _ = rx.recv(memory);
            });
            taken += 1;
        }
        if taken > 0 {
            let _ = rx.sync();
        }
    }
    let mut moved = MovedCounts::default();
    let Some(tx) = tx.first_mut() else { return moved };
    while moved.frames < burst.into()
        && let Some(len) = link.send_next(now, |frame| tx.send(frame))
    {
        moved = MovedCounts { frames: moved.frames + 1, bytes: moved.bytes + len as u64 };
    }
    if moved.frames > 0 {
        tx.sync();
    }
    moved
}
