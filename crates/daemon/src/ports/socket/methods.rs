//! `vde.set`: creates lines (ports for single plugs) of a VDE switch before their plugs connect, and reserves lines for
//! plugs that request them by their numbers.

use std::collections::BTreeSet;

use netvale_control::types::{Confirmation, KindRequest, PortKind, VdeSetParams};
use netvale_control::{ErrorCode, Reply, RpcError};

use super::peers::new_line;
use super::port::{SocketPort, line_name};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::ports::kind::Methods;
use crate::ports::plug::unplug;
use crate::registry::exchanges::KnownExchange;

/// The control requests of VDE switches.
pub const METHODS: Methods = Methods { answer, due: |_| Vec::new() };

fn answer(d: &mut Daemon, request: &KindRequest, _caller: Caller) -> Option<Result<Reply, RpcError>> {
    match request {
        KindRequest::VdeSet(p) => Some(set(d, p).map(|()| Reply::Done(Confirmation {}))),
        _ => None,
    }
}

/// Creates the lines that a request names, or none of them, and sets which lines are reserved.
fn set(d: &mut Daemon, p: &VdeSetParams) -> Result<(), RpcError> {
    let mut known = taken(d, &p.port)?;
    let done = change(d, &mut known, p);
    d.exchanges.put_back(&p.port, known);
    match done {
        Ok(()) => {
            remember(d, p);
            Ok(())
        }
        Err(Unmade { new, why }) => {
            for number in new {
                // If the line no longer exists, that is not an error.
                let _ = unplug(
                    d,
                    &line_name(PortKind::Vde, &p.port, number),
                    "other ports of the same request could not be created",
                );
            }
            Err(why)
        }
    }
}

fn change(d: &mut Daemon, known: &mut KnownExchange, p: &VdeSetParams) -> Result<(), Unmade> {
    let wanted: Vec<u16> = p.reserve.iter().chain(&p.release).copied().collect();
    let most = fits(known, p, &wanted)?;
    make(d, known, &wanted)?;
    known.template.most = most;
    for (numbers, is_reserved) in [(&p.reserve, true), (&p.release, false)] {
        let lines = numbers.iter().filter_map(|number| known.exchange.lines().get(number));
        lines.for_each(|line| line.reserve(is_reserved));
    }
    Ok(())
}

/// The reason why a line could not be created, and the numbers of the lines that the same request had created before,
/// which must be removed.
struct Unmade {
    new: Vec<u16>,
    why: RpcError,
}

impl From<RpcError> for Unmade {
    fn from(why: RpcError) -> Unmade {
        Unmade { new: Vec::new(), why }
    }
}

/// Takes the exchange (the set of lines) of the attached port `full` out of the registry of exchanges. Fails if the
/// port is not a VDE switch.
fn taken(d: &mut Daemon, full: &str) -> Result<KnownExchange, RpcError> {
    let port = d.ports.get(full).ok_or_else(|| {
        RpcError::new(ErrorCode::NotFound, format!("port {full} does not exist"), "'netvale list' shows the ports")
    })?;
    let is_vde = port.behind.get::<SocketPort>().is_some_and(SocketPort::is_vde_switch);
    let known = if is_vde { d.exchanges.take(full) } else { None };
    known.ok_or_else(|| {
        let hint = "name the port that was attached as vde:/DIR, without a number";
        RpcError::new(ErrorCode::InvalidParams, format!("{full} is not a VDE switch"), hint)
    })
}

/// Checks the numbers of the wanted lines. Returns the maximum number of lines.
fn fits(known: &KnownExchange, p: &VdeSetParams, wanted: &[u16]) -> Result<usize, Unmade> {
    let most = p.peers.map_or(known.template.most, |peers| peers as usize);
    let mut numbers: BTreeSet<u16> = known.exchange.lines().keys().copied().collect();
    numbers.extend(wanted);
    if wanted.contains(&0) {
        let hint = "expected 1 to 65535";
        return Err(RpcError::new(ErrorCode::InvalidParams, "invalid port number 0", hint).into());
    }
    if numbers.len() > most {
        let what = format!("{} ports for plugs requested: expected at most {most}", numbers.len());
        return Err(RpcError::new(ErrorCode::InvalidParams, what, "raise 'peers', or detach ports").into());
    }
    Ok(most)
}

/// Creates the wanted lines that do not exist yet.
fn make(d: &mut Daemon, known: &mut KnownExchange, wanted: &[u16]) -> Result<(), Unmade> {
    let mut new = Vec::new();
    for &number in wanted {
        if known.exchange.lines().contains_key(&number) {
            continue;
        }
        match new_line(d, known, number) {
            Ok(_) => new.push(number),
            Err(why) => {
                let hint = "'netvale list' shows the ports";
                return Err(Unmade { new, why: RpcError::new(ErrorCode::InvalidParams, why, hint) });
            }
        }
    }
    Ok(())
}

/// Records the change in the port's parameters, so that a successor restores the same limit and the same lines.
fn remember(d: &mut Daemon, p: &VdeSetParams) {
    let declared = d.ports.get_mut(&p.port).and_then(|record| record.declared.as_mut());
    if let Some((declared, peers)) = declared.zip(p.peers) {
        declared.params.options.peers = Some(peers);
    }
    d.changes.everything = true;
}
