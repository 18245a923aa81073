//! Clients and their addresses ([`LeaseBook`]), as far as the tables of leases of both IP versions agree.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use netvale_wire::MacAddr;

/// Time for which an offered address is reserved for the client.
pub const OFFER: Duration = Duration::from_secs(60);
/// Time for which an address is not given out after a client has declined it as already in use.
pub const DECLINED: Duration = Duration::from_secs(600);

/// The state of a client's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseState {
    /// Offered to a client, and reserved until the client accepts or the offer expires.
    Offered,
    /// Leased to a client.
    Bound,
    /// Released, withdrawn or expired. The address is remembered for the client until another client needs it.
    Free,
}

/// A client's address.
#[derive(Clone, Debug)]
pub struct ClientLease<A> {
    /// The address.
    pub address: A,
    /// The client's MAC address.
    pub mac: MacAddr,
    /// The state of the address.
    pub state: LeaseState,
    /// Time at which the offer or the lease expires.
    pub until: Instant,
    /// The client's host name; `None` if the client has none.
    pub name: Option<String>,
}

impl<A> ClientLease<A> {
    /// Returns whether the address is reserved for the client or leased to it.
    pub fn is_held(&self, now: Instant) -> bool {
        self.state != LeaseState::Free && self.until > now
    }

    /// Returns whether the address is leased to the client.
    pub fn is_bound(&self, now: Instant) -> bool {
        self.state == LeaseState::Bound && self.until > now
    }
}

/// A lease that has not expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoundLease<'a, A> {
    /// The address.
    pub address: A,
    /// The client's MAC address.
    pub mac: MacAddr,
    /// The client's host name; `None` if the client has none.
    pub name: Option<&'a str>,
    /// Remaining time of the lease.
    pub left: Duration,
}

/// The clients with their addresses. `C` identifies a client.
#[derive(Debug)]
pub struct LeaseBook<C, A> {
    /// Maximum number of clients.
    pub most: usize,
    /// The addresses that clients have or had.
    pub clients: HashMap<C, ClientLease<A>>,
    /// The client of each address.
    pub by_address: HashMap<A, C>,
    declined: HashMap<A, Instant>,
}

impl<C: Clone + Eq + Hash, A: Copy + Eq + Hash> LeaseBook<C, A> {
    /// Creates an empty book for at most `most` clients.
    pub fn new(most: usize) -> Self {
        LeaseBook { most, clients: HashMap::new(), by_address: HashMap::new(), declined: HashMap::new() }
    }

    /// Returns the address that a client was offered or leased last, even if the lease has ended.
    pub fn address<Q: Eq + Hash + ?Sized>(&self, client: &Q) -> Option<A>
    where
        C: Borrow<Q>,
    {
        self.clients.get(client).map(|lease| lease.address)
    }

    /// Returns the entry of the client that has or had an address; `None` if there is no such client.
    pub fn of_address(&self, address: A) -> Option<&ClientLease<A>> {
        self.clients.get(self.by_address.get(&address)?)
    }

    /// Returns whether a client cannot get an address, because another client holds it, or it was declined.
    pub fn is_refused<Q: Eq + Hash + ?Sized>(&self, address: A, client: &Q, now: Instant) -> bool
    where
        C: Borrow<Q>,
    {
        let declined = self.declined.get(&address).is_some_and(|until| *until > now);
        let holder = self.by_address.get(&address).filter(|holder| Borrow::<Q>::borrow(*holder) != client);
        declined || holder.and_then(|holder| self.clients.get::<C>(holder)).is_some_and(|lease| lease.is_held(now))
    }

    /// Sets a client's address. The former client of the address loses its entry.
    pub fn set(&mut self, client: C, lease: ClientLease<A>) {
        let address = lease.address;
        if let Some(former) = self.by_address.insert(address, client.clone())
            && former != client
        {
            self.clients.remove(&former);
        }
        if let Some(old) = self.clients.insert(client, lease)
            && old.address != address
        {
            self.by_address.remove(&old.address);
        }
    }

    /// Ends a client's lease on an address. Returns `false` if the client has no lease on the address.
    pub fn release<Q: Eq + Hash + ?Sized>(&mut self, client: &Q, address: A) -> bool
    where
        C: Borrow<Q>,
    {
        let lease = self.clients.get_mut(client).filter(|lease| lease.address == address);
        lease.map(|lease| lease.state = LeaseState::Free).is_some()
    }

    /// Blocks an address that a client has found in use. Returns `false` if the address was not offered or leased to
    /// this client.
    pub fn decline<Q: Eq + Hash + ?Sized>(&mut self, client: &Q, address: A, now: Instant) -> bool
    where
        C: Borrow<Q>,
    {
        let had = self.address(client) == Some(address);
        if had {
            self.clients.remove(client);
            self.by_address.remove(&address);
            if self.declined.len() < self.most {
                self.declined.insert(address, now + DECLINED);
            }
        }
        had
    }

    /// Returns the leases that have not expired.
    pub fn bound(&self, now: Instant) -> impl Iterator<Item = BoundLease<'_, A>> {
        self.clients.values().filter(move |lease| lease.is_bound(now)).map(move |lease| BoundLease {
            address: lease.address,
            mac: lease.mac,
            name: lease.name.as_deref(),
            left: lease.until.saturating_duration_since(now),
        })
    }

    /// Removes expired declines and, if the table is at least half full, all clients without a valid offer or lease.
    pub fn clean(&mut self, now: Instant) {
        self.declined.retain(|_, until| *until > now);
        if self.clients.len() >= self.most / 2 {
            self.clients.retain(|_, lease| lease.is_held(now));
            self.by_address.retain(|_, client| self.clients.contains_key(client));
        }
    }
}
