//! `pcap:FILE`: capture files. A port replays a file into the switch, captures frames to a file, or both.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::PortKind;
use netvale_fdio::state::{Fd, State};
use netvale_pcapport::{
    CAPTURE_MEMORY, CaptureLimit, CaptureOptions, CaptureStatus, PcapEgress, PcapIngress, ReplayError, ReplayOptions,
    ReplayPace, ReplayStatus, WriteError,
};
use netvale_port::{Egress, Ingress};
use netvale_portspec::AttachSpec;
use rustix::io::Errno;

use self::files::CaptureFileError;
use super::kind::AdmittedRequest;
use super::plug::{NewPort, plug};
use crate::caller::Caller;
use crate::config::Config;
use crate::daemon::{Daemon, PortBackend};
use crate::handover::items::ParkedPort;
use crate::handover::kinds::{FileProgress, FileState, FilesState, UserCaptures};
use crate::permission::{self, unreached};
use crate::refusal::{Refusal, refuse};

mod continued;
mod files;

/// Capture files of a port, and the position in each.
#[derive(Default)]
struct PortFiles {
    replay: Option<ReplayFile>,
    capture: Option<CaptureFile>,
}

/// A replayed file.
struct ReplayFile {
    path: PathBuf,
    file: File,
    status: Arc<ReplayStatus>,
    /// Shared memory in which the replay records its position in the file.
    noted: OwnedFd,
}

/// A file to which frames are being captured.
struct CaptureFile {
    path: PathBuf,
    file: File,
    egress: Arc<PcapEgress>,
    /// Whether the file counts towards the user's allowance of disk space.
    shares: bool,
}

/// How long to wait, in a hand-over, until a capture's frames are in its file.
const SETTLING: Duration = Duration::from_secs(1);

impl PortBackend for PortFiles {
    fn kind(&self) -> PortKind {
        PortKind::Pcap
    }

    fn memory(&self) -> u64 {
        if self.capture.is_some() { CAPTURE_MEMORY } else { 0 }
    }

    fn notes(&self) -> Vec<String> {
        let replay = self.replay.iter().map(|replay| replay_note(&replay.path, &replay.status));
        replay.chain(self.capture.iter().map(|one| capture_note(&one.path, one.egress.status()))).collect()
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        let replay = self.replay.as_ref().map(|replay| {
            let progress = FileProgress::Said(replay.status.settled());
            std::io::Result::Ok(FileState { file: Fd::copy_of(&replay.file)?, progress })
        });
        let capture = self.capture.as_ref().map(|one| {
            let slow = || std::io::Error::other(format!("writing {} takes too long; try again", one.path.display()));
            let progress = FileProgress::Said(one.egress.settle(SETTLING).ok_or_else(slow)?);
            std::io::Result::Ok((FileState { file: Fd::copy_of(&one.file)?, progress }, one.shares))
        });
        let state = FilesState { replay: replay.transpose()?, capture: capture.transpose()? };
        Ok(Some(State::of(&state)?.into()))
    }

    /// Saves the state. Returns `None` if the capture is not a regular file, because a FIFO has no position to restore.
    fn save(&self) -> std::io::Result<Option<State>> {
        if let Some(CaptureFile { file, .. }) = &self.capture
            && !file.metadata()?.is_file()
        {
            return Ok(None);
        }
        let replay = self.replay.as_ref().map(|ReplayFile { file, noted, .. }| {
            std::io::Result::Ok(FileState {
                file: Fd::copy_of(file)?,
                progress: FileProgress::Noted(Fd::copy_of(noted)?),
            })
        });
        let capture = self.capture.as_ref().map(|CaptureFile { file, egress, shares, .. }| {
            let progress = FileProgress::Noted(Fd::copy_of(egress.noted())?);
            std::io::Result::Ok((FileState { file: Fd::copy_of(file)?, progress }, *shares))
        });
        let state = FilesState { replay: replay.transpose()?, capture: capture.transpose()? };
        Ok(Some(State::of(&state)?))
    }

    fn stop(self: Box<Self>, d: &mut Daemon, _full: &str) {
        if let Some(CaptureFile { egress, .. }) = self.capture {
            let status = Arc::clone(egress.status());
            // The capture ends when its last egress is dropped.
            drop(egress);
            d.captures.close(&status);
        }
    }
}

fn replay_note(path: &Path, status: &ReplayStatus) -> String {
    let state = match (status.error(), status.finished()) {
        (Some(error), _) => format!("ended early: {error}"),
        (None, true) => "at its end".into(),
        (None, false) => "running".into(),
    };
    format!("replay of {}: {state}, {} passes done", path.display(), status.passes())
}

fn capture_note(path: &Path, status: &CaptureStatus) -> String {
    let written = format!("capture to {}: {} frames written", path.display(), status.written());
    match (status.error(), status.ended()) {
        (Some(error), _) => format!("{written}, {} lost: {error}", status.lost()),
        (None, Some(why)) => format!("{written}; {why}"),
        (None, None) => written,
    }
}

/// Attaches a port that replays a file or captures to a file, or restores such a port.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Pcap(named) = asked.spec else { return Err(asked.mistaken()) };
    let paths = [named.replay(), named.capture()].map(|file| file.map(|file| Path::new(file.as_str())));
    if let Some(state) = asked.continued() {
        return continued::continue_port(d, asked, paths, state);
    }
    let [replayed, captured] = paths;
    let replay = replayed.map(|path| replay(&d.config, asked.caller, path, asked.options()?)).transpose()?;
    if captured.is_none() && limit(asked)?.is_some() {
        return refuse(Errno::INVAL, "capture_limit requires a capture: omit capture_limit, or name a file with out=");
    }
    let capture = captured.map(|path| capture(d, asked.caller, path, limit(asked)?)).transpose()?;
    on_switch(d, asked, replay, capture)
}

