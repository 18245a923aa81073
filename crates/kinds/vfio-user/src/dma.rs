//! The guest's memory: windows of its address space, each mapped from a file of the hypervisor.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_fdio::state::Fd;
use netvale_mem::Mapping;
use netvale_mem::fault::Fault;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Maximum number of windows per client, which is announced to the client.
pub const MAX_WINDOWS: usize = 1024;
/// The [`WindowPlace::flags`] of memory that the device may both read and write.
const BOTH: u32 = 0b11;

/// Maximum number of memory files kept for a successor: more than a virtual machine usually has memory backends.
const MAX_FILES: usize = 64;

/// A window of the guest's address space.
#[derive(Clone, Debug)]
struct Window {
    place: WindowPlace,
    /// The mapping; `None` if netvale does not use the window, because it has no file or is not both readable and
    /// writable.
    map: Option<MappedWindow>,
}

/// A window's memory, mapped into this process.
#[derive(Clone, Debug)]
struct MappedWindow {
    map: Arc<Mapping>,
    /// The window's file, which a successor would map; `None` if the client's memory is in more than [`MAX_FILES`]
    /// files.
    file: Option<Arc<WindowFile>>,
}

/// A file with guest memory. All windows in the same file share one value.
#[derive(Debug)]
struct WindowFile {
    fd: OwnedFd,
    /// Device and inode number of the file.
    id: (u64, u64),
}

/// Saved state of a window.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WindowState {
    /// Flags, file offset, guest address and size of the window.
    pub(crate) place: WindowPlace,
    /// Index of the window's file among the saved files; `None` if netvale does not use the window.
    file: Option<usize>,
}

/// All windows of a client, by address.
#[derive(Clone, Debug, Default)]
pub struct Dma {
    windows: BTreeMap<u64, Window>,
    /// The fault of the client's connection, which is set if mapped memory is lost, e.g. a huge page that the client
    /// has freed.
    fault: Option<Fault>,
}

/// The location of a window in a file and in the guest's address space, as the client describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowPlace {
    /// Bit 0: readable; bit 1: writable.
    pub flags: u32,
    /// Offset in the file at which the window begins, in bytes.
    pub offset: u64,
    /// Address at which the window begins in the guest's address space.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
}

impl Dma {
    /// Creates an address space without windows. `fault`, which belongs to the client's connection, is set if mapped
    /// memory is lost.
    pub fn new(fault: &Fault) -> Dma {
        Dma { windows: BTreeMap::new(), fault: Some(fault.clone()) }
    }

    /// Adds a window, and maps it from `fd` if the device may read and write it.
    ///
    /// # Errors
    /// `EINVAL` if the window wraps or is empty, `EEXIST` if it overlaps another window, `ENOSPC` if there are too many
    /// windows. For memory that the device may both read and write: `EINVAL` if its file can be truncated, and any
    /// error of mmap(2).
    pub fn map(&mut self, place: WindowPlace, fd: Option<&OwnedFd>) -> Result<(), Errno> {
        let end = place.address.checked_add(place.size).filter(|_| place.size > 0).ok_or(Errno::INVAL)?;
        let before = self.windows.range(..end).next_back();
        if before.is_some_and(|(at, window)| at.saturating_add(window.place.size) > place.address) {
            return Err(Errno::EXIST);
        }
        if self.windows.len() >= MAX_WINDOWS {
            return Err(Errno::NOSPC);
        }
        let mapped = |fd: &OwnedFd| {
            let len = usize::try_from(place.size).map_err(|_| Errno::NOMEM)?;
            let map = Mapping::part(fd.as_fd(), place.offset, len)?.watched();
            self.fault.iter().for_each(|fault| map.blame(fault));
            Ok::<_, Errno>(MappedWindow { map: Arc::new(map), file: self.keep(fd)? })
        };
        // Read-only memory is firmware and contains no rings.
        let map = fd.filter(|_| place.flags & BOTH == BOTH).map(mapped).transpose()?;
        self.windows.insert(place.address, Window { place, map });
        Ok(())
    }

    fn files(&self) -> impl Iterator<Item = &Arc<WindowFile>> {
        self.windows.values().filter_map(|window| window.map.as_ref()?.file.as_ref())
    }

