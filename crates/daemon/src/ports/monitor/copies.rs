//! Copies of frames for a monitor. The switch's workers make these copies; if frames bypass the daemon, the program
//! that moves the frames makes the copies.

use std::sync::Arc;

use netvale_mem::mirror::Moment;
use netvale_port::HdrLen;
use netvale_switch::{MonitorRings, Switch};
use rustix::io::Errno;

use crate::daemon::Daemon;
use crate::permission::user_controls;
use crate::ports::handed::domain_of_region;
use crate::refusal::Refusal;
use crate::registry::mirrors::MirroredRing;
use crate::registry::watches::{MonitoredPort, WatchRecord};
use crate::rings::local::LocalRings;
use crate::rings::nic::NicPort;

/// Starts copying sent and received frames to a monitor's rings. Returns the switch of the monitored port; `None` if
/// the port is on no switch.
pub fn watch(d: &mut Daemon, watching: &WatchRecord, full: &str) -> Result<Option<Arc<Switch>>, Refusal> {
    let WatchRecord { what, sent, received, .. } = watching;
    let done = match what {
        MonitoredPort::Port(port) => watch_port(d, port, full, watching).map(Some),
        MonitoredPort::Wire(port) => watch_device(d, port, full, received.clone(), sent.clone()).map(Some),
        MonitoredPort::Pipe(key, end) => watch_pipe(d, key, *end, full, watching).map(|()| None),
        MonitoredPort::Nic(ifname) => {
            let is_seen = |port: &NicPort| user_controls(watching.uid, port.owner.uid);
            let open = d.interfaces.ports_on(ifname).filter(|(_, port)| is_seen(port));
            let clients: Vec<u64> = open.map(|(client, _)| client).collect();
            clients.into_iter().try_for_each(|client| watch_nic(d, client, full, watching)).map(|()| None)
        }
    };
    if done.is_err() {
        d.mirrors.remove(&mut d.workers, full);
    }
    done
}

/// Makes the switch's workers copy the frames that the port sends and receives. With [`WatchRecord::released`], the
/// port's program instead copies received frames when it releases the frames' slots.
fn watch_port(d: &mut Daemon, port: &str, full: &str, watching: &WatchRecord) -> Result<Arc<Switch>, Refusal> {
    let WatchRecord { sent, received, .. } = watching;
    let (local, hdr_len) = match d.ports.get(port).and_then(|record| record.behind.get::<LocalRings>()) {
        Some(local) if watching.released && !d.persistent.is_joined(port) => {
            (Arc::clone(&local.rings.mem), local.rings.hdr_len.clone())
        }
        _ => return watch_device(d, port, full, sent.clone(), received.clone()),
    };
    let domain = domain_of_region(d, local.region());
    for (side, to) in local.rx.iter().zip(received).filter_map(|(side, to)| Some((side, to.as_ref()?))) {
        let copied = MirroredRing { of: side, moment: Moment::Released, hdr_len: hdr_len.clone() };
        d.mirrors.add(&mut d.workers, local.region(), domain, &copied, full, to)?;
    }
    watch_device(d, port, full, sent.clone(), MonitorRings::new())
}

fn watch_device(
    d: &Daemon,
    port: &str,
    full: &str,
    sent: MonitorRings,
    received: MonitorRings,
) -> Result<Arc<Switch>, Refusal> {
    let on = d.ports.get(port).and_then(|record| record.switch.clone());
    let on = on.ok_or_else(|| Refusal::new(Errno::INVAL, format!("{port} is not on a switch")))?;
    let (_, name) = port.split_once(':').ok_or_else(|| Refusal::internal("the port's name has no switch"))?;
    on.monitor(name, full, sent, received)?;
    Ok(on)
}

/// Makes the programs at a pipe's ends copy frames: the sending program when it sends the frames or, with
/// [`WatchRecord::released`], the receiving program when it releases the slots.
fn watch_pipe(d: &mut Daemon, key: &str, end: usize, full: &str, watching: &WatchRecord) -> Result<(), Refusal> {
    let pipe = d.pipes.get(key).ok_or_else(|| Refusal::internal("a pipe vanished"))?;
    let region = Arc::clone(pipe.end(end).region());
    let domain = domain_of_region(d, &region);
    let own = pipe.end(end);
    let other = pipe.end(end ^ 1);
    let (sent, received, moment) = match watching.released {
        false => (own.tx.first(), other.tx.first(), Moment::Passing),
        true => (other.rx.first(), own.rx.first(), Moment::Released),
    };
    let ways = [(sent.cloned(), &watching.sent), (received.cloned(), &watching.received)];
    ways.into_iter().try_for_each(|(side, to)| match (side, to.first().and_then(Option::as_ref)) {
        (Some(side), Some(to)) => {
            let copied = MirroredRing { of: &side, moment, hdr_len: HdrLen::default() };
            d.mirrors.add(&mut d.workers, &region, domain, &copied, full, to)
        }
        _ => Ok(()),
    })
}

/// Makes the program that has opened an interface copy the frames of the interface's queues, and the daemon's workers
/// copy the frames of its host rings.
fn watch_nic(d: &mut Daemon, client: u64, full: &str, watching: &WatchRecord) -> Result<(), Refusal> {
    let port = d.interfaces.port(client).ok_or_else(|| Refusal::internal("an interface vanished"))?;
    let mem = Arc::clone(&port.mem);
    let queues = port.nic.interface().queues as usize;
    let domain = domain_of_region(d, mem.region());
    let ways = [(&mem.tx, port.tx.clone(), &watching.sent), (&mem.rx, port.rx.clone(), &watching.received)];
    for (is_rx, (sides, bound, to)) in [false, true].into_iter().zip(ways) {
        let rings = sides.iter().zip(to).enumerate().filter(|(i, _)| bound.contains(&(*i as u32)));
        for (i, side, to) in rings.filter_map(|(i, (side, to))| Some((i, side, to.as_ref()?))) {
            let late = watching.released && (is_rx || i < queues);
            let moment = if late { Moment::Released } else { Moment::Passing };
            let copied = MirroredRing { of: side, moment, hdr_len: HdrLen::default() };
            d.mirrors.add(&mut d.workers, mem.region(), domain, &copied, full, to)?;
        }
    }
    Ok(())
}

/// Makes the monitors of an interface get the frames of the rings that `client` has just opened as well.
pub fn watch_too(d: &mut Daemon, ifname: &str, client: u64) {
    let what = MonitoredPort::Nic(ifname.to_owned());
    let Some(owner) = d.interfaces.port(client).map(|port| port.owner.uid) else { return };
    let monitors = d.watches.of(&what).filter(|(_, watching)| user_controls(watching.uid, owner));
    let monitors = monitors.map(|(full, watching)| (full.to_owned(), watching.clone()));
    for (full, watching) in monitors.collect::<Vec<_>>() {
        if let Err(why) = watch_nic(d, client, &full, &watching) {
            tracing::warn!(monitor = full, "the monitor gets no copies from some rings of {ifname}: {why}");
        }
    }
}
