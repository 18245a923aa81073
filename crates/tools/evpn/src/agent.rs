//! The agent's loop ([`run`]): it handles notifications from the kernel and the daemon, and checks the daemon's VXLAN
//! ports once per second.
//!
//! A single thread repeats, in this order: read kernel notifications, update the daemon, request the daemon's list of
//! local addresses, change the kernel's tables. A list therefore always reflects the previous update to the daemon.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netvale_netlink::{NetlinkEvents, NetlinkSocket};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use thiserror::Error;
use tracing::{info, warn};

use crate::MAX_INSTANCES;
use crate::devices::{self, DeviceError, MirrorPlan};
use crate::entry::{KernelEntry, KernelRecord, seen};
use crate::instance::VniInstance;
use crate::session::{DaemonSession, EvpnPort, SessionError};

/// Interval at which the daemon's ports are requested and the devices are checked.
const TICK: Duration = Duration::from_secs(1);
/// Maximum duration of a sleep while withdrawals wait, or while the daemon or the kernel must be updated.
const SHORT: Duration = Duration::from_millis(50);
/// Minimum and maximum pause between attempts to connect to the daemon. The pause doubles with each attempt.
const BACKOFF: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// Minimum and maximum delay before the kernel's tables are read again because they changed during a reading. The delay
/// doubles with each such reading.
const READ_AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];
/// Once the delay ([`READ_AGAIN`]) exceeds this, entries that are missing in a reading count as removed even if the
/// tables changed during that reading. At this point, the tables have changed during several successive readings, and
/// may change during all later ones.
const PATIENCE: Duration = Duration::from_secs(4);
/// Maximum number of netlink datagrams that are read before the daemon is updated.
const MAX_DATAGRAMS: usize = 4096;

/// Settings of the agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The daemon's run directory.
    pub run_dir: PathBuf,
    /// UDP port of the mirrors' VXLAN devices.
    pub udp_port: u16,
    /// How long the agent keeps remote entries after zebra has withdrawn them together with their VTEP, and local
    /// addresses and ports that a newly started daemon does not list.
    pub hold: Duration,
}

