//! Restores another process's capture, from its state ([`CaptureState`]) or, if that process was killed, from the
//! recorder's notes.
//!
//! Each write ends with a whole frame. Before a write, the recorder notes the file's position before and after it. The
//! descriptor's position outlives the process and shows whether the last write was completed; if not, the file is
//! truncated to the start of that write.

use std::fs::File;
use std::io::{Error, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use netvale_fdio::state::BadState;
use netvale_mem::noted::{NUMBERS, NotedCounts};
use netvale_port::RingCounters;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{CaptureOptions, CaptureStatus, PcapEgress, RecorderJob, RecorderThread};
use crate::limit::{CaptureLimit, CaptureProgress, PORTION, ReachedLimit};
use crate::writer::{PcapWriter, WriteError};

/// Saved state of a capture. All frames that it counts as written are in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureState {
    /// Number of bytes of the file that count towards limits.
    pub bytes: u64,
    /// Number of frames written.
    pub written: u64,
    /// Number of frames lost because of an error.
    pub failed: u64,
    /// Number of frames that arrived after a limit was reached.
    pub cut_off: u64,
    /// Number of portions taken from the user's allowance.
    pub portions: u64,
    /// The limit that ended the capture, if any.
    pub ended: Option<ReachedLimit>,
    /// The error that ended the capture, if any.
    pub error: Option<String>,
}

/// The recorder's notes on a write: the state after it, and the file's number of bytes and frames before it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RecorderNotes {
    after: CaptureState,
    before: (u64, u64),
}

impl RecorderNotes {
    fn numbers(&self, errno: Option<i32>) -> [u64; NUMBERS] {
        let CaptureState { bytes, written, failed, cut_off, portions, ended, error } = &self.after;
        let (ended, limit) = match ended {
            None => (0, 0),
            Some(ReachedLimit::Limit(bytes)) => (1, *bytes),
            Some(ReachedLimit::Quota(portions)) => (2, *portions),
        };
        let errno = errno.unwrap_or(Errno::IO.raw_os_error());
        let error = if error.is_some() { u64::from(errno.unsigned_abs()) } else { 0 };
        let (bytes_before, frames_before) = self.before;
        [*bytes, *written, bytes_before, frames_before, *failed, *cut_off, *portions, ended, limit, error, 0, 0]
    }

    /// Decodes notes, which may contain any numbers.
    fn of(numbers: [u64; NUMBERS]) -> RecorderNotes {
        let [bytes, written, bytes_before, frames_before, failed, cut_off, portions, ended, limit, errno, ..] = numbers;
        let ended = match ended {
            1 => Some(ReachedLimit::Limit(limit)),
            2 => Some(ReachedLimit::Quota(limit).bounded()),
            _ => None,
        };
        let text = |errno| Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0)).to_string();
        let error = (errno != 0).then(|| text(errno));
        let after = CaptureState { bytes, written, failed, cut_off, portions, ended, error };
        RecorderNotes { after, before: (bytes_before, frames_before) }
    }

    /// Returns the state of the file. If the last write was not completed, undoes it by truncating the file.
    fn repair(self, file: &mut File) -> Result<CaptureState, BadState> {
        let at = file.stream_position()?;
        let mut state = self.after;
        if state.error.is_some() {
            // A capture that ended with an error may end inside a frame.
            state.bytes = state.bytes.min(file.metadata()?.len());
            return Ok(state);
        }
        if at == state.bytes {
            return Ok(state);
        }
        let (begin, frames) = self.before;
        if !(begin..state.bytes).contains(&at) {
            return Err(elsewhere(at, state.bytes));
        }
        // Do not extend the file: another program may have truncated it.
        if file.metadata()?.len() > begin {
            file.set_len(begin)?;
        }
        file.seek(SeekFrom::Start(begin))?;
        state.bytes = begin;
        state.written = frames;
        Ok(state)
    }
}

/// Bounds a count, so that further counting cannot overflow.
fn at_most(count: u64) -> u64 {
    count.min(u64::MAX >> 2)
}

