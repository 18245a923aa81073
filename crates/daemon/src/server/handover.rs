//! The hand-over to a successor, including connections and listening sockets, and the take-over from a predecessor. An
//! *item* is the saved state of one object.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netvale_control::types::EventName;
use netvale_fdio::state::Fd;
use netvale_port::domain::TimeDomain;
use rustix::event::epoll;
use rustix::net::{AddressFamily, sockopt};
use rustix::stdio::{stderr, stdout};

use super::{ClientConnection, DaemonServer, connection};
use crate::api::handover::continuing::{self, ConnectionState};
use crate::api::handover::give::{self, HandoverResult, ItemSink};
use crate::api::handover::kept;
use crate::caller::Caller;
use crate::handover::items::{ClientItem, ConnectionItem, Item, ProcessItem};
use crate::handover::store::Store;
use crate::handover::touched::TouchedItems;
use crate::handover::wire;
use crate::registry::events::NewEvent;
use crate::system::keep;
use crate::worker::parking::{ParkedWorkers, TaskFrames};

/// Interval at which counters are saved while frames pass.
const PERIOD: Duration = Duration::from_secs(1);
/// Interval at which counters are saved while no frames pass.
const IDLE_PERIOD: Duration = Duration::from_secs(10);

impl DaemonServer {
    /// Hands all ports and connections over to the successor on that connection. Returns whether the successor takes
    /// over; if not, this daemon continues.
    pub(super) fn hand_over(&mut self, successor: u64) -> bool {
        let Some((ClientConnection::Attach { holds: None, .. }, caller)) = self.clients.get(&successor) else {
            return false;
        };
        let pid = caller.pid;
        self.daemon.events.tell(NewEvent::to_all(EventName::DaemonHandover).with("pid", pid));
        self.collect_events();
        let Some((ClientConnection::Attach { fd, .. }, _)) = self.clients.get(&successor) else { return false };
        let given = fd.try_clone().map_err(|e| e.to_string()).and_then(|to| {
            let given = self.give(Some(successor), &mut |item| give::send(&to, &item))?;
            give::let_go(&to).map(|()| given)
        });
        match given {
            Ok((parked, gift)) => {
                tracing::info!(pid, "handed over to a successor");
                keep::main_process_is(pid);
                self.leave(parked, gift);
                true
            }
            Err(why) => {
                tracing::error!(pid, why, "a successor cannot take over; this daemon continues");
                self.daemon.events.tell(NewEvent::to_all(EventName::DaemonHandoverFailed).why(&why));
                if let Some((ClientConnection::Attach { fd, .. }, _)) = self.clients.get(&successor) {
                    let _ = wire::send(fd.as_fd(), &Item::Failed(why));
                }
                self.hang_up(successor);
                false
            }
        }
    }

    /// Saves all state with the service manager for the next daemon. Returns whether there is a service manager. If
    /// there is one, the caller must not end any port, because the next daemon continues the ports.
    pub(super) fn leave_kept(&mut self) -> bool {
        let Some(mut store) = self.daemon.store.take() else { return false };
        let mut items = Vec::new();
        let mut keep = |item| {
            if !matches!(item, Item::Process(_)) {
                items.push(item);
            }
            Ok(())
        };
        match self.give(None, &mut keep) {
            Ok((parked, gift)) => {
                if let Err(e) = store.save_counters(None).and_then(|()| store.save(&TouchedItems::all(), items)) {
                    tracing::error!("cannot save the current state of some ports: {e}; their last saved state remains");
                }
                self.leave(parked, gift);
            }
            Err(why) => tracing::error!(why, "cannot save the current state of the ports; the last saved one remains"),
        }
        true
    }

    /// Saves changes with the service manager.
    pub(super) fn keep(&mut self) {
        if self.daemon.changes.are_none() {
            return;
        }
        let touched = kept::touched(&mut self.daemon);
        let Some(mut store) = self.daemon.store.take() else { return };
        if let Err(e) = self.save(&mut store, &touched) {
            tracing::error!("cannot save changes: {e}; a restart may lose ports");
            // The next round of the main loop will save all objects again.
            self.daemon.changes.everything = true;
        }
        self.daemon.store = Some(store);
    }

    fn save(&self, store: &mut Store, touched: &TouchedItems) -> std::io::Result<()> {
        let mut items = kept::items(&self.daemon, touched)?;
        for (id, (client, caller)) in self.clients.iter().filter(|(id, _)| touched.has_client(**id)) {
            if let ClientConnection::Attach { holds: Some(_), .. } = client
                && let Some(item) = client_item(Caller { client: *id, ..*caller }, client)?
            {
                items.push(Item::Client(item));
            }
        }
        store.save(touched, items)?;
        debug_assert_eq!(kept::missed(&self.daemon, store)?, Vec::<String>::new(), "touched: {touched:?}");
        Ok(())
    }

    /// Saves counters and learned addresses with the service manager if it is time to. Returns the time until the next
    /// call.
    pub(super) fn keep_counters(&mut self, now: Instant) -> Duration {
        if self.daemon.store.is_none() {
            return Duration::MAX;
        }
        let (at, busy) = self.counted;
        if now >= at {
            let workers = self.daemon.workers.each();
            let busy_now = workers.map(|(_, worker)| worker.stats().busy_ns.load(Ordering::Relaxed)).sum();
            if busy_now != busy {
                let counters = kept::counters(&self.daemon);
                let saved = self.daemon.store.as_mut().map_or(Ok(()), |store| store.save_counters(counters));
                saved.unwrap_or_else(|e| tracing::error!("cannot save counters: {e}; a restart may lose them"));
            }
            let pause = if busy_now == busy { IDLE_PERIOD } else { PERIOD };
            self.counted = (now + pause, busy_now);
        }
        self.counted.0.saturating_duration_since(now)
    }