/// Errors that end the agent.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The netlink socket cannot be opened, or fails.
    #[error("netlink: {0}")]
    Netlink(#[from] Errno),
    /// The kernel devices of a mirror cannot be created or removed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Runs the agent until `stop` is set. The mirrors (kernel devices) stay when the agent ends.
///
/// # Errors
/// [`AgentError`] if netlink fails, or a device cannot be created or removed.
pub fn run(options: AgentOptions, stop: &AtomicBool) -> Result<(), AgentError> {
    let mut agent = EvpnAgent::new(options)?;
    while !stop.load(Ordering::Relaxed) {
        agent.wait()?;
        agent.turn(Instant::now())?;
    }
    Ok(())
}

/// Removes the mirrors of all VNIs. Returns these VNIs.
///
/// # Errors
/// [`AgentError`] if netlink fails, or a device cannot be removed.
pub fn clean() -> Result<Vec<u32>, AgentError> {
    let mut netlink = NetlinkSocket::open()?;
    let vnis = marked(&mut netlink)?;
    for vni in &vnis {
        devices::remove(&mut netlink, *vni)?;
    }
    Ok(vnis)
}

/// Returns the VNIs whose devices have the agent's mark, because the agent has created them.
fn marked(netlink: &mut NetlinkSocket) -> rustix::io::Result<Vec<u32>> {
    let vni = |name: &str| name.get(3..).and_then(|digits| digits.parse().ok());
    let mut vnis: Vec<u32> = devices::all(netlink)?.iter().filter_map(|device| vni(&device.name)).collect();
    vnis.sort_unstable();
    vnis.dedup();
    Ok(vnis)
}

/// Returns all entries of the kernel's forwarding and neighbour tables that satisfy `wanted`.
///
/// # Errors
/// The kernel's error.
pub fn entries(
    netlink: &mut NetlinkSocket,
    wanted: &dyn Fn(&KernelEntry) -> bool,
) -> rustix::io::Result<Vec<KernelEntry>> {
    let mut all = Vec::new();
    for family in [AddressFamily::Bridge, AddressFamily::Inet, AddressFamily::Inet6] {
        let mut message = NeighbourMessage::default();
        message.header.family = family;
        let entries = netlink.dump(&RouteNetlinkMessage::GetNeighbour(message), |answer| match seen(answer) {
            Some(KernelRecord::Is(entry)) if wanted(&entry) => Some(entry),
            _ => None,
        });
        match entries {
            // If entries are missing because the table changed during the dump, later notifications report them.
            Ok(entries) => all.extend(entries),
            // The kernel does not support this address family.
            Err(Errno::OPNOTSUPP | Errno::AFNOSUPPORT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The agent's state.
#[derive(Debug)]
struct EvpnAgent {
    options: AgentOptions,
    netlink: NetlinkSocket,
    events: NetlinkEvents,
    session: Option<DaemonSession>,
    /// When the agent last connected to the daemon or lost the connection.
    since: Instant,
    backoff: Duration,
    retry_at: Instant,
    tick_at: Instant,
    /// Whether entries that a newly started daemon has not listed yet are still kept.
    keeps: bool,
    /// Whether a device of a mirror has changed.
    is_touched: bool,
    /// When the tables must be read again, and the delay between the two readings; `None` if the tables did not change
    /// during the last reading.
    again: Option<(Instant, Duration)>,
    instances: BTreeMap<u32, VniInstance>,
    /// The VNIs of ports for which no mirror could be created, with the reasons.
    failed: BTreeMap<u32, String>,
}

impl EvpnAgent {
    fn new(options: AgentOptions) -> Result<EvpnAgent, AgentError> {
        let now = Instant::now();
        Ok(EvpnAgent {
            options,
            netlink: NetlinkSocket::open()?,
            events: NetlinkEvents::open()?,
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
        let limit = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
        match rustix::event::poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn wants_list(&self, instance: &VniInstance) -> bool {
        self.session.as_ref().is_some_and(|s| s.changed().contains(&instance.port.name))
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
        let is_whole = self.events.read(MAX_DATAGRAMS, &mut |message| match seen(&message) {
            Some(KernelRecord::Is(entry)) => instances.values_mut().for_each(|one| one.see(entry, false)),
            Some(KernelRecord::Gone(entry)) => instances.values_mut().for_each(|one| one.see(entry, true)),
            Some(KernelRecord::Device(index)) => {
                let owns =
                    |one: &VniInstance| [one.devices.bridge, one.devices.tunnel, one.devices.locals].contains(&index);
                *is_touched |= instances.values().any(owns);
            }
            None => {}
        })?;
        if !is_whole {
            warn!("kernel notifications were lost; reading the tables again");
            self.read_tables()?;
        }
        Ok(())
    }

    /// Reads the kernel's tables again.
    fn read_tables(&mut self) -> Result<(), AgentError> {
        self.events.discard();
        let instances = &self.instances;
        let all = entries(&mut self.netlink, &|entry| instances.values().any(|one| one.owns(entry)))?;
        // If a table changes during the dump, the dump may omit entries, and the kernel does not always report that.
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
        match DaemonSession::connect(&self.options.run_dir) {
            Ok(session) => {
                info!("connected to the daemon");
                self.session = Some(session);
                self.since = now;
                self.keeps = true;
                self.backoff = BACKOFF[0];
                self.tick_at = now;
                self.instances.values_mut().for_each(VniInstance::reconnected);
            }
            Err(error) => {
                if self.backoff == BACKOFF[0] {
                    warn!("{error}; trying again");
                }
                self.retry_at = now + self.backoff;
                self.backoff = (self.backoff * 2).min(BACKOFF[1]);
            }
        }
    }

    /// Drops the connection to the daemon if `result` is an error.
    fn unless_lost(&mut self, result: Result<(), SessionError>, now: Instant) {
        let Err(error) = result else { return };
        warn!("{error}");
        self.session = None;
        self.since = now;
        // The next attempt is delayed. Otherwise, a daemon that closes each connection immediately would cause a busy
        // loop.
        self.backoff = BACKOFF[0];
        self.retry_at = now + BACKOFF[0];
    }

    fn tick(&mut self, now: Instant) -> Result<(), AgentError> {
        if let Some(ports) = self.ports(now) {
            self.match_ports(ports)?;
        }
        // Every VNI is checked, even after a VNI with room was found, because each VNI logs its own excess entries.
        let short = self.instances.values_mut().filter_map(|one| one.is_short(now).then_some(())).count();
        if short > 0 {
            info!("there is room again for entries beyond the limits; reading the kernel's tables again");
        }
        if short > 0 || self.again.is_some_and(|(at, _)| now >= at) {
            self.read_tables()?;
        }
        let is_over = now.saturating_duration_since(self.since) >= self.options.hold;
        if self.session.is_none() && is_over && !self.instances.is_empty() {
            warn!("no daemon for {} s: withdrawing its VNIs", self.options.hold.as_secs());
            self.instances.clear();
            self.sweep()?;
        }
        if self.session.is_some() && is_over && self.keeps {
            self.keeps = false;
            self.instances.retain(|_, one| one.is_present());
            self.instances.values_mut().for_each(VniInstance::recheck);
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

    /// Creates missing mirrors, and removes the mirrors of ports that have ended.
    fn match_ports(&mut self, ports: Vec<EvpnPort>) -> Result<(), AgentError> {
        let mut wanted = BTreeMap::new();
        for port in ports.into_iter().take(MAX_INSTANCES) {
            if let Some(other) = wanted.insert(port.vni, port) {
                self.fail(other.vni, format!("{} is not the only port of its VNI", other.name));
            }
        }
        let keeps = self.keeps;
        let stays = |one: &VniInstance| wanted.contains_key(&one.port.vni) || (keeps && !one.is_present());
        let gone: Vec<u32> = self.instances.iter().filter(|(_, one)| !stays(one)).map(|(vni, _)| *vni).collect();
        for vni in gone {
            info!(vni, "the port was detached: withdrawing its VNI");
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

    /// Creates or reuses a port's mirror. Returns whether the kernel's tables must be read for the mirror.
    fn match_port(&mut self, port: EvpnPort, is_touched: bool) -> bool {
        let vni = port.vni;
        if let Some(instance) = self.instances.get_mut(&vni).filter(|one| one.port.is_like(&port) && !is_touched) {
            instance.found(port.tunnel);
            return false;
        }
        if port.udp_port == self.options.udp_port {
            self.fail(vni, format!("{} uses UDP port {}; choose another with --udp-port", port.name, port.udp_port));
            return false;
        }
        let plan = MirrorPlan { vni, local: port.local, udp_port: self.options.udp_port };
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

    fn adopt(&mut self, port: EvpnPort, devices: devices::MirrorDevices, is_made: bool) -> bool {
        let known = self.instances.get_mut(&port.vni).filter(|one| one.devices == devices && one.port.is_like(&port));
        if let Some(instance) = known {
            instance.found(port.tunnel);
            return false;
        }
        let what = if is_made { "made" } else { "continued" };
        info!(vni = port.vni, port = port.name, vtep = %port.local, "mirror {what}");
        self.instances.insert(port.vni, VniInstance::new(port, devices));
        true
    }

    /// Records why a port has no mirror, and logs the reason unless it was logged before.
    fn fail(&mut self, vni: u32, why: String) {
        if self.failed.get(&vni) != Some(&why) {
            warn!(vni, "no mirror: {why}");
            self.failed.insert(vni, why);
        }
    }

    /// Removes the mirrors of VNIs that have no port.
    fn sweep(&mut self) -> Result<(), AgentError> {
        for vni in marked(&mut self.netlink)? {
            if !self.instances.contains_key(&vni) {
                info!(vni, "no port has this VNI: removing its mirror");
                devices::remove(&mut self.netlink, vni)?;
            }
        }
        Ok(())
    }

    /// Sends the changes of all VNIs to the daemon, and requests the daemon's lists of local addresses that may have
    /// changed.
    fn serve(&mut self, now: Instant) -> Result<(), SessionError> {
        let Some(session) = self.session.as_mut() else { return Ok(()) };
        session.receive()?;
        for instance in self.instances.values_mut().filter(|one| one.is_present()) {
            let mut has_port = instance.tell(session, now, self.options.hold)?;
            if has_port && instance.wants_list(session, now) {
                has_port = instance.list(session, now)?;
            }
            if !has_port {
                self.tick_at = now;
            }
        }
        Ok(())
    }
}
