//! The [`Gateway`]: its parts, and the event loop that drives them.

mod control;
mod dispatch;
mod networks;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit};

use crate::control::{ControlError, ControlServer};
use crate::core::GatewayCore;
use crate::dhcp::leases::StaticLease;
use crate::dhcp::{DhcpServers, DhcpSettings};
use crate::dhcp6::{Dhcp6Mode, Dhcp6Servers, Dhcp6Settings};
use crate::dial::Dialer;
use crate::dns::NameService;
use crate::flows::FlowLog;
use crate::frame::reassembly::Reassembly;
use crate::guests::GuestTable;
use crate::icmp::EchoFlows;
use crate::link::{GatewayLink, MAX_FRAME};
use crate::options::GatewayOptions;
use crate::poller::{Readiness, WatchMode, WatchedThing};
use crate::ports::PortWatch;
use crate::publish::{PublishError, Publisher};
use crate::ra::RouterAdverts;
use crate::rates::GuestRates;
use crate::tcp::TcpFlows;
use crate::timers::TimedThing;
use crate::udp::UdpMappings;

/// Maximum number of frames received per round of the loop. In a frame with several datagrams, each datagram counts.
const FRAMES: usize = 256;
/// Maximum number of timers that fire per round of the loop.
const TIMERS: usize = 1024;
/// Maximum time for which the loop sleeps.
const SLEEP: Duration = Duration::from_secs(60);
/// Time between removals of expired leases, neighbour entries and clients.
const HOUSEKEEPING: Duration = Duration::from_secs(10);