    /// Parks the workers and writes all items to the sink. Items that do not change with frames are written before the
    /// workers are parked.
    fn give(&mut self, successor: Option<u64>, sink: ItemSink<'_>) -> Result<(ParkedWorkers, HandoverResult), String> {
        give::regions(&self.daemon, sink).map_err(|e| e.to_string())?;
        self.give_clients(successor, sink).map_err(|e| e.to_string())?;
        let parked = self.daemon.workers.park();
        let mut parked = parked.map_err(|late| self.held_up(&late))?;
        let waiting = std::mem::take(&mut parked.waiting);
        let gift = self.give_parked(waiting, sink).map_err(|e| e.to_string())?;
        Ok((parked, gift))
    }

    /// Evicts the ports of users whose memory or descriptors block their own worker, because these ports cannot be
    /// handed over. Returns the reason why the hand-over fails.
    fn held_up(&mut self, late: &[TimeDomain]) -> String {
        late.iter().filter_map(|domain| domain.user()).for_each(|uid| self.daemon.evictions.hold_up(uid));
        let users = late.iter().filter(|domain| domain.user().is_some());
        let whose: Vec<_> = users.map(|domain| format!("of {domain}")).collect();
        if whose.is_empty() {
            return "a worker did not pause in time, because a peer blocks it; try again".to_owned();
        }
        format!("the ports {} blocked their worker and have been evicted; try again", whose.join(" and "))
    }

    /// Removes the ports that cannot be handed over, and leaves all other objects to the successor without ending them.
    fn leave(&mut self, parked: ParkedWorkers, gift: HandoverResult) {
        give::end(&mut self.daemon, &gift.others);
        std::mem::forget((parked, gift.paused));
    }

    /// Writes all connections except the successor's to the sink. Only this thread changes the state of connections, so
    /// the workers need not be parked yet.
    fn give_clients(&self, successor: Option<u64>, sink: ItemSink<'_>) -> std::io::Result<()> {
        let others = self.clients.iter().filter(|(id, _)| Some(**id) != successor);
        for (id, (client, caller)) in others {
            self.item_of(Caller { client: *id, ..*caller }, client)?.map_or(Ok(()), &mut *sink)?;
        }
        Ok(())
    }

    fn give_parked(&self, waiting: TaskFrames, sink: ItemSink<'_>) -> std::io::Result<HandoverResult> {
        let gift = give::items(&self.daemon, waiting, sink)?;
        sink(Item::Process(ProcessItem {
            lock: Fd::copy_of(&self.listeners.lock)?,
            attach: Fd::copy_of(&self.listeners.attach)?,
            control: Fd::copy_of(&self.listeners.control)?,
            output: [Fd::copy_of(stdout())?, Fd::copy_of(stderr())?],
            kept: self.daemon.store.as_ref().map(Store::names).unwrap_or_default(),
            own: self.listeners.own.clone(),
        }))?;
        Ok(gift)
    }

    /// Returns the item of a connection, including the connection's subscription.
    fn item_of(&self, caller: Caller, client: &ClientConnection) -> std::io::Result<Option<Item>> {
        let mut item = client_item(caller, client)?;
        if let Some(ClientItem { connection: ConnectionItem::Control { events, .. }, .. }) = &mut item {
            *events = self.daemon.events.subscription(caller.client);
        }
        Ok(item.map(Item::Client))
    }

    /// Adopts a predecessor's connections, which this process serves from now on.
    pub fn adopt(&mut self, clients: Vec<continuing::ContinuedClient>) {
        for (caller, connected, fd) in clients {
            let id = caller.client;
            // New connections get higher numbers than the adopted connections.
            self.next = self.next.max(id + 1);
            let is_unix = sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            let flags = match &connected {
                ConnectionState::Control { unsent, .. } if !unsent.is_empty() => flags | epoll::EventFlags::OUT,
                _ => flags,
            };
            if !is_unix || epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(id), flags).is_err() {
                tracing::error!(pid = caller.pid, "cannot take over a connection; its program must connect again");
                continue;
            }
            let client = match connected {
                ConnectionState::Attach(holds) => ClientConnection::Attach { fd, holds },
                ConnectionState::Control { pending, unsent, ended, events } => {
                    if let Some((params, sequence)) = events {
                        self.daemon.events.subscribe(caller, params, sequence);
                    }
                    ClientConnection::Control {
                        fd,
                        conn: Box::new(connection(caller).continuing(&pending)),
                        unsent,
                        ended,
                    }
                }
            };
            self.clients.insert(id, (client, caller));
        }
    }
}

/// Returns the item of a connection, or `None` if the connection ends with this process because its hold on a port
/// cannot be saved.
fn client_item(caller: Caller, client: &ClientConnection) -> std::io::Result<Option<ClientItem>> {
    let (fd, connection) = match client {
        ClientConnection::Attach { fd, holds: None } => (fd, ConnectionItem::Attach { holds: None }),
        ClientConnection::Attach { fd, holds: Some(held) } => {
            let Some(holds) = held.save()? else { return Ok(None) };
            (fd, ConnectionItem::Attach { holds: Some(holds) })
        }
        ClientConnection::Control { fd, conn, unsent, ended } => {
            let pending = conn.pending().to_vec();
            let unsent = unsent.clone();
            let ended = *ended;
            (fd, ConnectionItem::Control { pending, unsent, ended, events: None })
        }
    };
    Ok(Some(ClientItem { caller: caller.into(), socket: Fd::copy_of(fd)?, connection }))
}
