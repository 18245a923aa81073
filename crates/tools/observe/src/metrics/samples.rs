//! Encoding of the samples of a family of metrics. Each sample has labels and a *value*.

use std::fmt::Result as Encoded;

use netvale_control::types::{Latency, PortDetails};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::metrics::families::MetricFamily;

/// A sample's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleValue {
    /// A count.
    Count(u64),
    /// A time in nanoseconds, encoded in seconds.
    Nanoseconds(u64),
}

/// A label's name and value. Values are escaped on encoding.
pub type Label<'a> = (&'static str, &'a str);
/// The labels of a sample without labels.
pub const NONE: [Label<'static>; 0] = [];

/// An encoder of families with their samples.
pub struct Samples<'a>(pub DescriptorEncoder<'a>);

impl Samples<'_> {
    /// Encodes a family's samples.
    pub fn all<L: EncodeLabelSet>(
        &mut self,
        family: &MetricFamily,
        samples: impl IntoIterator<Item = (L, SampleValue)>,
    ) -> Encoded {
        let mut encoder = self.0.encode_descriptor(family.name, family.help, family.unit.as_ref(), family.of)?;
        for (labels, value) in samples {
            let mut one = encoder.encode_family(&labels)?;
            match (family.of, value) {
                (MetricType::Counter, SampleValue::Count(n)) => one.encode_counter::<NoLabelSet, _, u64>(&n, None)?,
                (MetricType::Counter, SampleValue::Nanoseconds(n)) => {
                    one.encode_counter::<NoLabelSet, _, u64>(&seconds(n), None)?
                }
                (_, SampleValue::Count(n)) => one.encode_gauge(&n)?,
                (_, SampleValue::Nanoseconds(n)) => one.encode_gauge(&seconds(n))?,
            }
        }
        Ok(())
    }

    /// Encodes a histogram's samples.
    pub fn histograms<'a, L: EncodeLabelSet>(
        &mut self,
        family: &MetricFamily,
        samples: impl IntoIterator<Item = (L, &'a Latency)>,
    ) -> Encoded {
        let mut encoder = self.0.encode_descriptor(family.name, family.help, family.unit.as_ref(), family.of)?;
        for (labels, latency) in samples {
            let one = &mut encoder.encode_family(&labels)?;
            let sum = seconds(latency.sum_ns);
            let parts = parts(latency);
            let frames = parts.iter().map(|(_, frames)| frames).sum();
            one.encode_histogram::<NoLabelSet>(sum, frames, &parts, None)?;
        }
        Ok(())
    }

    /// Encodes the samples of a family of the type [`MetricType::Info`].
    pub fn info<L: EncodeLabelSet>(&mut self, family: &MetricFamily, samples: impl IntoIterator<Item = L>) -> Encoded {
        let mut encoder = self.0.encode_descriptor(family.name, family.help, None, family.of)?;
        samples.into_iter().try_for_each(|labels| encoder.encode_info(&labels))
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Returns, for each bucket, its upper bound in seconds and the number of frames in it. The numbers are not cumulative.
fn parts(latency: &Latency) -> Vec<(f64, u64)> {
    let frames = |bound| latency.parts.iter().filter(|part| part.up_to_ns == bound).map(|part| part.frames).sum();
    let bounds = Latency::BOUNDS_NS.into_iter().map(|bound| (seconds(bound), frames(Some(bound))));
    bounds.chain([(f64::INFINITY, frames(None))]).collect()
}

/// Returns the labels that identify a port: `port` and `switch`.
pub fn whose(port: &PortDetails) -> [Label<'_>; 2] {
    [("port", port.name.as_str()), ("switch", port.switch.as_deref().unwrap_or_default())]
}

/// Returns the values of both directions of a port, each with its label `direction`.
pub fn both<T>(of_in: T, of_out: T) -> [([Label<'static>; 1], T); 2] {
    [([("direction", "in")], of_in), ([("direction", "out")], of_out)]
}
