//! The store: items that the service manager keeps for a daemon that starts after this daemon was killed.
//!
//! Each item is a descriptor in the service manager's store (sd_notify(3), `FDSTORE=1`): a socket whose queue contains
//! a message with the item and the item's descriptors. An item and its descriptors are therefore replaced together: the
//! old message is removed only after the new message is stored. Reading leaves the message in the queue.
//!
//! Names are `nv.ID.GENERATION.PART.PARTS`; an item has several parts because the size of a message is limited.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use netvale_fdio::state::{Fd, from_bytes, to_bytes};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::json;

use super::items::{COUNTERS, CountersItem, Item};
use super::touched::TouchedItems;
use super::wire::{self, MOST_FDS, PART};
use crate::system::keep::{self, StoredDescriptors};

/// An item in the store.
struct SavedItem {
    id: u64,
    generation: u64,
    item: Vec<u8>,
    parts: usize,
}

impl SavedItem {
    fn names(&self) -> impl Iterator<Item = String> {
        let &SavedItem { id, generation, parts, .. } = self;
        (0..parts).map(move |part| format!("nv.{id}.{generation}.{part}.{parts}"))
    }

    fn forget(&self) {
        self.names().for_each(|name| keep::forget(&name));
    }
}

/// The items in the store, by key.
#[derive(Default)]
pub struct Store {
    saved: BTreeMap<String, SavedItem>,
    /// Names of an earlier daemon's items. The first save removes these items.
    earlier: Vec<String>,
    /// IDs of the earlier daemon's items, by key.
    found: BTreeMap<String, u64>,
    next: u64,
}

impl Store {
    /// Saves new and changed items, and removes touched items that are missing from `items`.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors; items saved earlier remain.
    pub fn save(&mut self, touched: &TouchedItems, items: Vec<Item>) -> std::io::Result<()> {
        let keys = touched.keys(&self.saved);
        let mut before: BTreeMap<_, _> = keys.iter().filter_map(|key| self.saved.remove_entry(key)).collect();
        let done = items.iter().try_for_each(|item| self.save_one(&mut before, item));
        if let Err(e) = done {
            // The items that were saved earlier stay in the list, so that they can be removed later.
            self.saved.append(&mut before);
            return Err(e);
        }
        before.into_values().for_each(|gone| gone.forget());
        self.earlier.drain(..).for_each(|name| keep::forget(&name));
        Ok(())
    }

    /// Saves one item, unless the items saved earlier, `before`, contain it unchanged.
    fn save_one(&mut self, before: &mut BTreeMap<String, SavedItem>, item: &Item) -> std::io::Result<()> {
        let key = item.key();
        let (text, fds) = to_bytes(item)?;
        let known = before.get(&key);
        if known.is_some_and(|known| known.item == text) {
            self.saved.extend(before.remove_entry(&key));
            return Ok(());
        }
        let saved = self.replace(before.get(&key), text, &fds)?;
        before.remove(&key).into_iter().for_each(|known| known.forget());
        self.saved.insert(key, saved);
        Ok(())
    }

    /// Whether the store contains the item unchanged.
    pub fn has(&self, item: &Item) -> bool {
        let kept = self.saved.get(&item.key());
        kept.is_some_and(|kept| to_bytes(item).is_ok_and(|(text, _)| kept.item == text))
    }

