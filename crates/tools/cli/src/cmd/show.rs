//! `netvale show`: all details of a port.

use netvale_control::types::{PortInfo, RingInfo};

use crate::grid;
use crate::grid::Align::{Left, Right};
use crate::{CliContext, CliError, kinds, out, units};

/// Show one port: its rings, counters, drops and kicks.
///
/// An "in" ring carries frames into the switch (netmap's tx ring), an "out" ring carries them to the port (netmap's rx
/// ring). HEAD, CUR and TAIL are the application's, HWCUR and HWTAIL the daemon's. Kicks: SENT to the application,
/// SAVED because the application had not armed them, GOT from the application.
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// The port: SWITCH:NAME, e.g. vale0:a.
    pub port: String,

    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or the port does not exist.
pub fn run(args: &ShowArgs, ctx: &CliContext) -> Result<(), CliError> {
    let port = ctx.daemon()?.ask(|client| client.show(&args.port))?;
    if args.json { out::json(&port) } else { out::text(render(&port, out::width())) }
}

fn render(port: &PortInfo, width: Option<usize>) -> String {
    let mut text = format!("{}: {}\n", port.name, about(port).join(", "));
    if let Some(region) = &port.region {
        let pages = if region.huge { "huge pages" } else { "ordinary pages" };
        let buffers = format!("{} buffers of {} bytes", region.bufs, region.buf_size);
        text += &format!("    region {}: {} in {pages}, {buffers}\n", region.id, units::memory(region.bytes));
    }
    if !port.policies.is_empty() {
        text.push_str(&format!("    policies: {}\n", super::port::told(port)));
    }
    text.extend(port.detail.as_ref().and_then(kinds::facts).map(|facts| format!("    {facts}\n")));
    text.extend(port.notes.iter().map(|note| format!("    note: {}\n", note.replace(char::is_control, "?"))));
    if !port.rings.is_empty() {
        text.push_str(&format!("\n{}", rings(&port.rings, width)));
    }
    if !port.rules.is_empty() {
        text.push_str(&format!("\n{}", super::filter::render(port)));
    }
    text.extend(port.detail.as_ref().and_then(kinds::table).map(|table| format!("\n{table}")));
    let drops = drops(&port.rings);
    if !drops.is_empty() {
        let heads = [("DROPS", Left), ("RING", Left), ("FRAMES", Right)];
        text.push_str(&format!("\n{}", grid::render(heads, drops)));
    }
    let idle: u64 = port.rings.iter().map(|ring| ring.idle).sum();
    if idle > 0 {
        text.push_str(&format!("\nidle: {idle} frames arrived while there was no receiver; these are not drops\n"));
    }
    text
}

fn about(port: &PortInfo) -> Vec<String> {
    let mut about = vec![port.kind.to_string(), port.state.to_string()];
    about.extend(port.owner.as_ref().map(|owner| format!("made by uid {} pid {}", owner.uid, owner.pid)));
    about.extend((port.vnet_hdr > 0).then(|| format!("virtio-net header of {} bytes", port.vnet_hdr)));
    about.extend(port.lossless.then(|| "lossless".to_owned()));
    about
}

fn name(ring: &RingInfo) -> String {
    format!("{} {}", ring.dir, ring.index)
}

/// Columns that are omitted on a narrow terminal, beginning with the first.
const SPARE: [&str; 9] = ["HWCUR", "HWTAIL", "CUR", "WORKER", "GOT", "SAVED", "SENT", "SLOTS", "BYTES"];
/// Columns of slots and their indices, which only netmap rings have.
const INDICES: [&str; 6] = ["SLOTS", "HEAD", "CUR", "TAIL", "HWCUR", "HWTAIL"];
/// Columns of frames, kicks (notifications) and workers, which all rings have.
const COUNTS: [&str; 7] = ["FRAMES", "BYTES", "DROPS", "SENT", "SAVED", "GOT", "WORKER"];

