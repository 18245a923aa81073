//! Groups of ports that share a rate, by user and name. A group is there as long as a port has a part of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use netvale_control::options::RateGroup;
use netvale_policy::bucket::{Group, Limit};

/// All groups.
#[derive(Default)]
pub struct Groups(BTreeMap<(u32, String), (RateGroup, Weak<Group>)>);

impl Groups {
    /// What a user's group of that name may send, if it is there.
    pub fn get(&self, uid: u32, name: &str) -> Option<&RateGroup> {
        let (known, group) = self.0.get(&(uid, name.to_owned()))?;
        (group.strong_count() > 0).then_some(known)
    }

    /// The group as it is wanted: the one that is there, or a new one in its place.
    pub fn get_or_make(&mut self, uid: u32, wanted: &RateGroup) -> Arc<Group> {
        self.0.retain(|_, (_, group)| group.strong_count() > 0);
        let key = (uid, wanted.name.clone());
        if let Some(group) =
            self.0.get(&key).filter(|(known, _)| known == wanted).and_then(|(_, group)| group.upgrade())
        {
            return group;
        }
        let group = Group::new(Limit::bits(wanted.rate.bits(), wanted.burst.bytes()));
        self.0.insert(key, (wanted.clone(), Arc::downgrade(&group)));
        group
    }
}
