//! Who holds a ring, or one end of a pipe.

/// The connections that hold something. More than one only if all of them said that they share (netmap: no `NR_EXCLUSIVE`).
#[derive(Clone, Debug, Default)]
pub struct Holders(Vec<Holder>);

#[derive(Clone, Copy, Debug)]
struct Holder {
    client: u64,
    shares: bool,
}

impl Holders {
    /// Whether a newcomer can be let in.
    pub fn admits(&self, shares: bool) -> bool {
        self.0.iter().all(|h| shares && h.shares)
    }

    /// Lets a connection in; whoever calls has asked [`Holders::admits`].
    pub fn add(&mut self, client: u64, shares: bool) {
        self.0.push(Holder { client, shares });
    }

    /// A connection lets go.
    pub fn remove(&mut self, client: u64) {
        self.0.retain(|h| h.client != client);
    }

    /// Whether nobody holds it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The connections.
    pub fn clients(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|h| h.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: those who share get in with others who do, one who does not wants to be alone, and everybody can leave.
    #[test]
    fn sharing() {
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
