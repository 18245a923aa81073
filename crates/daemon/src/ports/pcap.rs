//! `pcap:FILE`: capture files: one that is replayed into the switch, one that is written, or both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::PortKind;
use netvale_pcapport::{
    CaptureOptions, CaptureStatus, Limit, Pace, PcapEgress, PcapIngress, ReplayError, ReplayOptions, ReplayStatus,
    WriteError,
};
use netvale_port::{Egress, Ingress};
use netvale_portspec::AttachSpec;
use rustix::io::Errno;

use self::files::Unopened;
use super::kind::Asked;
use super::plug::{NewPort, plug};
use crate::caller::Caller;
use crate::config::Config;
use crate::daemon::{Attached, Daemon};
use crate::policy::{self, unreached};
use crate::refusal::{Refusal, refuse};

mod files;

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
    match (status.error(), status.ended()) {
        (Some(error), _) => format!("{written}, {} lost: {error}", status.lost()),
        (None, Some(why)) => format!("{written}; {why}"),
        (None, None) => written,
    }
}

/// Attaches capture files.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let AttachSpec::Pcap(named) = asked.spec else { return Err(asked.mistaken()) };
    let (mut egress, mut ingresses) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
    let mut files = Files::default();
    if let Some(file) = named.replay() {
        let ingress = replay(&d.config, asked.caller, Path::new(file.as_str()), asked.options()?)?;
        files.replay = Some((file.as_str().into(), Arc::clone(ingress.status())));
        ingresses.push(Box::new(ingress));
    }
    if let Some(file) = named.capture() {
        let capture = capture(d, asked.caller, Path::new(file.as_str()), limit(asked)?)?;
        files.capture = Some((file.as_str().into(), Arc::clone(capture.status())));
        d.captures.add(capture.status());
        egress.push(Arc::new(capture));
    } else if limit(asked)?.is_some() {
        return refuse(Errno::INVAL, "capture_limit: nothing is captured; omit it, or name a file with out=");
    }
    plug(d, &asked.at, (egress, ingresses), NewPort::new(files, asked))
}

/// The most bytes of the capture's file.
fn limit(asked: &Asked<'_>) -> Result<Option<u64>, Refusal> {
    let of_replay = asked.options::<kind::Replay>().map(|o| o.capture_limit());
    let mib = of_replay.or_else(|_| asked.options::<kind::Capture>().map(|o| o.capture_limit()))?;
    Ok(mib.map(|mib| u64::from(mib) << 20))
}

fn replay(
    config: &Config,
    caller: Caller,
    path: &Path,
    o: OptionsOf<'_, kind::Replay>,
) -> Result<PcapIngress, Refusal> {
    let speed = o.speed().unwrap_or(1.0);
    let pace = Pace::times(speed).ok_or_else(|| Refusal::new(Errno::INVAL, format!("invalid speed {speed}")))?;
    let options = ReplayOptions { passes: u64::from(!o.repeat()), pace };
    let file = files::to_read(&policy::place(config, caller, path)?).map_err(|e| unopened(config, path, &e))?;
    PcapIngress::new(file, path, options, Arc::default()).map_err(|e| unreadable(&e))
}

fn capture(d: &mut Daemon, caller: Caller, path: &Path, bytes: Option<u64>) -> Result<PcapEgress, Refusal> {
    let place = policy::place(&d.config, caller, path)?;
    let shared = policy::allowance(d, caller)?;
    let limit = Limit { bytes, shared: shared.clone() };
    let made = files::to_write(&place).map_err(|e| unopened(&d.config, path, &e)).and_then(|file| {
        let stat = rustix::fs::fstat(&file)?;
        let egress = PcapEgress::limited(file, path, CaptureOptions::of(path), limit, Arc::default());
        Ok((egress.map_err(|e| unwritable(&e))?, (stat.st_dev, stat.st_ino)))
    });
    match (&made, &shared) {
        (Err(_), Some(shared)) => shared.correct(1, 0),
        (Ok((egress, file)), Some(_)) => d.captures.remember(caller.uid, place, *file, egress.status()),
        _ => {}
    }
    made.map(|(egress, _)| egress)
}

fn unopened(config: &Config, path: &Path, why: &Unopened) -> Refusal {
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
