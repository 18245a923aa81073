//! Restores programs, maps and links of the predecessor in an upgrade of the daemon. These objects stay unchanged until
//! the predecessor no longer needs them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use netvale_fdio::state::BadState;

use super::barrier::Barrier;
use super::{
    ATTACH_XDP, Diversion, MAP_TYPE_ARRAY, MAP_TYPE_XSKMAP, Map, TCX_EGRESS, TCX_INGRESS, XdpMode, XdpProgram, info,
};

/// Type of the link of an XDP program (`BPF_LINK_TYPE_XDP`).
const LINK_XDP: u32 = 6;
/// Type of the link of a TCX hook (`BPF_LINK_TYPE_TCX`).
const LINK_TCX: u32 = 11;

/// Returns the first words of struct bpf_map_info or struct bpf_link_info.
fn words(fd: BorrowedFd<'_>) -> Result<[u32; 6], BadState> {
    let info = info(fd).map_err(|_| BadState::new("a descriptor is not a BPF object"))?;
    info.first_chunk().copied().ok_or_else(|| BadState::new("the kernel has no information on a BPF object"))
}

impl Map {
    fn continued(fd: OwnedFd, map_type: u32, max_entries: u32) -> Result<Map, BadState> {
        let [found, _, key, value, entries, _] = words(fd.as_fd())?;
        if [found, key, value, entries] != [map_type, 4, 4, max_entries] {
            return Err(BadState::new("a BPF map has the wrong type or size"));
        }
        Ok(Map { fd, is_own: AtomicBool::new(false) })
    }

    fn own(&self) {
        self.is_own.store(true, Ordering::Relaxed);
    }
}

impl Barrier {
    /// Restores the barrier on the interface from the descriptors of [`Barrier::descriptors`].
    ///
    /// # Errors
    /// [`BadState`] if a descriptor is not the expected map or link.
    pub fn continued(ifindex: u32, count: OwnedFd, attached: OwnedFd) -> Result<Barrier, BadState> {
        let [found, _, key, value, entries, _] = words(count.as_fd())?;
        if [found, key, value, entries] != [MAP_TYPE_ARRAY, 4, 8, 1] {
            return Err(BadState::new("a counter has the wrong type or size"));
        }
        link(&attached, TCX_EGRESS, ifindex)?;
        Ok(Barrier { count, link: attached })
    }
}

/// Checks that a link attaches a program to the interface at the hook `place` (an attach type). Returns the program's
/// ID.
fn link(fd: &OwnedFd, place: u32, ifindex: u32) -> Result<u32, BadState> {
    let [found, _, program, _, at, attached] = words(fd.as_fd())?;
    let (kind, attached) = if place == ATTACH_XDP { (LINK_XDP, ATTACH_XDP) } else { (LINK_TCX, attached) };
    if [found, at, attached] != [kind, ifindex, place] {
        return Err(BadState::new("a BPF link has the wrong type or interface"));
    }
    Ok(program)
}

impl XdpProgram {
    /// Descriptors of the map and the link.
    pub fn descriptors(&self) -> [&OwnedFd; 2] {
        [&self.map.fd, &self.link]
    }

    /// Restores the program with the ID `number` on the interface `ifindex` from the descriptors of
    /// [`XdpProgram::descriptors`]. Changes nothing before [`XdpProgram::own`].
    ///
    /// # Errors
    /// [`BadState`] if a descriptor is not the expected map or link.
    pub fn continued(
        ifindex: u32,
        queues: u32,
        number: Option<u32>,
        mode: XdpMode,
        map: OwnedFd,
        attached: OwnedFd,
    ) -> Result<XdpProgram, BadState> {
        let map = Map::continued(map, MAP_TYPE_XSKMAP, queues)?;
        if number != Some(link(&attached, ATTACH_XDP, ifindex)?) {
            return Err(BadState::new("a BPF link does not attach the interface's program"));
        }
        Ok(XdpProgram { map, mode, link: attached, puts_tags_back: false })
    }

    /// Transfers the program to this process, which may then change the map.
    pub fn own(&self) {
        self.map.own();
    }
}

impl Diversion {
    /// Descriptors of the map and the links.
    pub fn descriptors(&self) -> [&OwnedFd; 4] {
        let [away, back, only] = &self.links;
        [&self.rings.fd, away, back, only]
    }

    /// Restores the hooks between `interface` and `tap` from the descriptors of [`Diversion::descriptors`]. Changes
    /// nothing before [`Diversion::own`].
    ///
    /// # Errors
    /// [`BadState`] if a descriptor is not the expected map or link.
    pub fn continued(interface: u32, tap: u32, rings: u32, fds: [OwnedFd; 4]) -> Result<Diversion, BadState> {
        let [map, away, back, only] = fds;
        let rings = Map::continued(map, MAP_TYPE_ARRAY, rings)?;
        link(&away, TCX_EGRESS, interface)?;
        link(&back, TCX_INGRESS, tap)?;
        link(&only, TCX_EGRESS, tap)?;
        Ok(Diversion { rings, links: [away, back, only] })
    }

    /// Transfers the hooks to this process, which may then change the map.
    pub fn own(&self) {
        self.rings.own();
    }
}
