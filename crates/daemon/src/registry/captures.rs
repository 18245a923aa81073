//! Capture files: files that are being written, even after their ports have ended, and users' finished files on the
//! disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_pcapport::limit::PORTION;
use netvale_pcapport::{Allowance, CaptureStatus};
use netvale_port::folder::UserPath;

use crate::handover::kinds::{KeptCapture, UserCaptures};

/// How long to wait, when the daemon exits, until captures are in their files.
const CLOSING: Duration = Duration::from_secs(5);
/// How long to wait, when a capture's port is detached, until the capture is in its file. Other clients wait during
/// that time.
const DETACHING: Duration = Duration::from_millis(500);

/// Captures that are being written, and each user's capture files on the disk.
#[derive(Default)]
pub struct Captures {
    writing: Vec<Arc<CaptureStatus>>,
    /// Captures of removed ports whose last frames are not in their files yet.
    ending: Vec<Arc<CaptureStatus>>,
    users: BTreeMap<u32, CaptureAccount>,
}

/// A user's allowance and capture files.
struct CaptureAccount {
    allowance: Arc<Allowance>,
    files: Vec<CaptureRecord>,
}

/// A capture file that counts towards the allowance as long as it exists under its name.
struct CaptureRecord {
    place: UserPath,
    /// Device and inode number.
    file: (u64, u64),
    status: Arc<CaptureStatus>,
    /// Size in portions (units of file size) at the last check; `None` until the capture is closed.
    portions: Option<u64>,
}

impl CaptureRecord {
    /// Returns the present size of the file in portions; 0 if the file no longer exists. The capture must be closed.
    fn now(&self) -> u64 {
        let found = self.place.open().and_then(|folder| folder.find());
        let found = found.ok().filter(|found| found.identity() == self.file);
        found.map_or(0, |found| found.size().div_ceil(PORTION).max(1))
    }
}

impl CaptureAccount {
    /// Updates the sizes of all closed files, because their owner may have removed or emptied some of them.
    fn look(&mut self) {
        let allowance = &self.allowance;
        self.files.retain_mut(|kept| {
            if !kept.status.wait_closed(Duration::ZERO) {
                return true;
            }
            let before = kept.portions.unwrap_or_else(|| kept.status.portions());
            let now = kept.now();
            allowance.correct(before, now);
            kept.portions = Some(now);
            now > 0
        });
    }
}

impl Captures {
    /// Adds a new capture to the captures that are being written.
    pub fn add(&mut self, capture: &Arc<CaptureStatus>) {
        self.writing.push(Arc::clone(capture));
    }

    /// Returns the allowance of `most` portions (units of file size) that all captures of a user share. Portions of
    /// removed files are first returned to the allowance.
    pub fn allowance(&mut self, user: u32, most: u64) -> &Arc<Allowance> {
        let new = || CaptureAccount { allowance: Arc::new(Allowance::new(most)), files: Vec::new() };
        let captured = self.users.entry(user).or_insert_with(new);
        captured.look();
        &captured.allowance
    }

    /// Sets the allowance, in portions, that each user's captures share.
    pub fn set_most(&self, most: u64) {
        self.users.values().for_each(|user| user.allowance.set_most(most));
    }

    /// Records the file of a user's new capture. The caller has taken a portion from the allowance for it.
    pub fn remember(&mut self, user: u32, place: UserPath, device: u64, inode: u64, status: &Arc<CaptureStatus>) {
        let Some(CaptureAccount { allowance, files }) = self.users.get_mut(&user) else { return };
        let file = (device, inode);
        // The new capture overwrites the file, so the file's former record is removed.
        files.retain(|kept| {
            let old = kept.portions.filter(|_| kept.file == file);
            allowance.correct(old.unwrap_or(0), 0);
            old.is_none()
        });
        files.push(CaptureRecord { place, file, status: Arc::clone(status), portions: None });
    }

    /// Ends the capture of a removed port. When this function returns, the file is complete, unless writing takes
    /// longer than [`DETACHING`].
    pub fn close(&mut self, capture: &CaptureStatus) {
        if !capture.wait_closed(DETACHING) {
            tracing::warn!("a capture is still being written");
            self.ending.extend(self.writing.iter().find(|one| std::ptr::eq(&***one, capture)).map(Arc::clone));
        }
        self.writing.retain(|one| !one.wait_closed(Duration::ZERO));
    }

    /// Waits at most [`CLOSING`] until captures of removed ports are in their files. Captures of other ports continue.
    pub fn wait_for_ending(&mut self) {
        let end = Instant::now() + CLOSING;
        self.ending.retain(|one| !one.wait_closed(end.saturating_duration_since(Instant::now())));
    }

    /// Like [`Captures::kept`], but does not count the portions of captures that ports are still writing, because each
    /// of these ports takes its portions again when it is restored.
    pub fn kept_without_ports(&self) -> Vec<UserCaptures> {
        let mut kept = self.kept();
        for user in &mut kept {
            user.used = user.files.iter().map(|file| file.portions).sum();
        }
        kept
    }

    /// Returns the items of users' captures, without the files that ports are still writing.
    pub fn kept(&self) -> Vec<UserCaptures> {
        let of_port = |kept: &&CaptureRecord| {
            let is_it = |one: &Arc<CaptureStatus>| Arc::ptr_eq(one, &kept.status);
            self.writing.iter().any(is_it) && !self.ending.iter().any(is_it)
        };
        let file = |kept: &CaptureRecord| KeptCapture {
            path: kept.place.path().to_owned(),
            file: kept.file,
            portions: kept.portions.unwrap_or_else(|| kept.status.portions()),
        };
        let user = |(&user, captured): (&u32, &CaptureAccount)| UserCaptures {
            user,
            used: captured.allowance.used(),
            files: captured.files.iter().filter(|kept| !of_port(kept)).map(file).collect(),
        };
        self.users.iter().map(user).collect()
    }

    /// Restores a user's captures. `place` checks a path for the user, and returns `None` if the user may no longer use
    /// that path.
    pub fn restore(&mut self, item: UserCaptures, most: u64, place: impl Fn(&Path) -> Option<UserPath>) {
        let allowance = Arc::new(Allowance::with_used(most, item.used.min(u64::MAX >> 2)));
        let mut files = Vec::new();
        for KeptCapture { path, file, portions } in item.files {
            match place(&path) {
                Some(place) => {
                    let status = Arc::new(CaptureStatus::over());
                    files.push(CaptureRecord { place, file, status, portions: Some(portions) });
                }
                None => allowance.correct(portions.min(allowance.used()), 0),
            }
        }
        self.users.insert(item.user, CaptureAccount { allowance, files });
    }

    /// Returns the allowance that a user's captures share; `None` if the user has no captures.
    pub fn known_allowance(&self, user: u32) -> Option<&Arc<Allowance>> {
        self.users.get(&user).map(|captured| &captured.allowance)
    }

    /// Records the file of a user's restored capture.
    pub fn remember_again(&mut self, user: u32, place: UserPath, device: u64, inode: u64, status: &Arc<CaptureStatus>) {
        if let Some(captured) = self.users.get_mut(&user) {
            let file = (device, inode);
            captured.files.push(CaptureRecord { place, file, status: Arc::clone(status), portions: None });
        }
    }

    /// Waits at most [`CLOSING`] until all captures are in their files. To be called after all ports have been removed.
    pub fn wait(&mut self) {
        let end = Instant::now() + CLOSING;
        self.writing.retain(|one| !one.wait_closed(end.saturating_duration_since(Instant::now())));
    }
}