/// Formats rings; slots and indices are shown only for netmap rings.
fn rings(rings: &[RingInfo], width: Option<usize>) -> String {
    let indices = if rings.iter().any(|ring| ring.slots > 0) { &INDICES[..] } else { &[] };
    let numbers = indices.iter().chain(&COUNTS).map(|head| (*head, Right));
    let heads: Vec<_> = [("RING", Left)].into_iter().chain(numbers).collect();
    let row = |ring: &RingInfo| {
        let of_slots = [ring.slots, ring.head, ring.cur, ring.tail, ring.hwcur, ring.hwtail].map(u64::from);
        let counts = [ring.frames, ring.bytes, ring.drops.values().sum()];
        let kicks = [ring.kicks_sent, ring.kicks_suppressed, ring.kicks_received];
        let numbers = of_slots[..indices.len()].iter().chain(&counts).chain(&kicks).map(u64::to_string);
        let worker = ring.worker.map_or_else(|| "-".to_owned(), |worker| worker.to_string());
        [name(ring)].into_iter().chain(numbers).chain([worker]).collect::<Vec<_>>()
    };
    grid::render_within(heads, rings.iter().map(row), &SPARE, width)
}

/// Formats a line per drop reason and ring.
fn drops(rings: &[RingInfo]) -> Vec<[String; 3]> {
    let of_ring = |ring: &RingInfo| {
        let name = name(ring);
        ring.drops.iter().map(|(why, frames)| [why.clone(), name.clone(), frames.to_string()]).collect::<Vec<_>>()
    };
    rings.iter().flat_map(of_ring).collect()
}

#[cfg(test)]
mod tests {
    use netvale_control::types::{Direction, Owner, RegionInfo};

    use super::*;

    /// Objective: everything about a port is shown: memory, rings, kicks, drops by name, notes.
    #[test]
    fn everything_about_a_port_is_shown() {
        let ring = RingInfo {
            slots: 1024,
            tail: 1000,
            hwtail: 1023,
            frames: 5,
            bytes: 300,
            kicks_sent: 1,
            kicks_suppressed: 2,
            kicks_received: 3,
            worker: Some(0),
            ..RingInfo::default()
        };
        let full =
            RingInfo { dir: Direction::Out, drops: [("no-room".to_owned(), 7)].into(), worker: None, ..ring.clone() };
        let port = PortInfo {
            name: "vale0:a".into(),
            owner: Some(Owner { uid: 0, pid: 9 }),
            region: Some(RegionInfo { id: 2, bytes: 4 << 20, buf_size: 2112, bufs: 2050, huge: false }),
            vnet_hdr: 12,
            lossless: true,
            rings: vec![ring, full],
            notes: vec!["buffer used twice".into()],
            ..PortInfo::default()
        };
        let expected = "\
vale0:a: local, idle, made by uid 0 pid 9, virtio-net header of 12 bytes, lossless
    region 2: 4.0 MiB in ordinary pages, 2050 buffers of 2112 bytes
    note: buffer used twice

RING   SLOTS  HEAD  CUR  TAIL  HWCUR  HWTAIL  FRAMES  BYTES  DROPS  SENT  SAVED  GOT  WORKER
in 0    1024     0    0  1000      0    1023       5    300      0     1      2    3       0
out 0   1024     0    0  1000      0    1023       5    300      7     1      2    3       -

DROPS    RING   FRAMES
no-room  out 0       7
";
        assert_eq!(render(&port, None), expected);
    }

    /// Objective: a ring that is not a netmap ring is shown without indices.
    #[test]
    fn a_ring_without_slots_has_no_indices() {
        let ring = RingInfo { frames: 5, bytes: 300, worker: Some(0), ..RingInfo::default() };
        let expected = "\
RING  FRAMES  BYTES  DROPS  SENT  SAVED  GOT  WORKER
in 0       5    300      0     0      0    0       0
";
        assert_eq!(rings(&[ring], None), expected);
    }
}
