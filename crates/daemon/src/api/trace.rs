//! Traces of the paths of single frames through a switch, for the owners of the ports.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use netvale_control::types::{
    Direction, TraceBeginParams, TraceBeginReply, TraceRead, TraceStep, TracedFrame, TracedRule,
};
use netvale_control::{ErrorCode, RpcError};
use netvale_mem::steps::Step;
use netvale_policy::bpf::FilterProgram;
use netvale_portspec::{PortName, SwitchName};
use netvale_switch::trace::{HEAD, Trace, TraceOptions, TraceRecord, now};
use netvale_switch::{PortId, Switch};

use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::permission::{self, controls};
use crate::registry::traces::TraceSession;

/// Maximum number of unread records of a trace. Further records are lost.
const ROOM: usize = 1024;
/// Maximum number of records in one answer.
const AT_ONCE: usize = 256;

/// Starts a trace of the frames of some ports, for the caller's connection. Returns the full names of the ports.
pub fn begin(d: &mut Daemon, p: &TraceBeginParams, caller: Caller) -> Result<TraceBeginReply, RpcError> {
    permission::may_trace(d, caller)?;
    let wrong = |what: String| RpcError::new(ErrorCode::InvalidParams, what, "nothing is traced");
    let parse = |text: &String| FilterProgram::parse(text).map_err(|why| wrong(format!("filter: {why}")));
    let filter = p.filter.as_ref().map(parse).transpose()?;
    let mut ports = Vec::new();
    for of in &p.of {
        match ports_of(d, of, caller) {
            Err(error) if p.later && error.is(ErrorCode::NotFound) => place(of).map_err(|()| error)?,
            found => ports.extend(found?),
        }
    }
    ports.sort_by(|(_, one, _), (_, other, _)| one.cmp(other));
    ports.dedup_by(|(_, one, _), (_, other, _)| one == other);
    let switch = ports.first().map(|(switch, ..)| Arc::clone(switch));
    if switch.is_none() && (p.of.is_empty() || !p.later) {
        return Err(wrong(
            "no port to trace: expected one of your ports, or a switch with at least one of your ports".to_owned(),
        ));
    }
    let is_elsewhere = |of: &String| switch_of(of) != p.of.first().map_or("", |first| switch_of(first));
    if p.of.iter().any(is_elsewhere) {
        return Err(wrong("the ports are on several switches: expected ports of one switch".to_owned()));
    }
    let options = TraceOptions { filter, only_drops: p.drops, one_of: p.one_of.max(1), room: ROOM };
    let trace = Arc::new(Trace::new(options));
    let later = if p.later { p.of.clone() } else { Vec::new() };
    let mut session = TraceSession { caller, trace, switch, later, names: VecDeque::new() };
    name_ports(d, &mut session);
    for (switch, _, port) in &ports {
        switch.trace(port, &session.trace).map_err(|gone| wrong(gone.to_string()))?;
    }
    d.traces.begin(session);
    Ok(TraceBeginReply { ports: ports.into_iter().map(|(_, full, _)| full).collect() })
}

fn switch_of(place: &str) -> &str {
    place.split(':').next().unwrap_or_default()
}

/// Checks that `of` is a possible name of a switch, or of a port on a switch.
fn place(of: &str) -> Result<(), ()> {
    SwitchName::parse(switch_of(of)).map_err(drop)?;
    if of.contains(':') { PortName::parse(of).map(drop).map_err(drop) } else { Ok(()) }
}

/// Records the names of all ports that may appear in a trace.
fn name_ports(d: &Daemon, session: &mut TraceSession) {
    let Some(switch) = session.switch.clone() else { return };
    for (id, port) in switch.ports() {
        let full = format!("{}:{port}", switch.name());
        if let Some(owner) = d.ports.get(&full).map(|record| record.owner.uid) {
            let is_own = controls(session.caller, owner);
            session.note(id, full, is_own);
        }
    }
}

/// A port's switch, full name, and name on the switch.
type TracedPort = (Arc<Switch>, String, String);