    /// Returns the keys of all items.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.saved.keys()
    }

    /// Removes the item of that key.
    pub fn forget(&mut self, key: &str) {
        self.saved.remove(key).iter().for_each(SavedItem::forget);
    }

    /// Removes items whose key starts with `prefix`, if `is_gone` returns true for the part of the key after the
    /// prefix.
    pub fn forget_gone(&mut self, prefix: &str, is_gone: impl Fn(&str) -> bool) {
        let kept = self.saved.range(prefix.to_owned()..).map_while(|(key, _)| Some((key, key.strip_prefix(prefix)?)));
        let gone: Vec<String> = kept.filter(|(_, rest)| is_gone(rest)).map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| self.forget(key));
    }

    /// Saves counters. If `item` is `None`, removes the saved counters.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub fn save_counters(&mut self, item: Option<CountersItem>) -> std::io::Result<()> {
        let before = self.saved.remove(COUNTERS);
        if let Some(item) = item {
            let text = serde_json::to_vec(&Item::Counters(item))?;
            let saved = self.replace(before.as_ref(), text, &[])?;
            self.saved.insert(COUNTERS.to_owned(), saved);
        }
        before.into_iter().for_each(|before| before.forget());
        Ok(())
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.names().iter().for_each(|name| keep::forget(name));
        *self = Store { next: self.next, ..Store::default() };
    }

    /// Stores an item under a new name. The stored item `before` remains until the caller removes it.
    fn replace(&mut self, before: Option<&SavedItem>, item: Vec<u8>, fds: &[Fd]) -> std::io::Result<SavedItem> {
        let parts = item.len().div_ceil(PART).max(fds.len().div_ceil(MOST_FDS)).max(1);
        let (id, generation) = before.map_or_else(|| (self.new_id(), 0), |b| (b.id, b.generation + 1));
        let saved = SavedItem { id, generation, item, parts };
        let mut bytes = &saved.item[..];
        let mut fds = fds;
        for name in saved.names() {
            let (part, rest) = bytes.split_at(bytes.len().min(PART));
            let (some, others) = fds.split_at(fds.len().min(MOST_FDS));
            bytes = rest;
            fds = others;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (to, from) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            wire::send_part(to.as_fd(), &[], part, some)?;
            keep::keep_quietly(&name, from.as_fd());
        }
        Ok(saved)
    }

    /// Creates an empty store. Its first save removes the items with `names`, which another process saved.
    pub fn after(names: Vec<String>) -> Store {
        let next = names.iter().filter_map(|name| Some(numbers(name)?[0])).max().unwrap_or(0);
        Store { next, earlier: names, ..Store::default() }
    }

    /// Returns the names of all items in the store.
    pub fn names(&self) -> Vec<String> {
        self.saved.values().flat_map(SavedItem::names).chain(self.earlier.iter().cloned()).collect()
    }

    /// Removes an earlier daemon's item with this key.
    pub fn forget_found(&mut self, key: &str) {
        if let Some(id) = self.found.remove(key) {
            self.forget_earlier(|name| name[0] == id);
        }
    }

    fn forget_earlier(&mut self, is_gone: impl Fn([u64; 4]) -> bool) {
        let gone = self.earlier.extract_if(.., |name| numbers(name).is_some_and(&is_gone));
        gone.for_each(|name| keep::forget(&name));
    }

    fn new_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Reads an earlier daemon's items from the descriptors that the service manager has passed. The items stay in the
    /// service manager's store until the first save.
    pub fn found(kept: &mut StoredDescriptors) -> (Store, Vec<Item>) {
        let mut store = Store::default();
        let mut complete = BTreeMap::new();
        for ((id, generation), mut parts) in parts_of(kept, &mut store.earlier) {
            store.next = store.next.max(id);
            let count = parts.first().map_or(0, |(_, of, _)| *of);
            parts.sort_by_key(|(part, ..)| *part);
            if parts.len() != count {
                continue;
            }
            let (item, is_whole) = read(parts.into_iter().map(|(_, _, fd)| fd));
            if !is_whole {
                // The port is attached anew, and may need the resources that this unreadable item keeps, so the item is
                // removed immediately.
                store.forget_earlier(|name| name[..2] == [id, generation]);
            }
            // If several items have the same key, the item that was saved last applies.
            complete.extend(item.map(|item| ((item.key(), id, generation), item)));
        }
        store.found = complete.keys().map(|(key, id, _)| (key.clone(), *id)).collect();
        let last: BTreeMap<String, _> = complete.into_iter().map(|((key, ..), item)| (key, item)).collect();
        let mut items: Vec<_> = last.into_values().collect();
        items.sort_by_key(Item::rank);
        (store, items)
    }
}

