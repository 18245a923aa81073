//! State that survives the process: a service manager keeps the descriptors of connected guests, and gives them to the
//! next process.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netvale_port::folder::Place;

use crate::header::Config;
use crate::instance::Instance;

/// Keeps descriptors by name.
pub trait Keeper: Send + Sync {
    /// Keeps a copy of a descriptor.
    fn keep(&self, name: &str, fd: BorrowedFd<'_>);

    /// Drops all descriptors with this name.
    fn forget(&self, name: &str);
}

/// Descriptors that were kept, by name.
pub type Kept = BTreeMap<String, OwnedFd>;

/// Longest path of a port whose descriptors are kept: a name has room for 255 characters.
const LONGEST: usize = 107;

/// The prefix of the descriptors' names for the port at that place: who named the path, and all of its bytes, so that
/// no other path and no other user finds them. `None` if they would be too long.
fn prefix(place: &Place) -> Option<String> {
    let bytes = place.path().as_os_str().as_encoded_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    (bytes.len() <= LONGEST).then(|| format!("ptnet-{}-{hex}", place.user().unwrap_or_default()))
}

/// Names of all descriptors of a guest, in order: its connection, its memory, its doorbells, its vectors.
fn names(place: &Place, config: &Config) -> Vec<String> {
    let Some(prefix) = prefix(place) else { return Vec::new() };
    let bells = |kind: char| (0..config.vectors()).map(move |i| format!("{kind}{i}"));
    let all = ["connection".to_owned(), "memory".to_owned()].into_iter().chain(bells('d')).chain(bells('v'));
    all.map(|what| format!("{prefix}-{what}")).collect()
}

/// Gives a guest's descriptors to the keeper.
pub fn keep(keeper: &dyn Keeper, place: &Place, config: &Config, connection: BorrowedFd<'_>, device: &Instance) {
    let Some(memory) = device.memory() else { return };
    let bells = device.doorbells().iter().chain(device.vectors()).map(AsFd::as_fd);
    let fds = [connection, memory].into_iter().chain(bells);
    names(place, config).iter().zip(fds).for_each(|(name, fd)| keeper.keep(name, fd));
}

/// Has the keeper drop them.
pub fn forget(keeper: &dyn Keeper, place: &Place, config: &Config) {
    names(place, config).iter().for_each(|name| keeper.forget(name));
}

/// Takes a guest's descriptors out of the kept ones: connection, memory, doorbells and vectors. If some are missing
/// (the port has changed), the others are closed.
pub fn take(kept: &mut Kept, place: &Place, config: &Config) -> Option<(OwnedFd, OwnedFd, Vec<OwnedFd>)> {
    let names = names(place, config);
    if !names.iter().all(|name| kept.contains_key(name)) {
        let prefix = format!("{}-", prefix(place)?);
        kept.retain(|name, _| !name.starts_with(&prefix));
        return None;
    }
    let mut fds = names.iter().filter_map(|name| kept.remove(name));
    Some((fds.next()?, fds.next()?, fds.collect()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use netvale_mem::notify::Doorbell;

    /// Objective: a guest's descriptors are found again as a whole, by the port's path, and not by another's.
    #[test]
    fn found_again() {
        let config =
            Config { tx_rings: 1, rx_rings: 1, slots: 4, buf_size: 0, vnet_hdr: false, mac: [0; 6], mtu: 1500 };
        let place = &Place::from(Path::new("/run/a"));
        let fd = || Doorbell::new().unwrap().into_fd();
        let mut kept: Kept = names(place, &config).into_iter().map(|name| (name, fd())).collect();
        assert_eq!(kept.len(), 2 + 2 * 3);
        assert!(take(&mut kept, &Place::from(Path::new("/run/b")), &config).is_none());
        let of_user = Place::of_user(place.path(), [Path::new("/run")], 70_001).unwrap();
        assert!(take(&mut kept, &of_user, &config).is_none(), "another user's");
        let (_, _, bells) = take(&mut kept, place, &config).unwrap();
        assert!(bells.len() == 6 && kept.is_empty());
        let mut part: Kept = names(place, &config).into_iter().skip(1).map(|name| (name, fd())).collect();
        assert!(take(&mut part, place, &config).is_none() && part.is_empty());
    }
}
