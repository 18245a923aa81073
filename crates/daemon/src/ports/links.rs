//! Links of ports: queues that delay frames, lose some of them, or limit their rate.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use netvale_control::types::Policies;
use netvale_policy::bucket::RateLimit;
use netvale_policy::impair::Spec;
use netvale_policy::units::{Rate, Size};
use netvale_port::domain::TimeDomain;
use netvale_port::link::{Link, LinkEnd, LinkSettings};
use netvale_port::{Egress, RingCounters};
use netvale_switch::{Forwarder, LinkTask, PortId, Switch};
use rustix::io::Errno;

use super::handed::domain_of;
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::permission;
use crate::refusal::{Refusal, refuse};
use crate::registry::ports::PortLink;
use crate::worker::WorkerTask;

/// Maximum number of passes in which a worker delivers the frames that are still on a link when the link is removed.
const ROUNDS: u32 = 64;

/// Returns the rate limits that are set: a limit in bits per second, a limit in frames per second, or both. The burst
/// of the frame limit is the number of frames in a hundredth of a second.
pub fn limits(bits: Option<(Rate, Size)>, frames: Option<u32>) -> Vec<RateLimit> {
    let bits = bits.map(|(rate, burst)| RateLimit::bits(rate.bits(), burst.bytes()));
    let frames = frames.map(|frames| RateLimit::frames(frames.into(), frames.div_ceil(100).into()));
    bits.into_iter().chain(frames).collect()
}

/// Returns the settings of a port's links: the sending link, then the receiving link; `None` for a link that no policy
/// requires.
pub fn settings(policies: &Policies) -> [Option<LinkSettings>; 2] {
    let seed = RandomState::new().hash_one(1);
    let rates = limits(policies.rates()[1], policies.pps_out);
    let of = |impair: Option<&Spec>, rates: Vec<RateLimit>| {
        let bytes = impair.map_or_else(|| policies.queue(), Spec::bytes).bytes();
        (impair.is_some() || !rates.is_empty()).then(|| LinkSettings {
            impair: impair.cloned(),
            rates,
            bytes,
            frames: None,
            seed,
        })
    };
    [of(policies.link_in.as_deref(), Vec::new()), of(policies.link_out.as_deref(), rates)]
}

/// The links of a new port. The tasks that deliver frames from the links are not yet assigned to workers.
#[derive(Default)]
pub struct NewLinks([Option<NewLink>; 2]);

struct NewLink {
    link: Arc<Link>,
    end: LinkEnd,
}

/// Returns the maximum number of threads that put frames on the sending link and on the receiving link of a port.
/// Frames are put on the sending link by the forwarders of the port's rings (twice as many if the port joins two
/// switches), and on the receiving link by all workers.
fn threads(d: &Daemon, rings: usize) -> [usize; 2] {
    let workers = d.workers.all().len();
    [workers.min((2 * rings).saturating_sub(1)), workers]
}

/// Creates a link. Frames without delay are delivered directly to the egress `to`, if it is set.
fn make(
    settings: LinkSettings,
    threads: usize,
    to: Option<Arc<dyn Egress>>,
    counters: &Arc<RingCounters>,
) -> Result<NewLink, Refusal> {
    let made = Link::new(settings, threads, to, Arc::clone(counters));
    let (link, end) = made.or_else(|e| refuse(Errno::NOMEM, e.to_string()))?;
    Ok(NewLink { link, end })
}

impl NewLinks {
    /// Creates the links that a new port's policies require.
    ///
    /// # Errors
    /// [`Refusal`] if the daemon is out of memory or descriptors.
    pub fn make(
        d: &Daemon,
        owner: Caller,
        policies: &Policies,
        ingress: &[Arc<RingCounters>],
        egresses: &[Arc<dyn Egress>],
    ) -> Result<NewLinks, Refusal> {
        Self::make_some(d, owner, settings(policies), ingress, egresses)
    }

    fn make_some(
        d: &Daemon,
        owner: Caller,
        settings: [Option<LinkSettings>; 2],
        ingress: &[Arc<RingCounters>],
        egresses: &[Arc<dyn Egress>],
    ) -> Result<NewLinks, Refusal> {
        let threads = threads(d, ingress.len());
        let memory = |(settings, threads): (&Option<LinkSettings>, usize)| Some(settings.as_ref()?.memory(threads));
        permission::may_have_bytes(d, owner, settings.iter().zip(threads).filter_map(memory).sum())?;
        let [sends, gets] = settings;
        let sends = sends.zip(ingress.first()).map(|(settings, counters)| make(settings, threads[0], None, counters));
        let to = gets.zip(egresses.first());
        let gets = to.map(|(settings, to)| make(settings, threads[1], Some(Arc::clone(to)), to.counters()));
        Ok(NewLinks([sends.transpose()?, gets.transpose()?]))
    }

