//! Formats `top` as plain text.

use super::state::TopState;
use crate::grid::{self, Align};
use crate::rates::PortRates;
use crate::units;

/// The column headings. "IN" means into the switch, "OUT" out of the switch.
pub const HEADS: [(&str, Align); 7] = [
    ("PORT", Align::Left),
    ("IN pps", Align::Right),
    ("IN bit/s", Align::Right),
    ("OUT pps", Align::Right),
    ("OUT bit/s", Align::Right),
    ("DROPS/s", Align::Right),
    ("KICKS/PKT", Align::Right),
];

/// Returns a port's cells under [`HEADS`].
pub fn row(port: &PortRates) -> [String; 7] {
    let kicks = port.kicks_per_packet.map_or_else(|| "-".to_owned(), |kicks| format!("{kicks:.4}"));
    let [a, b, c, d, drops] = [port.in_pps, port.in_bps, port.out_pps, port.out_bps, port.drops_ps].map(units::column);
    [port.port.clone(), a, b, c, d, drops, kicks]
}

/// Formats one reading: workers, then ports, then an empty line.
pub fn render(state: &TopState) -> String {
    let rates = &state.rates;
    let shares = rates.workers_busy.iter().zip(&rates.workers_lost).enumerate();
    let workers = shares.map(|(index, (busy, lost))| match lost {
        1.0.. => format!("  worker {index} {busy:.1} % busy, {lost:.1} % lost to other threads"),
        _ => format!("  worker {index} {busy:.1} % busy"),
    });
    let head = format!("{} ports over {:.2} s{}\n", rates.ports.len(), rates.seconds, workers.collect::<String>());
    let rows = rates.ports.iter().chain([&state.total()]).map(row).collect::<Vec<_>>();
    format!("{head}{}\n", grid::render(HEADS, rows))
}