    /// Returns the file that `fd` refers to, which is kept for a successor; `None` if [`MAX_FILES`] other files are
    /// already kept.
    fn keep(&self, fd: &OwnedFd) -> Result<Option<Arc<WindowFile>>, Errno> {
        let stat = rustix::fs::fstat(fd)?;
        let id = (stat.st_dev, stat.st_ino);
        if let Some(known) = self.files().find(|file| file.id == id) {
            return Ok(Some(Arc::clone(known)));
        }
        let count = self.files().map(|file| file.id).collect::<BTreeSet<_>>().len();
        if count >= MAX_FILES {
            return Ok(None);
        }
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        Ok(Some(Arc::new(WindowFile { fd, id })))
    }

    /// Returns the state of the windows, and the files to which the state refers by index.
    ///
    /// # Errors
    /// Fails if the process is out of descriptors, or the guest's memory is in more than [`MAX_FILES`] files.
    pub(crate) fn state(&self) -> std::io::Result<(Vec<WindowState>, Vec<Fd>)> {
        let mut ids = Vec::new();
        let mut fds = Vec::new();
        let mut windows = Vec::new();
        for Window { place, map } in self.windows.values() {
            let mut state = WindowState { place: *place, file: None };
            if let Some(mapped) = map {
                let many = || std::io::Error::other(format!("the guest's memory is in more than {MAX_FILES} files"));
                let file = mapped.file.as_ref().ok_or_else(many)?;
                state.file = Some(ids.iter().position(|id| *id == file.id).unwrap_or(ids.len()));
                if state.file == Some(ids.len()) {
                    ids.push(file.id);
                    fds.push(Fd::copy_of(&file.fd)?);
                }
            }
            windows.push(state);
        }
        Ok((windows, fds))
    }

    /// Restores a predecessor's window.
    ///
    /// # Errors
    /// The errors of [`Dma::map`]; `EBADF` if the window's file is missing.
    pub(crate) fn restore(&mut self, window: &WindowState, files: &[OwnedFd]) -> Result<(), Errno> {
        let file = window.file.map(|i| files.get(i).ok_or(Errno::BADF)).transpose()?;
        self.map(window.place, file)
    }

    /// Removes the windows in an address range, as the kernel's vfio does. When a driver releases the device, a
    /// hypervisor with a virtual IOMMU removes the guest's whole address space, in ranges that do not match the
    /// windows.
    ///
    /// # Errors
    /// `EINVAL` if the range wraps, is empty, or covers only a part of a window. Nothing is removed on an error.
    pub fn unmap(&mut self, address: u64, size: u64) -> Result<(), Errno> {
        let last = size.checked_sub(1).and_then(|n| address.checked_add(n)).ok_or(Errno::INVAL)?;
        let end = |at: u64, window: &Window| at.saturating_add(window.place.size - 1);
        let touched = |at: u64, window: &Window| at <= last && end(at, window) >= address;
        let cut = |at: u64, window: &Window| at < address || end(at, window) > last;
        if self.windows.iter().any(|(&at, window)| touched(at, window) && cut(at, window)) {
            return Err(Errno::INVAL);
        }
        self.windows.retain(|&at, window| !touched(at, window));
        Ok(())
    }

    /// Removes all windows.
    pub fn clear(&mut self) {
        self.windows.clear();
    }

    /// Returns the mapping that contains `len` bytes at the guest's address `address`, and their offset in the mapping;
    /// `None` if no single mapped window contains all the bytes.
    pub fn find(&self, address: u64, len: u64) -> Option<(&Arc<Mapping>, u64)> {
        let (at, window) = self.windows.range(..=address).next_back()?;
        let from = address - at;
        let inside = from.checked_add(len).is_some_and(|end| end <= window.place.size);
        window.map.as_ref().filter(|_| inside).map(|mapped| (&mapped.map, from))
    }