/// The parts of each item. The key is the item's ID and generation; a part is its number, the number of parts, and the
/// descriptor.
type ItemParts = BTreeMap<(u64, u64), Vec<(usize, usize, OwnedFd)>>;

fn parts_of(kept: &mut StoredDescriptors, names: &mut Vec<String>) -> ItemParts {
    let mut parts = ItemParts::new();
    for (name, fd) in std::mem::take(kept) {
        match numbers(&name) {
            Some([id, generation, part, of]) => {
                parts.entry((id, generation)).or_default().push((part as usize, of as usize, fd));
                names.push(name);
            }
            _ => drop(kept.insert(name, fd)),
        }
    }
    parts
}

/// Returns ID, generation, number of the part and number of parts from a name; `None` if the name is not that of an
/// item's part.
fn numbers(name: &str) -> Option<[u64; 4]> {
    let numbers: Option<Vec<u64>> = name.strip_prefix("nv.")?.split('.').map(|n| n.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Reads an item from its parts, which stay in the store. Returns the item, and whether its state could be read. A port
/// whose state cannot be read is reduced to its attach parameters.
fn read(parts: impl Iterator<Item = OwnedFd>) -> (Option<Item>, bool) {
    let mut bytes = Vec::new();
    let mut fds = Vec::new();
    for (text, some) in parts.filter_map(|part| wire::peek(&part).ok()) {
        bytes.extend(text);
        fds.extend(some);
    }
    let bad = match from_bytes(&bytes, fds) {
        Ok(item) => return (Some(item), true),
        Err(bad) => bad,
    };
    tracing::error!("cannot read a port's state in the service manager's store: {bad}");
    (attached_with(&bytes), false)
}

/// Returns the item of a port, reduced to its attach parameters; `None` if the bytes are not such an item.
fn attached_with(bytes: &[u8]) -> Option<Item> {
    let mut item: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let port = item.get_mut("port")?.as_object_mut()?;
    for (field, value) in [("state", json!(null)), ("frames", json!(null)), ("waiting", json!([]))] {
        port.insert(field.to_owned(), value);
    }
    serde_json::from_value(item).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::handover::items::SwitchItem;

    fn switch(name: &str, owner: u32) -> Item {
        Item::Switch(SwitchItem { name: name.to_owned(), owner, addresses: Vec::new(), flows: None })
    }

    /// A guard that denies this process new descriptors until the guard is dropped.
    struct NoDescriptors(Rlimit);

    impl NoDescriptors {
        fn new() -> NoDescriptors {
            let limit = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
            NoDescriptors(limit)
        }
    }

    impl Drop for NoDescriptors {
        fn drop(&mut self) {
            setrlimit(Resource::Nofile, self.0).unwrap();
        }
    }

    /// Creates a descriptor like those in the store, whose queue contains this message.
    fn kept(bytes: &[u8]) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (to, from) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        wire::send_part(to.as_fd(), &[], bytes, &[]).unwrap();
        from
    }

    /// Objective: unchanged items keep their names, items of vanished objects are removed, and a failed save removes
    /// nothing.
    #[test]
    fn unchanged_items_keep_their_names() {
        let mut store = Store::default();
        store.save(&TouchedItems::all(), vec![switch("vale0", 1), switch("vale1", 1)]).unwrap();
        assert_eq!(store.names(), ["nv.1.0.0.1", "nv.2.0.0.1"]);
        let without_descriptors = NoDescriptors::new();
        store.save(&TouchedItems::all(), vec![switch("vale0", 1), switch("vale1", 2)]).unwrap_err();
        drop(without_descriptors);
        assert_eq!(store.names(), ["nv.1.0.0.1", "nv.2.0.0.1"]);
        store.save(&TouchedItems::all(), vec![switch("vale1", 2)]).unwrap();
        assert_eq!(store.names(), ["nv.2.1.0.1"]);
        // Items that are not touched stay unchanged, whether or not they are in the list.
        let touched = |name: &str| TouchedItems { switches: [name.to_owned()].into(), ..TouchedItems::default() };
        store.save(&touched("vale3"), vec![switch("vale3", 3)]).unwrap();
        assert_eq!(store.names(), ["nv.2.1.0.1", "nv.3.0.0.1"]);
        store.save(&touched("vale1"), Vec::new()).unwrap();
        assert_eq!(store.names(), ["nv.3.0.0.1"]);
        store.save(&touched("vale3"), vec![switch("vale3", 3)]).unwrap();
        assert_eq!(store.names(), ["nv.3.0.0.1"]);
        assert_eq!(Store::after(store.names()).next, 3);
    }

    /// Objective: every reading of the store yields whole items, and for each key the last item. Fragments, garbage and
    /// foreign descriptors do no harm. Unreadable items are removed immediately; the next save removes all names of the
    /// earlier daemon.
    #[test]
    fn the_store_yields_the_last_item_of_each_key() {
        let text = |owner| serde_json::to_vec(&switch("vale0", owner)).unwrap();
        let first = text(2)[..9].to_vec();
        let second = text(2)[9..].to_vec();
        let all = [
            ("nv.1.0.0.1", text(1)),
            ("nv.2.7.0.2", first),
            ("nv.2.7.1.2", second),
            ("nv.3.0.0.2", text(3)),
            ("nv.4.0.0.1", b"nonsense".to_vec()),
            ("nv.5.0.0.1", Vec::new()),
            ("nv.x.0.0.1", text(6)),
            ("attach", text(7)),
        ];
        let fds: Vec<(&str, OwnedFd)> = all.iter().map(|(name, bytes)| (*name, kept(bytes))).collect();
        for _ in 0..2 {
            let mut kept: StoredDescriptors =
                fds.iter().map(|(name, fd)| ((*name).to_owned(), fd.try_clone().unwrap())).collect();
            let (mut store, items) = Store::found(&mut kept);
            let owners: Vec<u32> =
                items.iter().map(|item| if let Item::Switch(switch) = item { switch.owner } else { 0 }).collect();
            assert_eq!(owners, [2]);
            assert_eq!((store.names().len(), store.next), (4, 5));
            assert_eq!(kept.keys().collect::<Vec<_>>(), ["attach", "nv.x.0.0.1"]);
            store.forget_found("switch vale1");
            store.forget_found("switch vale0");
            let others = ["nv.1.0.0.1", "nv.3.0.0.2"];
            assert_eq!(store.names().into_iter().collect::<BTreeSet<_>>(), others.map(String::from).into());
        }
    }

    /// Objective: a port whose item has lost a descriptor or has an invalid state is reduced to its attach parameters
    /// and can be attached anew; the port's item is removed immediately.
    #[test]
    fn ports_that_cannot_be_continued() {
        let port = json!({"port": {
            "name": "vale0:a", "on": ["vale0", "a"], "kind": "tap", "owner": {"client": 1, "uid": 0, "pid": 1},
            "declared": [{"switch": "vale0", "port": "tap:a"}, false], "persistent": true, "lasting": null,
            "lossless": false, "polled": false, "counters": [[], []], "waiting": [[["b", 0, 1]]], "frames": null,
        }});
        let with = |state: serde_json::Value| {
            let mut port = port.clone();
            port["port"]["state"] = state;
            serde_json::to_vec(&port).unwrap()
        };
        let states = [
            json!({"said": {"name": "a", "uso": false, "queues": [0]}, "fds": [0]}),
            json!({"said": {}, "fds": [u64::MAX]}),
            json!({"name": "a", "uso": false}),
            json!(7),
        ];
        for state in states {
            let mut found: StoredDescriptors = [("nv.1.0.0.1".to_owned(), kept(&with(state.clone())))].into();
            let (store, items) = Store::found(&mut found);
            let [Item::Port(port)] = &items[..] else { panic!("{state}: {items:?}") };
            assert!(port.state.is_none() && port.waiting.is_empty(), "{port:?}");
            assert_eq!(port.declared.as_ref().map(|(params, _)| params.port.as_str()), Some("tap:a"));
            assert!(store.names().is_empty(), "{:?}", store.names());
        }
    }
}