    /// Returns the link on which the port sends; `None` if there is none.
    pub fn sends(&self) -> Option<Arc<Link>> {
        self.0[0].as_ref().map(|made| Arc::clone(&made.link))
    }

    /// Returns the egresses for the port's switch: the receiving link if there is one, otherwise the port's own
    /// egresses.
    pub fn gets(&self, egresses: &[Arc<dyn Egress>]) -> Vec<Arc<dyn Egress>> {
        match &self.0[1] {
            Some(made) => vec![Arc::clone(&made.link) as Arc<dyn Egress>],
            None => egresses.to_vec(),
        }
    }

    /// Assigns the tasks that deliver frames from the links to workers.
    pub fn place(
        &mut self,
        d: &mut Daemon,
        domain: TimeDomain,
        switch: &Arc<Switch>,
        id: PortId,
        egresses: &[Arc<dyn Egress>],
    ) -> [Option<PortLink>; 2] {
        let [sends, gets] = std::mem::take(&mut self.0);
        let place = |d: &mut Daemon, made: NewLink, task: &dyn Fn(LinkEnd) -> WorkerTask| {
            let NewLink { link, end } = made;
            PortLink { link, task: d.workers.place_for(domain, task(end)) }
        };
        let forwarder = |end| Box::new(Forwarder::of_link(Arc::clone(switch), id, end)) as WorkerTask;
        let sends = sends.map(|made| place(d, made, &forwarder));
        let gets = gets.zip(egresses.first()).map(|(made, to)| {
            place(d, made, &|end| Box::new(LinkTask::new(end, Arc::clone(to), Arc::clone(switch), id, 0)) as WorkerTask)
        });
        [sends, gets]
    }
}

/// Changes the links of an attached port. Returns the replaced links. The caller must [end](end) them after the switch
/// uses the new links.
///
/// # Errors
/// [`Refusal`] if the daemon is out of memory or descriptors; in this case, nothing changes.
pub fn change(d: &mut Daemon, full: &str, policies: &Policies) -> Result<Vec<PortLink>, Refusal> {
    let Some(record) = d.ports.get(full) else { return Ok(Vec::new()) };
    let (Some(switch), Some(id)) = (record.switch.clone(), record.id) else { return Ok(Vec::new()) };
    let wanted = settings(policies);
    // If the memory of an existing link suffices, the link is changed in place.
    let keeps = |dir: usize| match (&record.links[dir], &wanted[dir]) {
        (Some(known), Some(wanted)) => known.link.has_room_for(wanted),
        _ => false,
    };
    let kept = [keeps(0), keeps(1)];
    let new = [0, 1].map(|dir| wanted[dir].clone().filter(|_| !kept[dir]));
    let owner = record.owner;
    let domain = record.tasks().next().map_or_else(|| domain_of(owner), |task| d.workers.domain_of(task));
    let egresses = record.egresses.clone();
    let mut made = NewLinks::make_some(d, owner, new, &record.ingress, &egresses)?;
    let mut placed = made.place(d, domain, &switch, id, &egresses);
    let Some(record) = d.ports.get_mut(full) else { return Ok(Vec::new()) };
    let mut old = Vec::new();
    for (dir, wanted) in wanted.into_iter().enumerate() {
        match (&record.links[dir], wanted) {
            (Some(known), Some(wanted)) if kept[dir] => known.link.set(wanted),
            _ => old.extend(std::mem::replace(&mut record.links[dir], placed[dir].take())),
        }
    }
    Ok(old)
}

/// Returns the egresses to which a port's switch delivers: the receiving link if there is one, otherwise the port's own
/// egresses.
pub fn egresses(record: &DaemonPort) -> Vec<Arc<dyn Egress>> {
    match &record.links[1] {
        Some(known) => vec![Arc::clone(&known.link) as Arc<dyn Egress>],
        None => record.egresses.clone(),
    }
}

/// Ends links on which no thread sends any more. Frames that are still on the links are delivered immediately, without
/// the rest of their delay.
pub fn end(d: &mut Daemon, links: Vec<PortLink>) {
    for PortLink { link, task, .. } in links {
        link.flush();
        for _ in 0..ROUNDS {
            if link.under_way() == 0 {
                break;
            }
            d.workers.drain(&[task]);
        }
        d.workers.retire(&[task]);
    }
}
