//! When a capture ends, and when each of its files ends: conditions in the form of dumpcap's `-a` and `-b`.

use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::values;

/// A condition that ends a capture or a file, such as `duration:10`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CaptureCondition {
    /// After this many seconds.
    Duration(f64),
    /// After this many kilobytes (1,000 bytes).
    FileSize(u64),
    /// After this many frames.
    Packets(u64),
    /// After this many files; for a sequence of files, the number of files to keep.
    Files(u64),
}

impl FromStr for CaptureCondition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let number = || match value.parse::<u64>() {
            Ok(number) if (1..=1 << 40).contains(&number) => Ok(number),
            _ => Err(format!("{name}: expected a number from 1 to 1099511627776 (2^40), e.g. {name}:1000")),
        };
        match name {
            "duration" => values::seconds(value).map(CaptureCondition::Duration),
            "filesize" => number().map(CaptureCondition::FileSize),
            "packets" => number().map(CaptureCondition::Packets),
            "files" => number().map(CaptureCondition::Files),
            _ => Err("expected duration:SECONDS, filesize:KB, packets:N or files:N".to_owned()),
        }
    }
}

/// The limits of a capture or a file; `None` for no limit. Of several conditions of one kind, the smallest applies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CaptureLimits {
    /// Maximum duration.
    pub duration: Option<Duration>,
    /// Maximum number of bytes.
    pub bytes: Option<u64>,
    /// Maximum number of frames.
    pub packets: Option<u64>,
    /// Maximum number of files.
    pub files: Option<u64>,
}

impl CaptureLimits {
    /// Collects the smallest value of each kind of condition.
    pub fn of<'a>(conditions: impl IntoIterator<Item = &'a CaptureCondition>) -> CaptureLimits {
        let mut limits = CaptureLimits::default();
        for condition in conditions {
            match *condition {
                CaptureCondition::Duration(seconds) => least(&mut limits.duration, Duration::from_secs_f64(seconds)),
                CaptureCondition::FileSize(kilobytes) => least(&mut limits.bytes, kilobytes * 1000),
                CaptureCondition::Packets(packets) => least(&mut limits.packets, packets),
                CaptureCondition::Files(files) => least(&mut limits.files, files),
            }
        }
        limits
    }

    /// Returns the remaining time; `None` if the time is up.
    pub fn left(&self, since: Instant) -> Option<Duration> {
        let left = self.duration.map_or(Duration::MAX, |limit| limit.saturating_sub(since.elapsed()));
        Some(left).filter(|left| !left.is_zero())
    }

    /// Returns whether another `size` bytes, for one frame, are within the limits after `packets` frames with a total
    /// of `bytes` bytes.
    pub fn takes(&self, size: u64, bytes: u64, packets: u64) -> bool {
        self.bytes.is_none_or(|most| bytes + size <= most) && self.packets.is_none_or(|most| packets < most)
    }
}

fn least<T: PartialOrd>(limit: &mut Option<T>, value: T) {
    if limit.as_ref().is_none_or(|now| value < *now) {
        *limit = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: dumpcap's conditions are parsed, the smallest value of each kind of condition applies, and any other
    /// text is refused.
    #[test]
    fn dumpcaps_conditions_are_parsed() {
        let all = ["duration:10", "duration:2.5", "filesize:1000", "files:5", "packets:7", "packets:9"];
        let all = all.map(|text| text.parse::<CaptureCondition>().unwrap());
        let expected = CaptureLimits {
            duration: Some(Duration::from_millis(2500)),
            bytes: Some(1_000_000),
            packets: Some(7),
            files: Some(5),
        };
        assert_eq!(CaptureLimits::of(&all), expected);
        for bad in
            ["", "duration", "duration:0", "filesize:x", "files:0", "files:-1", "filesize:99999999999999", "age:3"]
        {
            assert!(bad.parse::<CaptureCondition>().is_err(), "{bad}");
        }
    }

    /// Objective: a frame that would exceed the limit does not fit.
    #[test]
    fn a_frame_beyond_the_limit_does_not_fit() {
        let limits = CaptureLimits::of(&[CaptureCondition::FileSize(1), CaptureCondition::Packets(2)]);
        assert!(limits.takes(500, 500, 1) && !limits.takes(501, 500, 1) && !limits.takes(1, 0, 2));
        assert!(CaptureLimits::default().takes(1 << 40, 0, 1 << 40));
    }
}
