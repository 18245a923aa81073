//! The views other than ports: drops by reason, workers, latency, and a port's rings, each drawn from its first slot to
//! its last.

use netvale_control::types::{PortInfo, RingInfo};
use ratatui::layout::{Alignment, Constraint};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table};

use super::drops::DropRow;
use super::latency::LatencyRow;
use super::state::TopState;
use super::workers::WorkerShares;
use crate::units;

pub(super) const DIM: Style = Style::new().fg(Color::DarkGray);
pub(super) const HEAD: Style = Style::new().add_modifier(Modifier::REVERSED);
/// Width of a worker's bar in cells.
const BAR: usize = 20;

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(Alignment::Right))
}

/// Lists drop reasons, the ports that drop, rates and counts.
pub fn drops(state: &TopState) -> Table<'static> {
    let row = |row: &DropRow| {
        let rate = row.rate.map_or_else(|| "-".to_owned(), units::column);
        let style = if row.rate.is_some_and(|rate| rate > 0.0) { Style::new().fg(Color::Red) } else { DIM };
        let cells = [
            row.port.clone().into(),
            row.reason.clone().into(),
            row.dir.as_str().into(),
            right(rate),
            right(row.frames.to_string()),
        ];
        Row::new(cells).style(style)
    };
    let heads =
        Row::new(["PORT".into(), "REASON".into(), "DIR".into(), right("DROPS/s".into()), right("DROPS".into())]);
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Length(3),
        Constraint::Length(8),
        Constraint::Length(14),
    ];
    Table::new(state.drops.iter().skip(state.scroll).map(row), widths).header(heads.style(HEAD)).column_spacing(1)
}

/// Lists the latency of each port's timed frames.
pub fn latency(state: &TopState) -> Table<'static> {
    let row = |row: &LatencyRow| {
        let frames = right(row.frames.to_string());
        let [mean, half, most, all] = [row.mean_ns, row.half_ns, row.p99_ns, row.most_ns].map(|time| right(said(time)));
        Row::new([row.port.clone().into(), frames, mean, half, most, all])
    };
    let heads = ["TIMED", "MEAN", "50%", "99%", "100%"].map(|head| right(head.to_owned()));
    let heads = Row::new(std::iter::once("PORT".into()).chain(heads)).style(HEAD);
    let widths = [Constraint::Fill(2), Constraint::Length(10)].into_iter().chain([Constraint::Length(9); 4]);
    let rows: Vec<_> = if state.latency.is_empty() {
        vec![Row::new(["no frame was timed recently"]).style(DIM)]
    } else {
        state.latency.iter().skip(state.scroll).map(row).collect()
    };
    Table::new(rows, widths).header(heads).column_spacing(1)
}

/// Formats a latency; `None` means that it exceeds the histogram's last bound, 1 s.
fn said(ns: Option<u64>) -> String {
    ns.map_or_else(|| "> 1s".to_owned(), |ns| format!("{:.3?}", std::time::Duration::from_nanos(ns)))
}

/// Lists how each worker spends its time.
pub fn workers(state: &TopState) -> Table<'static> {
    let row = |shares: &WorkerShares| {
        let worker = &shares.worker;
        let numbers = [shares.busy, shares.lost, shares.polled, shares.waited, shares.slept];
        let [busy, lost, polled, waited, slept] = numbers.map(|share| right(format!("{share:.1}")));
        let cpu = worker.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string());
        let [index, queues, stalls] =
            [u64::from(worker.index), worker.ingresses, worker.stalls].map(|number| right(number.to_string()));
        Row::new([index, right(cpu), bar(numbers).into(), busy, lost, polled, waited, slept, queues, stalls])
    };
    let heads = ["WORKER", "CPU", "", "BUSY%", "LOST%", "POLL%", "WAIT%", "SLEEP%", "QUEUES", "STALLS"];
    let heads = Row::new(heads.map(|head| right(head.to_owned()))).style(HEAD);
    let widths = [6, 3, BAR as u16, 5, 5, 5, 5, 6, 6, 6].map(Constraint::Length);
    Table::new(state.workers.iter().skip(state.scroll).map(row), widths).header(heads).column_spacing(1)
}

/// Draws a worker's time as a bar divided into its parts.
fn bar(shares: [f64; 5]) -> Line<'static> {
    let looks = [("#", Color::Green), ("x", Color::Yellow), ("~", Color::Blue), ("w", Color::Magenta)];
    let mut left = BAR;
    let mut spans = Vec::new();
    for ((mark, color), share) in looks.into_iter().zip(shares) {
        // The result is between 0 and `BAR`, since the values are percentages.
        let cells = ((share / 100.0 * BAR as f64).round() as usize).min(left);
        left -= cells;
        spans.push(Span::styled(mark.repeat(cells), Style::new().fg(color)));
    }
    spans.push(Span::styled(".".repeat(left), DIM));
    Line::from(spans)
}

/// Draws the rings of the chosen port.
pub fn rings(state: &TopState, width: u16) -> Vec<Line<'static>> {
    let name = state.chosen.clone().unwrap_or_else(|| "no port".to_owned());
    let mut lines = vec![Line::from(vec![
        Span::styled(name, Style::new().add_modifier(Modifier::BOLD)),
        Span::styled("  left/right: other ports", DIM),
    ])];
    lines.push(legend());
    match &state.port {
        Some(port) => lines.extend(port.rings.iter().flat_map(|ring| one(ring, width))),
        None => lines.push(Line::styled("this port no longer exists", DIM)),
    }
    lines.extend(state.port.iter().flat_map(notes));
    lines.into_iter().skip(state.scroll.min(1_000)).collect()
}

