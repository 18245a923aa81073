//! Restores capture files at the position that another process reported in a hand-over, or recorded before that process
//! was killed.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use netvale_fdio::state::State;
use netvale_pcapport::{CaptureLimit, CaptureOptions, CaptureState, PcapEgress, PcapIngress, ReplayState};
use rustix::io::Errno;

use super::{CaptureFile, ReplayFile, limit, on_switch, replay_options, replayed_as, unreadable};
use crate::daemon::Daemon;
use crate::handover::kinds::{FileProgress, FileState, FilesState};
use crate::permission;
use crate::ports::kind::AdmittedRequest;
use crate::refusal::{Refusal, refuse};

/// Restores a port's files at the saved positions, and attaches the port.
pub(super) fn continue_port(
    d: &mut Daemon,
    asked: &AdmittedRequest<'_>,
    [replayed, captured]: [Option<&Path>; 2],
    state: State,
) -> Result<(), Refusal> {
    let FilesState { replay, capture } = state.read()?;
    if replay.is_some() != replayed.is_some() {
        return refuse(Errno::INVAL, "only one of the port and its saved state has a replay");
    }
    if capture.is_some() != captured.is_some() {
        return refuse(Errno::INVAL, "only one of the port and its saved state has a capture");
    }
    let replay = replayed.zip(replay).map(|(path, file)| continue_replay(asked, path, file)).transpose()?;
    let capture = captured.zip(capture);
    let capture = capture.map(|(path, (file, shares))| continue_capture(d, asked, path, file, shares)).transpose()?;
    on_switch(d, asked, replay, capture)
}

fn continue_replay(
    asked: &AdmittedRequest<'_>,
    path: &Path,
    state: FileState<ReplayState>,
) -> Result<(ReplayFile, PcapIngress), Refusal> {
    let file = File::from(state.file.take()?);
    let options = replay_options(asked.options()?)?;
    let again = file.try_clone()?;
    let ingress = match state.progress {
        FileProgress::Said(state) => PcapIngress::continued(again, path, options, state, Arc::default()),
        FileProgress::Noted(noted) => PcapIngress::after_a_kill(again, noted.take()?, path, options, Arc::default()),
    };
    replayed_as(path, file, ingress.map_err(|e| unreadable(&e))?)
}

fn continue_capture(
    d: &mut Daemon,
    asked: &AdmittedRequest<'_>,
    path: &Path,
    state: FileState<CaptureState>,
    shares: bool,
) -> Result<CaptureFile, Refusal> {
    let file = File::from(state.file.take()?);
    let user = asked.caller.uid;
    let none = || Refusal::new(Errno::INVAL, format!("the saved captures of user {user} are missing"));
    let shared = shares.then(|| d.captures.known_allowance(user).map(Arc::clone).ok_or_else(none)).transpose()?;
    let limit = CaptureLimit { bytes: limit(asked)?, shared };
    let stat = rustix::fs::fstat(&file)?;
    let options = CaptureOptions::of(path);
    let again = file.try_clone()?;
    let egress = match state.progress {
        FileProgress::Said(state) => PcapEgress::continued(again, path, options, limit, state, Arc::default()),
        FileProgress::Noted(noted) => {
            PcapEgress::after_a_kill(again, noted.take()?, path, options, limit, Arc::default())
        }
    };
    let egress = Arc::new(egress?);
    if shares && let Ok(place) = permission::place(&d.config, asked.caller, path) {
        d.captures.remember_again(user, place, stat.st_dev, stat.st_ino, egress.status());
    }
    Ok(CaptureFile { path: path.to_owned(), file, egress, shares })
}
