//! Shapes of figures: relations between measured values that are expected on every machine, such as which contender is
//! faster.

use super::kept::{Kept, Value};
use crate::case::Case;

/// Name of the fact that holds exits or register accesses per packet, recorded beside a guest's rate.
const EXITS: &str = "exits_each";

/// A shape of a figure: an order of contenders, or of batches.
pub struct FigureShape {
    /// Number of the figure.
    pub figure: &'static str,
    /// The shape as a sentence.
    pub says: &'static str,
    /// The variant that shows the shape.
    pub variant: &'static str,
    /// The contenders that are compared, in the expected order.
    pub contenders: &'static [&'static str],
    order: Order,
}

/// The relation that a shape requires.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Exits or register accesses per packet fall from each contender to the next.
    ExitsFall,
    /// Rates rise from each contender to the next.
    RateRises,
    /// The first contender's rate is higher with the second batch than with the first.
    RateRisesWithBatch(u32, u32),
}

/// All shapes that are checked.
pub const ALL: &[FigureShape] = &[
    FigureShape {
        figure: "1.2",
        says: "a program on netmap's rings forwards more than the kernel's bridge",
        variant: "bridge",
        contenders: &["linux-bridge", "netvale"],
        order: Order::RateRises,
    },
    FigureShape {
        figure: "2.1",
        says: "a packet takes fewer exits with the status block than in BASE",
        variant: "udp-small-tap",
        contenders: &["netvale-base", "netvale-csb"],
        order: Order::ExitsFall,
    },
    FigureShape {
        figure: "2.3",
        says: "a packet between guests takes fewer exits with the status block than in BASE",
        variant: "udp-small-between-2cpus",
        contenders: &["netvale-base", "netvale-csb"],
        order: Order::ExitsFall,
    },
    FigureShape {
        figure: "2.4",
        says: "a packet takes fewer register accesses with Send Combining than in BASE, and fewer still with the \
            status block",
        variant: "played",
        contenders: &["netvale-base", "netvale-sc", "netvale"],
        order: Order::ExitsFall,
    },
    FigureShape {
        figure: "2.4",
        says: "without a guest's stack, the status block is faster than BASE",
        variant: "played",
        contenders: &["netvale-base", "netvale"],
        order: Order::RateRises,
    },
    FigureShape {
        figure: "3.4",
        says: "ptnet's rate grows with the burst",
        variant: "pktgen",
        contenders: &["netvale"],
        order: Order::RateRisesWithBatch(1, 50),
    },
];

impl FigureShape {
    /// Returns whether the shape needs the values of a case.
    pub fn takes(&self, case: &Case) -> bool {
        let has_batch = match self.order {
            Order::RateRisesWithBatch(few, many) => [few, many].contains(&case.batch),
            _ => true,
        };
        has_batch && case.variant == self.variant
    }

    /// Returns whether the shape holds; `None` if a value that it compares was not measured.
    pub fn holds(&self, kept: &Kept) -> Option<bool> {
        match self.order {
            Order::ExitsFall => self.is_ordered(kept, |value| {
                let exits = value.facts.iter().find(|(name, _)| name == EXITS)?.1.parse().ok();
                exits.map(|exits: f64| -exits)
            }),
            Order::RateRises => self.is_ordered(kept, |value| Some(value.median)),
            Order::RateRisesWithBatch(few, many) => {
                let first = self.contenders.first()?;
                let of = |batch| kept.values(self.variant, first).find(|value| value.case.batch == batch);
                Some(of(many)?.median > of(few)?.median)
            }
        }
    }

    /// Returns whether the value that `of` returns rises from each contender to the next; `None` if a value is missing.
    fn is_ordered(&self, kept: &Kept, of: impl Fn(&Value) -> Option<f64>) -> Option<bool> {
        let value = |contender: &&str| of(&kept.values(self.variant, contender).next()?);
        let values: Vec<f64> = self.contenders.iter().map(value).collect::<Option<_>>()?;
        Some(values.windows(2).all(|pair| pair[1] > pair[0]))
    }
}

/// Returns the shapes of the figure with the given number.
pub fn of_figure(figure: &str) -> impl Iterator<Item = &'static FigureShape> {
    ALL.iter().filter(move |shape| shape.figure == figure)
}

/// Returns the shapes of a figure whose values were all measured, each with whether it holds.
pub fn judged<'a>(figure: &'a str, kept: &'a Kept) -> impl Iterator<Item = (&'static FigureShape, bool)> + 'a {
    of_figure(figure).filter_map(|shape| Some((shape, shape.holds(kept)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::figures;
    use crate::record::Line;
    use crate::record::tests::sample;

    /// Objective: each shape names a figure, and a variant and contenders that this figure measures.
    #[test]
    fn shapes_are_of_measured_cases() {
        for shape in ALL {
            let figure = figures::ALL.iter().find(|figure| figure.number == shape.figure).expect("a figure");
            let measured = figure.contenders(shape.variant);
            for contender in shape.contenders {
                assert!(measured.contains(contender), "{}: {contender}", shape.figure);
            }
        }
    }

    /// Objective: a shape holds for values in the required order, does not hold in another order, and is not judged if
    /// a value is missing.
    #[test]
    fn orders_are_judged() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept::open(folder.path(), "9.1", false).expect("none yet");
        let mut record = sample(Some("dpdk-memif"));
        record.context.insert("netvale exits_each".into(), "0.5".into());
        record.context.insert("dpdk-memif exits_each".into(), "0.25".into());
        kept.add(&record.case.clone(), vec![Line::Record(Box::new(record))]).expect("written");
        let judged = |order, contenders: &'static [&'static str]| {
            FigureShape { figure: "9.1", says: "", variant: "touched", contenders, order }.holds(&kept)
        };
        assert_eq!(judged(Order::ExitsFall, &["netvale", "dpdk-memif"]), Some(true));
        assert_eq!(judged(Order::ExitsFall, &["dpdk-memif", "netvale"]), Some(false));
        assert_eq!(judged(Order::ExitsFall, &["netvale", "ovs"]), None);
        assert_eq!(judged(Order::RateRises, &["dpdk-memif", "netvale"]), Some(true));
        assert_eq!(judged(Order::RateRises, &["netvale", "dpdk-memif"]), Some(false));
        assert_eq!(judged(Order::RateRises, &["netvale", "ovs"]), None);
    }
}
