//! The two text *formats* of metrics, and the choice between them by a client's `Accept` header fields (RFC 9110
//! section 12.5.1).

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

use crate::metrics::collect::Snapshot;
use crate::metrics::families::PREFIX;

/// The text format of a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus' own text format, version 0.0.4.
    Prometheus,
}

impl TextFormat {
    /// Returns the format's media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            TextFormat::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }

    /// Returns the format that the values of `Accept` fields prefer; OpenMetrics if they prefer neither format.
    pub fn accepted<'a>(accept: impl Iterator<Item = &'a str>) -> TextFormat {
        let ranges: Vec<MediaRange<'_>> = accept.flat_map(|value| value.split(',')).map(MediaRange::parse).collect();
        let quality = |format| ranges.iter().filter_map(|range| range.quality_of(format)).max_by_key(|known| known.0);
        let [open, own] =
            [TextFormat::OpenMetrics, TextFormat::Prometheus].map(|format| quality(format).map_or(0, |known| known.1));
        if own > open { TextFormat::Prometheus } else { TextFormat::OpenMetrics }
    }

    /// Encodes counters in this format.
    #[must_use]
    pub fn encode(self, all: &Snapshot) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(all.clone()));
        let mut out = String::new();
        let encoded = match self {
            TextFormat::OpenMetrics => text::encode(&mut out, &registry),
            TextFormat::Prometheus => prometheus_text::encode(&mut out, &registry),
        };
        // Writing into a string does not fail.
        encoded.map(|()| out).unwrap_or_default()
    }
}

/// A media range with its weight in thousandths.
struct MediaRange<'a> {
    media: &'a str,
    version: Option<&'a str>,
    quality: u32,
}

impl MediaRange<'_> {
    fn parse(text: &str) -> MediaRange<'_> {
        let mut parts = text.split(';').map(str::trim);
        let mut range = MediaRange { media: parts.next().unwrap_or_default(), version: None, quality: 1000 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "version" => range.version = Some(value.trim().trim_matches('"')),
                "q" | "Q" => {
                    let quality: f64 = value.trim().parse().unwrap_or(0.0);
                    range.quality = (quality.clamp(0.0, 1.0) * 1000.0) as u32;
                }
                _ => {}
            }
        }
        range
    }

    /// Returns how exactly the range matches the format (1, any type, to 4, type and version), and the range's weight;
    /// `None` if it does not match.
    fn quality_of(&self, format: TextFormat) -> Option<(u8, u32)> {
        let (media, family, version) = match format {
            TextFormat::OpenMetrics => ("application/openmetrics-text", "application/*", "1.0.0"),
            TextFormat::Prometheus => ("text/plain", "text/*", "0.0.4"),
        };
        let is = |name: &str| self.media.eq_ignore_ascii_case(name);
        let exactly = match self.version {
            _ if is("*/*") => 1,
            _ if is(family) => 2,
            None if is(media) => 3,
            Some(known) if is(media) && known == version => 4,
            _ => return None,
        };
        Some((exactly, self.quality))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(text: &str) -> TextFormat {
        TextFormat::accepted([text].into_iter())
    }

    /// Objective: the `Accept` fields of Prometheus and of other clients select the format that they prefer.
    #[test]
    fn the_accept_field_selects_the_format() {
        use TextFormat::{OpenMetrics, Prometheus};
        assert_eq!(TextFormat::accepted(std::iter::empty()), OpenMetrics);
        for (accept, format) in [
            ("*/*", OpenMetrics),
            ("text/plain", Prometheus),
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", Prometheus),
            ("application/openmetrics-text; version=1.0.0, text/plain;version=0.0.4;q=0.5", OpenMetrics),
            // The fields that Prometheus 2.42 and 3.0 send.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 application/openmetrics-text;version=0.0.1;q=0.4,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OpenMetrics,
            ),
            ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0", Prometheus),
            ("application/openmetrics-text;version=9.0.0,text/plain", Prometheus),
            ("TEXT/PLAIN ; Version=0.0.4", Prometheus),
            ("text/html,application/xml;q=0.9,*/*;q=0.8", OpenMetrics),
            ("image/png", OpenMetrics),
            (";;,,=;q=x", OpenMetrics),
            ("text/plain;q=nan", OpenMetrics),
        ] {
            assert_eq!(accepted(accept), format, "{accept}");
        }
        assert_eq!(TextFormat::accepted(["image/png", "text/plain"].into_iter()), Prometheus);
    }
}