impl RecorderThread {
    pub(super) fn state(&self) -> CaptureState {
        CaptureState {
            bytes: self.written.bytes,
            written: self.writer.written(),
            failed: self.writer.lost(),
            cut_off: self.cut_off,
            portions: self.written.portions,
            ended: self.status.ended(),
            error: self.status.error().and_then(WriteError::io).map(ToString::to_string),
        }
    }

    /// Notes the state that the file will have once all buffered frames are written.
    pub(super) fn put_down(&mut self) {
        let notes = RecorderNotes { after: self.state(), before: self.flushed };
        let error = self.status.error().and_then(|error| error.io()?.raw_os_error());
        self.noted.write(notes.numbers(error));
    }
}

impl PcapEgress {
    /// Waits until all delivered frames are in the file, and returns the state. No frame may be delivered meanwhile,
    /// and nothing is written before the next delivery. `None` if the wait took longer than `limit`.
    pub fn settle(&self, limit: Duration) -> Option<CaptureState> {
        let (answer, answered) = sync_channel(1);
        self.full.try_send(RecorderJob::Settle(answer)).ok()?;
        answered.recv_timeout(limit).ok()
    }

    /// Restores another process's capture from the result of [`PcapEgress::settle`].
    ///
    /// # Errors
    /// [`BadState`] if the file is not open for writing or not at the position in `state`, or a thread cannot be
    /// started.
    pub fn continued(
        mut file: File,
        path: &Path,
        options: CaptureOptions,
        limit: CaptureLimit,
        state: CaptureState,
        counters: Arc<RingCounters>,
    ) -> Result<PcapEgress, BadState> {
        is_open_for_writing(&file)?;
        if file.metadata()?.is_file() && state.error.is_none() {
            let at = file.stream_position()?;
            let said = state.bytes;
            if at != said {
                return Err(elsewhere(at, said));
            }
        }
        Self::go_on(file, path, options, limit, state, NotedCounts::new()?, counters)
    }

    /// Restores a killed process's capture from its notes ([`PcapEgress::noted`]). The capture takes its portions of
    /// the allowance again.
    ///
    /// # Errors
    /// [`BadState`] if `noted` is not memory with notes, the file is not a regular file that is open for writing and at
    /// a noted position, or a thread cannot be started.
    pub fn after_a_kill(
        mut file: File,
        noted: OwnedFd,
        path: &Path,
        options: CaptureOptions,
        limit: CaptureLimit,
        counters: Arc<RingCounters>,
    ) -> Result<PcapEgress, BadState> {
        let noted =
            NotedCounts::continued(noted).map_err(|e| BadState::from(e).of("the capture file cannot be continued"))?;
        is_open_for_writing(&file)?;
        if !file.metadata()?.is_file() {
            return Err(BadState::new("the capture file is not a regular file"));
        }
        let mut state = RecorderNotes::of(noted.read()).repair(&mut file)?;
        // The capture had taken the portions for the file's contents, and at most one portion more.
        let least = state.bytes.div_ceil(PORTION).max(1);
        state.portions = state.portions.clamp(least, least + 1);
        let shared = limit.shared.clone();
        let portions = state.portions;
        let egress = Self::go_on(file, path, options, limit, state, noted, counters)?;
        shared.iter().for_each(|shared| shared.correct(0, portions));
        Ok(egress)
    }

    /// Continues a capture whose file is at the position in its state.
    fn go_on(
        file: File,
        path: &Path,
        options: CaptureOptions,
        limit: CaptureLimit,
        state: CaptureState,
        noted: NotedCounts,
        counters: Arc<RingCounters>,
    ) -> Result<PcapEgress, BadState> {
        let CaptureState { ended, error, .. } = state;
        let [bytes, written, failed, cut_off] = [state.bytes, state.written, state.failed, state.cut_off].map(at_most);
        let portions = state.portions.min(at_most(u64::MAX) / PORTION);
        let status = CaptureStatus::default();
        status.lost.store(failed + cut_off, Ordering::Relaxed);
        ended.map(ReachedLimit::bounded).into_iter().for_each(|why| status.end(why));
        let lost = error.as_ref().map(|_| failed);
        if let Some(text) = error {
            status.fail(WriteError::new(Some(path.to_owned()), Error::other(text)));
        }
        let writer = PcapWriter::continued(file, options.format, written, lost).named(path);
        let written = CaptureProgress { limit, bytes, portions };
        Ok(Self::start(writer, written, noted, status, options, counters)?)
    }
}

