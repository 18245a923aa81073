//! The loop: notifications from the kernel and the daemon, and a check of the ports each second.
//!
//! One thread does it all, in this order: kernel notifications, updates to the daemon, the daemon's list, changes to
//! the kernel. So a list is always newer than the previous update to the daemon.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netvale_netlink::{ATTEMPTS, Events, Netlink, Read};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use thiserror::Error;
use tracing::{info, warn};

use crate::devices::{self, DeviceError, Plan};
use crate::entry::{Entry, Seen, seen};
use crate::instance::{Instance, Outcome};
use crate::session::{EvpnPort, Session, SessionError};
use crate::{HOLD, MAX_INSTANCES, MIRROR_UDP_PORT};

/// Interval of the requests for the daemon's ports, and of the checks of the devices.
const TICK: Duration = Duration::from_secs(1);
/// Maximum sleep while work is pending.
const SHORT: Duration = Duration::from_millis(50);
/// Minimum and maximum pause between attempts to connect; it doubles each time.
const BACKOFF: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// Minimum and maximum delay until tables that changed while they were read are read again; it doubles each time.
const READ_AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];
/// A longer delay than this means that the tables changed during each of several readings: missing entries are then
/// taken for removed.
const PATIENCE: Duration = Duration::from_secs(4);
/// Maximum datagrams of notifications before the daemon is updated.
const MAX_DATAGRAMS: usize = 4096;

/// Settings of the agent.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the daemon's sockets.
    pub run_dir: PathBuf,
    /// UDP port of the mirrors' VXLAN devices.
    pub udp_port: u16,
    /// How long entries withdrawn with their VTEP are kept, and local addresses and ports that a daemon does not list
    /// after its start.
    pub hold: Duration,
}

impl Options {
    /// The defaults, for the daemon with sockets in that folder.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Options {
        Options { run_dir, udp_port: MIRROR_UDP_PORT, hold: HOLD }
    }
}

