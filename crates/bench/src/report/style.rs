//! The style of the plots: one font, ours in one strong solid line, peers dashed in other colours.

use plotters::style::{Color, RGBColor, ShapeStyle};

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

/// The style of netvale, or of peer number `index`.
fn look(ours: bool, index: usize) -> Look {
    let color = if ours { OURS } else { PEERS.get(index % PEERS.len()).copied().unwrap_or(OURS) };
    Look {
        line: ShapeStyle { color: color.to_rgba(), filled: true, stroke_width: if ours { 3 } else { 2 } },
        faint: ShapeStyle { color: color.mix(0.5), filled: false, stroke_width: 1 },
        dash: if ours { None } else { Some((7, 4)) },
    }
}

/// The looks of all contenders of a plot, given which of them are ours: peers are numbered apart.
pub fn looks(ours: impl Iterator<Item = bool>) -> Vec<Look> {
    let mut peers = 0;
    let mut next = |own: bool| {
        let look = look(own, peers);
        peers += usize::from(!own);
        look
    };
    ours.map(&mut next).collect()
}

/// The places of 1, 2 and 5 in each decade within a range of decimal logarithms.
pub fn decade_marks(low: f64, high: f64) -> Vec<(f64, String)> {
    let decades = (low.floor() as i32)..=(high.ceil() as i32);
    let marks = decades.flat_map(|decade| [1.0f64, 2.0, 5.0].map(|step| step.log10() + f64::from(decade)));
    marks.filter(|mark| (low..=high).contains(mark)).map(|mark| (mark, round(10f64.powf(mark)).to_string())).collect()
}

/// Without the noise of the logarithm: 0.05, 0.1, 2, 500.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// A file name of what describes a plot.
pub fn file_name(parts: &[&str]) -> String {
    let clean = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let joined: String = parts.join("-").chars().map(clean).collect();
    format!("{joined}.svg")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: marks are the round numbers of the range.
    #[test]
    fn marks() {
        let labels: Vec<String> = decade_marks(-0.1, 2.05).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["1", "2", "5", "10", "20", "50", "100"]);
    }

    /// Objective: no two contenders of a plot look alike, with or without ours among them; ours alone is solid.
    #[test]
    fn contenders_differ() {
        for first in [true, false] {
            let looks = looks([first, false, false, false].into_iter());
            let mut colors: Vec<_> = looks.iter().map(|look| look.line.color.to_rgba().rgb()).collect();
            colors.sort_unstable();
            colors.dedup();
            assert_eq!(colors.len(), 4);
            assert_eq!(looks.first().is_some_and(|look| look.dash.is_none()), first);
        }
    }
}
