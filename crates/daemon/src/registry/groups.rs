//! Rate groups: ports of a user that share a rate, by user and name. A group exists as long as a port is in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use netvale_control::options::RateGroup;
use netvale_policy::bucket::{Group, RateLimit};

/// All rate groups.
#[derive(Default)]
pub struct RateGroups(BTreeMap<(u32, String), (RateGroup, Weak<Group>)>);

impl RateGroups {
    /// Returns the name and rate of a user's group; `None` if the user has no group of that name.
    pub fn get(&self, uid: u32, name: &str) -> Option<&RateGroup> {
        let (known, group) = self.0.get(&(uid, name.to_owned()))?;
        (group.strong_count() > 0).then_some(known)
    }

    /// Returns the group of that name and rate. Creates the group if it does not exist, and replaces a group that has
    /// the same name but another rate.
    pub fn get_or_make(&mut self, uid: u32, wanted: &RateGroup) -> Arc<Group> {
        self.0.retain(|_, (_, group)| group.strong_count() > 0);
        let key = (uid, wanted.name.clone());
        if let Some(group) =
            self.0.get(&key).filter(|(known, _)| known == wanted).and_then(|(_, group)| group.upgrade())
        {
            return group;
        }
        let group = Group::new(RateLimit::bits(wanted.rate.bits(), wanted.burst.bytes()));
        self.0.insert(key, (wanted.clone(), Arc::downgrade(&group)));
        group
    }
}