    /// Returns the number of windows that netvale has mapped.
    pub fn mapped(&self) -> usize {
        self.windows.values().filter(|window| window.map.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netvale_mem::mapping::{PageKind, sealed_memfd};

    fn place(address: u64, size: u64) -> WindowPlace {
        WindowPlace { flags: 3, offset: 0, address, size }
    }

    /// Objective: memory is found at its address and nowhere else; overlaps and invalid windows are refused.
    #[test]
    fn memory_is_found_only_at_its_address() {
        let (fd, ..) = sealed_memfd("guest", 1 << 16, PageKind::Ordinary).unwrap();
        let mut dma = Dma::default();
        dma.map(place(0x1000, 0x4000), Some(&fd)).unwrap();
        dma.map(WindowPlace { offset: 0x4000, ..place(0x5000, 0x1000) }, Some(&fd)).unwrap();
        dma.map(WindowPlace { flags: 1, ..place(0xf_0000, 0x1000) }, Some(&fd)).unwrap();
        dma.map(place(0x10_0000, 0x1000), None).unwrap();
        assert_eq!(dma.find(0x1010, 16).map(|(_, at)| at), Some(0x10));
        assert_eq!(dma.find(0x5000, 0x1000).map(|(_, at)| at), Some(0));
        for (address, len) in
            [(0, 1), (0x4fff, 2), (0x5fff, 2), (0xf_0000, 1), (0x10_0000, 1), (u64::MAX, 1), (0x1000, u64::MAX)]
        {
            assert!(dma.find(address, len).is_none(), "{address:#x} {len:#x}");
        }
        for (address, size) in [(0x2000, 0x1000), (0, 0x1001), (0x5fff, 1), (0x1000, 0x4000), (0, u64::MAX)] {
            assert_eq!(dma.map(place(address, size), Some(&fd)), Err(Errno::EXIST));
        }
        assert_eq!(dma.map(place(u64::MAX, 2), Some(&fd)), Err(Errno::INVAL));
        assert_eq!(dma.map(place(0x20_0000, 0), Some(&fd)), Err(Errno::INVAL));
        assert_eq!(dma.map(place(0x20_0000, 1 << 20), Some(&fd)), Err(Errno::INVAL), "beyond the file");
        assert_eq!(dma.unmap(0x1000, 0x1000), Err(Errno::INVAL));
        dma.unmap(0x1000, 0x4000).unwrap();
        assert!(dma.find(0x1010, 16).is_none() && dma.mapped() == 1);
    }

    /// Objective: the loss of a window's memory sets the fault of the client's connection.
    #[test]
    fn losses_are_blamed() {
        let fault = Fault::new().unwrap();
        let (fd, ..) = sealed_memfd("guest", 1 << 16, PageKind::Ordinary).unwrap();
        let mut dma = Dma::new(&fault);
        dma.map(place(0x1000, 0x4000), Some(&fd)).unwrap();
        dma.find(0x1000, 1).unwrap().0.lose();
        assert_eq!(fault.reason().as_deref(), Some(netvale_mem::fault::LOST));
    }

    /// Objective: unmapping a range removes all windows inside it, whatever the size of the range, and removes none if
    /// the range covers only a part of a window.
    #[test]
    fn a_range_removes_all_windows_inside_it() {
        let (fd, ..) = sealed_memfd("guest", 1 << 16, PageKind::Ordinary).unwrap();
        let mut dma = Dma::default();
        for at in [0, 0x1000, 0x8000, 1 << 40] {
            dma.map(place(at, 0x1000), Some(&fd)).unwrap();
        }
        for (address, size) in [(0x1800, 0x800), (0x800, 0x1800), (0, 0x8800), (0, 0), (0x1000, u64::MAX)] {
            assert_eq!(dma.unmap(address, size), Err(Errno::INVAL), "{address:#x} {size:#x}");
        }
        assert_eq!(dma.mapped(), 4);
        dma.unmap(0x2000, 0x6000).unwrap();
        assert_eq!(dma.mapped(), 4);
        dma.unmap(0, 1 << 31).unwrap();
        assert!(dma.mapped() == 1 && dma.find(0x1000, 1).is_none());
        dma.unmap(1 << 31, (1 << 63) - (1 << 31)).unwrap();
        assert_eq!(dma.mapped(), 0);
        dma.map(place(0x1000, 0x1000), Some(&fd)).unwrap();
    }
}
