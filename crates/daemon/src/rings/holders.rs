//! The holders of a ring, or of one end of a pipe.

/// Connections that hold the same ring or pipe end. Several connections can hold the same ring only if all of them
/// share it, i.e. if they opened it without netmap's `NR_EXCLUSIVE`.
#[derive(Clone, Debug, Default)]
pub struct Holders(Vec<Holder>);

#[derive(Clone, Copy, Debug)]
struct Holder {
    client: u64,
    shares: bool,
}

impl Holders {
    /// Whether another connection can be added. `shares` tells whether that connection shares the ring or pipe end.
    pub fn admits(&self, shares: bool) -> bool {
        self.0.iter().all(|h| shares && h.shares)
    }

    /// Adds a connection. [`Holders::admits`] must have returned true for it.
    pub fn add(&mut self, client: u64, shares: bool) {
        self.0.push(Holder { client, shares });
    }

    /// Removes a connection.
    pub fn remove(&mut self, client: u64) {
        self.0.retain(|h| h.client != client);
    }

    /// Whether no connection holds the ring or pipe end.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of each connection, and whether the connection shares the ring or pipe end.
    pub fn list(&self) -> Vec<(u64, bool)> {
        self.0.iter().map(|h| (h.client, h.shares)).collect()
    }

    /// Creates holders from a result of [`Holders::list`].
    pub fn from_list(list: Vec<(u64, bool)>) -> Holders {
        Holders(list.into_iter().map(|(client, shares)| Holder { client, shares }).collect())
    }

    /// Iterates over the numbers of the connections.
    pub fn clients(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|h| h.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: several holders are admitted if all of them share the ring, an exclusive holder is admitted only
    /// alone, and all holders can leave.
    #[test]
    fn sharing_holders_are_admitted_together() {
        let mut h = Holders::default();
        assert!(h.admits(false) && h.admits(true));
        h.add(1, true);
        assert!(h.admits(true) && !h.admits(false));
        h.add(2, true);
        h.remove(1);
        assert_eq!(h.clients().collect::<Vec<_>>(), [2]);
        h.remove(2);
        h.add(3, false);
        assert!(!h.admits(true) && !h.is_empty());
    }
}
