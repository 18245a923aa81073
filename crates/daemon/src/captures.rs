//! Ports that are capture files: opening them for callers that may name them, and seeing them closed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::types::{AttachParams, PortKind, PortOptions};
use netvale_pcapport::{
    CaptureOptions, CaptureStatus, Pace, PcapEgress, PcapIngress, ReplayError, ReplayOptions, ReplayStatus, WriteError,
};
use netvale_port::{Egress, Ingress};
use netvale_portspec::{AttachSpec, PcapFiles};
use rustix::io::Errno;

use crate::config::Config;
use crate::devices::Device;
use crate::refusal::Refusal;
use crate::state::{Caller, NewPort, PortRecord, State};

/// How long the daemon waits at its end for captures to reach their files.
const CLOSING: Duration = Duration::from_secs(5);
/// The same while it serves: other clients wait, too.
const DETACHING: Duration = Duration::from_millis(500);

/// State of a port's capture files.
#[derive(Default)]
pub struct Files {
    replay: Option<(PathBuf, Arc<ReplayStatus>)>,
    capture: Option<(PathBuf, Arc<CaptureStatus>)>,
}

impl Files {
    /// Sentences for `netvale show`.
    pub fn notes(&self) -> Vec<String> {
        let replay = self.replay.iter().map(|(path, status)| replay_note(path, status));
        replay.chain(self.capture.iter().map(|(path, status)| capture_note(path, status))).collect()
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

impl State {
    /// Attaches capture files: one that is replayed into the switch, one that is written, or both.
    pub(crate) fn attach_pcap(
        &mut self,
        (switch, port): (&str, &str),
        files: &PcapFiles,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.check_free(switch, port)?;
        let (mut egress, mut ingresses) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
        let mut status = Files::default();
        if let Some(file) = files.replay() {
            let ingress = self.replay(Path::new(file.as_str()), o, caller)?;
            status.replay = Some((file.as_str().into(), Arc::clone(ingress.status())));
            ingresses.push(Box::new(ingress));
        }
        if let Some(file) = files.capture() {
            let capture = self.capture(Path::new(file.as_str()), caller)?;
            status.capture = Some((file.as_str().into(), Arc::clone(capture.status())));
            self.captures.push(Arc::clone(capture.status()));
            egress.push(Arc::new(capture));
        }
        let device = Device { kind: PortKind::Pcap, files: status, ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, port, egress, ingresses, new).map(|_| ())
    }

    fn replay(&self, path: &Path, o: &PortOptions, caller: Caller) -> Result<PcapIngress, Refusal> {
        self.may_name(path, caller)?;
        let speed = o.speed.unwrap_or(1.0);
        let pace = Pace::times(speed).ok_or_else(|| Refusal::new(Errno::INVAL, format!("{speed} is no speed")))?;
        let options = ReplayOptions { passes: u64::from(!o.repeat), pace };
        PcapIngress::open(path, options, Arc::default()).map_err(|e| self.unreadable(&e))
    }

    fn capture(&self, path: &Path, caller: Caller) -> Result<PcapEgress, Refusal> {
        self.may_name(path, caller)?;
        let file = create(path).map_err(|e| self.unopened(path, &e))?;
        PcapEgress::new(file, path, CaptureOptions::of(path), Arc::default()).map_err(|e| unwritable(&e))
    }

    /// Files are opened with the daemon's rights: others than its own user may only name those in `allow-dirs`.
    pub(crate) fn may_name(&self, path: &Path, caller: Caller) -> Result<(), Refusal> {
        if !path.is_absolute() {
            return Err(Refusal::new(Errno::INVAL, format!("{}: give an absolute path", path.display())));
        }
        if caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let allowed = self.config.allow_dirs.iter().filter_map(|dir| dir.canonicalize().ok());
        if folder.is_some_and(|folder| allowed.into_iter().any(|dir| folder.starts_with(dir))) {
            return Ok(());
        }
        let text = format!(
            "{} lies in none of the daemon's allow-dirs: use one, or 'netvale replay' and 'netvale dump'",
            path.display()
        );
        Err(Refusal::new(Errno::ACCESS, text))
    }

    fn unopened(&self, path: &Path, error: &std::io::Error) -> Refusal {
        let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        self.unreached(errno, format!("cannot open {}: {error}", path.display()))
    }

    /// A path that could not be used, perhaps because of the sandbox.
    pub(crate) fn unreached(&self, errno: Errno, mut text: String) -> Refusal {
        if self.config.sandbox && errno == Errno::ACCESS {
            text.push_str(
                "; the daemon's sandbox only reaches its run directory and its allow-dirs: add the folder there",
            );
        }
        Refusal::new(errno, text)
    }

    fn unreadable(&self, error: &ReplayError) -> Refusal {
        match error {
            ReplayError::Read { path, source: netvale_pcapport::ReadError::Open { source, .. } } => {
                self.unopened(path, source)
            }
            ReplayError::System(source) => Refusal::new(Errno::NOMEM, source.to_string()),
            other => Refusal::new(Errno::INVAL, other.to_string()),
        }
    }

    /// Lets go of a detached port; its capture is whole when the caller is told so, unless the disk is very slow.
    pub(crate) fn close_captures(&mut self, record: PortRecord) {
        let closing =
            record.device().and_then(|device| device.files.capture.as_ref()).map(|(_, status)| Arc::clone(status));
        drop(record);
        if closing.is_some_and(|status| !status.wait_closed(DETACHING)) {
            tracing::warn!("a capture is still being written");
        }
        self.captures.retain(|one| !one.wait_closed(Duration::ZERO));
    }

    /// Waits for captures whose ports are gone to reach their files.
    pub(crate) fn wait_captures(captures: &mut Vec<Arc<CaptureStatus>>) {
        let end = Instant::now() + CLOSING;
        captures.retain(|one| !one.wait_closed(end.saturating_duration_since(Instant::now())));
    }
}

/// Follows no link that somebody may have put there.
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

/// Folders of the configured ports' files and sockets: they stay reachable in the sandbox without being named twice.
pub(crate) fn configured_folders(config: &Config) -> Vec<PathBuf> {
    let files = |port: &AttachParams| match AttachSpec::parse(&port.port) {
        Ok(AttachSpec::Pcap(files)) => {
            let both = files.replay().into_iter().chain(files.capture());
            both.filter_map(|file| Path::new(file.as_str()).parent().map(Path::to_owned)).collect()
        }
        Ok(AttachSpec::Vhost(socket) | AttachSpec::Virtio(socket) | AttachSpec::Ptnet(socket)) => {
            Path::new(socket.as_str()).parent().map(Path::to_owned).into_iter().collect()
        }
        // What cannot be parsed is refused when it is attached.
        _ => Vec::new(),
    };
    config.ports.iter().flat_map(files).collect()
}
