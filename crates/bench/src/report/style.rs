//! How the plots look: one size, one font, ours in one strong solid line, peers dashed in other colours.

use plotters::prelude::{DrawingBackend, EmptyElement, IntoDynElement, PathElement};
use plotters::style::{Color, RGBColor, ShapeStyle};

/// Width and height of a plot, pixels.
pub const SIZE: (u32, u32) = (860, 520);
/// The font of all text.
pub const FONT: &str = "sans-serif";

const OURS: RGBColor = RGBColor(0, 90, 181);
/// Distinguishable for the colour-blind too (after Okabe and Ito), and dashed.
const PEERS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(120, 120, 120),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];

/// One contender's looks.
#[derive(Clone, Copy)]
pub struct Look {
    /// Line and marker.
    pub line: ShapeStyle,
    /// Range bars: the same colour, lighter.
    pub faint: ShapeStyle,
    /// Length of dash and gap, pixels; `None` for a solid line.
    pub dash: Option<(u32, u32)>,
}

/// The looks of contender number `index` of a plot.
pub fn look(ours: bool, index: usize) -> Look {
    let color = if ours { OURS } else { PEERS.get(index % PEERS.len()).copied().unwrap_or(OURS) };
    Look {
        line: ShapeStyle { color: color.to_rgba(), filled: true, stroke_width: if ours { 3 } else { 2 } },
        faint: ShapeStyle { color: color.mix(0.5), filled: false, stroke_width: 1 },
        dash: if ours { None } else { Some((7, 4)) },
    }
}

/// A piece of a contender's line for the legend: solid for ours, two dashes for a peer.
pub fn key<'a, B: DrawingBackend + 'a>(at: (i32, i32), look: Look) -> impl IntoDynElement<'a, B, (i32, i32)> {
    let middle = if look.dash.is_some() { (11, 17) } else { (14, 14) };
    let piece = |from, to| PathElement::new(vec![(from, 0), (to, 0)], look.line);
    EmptyElement::at(at) + piece(2, middle.0) + piece(middle.1, 26)
}

/// A file name of what describes a plot.
pub fn file_name(parts: &[&str]) -> String {
    let clean = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let joined: String = parts.join("-").chars().map(clean).collect();
    format!("{joined}.svg")
}
