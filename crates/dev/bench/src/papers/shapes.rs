//! The shapes that figures have wherever they are measured: each is a sentence, and whether it holds.

use super::kept::{Kept, Value};

/// What is counted beside figures of guests.
const EXITS: &str = "exits_each";

/// A shape of a figure.
pub struct FigureShape {
    /// The figure's number.
    pub figure: &'static str,
    /// What holds.
    pub says: &'static str,
    /// Whether it does; `None` where it was not measured.
    pub holds: fn(&Kept) -> Option<bool>,
}

/// All of them.
pub const ALL: &[FigureShape] = &[
    FigureShape {
        figure: "1.2",
        says: "A program on netmap's rings forwards more than the kernel's bridge.",
        holds: |kept| Some(rate(kept, "bridge", "netvale")? > rate(kept, "bridge", "linux-bridge")?),
    },
    FigureShape {
        figure: "2.1",
        says: "A packet takes fewer exits with the status block than in BASE.",
        holds: |kept| falls(kept, "udp-small-tap", &["netvale-base", "netvale-csb"]),
    },
    FigureShape {
        figure: "2.3",
        says: "Between guests, too, a packet takes fewer exits with the status block than in BASE.",
        holds: |kept| falls(kept, "udp-small-between-2cpus", &["netvale-base", "netvale-csb"]),
    },
    FigureShape {
        figure: "2.4",
        says: "A packet takes fewer register accesses with Send Combining than in BASE, and fewer still with the \
            status block.",
        holds: |kept| falls(kept, "played", &["netvale-base", "netvale-sc", "netvale"]),
    },
    FigureShape {
        figure: "2.4",
        says: "Without a guest's stack around the driver, the status block is faster than BASE.",
        holds: |kept| Some(rate(kept, "played", "netvale")? > rate(kept, "played", "netvale-base")?),
    },
    FigureShape {
        figure: "3.4",
        says: "ptnet's rate grows with the burst.",
        holds: |kept| {
            let of = |burst| kept.values("pktgen", "netvale").find(|value| value.case.batch == burst);
            Some(of(50)?.median > of(1)?.median)
        },
    },
];

/// Those of a figure that were measured, and whether they hold.
pub fn judged<'a>(figure: &'a str, kept: &'a Kept) -> impl Iterator<Item = (&'static FigureShape, bool)> + 'a {
    let of = ALL.iter().filter(move |shape| shape.figure == figure);
    of.filter_map(|shape| Some((shape, (shape.holds)(kept)?)))
}

fn value(kept: &Kept, variant: &str, contender: &str) -> Option<Value> {
    kept.values(variant, contender).next()
}

fn rate(kept: &Kept, variant: &str, contender: &str) -> Option<f64> {
    value(kept, variant, contender).map(|value| value.median)
}

/// Whether exits a packet, or register accesses, fall from each contender to the next.
fn falls(kept: &Kept, variant: &str, contenders: &[&str]) -> Option<bool> {
    let count = |contender: &&str| {
        let value = value(kept, variant, contender)?;
        value.facts.iter().find(|(name, _)| name == EXITS)?.1.parse().ok()
    };
    let counts: Vec<f64> = contenders.iter().map(count).collect::<Option<_>>()?;
    Some(counts.windows(2).all(|pair| pair[1] < pair[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::figures;
    use crate::record::Line;
    use crate::record::tests::sample;

    /// Objective: each shape is of a figure that there is.
    #[test]
    fn shapes_are_of_figures() {
        for shape in ALL {
            assert!(figures::ALL.iter().any(|figure| figure.number == shape.figure), "{}", shape.figure);
        }
    }

    /// Objective: a count that falls is told from one that rises, and from one that was not measured.
    #[test]
    fn counts_that_fall() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept::open(folder.path(), "9.1", false).expect("none yet");
        let mut record = sample(Some("dpdk-memif"));
        record.context.insert("netvale exits_each".into(), "0.5".into());
        record.context.insert("dpdk-memif exits_each".into(), "0.25".into());
        kept.add(&record.case.clone(), vec![Line::Record(Box::new(record))]).expect("written");
        let falls = |contenders: &[&str]| falls(&kept, "touched", contenders);
        assert_eq!(falls(&["netvale", "dpdk-memif"]), Some(true));
        assert_eq!(falls(&["dpdk-memif", "netvale"]), Some(false));
        assert_eq!(falls(&["netvale", "ovs"]), None);
    }
}