/// The reason why a gateway cannot start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The daemon has closed the port.
    #[error("the gateway's port was detached, or the daemon ended; once the daemon runs, start the gateway again")]
    Ended,
    /// A port cannot be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The file of the flow log cannot be opened.
    #[error("cannot open {path}: {source}; choose another file with --flows")]
    Flows {
        /// Path of the log's file.
        path: std::path::PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The dial socket cannot be created.
    #[error("cannot listen at {path}: {source}; choose another path with --dial")]
    Dial {
        /// Path of the socket.
        path: std::path::PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The control socket cannot be opened.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A descriptor cannot be created or watched.
    #[error("cannot create or poll descriptors: {0}; raise the limit on open files (ulimit -n)")]
    Descriptors(#[from] std::io::Error),
}

/// A user-space NAT gateway on a port of a switch.
pub struct Gateway {
    core: GatewayCore,
    frame: Vec<u8>,
    turn: FrameTurn,
    reassembly: Reassembly,
    dhcp: Option<DhcpServers>,
    dhcp6: Option<Dhcp6Servers>,
    adverts: Option<RouterAdverts>,
    names: NameService,
    tcp: TcpFlows,
    udp: UdpMappings,
    echo: EchoFlows,
    publisher: Publisher,
    dialer: Option<Dialer>,
    control: Option<ControlServer>,
    /// Whether the gateway serves, besides the untagged network, the networks of VLANs.
    is_private: bool,
    ports: Option<PortWatch>,
    /// Number of lost frames that have already been reported in the log.
    lost: u64,
}

/// How far a round has come with guests' frames.
#[derive(Default)]
struct FrameTurn {
    /// Number of frames or datagrams that this round may still process.
    left: usize,
    /// Length of the last frame.
    len: usize,
    /// If the last frame has several datagrams, the number of those that were processed.
    segments: usize,
    /// Whether the last frame has further datagrams, which the next round processes.
    is_cut: bool,
}

impl Gateway {
    /// Creates a gateway on a switch port. Published ports are open once this function returns.
    ///
    /// # Errors
    /// A port cannot be published, the flow log cannot be opened, or a descriptor cannot be created or watched.
    pub fn new(link: GatewayLink, options: &GatewayOptions) -> Result<Self, GatewayError> {
        raise_limit();
        let flows = match &options.flows {
            Some(path) => FlowLog::open(path).map_err(|source| GatewayError::Flows { path: path.clone(), source })?,
            None => FlowLog::none(),
        };
        let guests = GuestTable::new(options.limits);
        let mut core = GatewayCore::new(link, options.net(), options.policy.clone(), guests, flows)?;
        let add = |fd: BorrowedFd<'_>, thing| core.poller.add(fd, thing, WatchMode::Readable);
        core.link.watched(|fd| add(fd, WatchedThing::Link), |fd| add(fd, WatchedThing::LinkEnd))?;
        let mut publisher = Publisher::default();
        for rule in &options.publish {
            publisher.add(&core, rule.clone())?;
        }
        let control = options.control.as_deref().map(ControlServer::open).transpose()?;
        control.as_ref().map_or(Ok(()), |control| control.watch(&core))?;
        core.timers.add(core.now + HOUSEKEEPING, TimedThing::Housekeeping);
        core.served.clone_from(&options.served);
        core.rates = GuestRates::new(options.rates.clone());
        let dialer = dialer(options, &core)?;
        Ok(Gateway {
            core,
            frame: vec![0; MAX_FRAME],
            turn: FrameTurn::default(),
            reassembly: Reassembly::default(),
            dhcp: dhcp_servers(options),
            dhcp6: dhcp6_servers(options),
            adverts: options.adverts.then(|| RouterAdverts::new(options.dhcp6)),
            names: NameService::new(&options.resolv_conf),
            tcp: TcpFlows::default(),
            udp: UdpMappings::default(),
            echo: EchoFlows::default(),
            publisher,
            dialer,
            control,
            is_private: options.private,
            ports: None,
            lost: 0,
        })
    }

    /// If the link is a TAP, reports to its owner that the gateway is ready.
    pub fn tell_ready(&self) {
        self.core.link.tell_ready();
    }

    /// Runs until `stop` becomes readable, or the owner of the link's TAP has closed its connection.
    ///
    /// # Errors
    /// [`GatewayError::Ended`] if the daemon closes the port before that; [`GatewayError::Descriptors`] if `stop`
    /// cannot be watched.
    pub fn run(&mut self, stop: impl AsFd) -> Result<(), GatewayError> {
        self.core.poller.add(stop, WatchedThing::Stop, WatchMode::Readable)?;
        if let Some(adverts) = &mut self.adverts {
            adverts.begin(&mut self.core);
        }
        let mut ready = Vec::new();
        while self.turn(&mut ready, SLEEP)? {}
        self.end();
        Ok(())
    }

    /// Runs one round, waits for events for up to `most`, and handles them. Returns `false` once the gateway must stop.
    fn turn(&mut self, ready: &mut Vec<(WatchedThing, Readiness)>, most: Duration) -> Result<bool, GatewayError> {
        let limit = self.round();
        self.core.poller.wait(limit.min(most), ready);
        self.core.link.disarm();
        self.core.now = Instant::now();
        let mut goes_on = true;
        for (thing, readiness) in ready.drain(..) {
            match thing {
                WatchedThing::Stop => goes_on = false,
                WatchedThing::LinkEnd if self.core.link.is_closed() && self.core.link.is_tap() => goes_on = false,
                WatchedThing::LinkEnd if self.core.link.is_closed() => return Err(GatewayError::Ended),
                other => self.ready(other, readiness),
            }
        }
        Ok(goes_on)
    }

    /// Handles frames, new TCP connections to the name service, timers and busy TCP flows, each up to a limit. Returns
    /// how long the loop may sleep.
    fn round(&mut self) -> Duration {
        self.core.now = Instant::now();
        self.core.link.sync();
        self.take_frames();
        for client in std::mem::take(&mut self.core.name_clients) {
            self.names.accept(&mut self.core, client);
        }
        self.names.go_on(&mut self.core, self.dhcp.as_ref());
        self.take_timers();
        let waits_for_room = self.tcp.take_turns(&mut self.core);
        let waits_for_orders = self.take_orders();
        self.core.flows.flush();
        self.core.link.sync();
        let more = self.turn.left == 0 || (self.tcp.is_busy() && !waits_for_room) || !self.core.asked_again.is_empty();
        if more || waits_for_orders || self.core.link.arm(waits_for_room) {
            return Duration::ZERO;
        }
        self.core.timers.until_first(self.core.now, SLEEP)
    }

    fn take_frames(&mut self) {
        let mut frame = std::mem::take(&mut self.frame);
        self.turn.left = FRAMES;
        while self.turn.left > 0 {
            if !std::mem::take(&mut self.turn.is_cut) {
                let Some(len) = self.core.link.receive(&mut frame) else { break };
                self.turn = FrameTurn { left: self.turn.left - 1, len, ..FrameTurn::default() };
            }
            self.take_frame(&frame[..self.turn.len]);
        }
        self.frame = frame;
    }

    /// Executes the next request of each control client that may have sent several, and sends the flow log's new lines
    /// to the clients that follow the log. Returns whether there may be more requests.
    fn take_orders(&mut self) -> bool {
        let again = self.control.as_mut().map(ControlServer::take_again).unwrap_or_default();
        again.into_iter().for_each(|id| self.serve_control(id));
        let Some(control) = &mut self.control else { return false };
        control.tell(&mut self.core);
        control.is_busy()
    }

    fn take_timers(&mut self) {
        for _ in 0..TIMERS {
            let Some(thing) = self.core.timers.next_due(self.core.now) else { return };
            self.time(thing);
        }
    }

    fn time(&mut self, thing: TimedThing) {
        let core = &mut self.core;
        let leases = self.dhcp.as_ref();
        match thing {
            TimedThing::Tcp(id) => self.tcp.timer(core, id),
            TimedThing::Udp(id) => self.udp.timer(core, id),
            TimedThing::Ping(id) => self.echo.timer(core, id),
            TimedThing::Question(id) => self.names.timer(core, id),
            TimedThing::NameClient(id) => self.names.client_timer(core, id),
            TimedThing::Rate(id) => {
                let granted = core.rates.timer(id, core.now, &mut core.timers);
                self.tcp.grant(core, granted);
            }
            TimedThing::Callers => self.publisher.timer(core, &mut self.tcp, leases),
            TimedThing::Routers => {
                if let Some(adverts) = &mut self.adverts {
                    adverts.timer(core);
                }
            }
            TimedThing::Housekeeping => self.clean(),
        }
    }

    fn clean(&mut self) {
        let now = self.core.now;
        self.core.neighbours.clean(now);
        self.core.resolved.clean(now);
        self.core.rates.clean(now);
        self.dhcp.iter_mut().for_each(|dhcp| dhcp.clean(now));
        self.dhcp6.iter_mut().for_each(|dhcp6| dhcp6.clean(now));
        self.publisher.clean(&mut self.core);
        self.dialer.iter_mut().for_each(|dialer| dialer.clean(now));
        if let Some(control) = &mut self.control {
            control.accept(&self.core);
        }
        let lost = self.core.link.lost();
        if lost > self.lost {
            tracing::info!("{} frames for guests were dropped: the gateway's port had no room", lost - self.lost);
            self.lost = lost;
        }
        self.core.timers.add(now + HOUSEKEEPING, TimedThing::Housekeeping);
    }

    fn ready(&mut self, thing: WatchedThing, readiness: Readiness) {
        let core = &mut self.core;
        let leases = self.dhcp.as_ref();
        match thing {
            WatchedThing::Link | WatchedThing::LinkEnd | WatchedThing::Stop => {}
            WatchedThing::Ports => self.hear_ports(),
            WatchedThing::Tcp(id) => self.tcp.ready(core, id, readiness),
            WatchedThing::Udp(id) => self.udp.ready(core, id, readiness),
            WatchedThing::Ping(id) => self.echo.ready(core, id, readiness),
            WatchedThing::Question(id) => self.names.ready(core, id, readiness),
            WatchedThing::NameClient(id) => self.names.client_ready(core, leases, id),
            WatchedThing::Published(id) => self.publisher.ready(core, &mut self.tcp, leases, id),
            WatchedThing::Dial => {
                if let Some(dialer) = &mut self.dialer {
                    dialer.accept(core);
                }
            }
            WatchedThing::DialCaller(id) => {
                if let Some(dialed) = self.dialer.as_mut().and_then(|dialer| dialer.ready(core, id)) {
                    self.publisher.dial(core, &mut self.tcp, leases, dialed);
                }
            }
            WatchedThing::Control => {
                if let Some(control) = &mut self.control {
                    control.accept(core);
                }
            }
            WatchedThing::ControlClient(id) => self.serve_control(id),
        }
    }

    /// Withdraws the router advertisement and ends all flows.
    fn end(&mut self) {
        if let Some(adverts) = &mut self.adverts {
            adverts.end(&mut self.core);
        }
        self.tcp.end_all(&mut self.core);
        self.udp.end_all(&mut self.core);
        self.core.link.sync();
        self.core.flows.flush();
        if let Some(control) = &mut self.control {
            control.tell(&mut self.core);
        }
    }
}

fn dialer(options: &GatewayOptions, core: &GatewayCore) -> Result<Option<Dialer>, GatewayError> {
    let Some(path) = &options.dial else { return Ok(None) };
    let dialer = Dialer::listen(path).map_err(|source| GatewayError::Dial { path: path.clone(), source })?;
    dialer.watch(core)?;
    Ok(Some(dialer))
}

fn dhcp_servers(options: &GatewayOptions) -> Option<DhcpServers> {
    let own = options.addresses.v4.filter(|_| options.dhcp)?;
    let settings = DhcpSettings {
        own,
        lease: options.lease_time,
        mtu: options.mtu,
        domain: options.domain.clone(),
        search: options.search.clone(),
    };
    // The gateway itself uses this further address: DHCP must not lease it to a guest.
    let host = options.host.map(|address| StaticLease { mac: options.net().mac, address, name: None });
    Some(DhcpServers::new(settings, options.leases.iter().cloned().chain(host).collect()))
}

fn dhcp6_servers(options: &GatewayOptions) -> Option<Dhcp6Servers> {
    let own = options.addresses.v6.filter(|_| options.dhcp6 != Dhcp6Mode::Off)?;
    Some(Dhcp6Servers::new(Dhcp6Settings {
        mode: options.dhcp6,
        own,
        mac: options.net().mac,
        lease: options.lease_time,
        domains: std::iter::once(options.domain.clone()).chain(options.search.iter().cloned()).collect(),
    }))
}

/// Raises the limit of descriptors to the most that this user may have, since each flow needs one.
fn raise_limit() {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests;
