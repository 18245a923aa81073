//! `pcap:FILE`: capture files: one that is replayed into the switch, one that is written, or both.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::PortKind;
use netvale_pcapport::{
    CaptureOptions, CaptureStatus, Pace, PcapEgress, PcapIngress, ReadError, ReplayError, ReplayOptions, ReplayStatus,
    WriteError,
};
use netvale_port::{Egress, Ingress};
use netvale_portspec::AttachSpec;
use rustix::io::Errno;

use super::kind::Asked;
use super::plug::{NewPort, plug};
use crate::config::Config;
use crate::daemon::{Attached, Daemon};
use crate::policy::unreached;
use crate::refusal::Refusal;

/// Capture files behind a port, and their progress.
#[derive(Default)]
struct Files {
    replay: Option<(PathBuf, Arc<ReplayStatus>)>,
    capture: Option<(PathBuf, Arc<CaptureStatus>)>,
}

impl Attached for Files {
    fn kind(&self) -> PortKind {
        PortKind::Pcap
    }

    fn notes(&self) -> Vec<String> {
        let replay = self.replay.iter().map(|(path, status)| replay_note(path, status));
        replay.chain(self.capture.iter().map(|(path, status)| capture_note(path, status))).collect()
    }

    fn stop(self: Box<Self>, d: &mut Daemon, _full: &str) {
        if let Some((_, capture)) = self.capture {
            d.captures.close(&capture);
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
    match status.error() {
        Some(error) => format!("{written}, {} lost: {error}", status.lost()),
        None => written,
    }
}

/// Attaches capture files.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let AttachSpec::Pcap(named) = asked.spec else { return Err(asked.mistaken()) };
    let (mut egress, mut ingresses) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
    let mut files = Files::default();
    if let Some(file) = named.replay() {
        let ingress = replay(&d.config, Path::new(file.as_str()), asked.options()?)?;
        files.replay = Some((file.as_str().into(), Arc::clone(ingress.status())));
        ingresses.push(Box::new(ingress));
    }
    if let Some(file) = named.capture() {
        let capture = capture(&d.config, Path::new(file.as_str()))?;
        files.capture = Some((file.as_str().into(), Arc::clone(capture.status())));
        d.captures.add(capture.status());
        egress.push(Arc::new(capture));
    }
    plug(d, &asked.at, (egress, ingresses), NewPort::new(files, asked))
}

fn replay(config: &Config, path: &Path, o: OptionsOf<'_, kind::Replay>) -> Result<PcapIngress, Refusal> {
    let speed = o.speed().unwrap_or(1.0);
    let pace = Pace::times(speed).ok_or_else(|| Refusal::new(Errno::INVAL, format!("invalid speed {speed}")))?;
    let options = ReplayOptions { passes: u64::from(!o.repeat()), pace };
    PcapIngress::open(path, options, Arc::default()).map_err(|e| unreadable(config, &e))
}

fn capture(config: &Config, path: &Path) -> Result<PcapEgress, Refusal> {
    let file = create(path).map_err(|e| unopened(config, path, &e))?;
    PcapEgress::new(file, path, CaptureOptions::of(path), Arc::default()).map_err(|e| unwritable(&e))
}

fn unopened(config: &Config, path: &Path, error: &std::io::Error) -> Refusal {
    let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    unreached(config, errno, format!("cannot open {}: {error}", path.display()))
}

fn unreadable(config: &Config, error: &ReplayError) -> Refusal {
    match error {
        ReplayError::Read { path, source: ReadError::Open { source, .. } } => unopened(config, path, source),
        ReplayError::System(source) => Refusal::new(Errno::NOMEM, source.to_string()),
        other => Refusal::new(Errno::INVAL, other.to_string()),
    }
}

/// Creates a file, following no link that somebody may have put there.
fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

fn unwritable(error: &WriteError) -> Refusal {
    let errno = error.io().and_then(std::io::Error::raw_os_error).map_or(Errno::IO, Errno::from_raw_os_error);
    Refusal::new(errno, format!("{error}; make room, or capture elsewhere"))
}