/// Returns the port with the name `of`, or the caller's ports on the switch with that name.
fn ports_of(d: &Daemon, of: &str, caller: Caller) -> Result<Vec<TracedPort>, RpcError> {
    if let Some(switch) = d.switches.get(of) {
        permission::admit(d, caller, permission::PermissionRequest::InspectSwitch(of))?;
        let place = |(_, port): (PortId, String)| (Arc::clone(switch), format!("{of}:{port}"), port);
        let is_own =
            |place: &TracedPort| d.ports.get(&place.1).is_some_and(|record| controls(caller, record.owner.uid));
        return Ok(switch.ports().into_iter().map(place).filter(is_own).collect());
    }
    permission::admit(d, caller, permission::PermissionRequest::Change(of))?;
    let what = if of.contains(':') { "port" } else { "port or switch" };
    let none =
        || RpcError::new(ErrorCode::NotFound, format!("{what} {of} does not exist"), "'netvale list' shows the ports");
    let record = d.ports.get(of).ok_or_else(none)?;
    let on = |text: &'static str| RpcError::new(ErrorCode::InvalidParams, format!("{of} {text}"), "nothing is traced");
    let (switch, id) = record.switch.as_ref().zip(record.id).ok_or_else(|| on("is not on a switch"))?;
    let port = switch.ports().into_iter().find(|(found, _)| *found == id).map(|(_, port)| port);
    Ok(vec![(Arc::clone(switch), of.to_owned(), port.ok_or_else(none)?)])
}

/// Returns up to [`AT_ONCE`] records that have not been read yet.
pub fn read(d: &Daemon, caller: Caller) -> Result<TraceRead, RpcError> {
    let none =
        || RpcError::new(ErrorCode::NotFound, "this connection traces nothing".to_owned(), "call trace.begin first");
    let session = d.traces.of(caller.client).ok_or_else(none)?;
    // The number of traced ports is read before the records: if the number is 0, no records are added after those that
    // are read now.
    let ports = session.switch.as_ref().map_or(0, |switch| switch.traced(&session.trace));
    let records: Vec<_> = std::iter::from_fn(|| session.trace.next()).take(AT_ONCE).collect();
    // The ages of all records are computed at the same time `at`, so that a later record never appears older than an
    // earlier record.
    let at = now();
    let frames = records.iter().map(|record| RecordNames { session, record }.frame(at)).collect();
    Ok(TraceRead { ports, lost: session.trace.lost(), frames })
}

/// A record, and the trace session that contains the names of the record's ports.
struct RecordNames<'a> {
    session: &'a TraceSession,
    record: &'a TraceRecord,
}

impl RecordNames<'_> {
    fn name(&self, id: PortId) -> String {
        self.session.name(id, self.record.at).to_owned()
    }

    fn frame(&self, at: u64) -> TracedFrame {
        let record = self.record;
        let known = (record.len as usize).min(HEAD);
        let head = record.head.get(..known).unwrap_or_default();
        TracedFrame {
            age_ns: at.saturating_sub(record.at),
            port: self.name(record.from),
            ring: record.ring,
            len: record.len,
            segment: (record.left.gso_type != 0).then_some(record.left.gso_size),
            no_checksum: record.left.flags & netvale_wire::vnet::F_NEEDS_CSUM != 0,
            head: hex(head),
            steps: self.steps(),
            more_steps: record.steps.more(),
        }
    }

    /// Returns the steps of the frame. Steps before the first receiver name filter rules of the sender; later steps
    /// name rules of the receiver that was named last.
    fn steps(&self) -> Vec<TraceStep> {
        let record = self.record;
        let mut port = record.from;
        let mut dir = Direction::In;
        let step = |&step: &Step| {
            if let Step::Out(receiver) = step {
                port = receiver;
                dir = Direction::Out;
            }
            self.step(step, port, dir)
        };
        record.steps.list().iter().map(step).collect()
    }

    fn step(&self, step: Step, port: PortId, dir: Direction) -> TraceStep {
        match step {
            Step::Vlan(vlan) => TraceStep::Vlan(vlan),
            Step::Learned => TraceStep::Learned,
            Step::Moved(from) => TraceStep::MovedFrom(self.name(from)),
            Step::Kept(at) => TraceStep::Kept(self.name(at)),
            Step::NotLearned => TraceStep::NotLearned,
            Step::Out(port) => TraceStep::For(self.name(port)),
            Step::Rule(number, drops) => {
                TraceStep::Rule(TracedRule { port: self.name(port), dir, number: number.saturating_add(1), drops })
            }
            Step::Unknown => TraceStep::Unknown,
            Step::Floods => TraceStep::Floods,
            Step::Link => TraceStep::Link,
            Step::To(port, ring) => TraceStep::To(format!("{}/{ring}", self.name(port))),
            Step::Waits => TraceStep::Waits,
            Step::Taken => TraceStep::Taken,
            Step::Cut(segments) => TraceStep::Cut(segments),
            Step::Summed => TraceStep::Summed,
            Step::Dropped(why, times) => TraceStep::Dropped(why.name().to_owned(), times),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
