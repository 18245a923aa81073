//! Capture files where another process stopped: it said how far it had come, or it was killed, and has noted it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use netvale_pcapport::{CaptureOptions, Limit, PcapEgress, PcapIngress};
use rustix::io::Errno;

use super::{Captured, Replayed, limit, on_switch, replay_options, replayed_as, unreadable};
use crate::daemon::Daemon;
use crate::handover::captures::{Capture, FilesState, Replay};
use crate::handover::items::{State, from_said};
use crate::permission;
use crate::ports::kind::Asked;
use crate::refusal::{Refusal, refuse};

/// How far a file has come.
enum How<T> {
    Said(T),
    Noted(OwnedFd),
}

/// A file to continue.
struct Part<'a, T> {
    path: &'a Path,
    file: File,
    how: How<T>,
}

/// Continues files where another process stopped.
pub(super) fn continue_port(
    d: &mut Daemon,
    asked: &Asked<'_>,
    [replayed, captured]: [Option<&Path>; 2],
    state: State,
) -> Result<(), Refusal> {
    let FilesState { replay, capture, noted } = from_said(state.said)?;
    let mut fds = state.fds.into_iter();
    let (has_replay, shares) = match &noted {
        Some(noted) => (noted.replay, noted.capture),
        None => (replay.is_some(), capture.as_ref().map(|capture| capture.shares)),
    };
    if has_replay != replayed.is_some() {
        return refuse(Errno::INVAL, "a replay has no file, or a file no replay");
    }
    if shares.is_some() != captured.is_some() {
        return refuse(Errno::INVAL, "a capture has no file, or a file no capture");
    }
    let replay = replayed.map(|path| part(path, replay, &mut fds)).transpose()?;
    let capture = captured.map(|path| part(path, capture, &mut fds)).transpose()?;
    let replay = replay.map(|part| continue_replay(asked, part)).transpose()?;
    let capture = capture.zip(shares).map(|(part, shares)| continue_capture(d, asked, part, shares)).transpose()?;
    on_switch(d, asked, replay, capture)
}

fn part<'a, T>(
    path: &'a Path,
    said: Option<T>,
    fds: &mut impl Iterator<Item = OwnedFd>,
) -> Result<Part<'a, T>, Refusal> {
    let mut next = || fds.next().ok_or_else(|| Refusal::new(Errno::INVAL, "a file is missing"));
    let file = next()?.into();
    Ok(Part { path, file, how: said.map_or_else(|| next().map(How::Noted), |said| Ok(How::Said(said)))? })
}

fn continue_replay(asked: &Asked<'_>, part: Part<'_, Replay>) -> Result<(Replayed, PcapIngress), Refusal> {
    let Part { path, file, how } = part;
    let (options, again) = (replay_options(asked.options()?)?, file.try_clone()?);
    let ingress = match how {
        How::Said(state) => PcapIngress::continued(again, path, options, state.into(), Arc::default()),
        How::Noted(noted) => PcapIngress::after_a_kill(again, noted, path, options, Arc::default()),
    };
    replayed_as(path, file, ingress.map_err(|e| unreadable(&e))?)
}

fn continue_capture(
    d: &mut Daemon,
    asked: &Asked<'_>,
    part: Part<'_, Capture>,
    shares: bool,
) -> Result<Captured, Refusal> {
    let (Part { path, file, how }, user) = (part, asked.caller.uid);
    let none = || Refusal::new(Errno::INVAL, format!("nothing is known of what user {user} has captured"));
    let shared = shares.then(|| d.captures.known_allowance(user).map(Arc::clone).ok_or_else(none)).transpose()?;
    let limit = Limit { bytes: limit(asked)?, shared };
    let stat = rustix::fs::fstat(&file)?;
    let (options, again) = (CaptureOptions::of(path), file.try_clone()?);
    let egress = match how {
        How::Said(state) => PcapEgress::continued(again, path, options, limit, state.into(), Arc::default()),
        How::Noted(noted) => PcapEgress::after_a_kill(again, noted, path, options, limit, Arc::default()),
    };
    let egress = Arc::new(egress.or_else(|e| refuse(Errno::INVAL, e.to_string()))?);
    if shares && let Ok(place) = permission::place(&d.config, asked.caller, path) {
        d.captures.remember_again(user, place, (stat.st_dev, stat.st_ino), egress.status());
    }
    Ok(Captured { path: path.to_owned(), file, egress, shares })
}