/// Errors that end the agent.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The netlink socket cannot be opened, or fails.
    #[error("netlink: {0}")]
    Netlink(#[from] Errno),
    /// A mirror cannot be made.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Runs until `stop`. The mirrors stay.
///
/// # Errors
/// [`AgentError`] if netlink fails.
pub fn run(options: Options, stop: &AtomicBool) -> Result<(), AgentError> {
    let mut agent = Agent::new(options)?;
    while !stop.load(Ordering::Relaxed) {
        agent.wait()?;
        agent.turn(Instant::now())?;
    }
    Ok(())
}

/// Removes all mirrors. Returns their VNIs.
///
/// # Errors
/// [`AgentError`]
pub fn clean() -> Result<Vec<u32>, AgentError> {
    let mut netlink = Netlink::open()?;
    let vnis = marked(&mut netlink)?;
    for vni in &vnis {
        devices::remove(&mut netlink, *vni)?;
    }
    Ok(vnis)
}

/// The VNIs with marked devices.
fn marked(netlink: &mut Netlink) -> rustix::io::Result<Vec<u32>> {
    let vni = |name: &str| name.get(3..).and_then(|digits| digits.parse().ok());
    let mut vnis: Vec<u32> = devices::all(netlink)?.iter().filter_map(|device| vni(&device.name)).collect();
    vnis.sort_unstable();
    vnis.dedup();
    Ok(vnis)
}

/// All entries of the kernel's tables that satisfy `wanted`.
///
/// # Errors
/// The kernel's error.
pub fn entries(netlink: &mut Netlink, wanted: &dyn Fn(&Entry) -> bool) -> rustix::io::Result<Vec<Entry>> {
    let mut all = Vec::new();
    for family in [AddressFamily::Bridge, AddressFamily::Inet, AddressFamily::Inet6] {
        match table(netlink, family, wanted) {
            Ok(entries) => all.extend(entries),
            // This kernel lacks the address family.
            Err(Errno::OPNOTSUPP | Errno::AFNOSUPPORT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The entries of one family. After several attempts at a consistent dump, notifications must supply the rest.
fn table(
    netlink: &mut Netlink,
    family: AddressFamily,
    wanted: &dyn Fn(&Entry) -> bool,
) -> rustix::io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for _ in 0..ATTEMPTS {
        entries.clear();
        let mut message = NeighbourMessage::default();
        message.header.family = family;
        let is_whole = netlink.dump(RouteNetlinkMessage::GetNeighbour(message), &mut |answer| match seen(&answer) {
            Some(Seen::Is(entry)) if wanted(&entry) => entries.push(entry),
            _ => {}
        })?;
        if is_whole {
            break;
        }
    }
    Ok(entries)
}

/// The agent.
#[derive(Debug)]
struct Agent {
    options: Options,
    netlink: Netlink,
    events: Events,
    session: Option<Session>,
    /// Start or end of the connection.
    since: Instant,
    backoff: Duration,
    retry_at: Instant,
    tick_at: Instant,
    /// Whether entries unknown to a fresh daemon are still kept.
    keeps: bool,
    /// Whether a mirror's device has changed.
    is_touched: bool,
    /// Time of the next reading of tables that changed while they were read, and the delay before it.
    again: Option<(Instant, Duration)>,
    instances: BTreeMap<u32, Instance>,
    /// Ports without a mirror, with the reason.
    failed: BTreeMap<u32, String>,
}

impl Agent {
    fn new(options: Options) -> Result<Agent, AgentError> {
        let now = Instant::now();
        Ok(Agent {
            options,
            netlink: Netlink::open()?,
            events: Events::open()?,
            session: None,
            since: now,
            backoff: BACKOFF[0],
            retry_at: now,
            tick_at: now,
            keeps: true,
            is_touched: false,
            again: None,
            instances: BTreeMap::new(),
            failed: BTreeMap::new(),
        })
    }

    /// Sleeps until the next event or deadline.
    fn wait(&self) -> Result<(), AgentError> {
        let is_busy = self.instances.values().any(|one| one.waits() || one.needs_mirror() || self.wants_list(one));
        let mut longest = if is_busy { SHORT } else { TICK };
        if self.session.is_none() {
            longest = longest.min(self.retry_at.saturating_duration_since(Instant::now()));
        }
        let mut fds = vec![PollFd::new(&self.events, PollFlags::IN)];
        fds.extend(self.session.as_ref().map(|session| PollFd::from_borrowed_fd(session.as_fd(), PollFlags::IN)));
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.min(TICK).subsec_nanos()) };
        let limit = if longest >= TICK { Timespec { tv_sec: 1, tv_nsec: 0 } } else { limit };
        match rustix::event::poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn wants_list(&self, instance: &Instance) -> bool {
        self.session.as_ref().is_some_and(|s| s.changed().contains_key(&instance.port.name))
    }

    fn turn(&mut self, now: Instant) -> Result<(), AgentError> {
        self.read_kernel()?;
        self.connect(now);
        if now >= self.tick_at {
            self.tick_at = now + TICK;
            self.tick(now)?;
        }
        let served = self.serve(now);
        self.unless_lost(served, now);
        let keeps = self.keeps;
        for instance in self.instances.values_mut() {
            instance.mirror(&mut self.netlink, now, keeps);
        }
        Ok(())
    }

    fn read_kernel(&mut self) -> Result<(), AgentError> {
        let instances = &mut self.instances;
        let is_touched = &mut self.is_touched;
        let read = self.events.read(MAX_DATAGRAMS, &mut |message| match seen(&message) {
            Some(Seen::Is(entry)) => instances.values_mut().for_each(|one| one.see(entry, false)),
            Some(Seen::Gone(entry)) => instances.values_mut().for_each(|one| one.see(entry, true)),
            Some(Seen::Device(index)) => {
                let owns =
                    |one: &Instance| [one.devices.bridge, one.devices.tunnel, one.devices.locals].contains(&index);
                *is_touched |= instances.values().any(owns);
            }
            None => {}
        })?;
        if read == Read::Lost {
            warn!("notifications of the kernel's were lost; its tables are read anew");
            self.read_tables()?;
        }
        Ok(())
    }

    /// Reads the kernel's tables again.
    fn read_tables(&mut self) -> Result<(), AgentError> {
        self.events.discard();
        let instances = &self.instances;
        let all = entries(&mut self.netlink, &|entry| instances.values().any(|one| one.owns(entry)))?;
        // The dump of a changing table may omit entries, and the kernel does not report it.
        let wait = self.again.map_or(READ_AGAIN[0], |(_, wait)| (wait * 2).min(READ_AGAIN[1]));
        self.again = self.events.are_there()?.then(|| (Instant::now() + wait, wait));
        let is_whole = self.again.is_none() || wait > PATIENCE;
        for instance in self.instances.values_mut() {
            instance.take_tables(&all, is_whole);
        }
        Ok(())
    }

    fn connect(&mut self, now: Instant) {
        if self.session.is_some() || now < self.retry_at {
            return;
        }
        match Session::connect(&self.options.run_dir) {
            Ok(session) => {
                info!("connected to the daemon");
                self.session = Some(session);
                self.since = now;
                self.keeps = true;
                self.backoff = BACKOFF[0];
                self.tick_at = now;
                self.instances.values_mut().for_each(Instance::reconnected);
            }
            Err(error) => {
                if self.backoff == BACKOFF[0] {
                    warn!("{error}; it is tried again");
                }
                self.retry_at = now + self.backoff;
                self.backoff = (self.backoff * 2).min(BACKOFF[1]);
            }
        }
    }

    /// Drops the connection if it has failed.
    fn unless_lost(&mut self, result: Result<(), SessionError>, now: Instant) {
        let Err(error) = result else { return };
        warn!("{error}");
        self.session = None;
        self.since = now;
        // Not immediately: a daemon that ends each connection must not cause a busy loop.
        self.backoff = BACKOFF[0];
        self.retry_at = now + BACKOFF[0];
    }

    fn tick(&mut self, now: Instant) -> Result<(), AgentError> {
        if let Some(ports) = self.ports(now) {
            self.match_ports(ports)?;
        }
        // Every instance, since each logs its own shortage.
        let short = self.instances.values_mut().filter_map(|one| one.is_short(now).then_some(())).count();
        if short > 0 {
            info!("there is room again for what was beyond the limits; the kernel's tables are read anew");
        }
        if short > 0 || self.again.is_some_and(|(at, _)| now >= at) {
            self.read_tables()?;
        }
        let is_over = now.saturating_duration_since(self.since) >= self.options.hold;
        if self.session.is_none() && is_over && !self.instances.is_empty() {
            warn!("no daemon for {} s: its VNIs are withdrawn", self.options.hold.as_secs());
            self.instances.clear();
            self.sweep()?;
        }
        if self.session.is_some() && is_over && self.keeps {
            self.keeps = false;
            self.instances.retain(|_, one| one.is_present());
            self.instances.values_mut().for_each(Instance::recheck);
            self.sweep()?;
        }
        Ok(())
    }

    fn ports(&mut self, now: Instant) -> Option<Vec<EvpnPort>> {
        match self.session.as_mut()?.ports() {
            Ok(ports) => Some(ports),
            Err(error) => {
                self.unless_lost(Err(error), now);
                None
            }
        }
    }

    /// Makes and removes mirrors until they match the ports.
    fn match_ports(&mut self, ports: Vec<EvpnPort>) -> Result<(), AgentError> {
        let mut wanted = BTreeMap::new();
        for port in ports.into_iter().take(MAX_INSTANCES) {
            if let Some(other) = wanted.insert(port.vni, port) {
                self.fail(other.vni, format!("{} is not the only port of its VNI", other.name));
            }
        }
        let keeps = self.keeps;
        let stays = |one: &Instance| wanted.contains_key(&one.port.vni) || (keeps && !one.is_present());
        let gone: Vec<u32> = self.instances.iter().filter(|(_, one)| !stays(one)).map(|(vni, _)| *vni).collect();
        for vni in gone {
            info!(vni, "the port is gone: its VNI is withdrawn");
            self.instances.remove(&vni);
            devices::remove(&mut self.netlink, vni)?;
        }
        self.failed.retain(|vni, _| wanted.contains_key(vni));
        let is_touched = std::mem::take(&mut self.is_touched);
        let mut is_new = false;
        for port in wanted.into_values() {
            is_new |= self.match_port(port, is_touched);
        }
        if is_new {
            self.read_tables()?;
        }
        Ok(())
    }

    /// Makes or continues a port's mirror. Returns whether the kernel's tables must be read for it.
    fn match_port(&mut self, port: EvpnPort, is_touched: bool) -> bool {
        let vni = port.vni;
        if let Some(instance) = self.instances.get_mut(&vni).filter(|one| one.port.is_like(&port) && !is_touched) {
            instance.found(port.tunnel);
            return false;
        }
        if port.udp_port == self.options.udp_port {
            self.fail(vni, format!("{} has UDP port {}; choose another with --udp-port", port.name, port.udp_port));
            return false;
        }
        let plan = Plan { vni, local: port.local, udp_port: self.options.udp_port };
        match devices::make(&mut self.netlink, &plan) {
            Ok((devices, is_made)) => {
                self.failed.remove(&vni);
                self.adopt(port, devices, is_made)
            }
            Err(error) => {
                self.instances.remove(&vni);
                self.fail(vni, error.to_string());
                false
            }
        }
    }

    fn adopt(&mut self, port: EvpnPort, devices: devices::Devices, is_made: bool) -> bool {
        let known = self.instances.get_mut(&port.vni).filter(|one| one.devices == devices && one.port.is_like(&port));
        if let Some(instance) = known {
            instance.found(port.tunnel);
            return false;
        }
        let what = if is_made { "made" } else { "continued" };
        info!(vni = port.vni, port = port.name, vtep = %port.local, "mirror {what}");
        self.instances.insert(port.vni, Instance::new(port, devices));
        true
    }

    /// Logs once why a port has no mirror.
    fn fail(&mut self, vni: u32, why: String) {
        if self.failed.get(&vni) != Some(&why) {
            warn!(vni, "no mirror: {why}");
            self.failed.insert(vni, why);
        }
    }

    /// Removes mirrors of VNIs without a port.
    fn sweep(&mut self) -> Result<(), AgentError> {
        for vni in marked(&mut self.netlink)? {
            if !self.instances.contains_key(&vni) {
                info!(vni, "no port has this VNI: its mirror is removed");
                devices::remove(&mut self.netlink, vni)?;
            }
        }
        Ok(())
    }

    /// Sends the daemon the changes, and requests its lists.
    fn serve(&mut self, now: Instant) -> Result<(), SessionError> {
        let Some(session) = self.session.as_mut() else { return Ok(()) };
        session.receive()?;
        for instance in self.instances.values_mut().filter(|one| one.is_present()) {
            let mut outcome = instance.tell(session, now, self.options.hold)?;
            if outcome == Outcome::Done && instance.wants_list(session, now) {
                outcome = instance.list(session, now)?;
            }
            if outcome == Outcome::NoPort {
                self.tick_at = now;
            }
        }
        Ok(())
    }
}