fn legend() -> Line<'static> {
    let parts = [OWN, GIVEN, RELEASED].map(|(mark, color, text)| {
        [Span::styled(mark, Style::new().fg(color)), Span::styled(format!(" {text}   "), DIM)]
    });
    Line::from([parts.concat(), vec![Span::styled("h head  c cur  t tail", DIM)]].concat())
}

/// Mark, color and meaning of slots that belong to the program.
const OWN: (&str, Color, &str) = ("=", Color::Blue, "the program's");
/// Mark, color and meaning of slots that the program may take at its next sync.
const GIVEN: (&str, Color, &str) = ("+", Color::Cyan, "available to it");
/// Mark, color and meaning of slots that the program has released but the daemon has not taken yet.
const RELEASED: (&str, Color, &str) = ("o", Color::Yellow, "released, not yet taken");

fn notes(port: &PortInfo) -> Vec<Line<'static>> {
    port.notes.iter().map(|note| Line::from(format!("note: {}", note.replace(char::is_control, "?")))).collect()
}

/// Draws a ring: its indices, its slots from first to last, and the positions of the program's indices.
fn one(ring: &RingInfo, width: u16) -> Vec<Line<'static>> {
    let worker = ring.worker.map_or_else(String::new, |worker| format!("  worker {worker}"));
    let title = format!("{} {}", ring.dir, ring.index);
    if ring.slots == 0 {
        return vec![Line::from(format!("{title}  no netmap ring  {} frames{worker}", ring.frames))];
    }
    let indices = format!(
        "{title}  {} slots  head {}  cur {}  tail {}  hwcur {}  hwtail {}{worker}",
        ring.slots, ring.head, ring.cur, ring.tail, ring.hwcur, ring.hwtail
    );
    let cells = u32::from(width).clamp(8, 128).min(ring.slots);
    vec![Line::from(indices), slots(ring, cells), marks(ring, cells)]
}

fn slots(ring: &RingInfo, cells: u32) -> Line<'static> {
    let look = |cell: u32| {
        let slot = (u64::from(cell) * u64::from(ring.slots) / u64::from(cells)) as u32;
        let within =
            |from: u32, to: u32| if from <= to { (from..to).contains(&slot) } else { slot >= from || slot < to };
        match slot {
            _ if within(ring.head, ring.tail) => (OWN.0, Style::new().fg(OWN.1)),
            _ if within(ring.tail, ring.hwtail) => (GIVEN.0, Style::new().fg(GIVEN.1)),
            _ if within(ring.hwcur, ring.head) => (RELEASED.0, Style::new().fg(RELEASED.1)),
            _ => (".", DIM),
        }
    };
    (0..cells).map(look).map(|(mark, style)| Span::styled(mark, style)).collect()
}

/// Draws the line of marks. If indices coincide, head precedes cur, and cur precedes tail.
fn marks(ring: &RingInfo, cells: u32) -> Line<'static> {
    let mut line = vec![' '; cells as usize];
    for (mark, index) in [('t', ring.tail), ('c', ring.cur), ('h', ring.head)] {
        let at = u64::from(index) * u64::from(cells) / u64::from(ring.slots);
        // A program writes these indices, so they may exceed the ring's size.
        if let Some(place) = line.get_mut(at as usize) {
            *place = mark;
        }
    }
    Line::from(line.into_iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &Line<'_>) -> String {
        line.spans.iter().map(|span| span.content.as_ref()).collect()
    }

    /// Objective: slots are marked by their owner, even if an owner's slots wrap around the end of the ring; an index
    /// that exceeds the ring's size is not drawn.
    #[test]
    fn slots_are_marked_by_owner() {
        let ring = RingInfo { slots: 16, head: 12, cur: 14, tail: 2, hwcur: 10, hwtail: 4, ..RingInfo::default() };
        assert_eq!(text(&slots(&ring, 16)), "==++......oo====");
        assert_eq!(text(&marks(&ring, 16)), "  t         h c ");
        let wild = RingInfo { cur: u32::MAX, ..ring.clone() };
        assert_eq!(text(&marks(&wild, 16)), "  t         h   ");
        let big = RingInfo { slots: 1024, tail: 1023, ..RingInfo::default() };
        assert!(one(&big, 40)[1..].iter().all(|line| text(line).len() == 40));
        let queue = RingInfo { frames: 7, ..RingInfo::default() };
        assert_eq!(text(&one(&queue, 40)[0]), "in 0  no netmap ring  7 frames");
    }

    /// Objective: the parts of a bar always fill its width.
    #[test]
    fn a_bar_is_always_full() {
        assert_eq!(text(&bar([30.0, 10.0, 10.0, 20.0, 30.0])), "######xx~~wwww......");
        assert_eq!(text(&bar([100.0, 100.0, 0.0, 0.0, 0.0])), "#".repeat(BAR));
        assert_eq!(text(&bar([0.0; 5])), ".".repeat(BAR));
    }
}
