//! State that survives the process: a service manager keeps the descriptors of connected guests, and gives them to the
//! next process.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

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

/// The prefix of the descriptors' names for the port at `path`: the path's FNV-1a hash, as names must be short.
fn prefix(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("ptnet-{hash:016x}")
}

/// Names of all descriptors of a guest, in order: its connection, its memory, its doorbells, its vectors.
fn names(path: &Path, config: &Config) -> Vec<String> {
    let prefix = prefix(path);
    let bells = |kind: char| (0..config.vectors()).map(move |i| format!("{kind}{i}"));
    let all = ["connection".to_owned(), "memory".to_owned()].into_iter().chain(bells('d')).chain(bells('v'));
    all.map(|what| format!("{prefix}-{what}")).collect()
}

/// Gives a guest's descriptors to the keeper.
pub fn keep(keeper: &dyn Keeper, path: &Path, config: &Config, connection: BorrowedFd<'_>, device: &Instance) {
    let Some(memory) = device.memory() else { return };
    let bells = device.doorbells().iter().chain(device.vectors()).map(AsFd::as_fd);
    let fds = [connection, memory].into_iter().chain(bells);
    names(path, config).iter().zip(fds).for_each(|(name, fd)| keeper.keep(name, fd));
}

/// Has the keeper drop them.
pub fn forget(keeper: &dyn Keeper, path: &Path, config: &Config) {
    names(path, config).iter().for_each(|name| keeper.forget(name));
}

/// Takes a guest's descriptors out of the kept ones: connection, memory, doorbells and vectors. If some are missing
/// (the port has changed), the others are closed.
pub fn take(kept: &mut Kept, path: &Path, config: &Config) -> Option<(OwnedFd, OwnedFd, Vec<OwnedFd>)> {
    let names = names(path, config);
    if !names.iter().all(|name| kept.contains_key(name)) {
        let prefix = prefix(path);
        kept.retain(|name, _| !name.starts_with(&prefix));
        return None;
    }
    let mut fds = names.iter().filter_map(|name| kept.remove(name));
    Some((fds.next()?, fds.next()?, fds.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netvale_mem::notify::Doorbell;

    /// Objective: a guest's descriptors are found again as a whole, by the port's path, and not by another's.
    #[test]
    fn found_again() {
        let config =
            Config { tx_rings: 1, rx_rings: 1, slots: 4, buf_size: 0, vnet_hdr: false, mac: [0; 6], mtu: 1500 };
        let path = Path::new("/run/a");
        let fd = || Doorbell::new().unwrap().into_fd();
        let mut kept: Kept = names(path, &config).into_iter().map(|name| (name, fd())).collect();
        assert_eq!(kept.len(), 2 + 2 * 3);
        assert!(take(&mut kept, Path::new("/run/b"), &config).is_none());
        let (_, _, bells) = take(&mut kept, path, &config).unwrap();
        assert!(bells.len() == 6 && kept.is_empty());
        let mut part: Kept = names(path, &config).into_iter().skip(1).map(|name| (name, fd())).collect();
        assert!(take(&mut part, path, &config).is_none() && part.is_empty());
    }
}