fn elsewhere(at: u64, said: u64) -> BadState {
    BadState::new(format!("the capture file is at byte {at}: expected byte {said}"))
}

fn is_open_for_writing(file: &File) -> Result<(), BadState> {
    let mode = fcntl_getfl(file)?;
    if mode.contains(OFlags::PATH) || mode & OFlags::RWMODE == OFlags::RDONLY {
        return Err(BadState::new("the capture file is not open for writing"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::super::tests::{deliver, read, start};
    use super::*;
    use crate::limit::Allowance;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Creates a capture with `frames` frames in its file. Returns the capture with a duplicate of the file's
    /// descriptor.
    fn captured(path: &Path, frames: usize) -> (PcapEgress, File) {
        let file = File::create(path).unwrap();
        let again = file.try_clone().unwrap();
        let options = CaptureOptions::of(path);
        let egress = start(file, path, options).unwrap();
        let all: Vec<Vec<u8>> = (0..frames).map(|i| vec![i as u8; 60]).collect();
        assert_eq!(deliver(&egress, &all), frames);
        assert_eq!(egress.settle(LIMIT).unwrap().written, frames as u64);
        (egress, again)
    }

    fn copy(noted: &PcapEgress) -> OwnedFd {
        noted.noted().try_clone_to_owned().unwrap()
    }

    fn go_on(file: File, noted: OwnedFd, path: &Path, limit: CaptureLimit) -> Result<PcapEgress, String> {
        let options = CaptureOptions::of(path);
        PcapEgress::after_a_kill(file, noted, path, options, limit, Arc::default()).map_err(|e| e.to_string())
    }

    fn end(egress: PcapEgress) {
        let status = Arc::clone(egress.status());
        drop(egress);
        assert!(status.wait_closed(LIMIT));
    }

    fn paths(dir: &tempfile::TempDir) -> [PathBuf; 2] {
        ["a.pcap", "a.pcapng"].map(|name| dir.path().join(name))
    }

    /// Objective: written frames stay, later frames are appended, and counts continue; an incomplete write is undone,
    /// regardless of the byte at which it stopped.
    #[test]
    fn a_continued_capture_appends_to_whole_frames() {
        let dir = tempfile::tempdir().unwrap();
        for path in paths(&dir) {
            for torn in [None, Some(0), Some(1), Some(700), Some(4999)] {
                let (first, mut file) = captured(&path, 20);
                let state = first.settle(LIMIT).unwrap();
                if let Some(torn) = torn {
                    let after = CaptureState { bytes: state.bytes + 5000, written: 70, ..state.clone() };
                    let notes = RecorderNotes { after, before: (state.bytes, 20) };
                    NotedCounts::continued(copy(&first)).unwrap().write(notes.numbers(None));
                    file.write_all(&vec![0xa5; torn]).unwrap();
                }
                let next = go_on(file, copy(&first), &path, CaptureLimit::default()).unwrap();
                assert_eq!(next.status().written(), 20);
                assert_eq!(deliver(&next, &[vec![99; 60], vec![100; 60]]), 2);
                assert_eq!(next.settle(LIMIT).unwrap().written, 22);
                end(next);
                let came: Vec<u8> = read(&path).iter().map(|(frame, _)| frame[0]).collect();
                assert_eq!(came, (0..20).chain([99, 100]).collect::<Vec<u8>>(), "{torn:?}");
                end(first);
            }
        }
    }

    /// Objective: a capture whose last write was completed, but not noted as completed, is kept whole.
    #[test]
    fn a_whole_long_frame_without_a_note_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        for path in paths(&dir) {
            let (first, file) = captured(&path, 1);
            let long: Vec<Vec<u8>> = (1..50).map(|i| vec![i; 65_550]).collect();
            for some in long.chunks(7) {
                assert_eq!(deliver(&first, some), some.len());
            }
            assert_eq!(first.settle(LIMIT).unwrap().written, 50);
            let next = go_on(file, copy(&first), &path, CaptureLimit::default()).unwrap();
            assert_eq!(next.status().written(), 50);
            end(next);
            assert!(read(&path).iter().map(|(frame, _)| frame[0]).eq(0..50));
            end(first);
        }
    }

    /// Objective: the limits on bytes and portions still apply to a restored capture, which takes its portions again; a
    /// capture that has ended stays ended.
    #[test]
    fn limits_still_apply_to_a_continued_capture() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pcap");
        let (first, file) = captured(&path, 20);
        let shared = Arc::new(Allowance::new(1));
        let limit = CaptureLimit { bytes: Some(24 + 21 * 76), shared: Some(Arc::clone(&shared)) };
        let next = go_on(file.try_clone().unwrap(), copy(&first), &path, limit.clone()).unwrap();
        assert_eq!((next.status().portions(), shared.used()), (1, 1));
        assert_eq!(deliver(&next, &[vec![20; 60], vec![21; 60]]), 2);
        let state = next.settle(LIMIT).unwrap();
        assert_eq!((state.written, state.cut_off), (21, 1));
        let over = go_on(file, copy(&next), &path, limit).unwrap();
        assert_eq!(over.status().ended(), Some(ReachedLimit::Limit(24 + 21 * 76)));
        assert_eq!((over.status().written(), over.status().lost()), (21, 1));
        [over, next, first].into_iter().for_each(end);
    }

    /// Objective: another file, another position, and a file that is not open for writing are refused with a reason and
    /// not changed.
    #[test]
    fn forged_files_are_refused_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pcap");
        let (first, mut file) = captured(&path, 20);
        let refused = |file: File| go_on(file, copy(&first), &path, CaptureLimit::default()).err().unwrap();
        assert_eq!(refused(File::open(&path).unwrap()), "the capture file is not open for writing");
        assert_eq!(refused(File::create("/dev/null").unwrap()), "the capture file is not a regular file");
        let other = dir.path().join("other");
        std::fs::write(&other, "what it has").unwrap();
        let text = refused(File::options().append(true).open(&other).unwrap());
        assert_eq!(text, format!("the capture file is at byte 0: expected byte {}", 24 + 20 * 76));
        assert_eq!(std::fs::read(&other).unwrap(), b"what it has");
        file.write_all(b"more").unwrap();
        assert!(refused(file.try_clone().unwrap()).contains("the capture file is at byte"));
        let small = std::fs::File::open(&other).unwrap().as_fd().try_clone_to_owned().unwrap();
        let text = go_on(file, small, &path, CaptureLimit::default()).err().unwrap();
        assert!(text.contains("cannot be continued"), "{text}");
        end(first);
    }

    proptest! {
        /// Objective: any noted numbers are refused or harmless: a file is never extended, and never truncated before a
        /// noted position.
        #[test]
        fn no_numbers_extend_or_cut_a_file(
            numbers in any::<[u64; NUMBERS]>(),
            near in proptest::array::uniform4(0u64..200),
            len in 0usize..200,
        ) {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![1; len]).unwrap();
            for numbers in [numbers, {
                let mut close = [0; NUMBERS];
                close[..4].copy_from_slice(&near);
                close
            }] {
                let notes = RecorderNotes::of(numbers);
                let before = notes.before.0;
                let _ = notes.repair(&mut file);
                let now = file.metadata().unwrap().len();
                prop_assert!(now == len as u64 || now == before && now < len as u64);
            }
        }

        /// Objective: notes decode to what was encoded.
        #[test]
        fn notes_decode_as_encoded(
            words in proptest::array::uniform5(0u64..1 << 40),
            before in any::<(u64, u64)>(),
            ended in 0..3,
            error in any::<bool>(),
        ) {
            let [bytes, written, failed, cut_off, portions] = words;
            let ended = [None, Some(ReachedLimit::Limit(7)), Some(ReachedLimit::Quota(9))][ended as usize];
            let error = error.then(|| Error::from_raw_os_error(28).to_string());
            let after = CaptureState { bytes, written, failed, cut_off, portions, ended, error };
            let notes = RecorderNotes { after, before };
            prop_assert_eq!(RecorderNotes::of(notes.numbers(Some(28))), notes);
        }
    }
}