/// Attaches the port to its switch, after its files have been opened.
fn on_switch(
    d: &mut Daemon,
    asked: &AdmittedRequest<'_>,
    replay: Option<(ReplayFile, PcapIngress)>,
    capture: Option<CaptureFile>,
) -> Result<(), Refusal> {
    let mut egress = Vec::<Arc<dyn Egress>>::new();
    let mut ingresses = Vec::<Box<dyn Ingress>>::new();
    let mut files = PortFiles { replay: None, capture };
    if let Some((replayed, ingress)) = replay {
        files.replay = Some(replayed);
        ingresses.push(Box::new(ingress));
    }
    if let Some(one) = &files.capture {
        d.captures.add(one.egress.status());
        egress.push(Arc::clone(&one.egress) as Arc<dyn Egress>);
    }
    plug(d, &asked.at, (egress, ingresses), NewPort::new(files, asked))
}

/// Restores the record of a user's capture files, whose sizes count towards the user's allowance.
pub fn restore(d: &mut Daemon, item: UserCaptures) {
    let caller = Caller { client: 0, uid: item.user, pid: 0 };
    let config = &d.config;
    let most = d.config.quota.captures_mib;
    d.captures.restore(item, most, |path| permission::place(config, caller, path).ok());
}

/// Returns the maximum size of the capture's file in bytes; `None` for no limit.
fn limit(asked: &AdmittedRequest<'_>) -> Result<Option<u64>, Refusal> {
    let of_replay = asked.options::<kind::Replay>().map(|o| o.capture_limit());
    let mib = of_replay.or_else(|_| asked.options::<kind::Capture>().map(|o| o.capture_limit()))?;
    Ok(mib.map(|mib| u64::from(mib) << 20))
}

fn replay_options(o: OptionsOf<'_, kind::Replay>) -> Result<ReplayOptions, Refusal> {
    let speed = o.speed().unwrap_or(1.0);
    let pace = ReplayPace::times(speed).ok_or_else(|| {
        Refusal::new(Errno::INVAL, format!("invalid speed {speed}: expected a number from 0, e.g. 2.5"))
    })?;
    Ok(ReplayOptions { passes: u64::from(!o.repeat()), pace })
}

fn replay(
    config: &Config,
    caller: Caller,
    path: &Path,
    o: OptionsOf<'_, kind::Replay>,
) -> Result<(ReplayFile, PcapIngress), Refusal> {
    let options = replay_options(o)?;
    let file = files::to_read(&permission::place(config, caller, path)?).map_err(|e| unopened(config, path, &e))?;
    let ingress = PcapIngress::new(file.try_clone()?, path, options, Arc::default()).map_err(|e| unreadable(&e))?;
    replayed_as(path, file, ingress)
}

fn replayed_as(path: &Path, file: File, ingress: PcapIngress) -> Result<(ReplayFile, PcapIngress), Refusal> {
    let status = Arc::clone(ingress.status());
    let noted = ingress.noted().try_clone_to_owned()?;
    Ok((ReplayFile { path: path.to_owned(), file, status, noted }, ingress))
}

fn capture(d: &mut Daemon, caller: Caller, path: &Path, bytes: Option<u64>) -> Result<CaptureFile, Refusal> {
    let place = permission::place(&d.config, caller, path)?;
    permission::may_have_bytes(d, caller, CAPTURE_MEMORY)?;
    let shared = permission::allowance(d, caller)?;
    let limit = CaptureLimit { bytes, shared: shared.clone() };
    let made = files::to_write(&place).map_err(|e| unopened(&d.config, path, &e)).and_then(|file| {
        let stat = rustix::fs::fstat(&file)?;
        let egress = PcapEgress::new(file.try_clone()?, path, CaptureOptions::of(path), limit, Arc::default());
        let egress = Arc::new(egress.map_err(|e| unwritable(&e))?);
        let shares = shared.is_some();
        Ok((CaptureFile { path: path.to_owned(), file, egress, shares }, (stat.st_dev, stat.st_ino)))
    });
    match (&made, &shared) {
        (Err(_), Some(shared)) => shared.correct(1, 0),
        (Ok((one, (device, inode))), Some(_)) => {
            d.captures.remember(caller.uid, place, *device, *inode, one.egress.status());
        }
        _ => {}
    }
    made.map(|(one, _)| one)
}

fn unopened(config: &Config, path: &Path, why: &CaptureFileError) -> Refusal {
    unreached(config, why.errno(), format!("cannot open {}: {why}", path.display()))
}

fn unreadable(error: &ReplayError) -> Refusal {
    match error {
        ReplayError::System(source) => Refusal::new(Errno::NOMEM, source.to_string()),
        other => Refusal::new(Errno::INVAL, other.to_string()),
    }
}

fn unwritable(error: &WriteError) -> Refusal {
    let errno = error.io().and_then(std::io::Error::raw_os_error).map_or(Errno::IO, Errno::from_raw_os_error);
    Refusal::new(errno, format!("{error}; make room, or capture elsewhere"))
}
