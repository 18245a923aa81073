//! Parts that several items contain: a caller, the counters of a ring, and waiting frames. The frames may take
//! megabytes, so they are in a separate file.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use netvale_mem::drops::{DropReason, RingCounters};
use netvale_mem::latency::Histogram;
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::caller::Caller;

/// Maximum size in bytes of a file of waiting frames: enough for many rings, each with a batch of the longest frames.
const MOST: u64 = 256 << 20;

/// A caller: number of the connection, user, process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CallerItem {
    pub(super) client: u64,
    uid: u32,
    pid: i32,
}

impl From<Caller> for CallerItem {
    fn from(Caller { client, uid, pid }: Caller) -> Self {
        CallerItem { client, uid, pid }
    }
}

impl From<CallerItem> for Caller {
    fn from(CallerItem { client, uid, pid }: CallerItem) -> Self {
        Caller { client, uid, pid }
    }
}

/// Counters of a ring.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RingCounts {
    frames: u64,
    bytes: u64,
    #[serde(default)]
    batches: u64,
    drops: Vec<(String, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timed: Option<LatencyCounts>,
}

/// Latency of timed frames.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct LatencyCounts {
    /// Sum of the latencies in nanoseconds.
    sum: u64,
    /// Histogram: the upper bound of each class in nanoseconds (`None`: no bound), and the number of frames in that
    /// class.
    parts: Vec<(Option<u64>, u64)>,
}

impl LatencyCounts {
    fn of(histogram: &Histogram) -> Option<LatencyCounts> {
        let parts: Vec<_> = histogram.filled().collect();
        (!parts.is_empty()).then(|| LatencyCounts { sum: histogram.sum(), parts })
    }
}

impl RingCounts {
    /// Reads the counters of a ring.
    pub fn of(counters: &RingCounters) -> RingCounts {
        let drops = counters.all_drops().chain([(DropReason::Idle, counters.idle())]).filter(|&(_, n)| n > 0);
        let drops = drops.map(|(why, n)| (why.name().to_owned(), n)).collect();
        let timed = LatencyCounts::of(counters.latency());
        RingCounts { frames: counters.frames(), bytes: counters.bytes(), batches: counters.batches(), drops, timed }
    }

    /// Adds `frames` frames that were dropped for the reason `why`.
    pub fn drop(&mut self, why: DropReason, frames: u64) {
        match self.drops.iter_mut().find(|(name, _)| name == why.name()) {
            Some((_, count)) => *count += frames,
            None => self.drops.extend((frames > 0).then(|| (why.name().to_owned(), frames))),
        }
    }

    /// Adds these counts to a ring's counters. Drop reasons that this version does not know are skipped.
    pub fn add_to(&self, counters: &RingCounters) {
        counters.passed_in(self.batches, self.frames, self.bytes);
        for (name, n) in &self.drops {
            let reason = DropReason::ALL.iter().find(|why| why.name() == name);
            reason.into_iter().for_each(|why| counters.dropped(*why, *n));
        }
        if let Some(LatencyCounts { sum, parts }) = &self.timed {
            counters.latency().add_parts(*sum, parts);
        }
    }
}

/// Writes frames to a file. Each frame is preceded by its length in four bytes.
///
/// # Errors
/// Fails if the daemon is out of memory or descriptors.
pub fn pack_frames<'a>(frames: impl Iterator<Item = &'a Vec<u8>>) -> std::io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("netvale-frames", MemfdFlags::CLOEXEC)?);
    for frame in frames {
        file.write_all(&(frame.len() as u32).to_le_bytes())?;
        file.write_all(frame)?;
    }
    Ok(file.into())
}

/// Reads the frames of a file that [`pack_frames`] has written. Stops at an incomplete frame.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn unpack_frames(fd: OwnedFd) -> std::io::Result<Vec<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut file = File::from(fd);
    std::io::Seek::rewind(&mut file)?;
    file.take(MOST).read_to_end(&mut bytes)?;
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while let Some((len, behind)) = rest.split_first_chunk() {
        let Some((frame, next)) = behind.split_at_checked(u32::from_le_bytes(*len) as usize) else { break };
        frames.push(frame.to_vec());
        rest = next;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: counters continue from another process's values; values that an older version did not save count as
    /// zero.
    #[test]
    fn counters_continue_from_another_processs_values() {
        let [before, after] = <[RingCounters; 2]>::default();
        before.passed_in(2, 9, 540);
        before.dropped(DropReason::NoRoom, 3);
        assert_eq!(RingCounts::of(&before).timed, None);
        before.latency().add(1_500, 9);
        before.latency().add(u64::from(u32::MAX), 1);
        let words = serde_json::to_string(&RingCounts::of(&before)).unwrap();
        serde_json::from_str::<RingCounts>(&words).unwrap().add_to(&after);
        assert_eq!(RingCounts::of(&after), RingCounts::of(&before));
        assert_eq!(after.latency().sum(), 9 * 1_500 + u64::from(u32::MAX));
        let older: RingCounts = serde_json::from_str(r#"{"frames":1,"bytes":60,"drops":[]}"#).unwrap();
        older.add_to(&after);
        assert_eq!((after.frames(), after.batches()), (10, 2));
    }

    /// Objective: frames are restored unchanged, and a length beyond the end of the file ends the list.
    #[test]
    fn frames_there_and_back() {
        let frames = vec![vec![1u8; 60], Vec::new(), vec![2; 70_000]];
        assert_eq!(unpack_frames(pack_frames(frames.iter()).unwrap()).unwrap(), frames);
        let fd = pack_frames(frames[..1].iter()).unwrap();
        rustix::io::pwrite(&fd, &u32::MAX.to_le_bytes(), 64).unwrap();
        assert_eq!(unpack_frames(fd).unwrap(), frames[..1]);
    }
}
