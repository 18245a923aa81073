//! The program's memory mappings (/proc/self/maps), and the files behind them.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The identity of a mapping's file: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    major: u32,
    minor: u32,
    inode: u64,
}

/// Memory of this program that is part of a file.
pub struct FileMemory {
    /// The file, open for reading and writing.
    pub file: OwnedFd,
    /// Offset in the file at which the memory begins.
    pub offset: u64,
}

/// A line of /proc/self/maps.
#[derive(Debug)]
struct MapsLine<'a> {
    range: Range<u64>,
    rights: &'a str,
    offset: u64,
    inode: Inode,
    path: &'a str,
}

impl Inode {
    /// Returns the inode of an open file.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn of(fd: BorrowedFd<'_>) -> Result<Inode, Errno> {
        let stat = rustix::fs::fstat(fd)?;
        let major = rustix::fs::major(stat.st_dev);
        let minor = rustix::fs::minor(stat.st_dev);
        Ok(Inode { major, minor, inode: stat.st_ino })
    }

    /// Returns the inode of the file that is mapped at an address; `None` if nothing is mapped.
    pub fn at(address: u64) -> Option<Inode> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        lines(&maps).find(|line| line.range.contains(&address)).map(|line| line.inode)
    }
}

impl FileMemory {
    /// Finds the file of which the whole range is a shared mapping. Returns `None` for other memory, and if the file is
    /// not on an in-memory file system (tmpfs, hugetlbfs).
    pub fn find(range: Range<u64>) -> Option<FileMemory> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let (line, offset) = part(lines(&maps), &range)?;
        let file = opened(&line).or_else(|| named(&line)).or_else(|| by_address(&line))?;
        Some(FileMemory { file, offset })
    }
}

/// If the mappings of a range map one consecutive part of a file, returns the first mapping, and the part's offset in
/// the file; otherwise `None`.
fn part<'a>(lines: impl Iterator<Item = MapsLine<'a>>, range: &Range<u64>) -> Option<(MapsLine<'a>, u64)> {
    let mut within = lines.filter(|l| l.range.end > range.start && l.range.start < range.end);
    let first = within.next().filter(|l| l.range.start <= range.start && l.rights == "rw-s" && l.inode.inode != 0)?;
    let offset = first.offset.checked_add(range.start - first.range.start)?;
    let mut end = first.range.end;
    for line in within {
        let follows = line.range.start == end && line.rights == "rw-s" && line.inode == first.inode;
        if !follows || line.offset.checked_sub(first.offset) != Some(end - first.range.start) {
            return None;
        }
        end = line.range.end;
    }
    (end >= range.end).then_some((first, offset))
}

/// Returns whether `fd` is the mapping's file, on an in-memory file system, open for reading and writing.
fn is_that(fd: BorrowedFd<'_>, line: &MapsLine<'_>) -> bool {
    let writable = rustix::fs::fcntl_getfl(fd).is_ok_and(|mode| mode & OFlags::RWMODE == OFlags::RDWR);
    // Only files in memory support seals.
    writable && rustix::fs::fcntl_get_seals(fd).is_ok() && Inode::of(fd) == Ok(line.inode)
}

/// Duplicates a descriptor of the program that refers to the mapping's file. Returns `None` if the program has no such
/// descriptor.
fn opened(line: &MapsLine<'_>) -> Option<OwnedFd> {
    let numbers = std::fs::read_dir("/proc/self/fd").ok()?;
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let found = numbers.filter_map(crate::borrow).find(|fd| is_that(*fd, line))?;
    // The program may have closed the number after the check and reused it for another file, so the duplicate is
    // checked again.
    found.try_clone_to_owned().ok().filter(|fd| is_that(fd.as_fd(), line))
}

/// Opens the mapping's file by its name. Returns `None` if the name does not lead to that file any more.
fn named(line: &MapsLine<'_>) -> Option<OwnedFd> {
    if !line.path.starts_with('/') {
        return None;
    }
    open(line.path).filter(|fd| is_that(fd.as_fd(), line))
}

/// Opens the mapping's file through /proc/self/map_files, which the kernel permits to privileged processes.
fn by_address(line: &MapsLine<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/map_files/{:x}-{:x}", line.range.start, line.range.end);
    open(&path).filter(|fd| is_that(fd.as_fd(), line))
}

fn open(path: &str) -> Option<OwnedFd> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok().map(File::into)
}

fn lines(maps: &str) -> impl Iterator<Item = MapsLine<'_>> {
    maps.lines().filter_map(line)
}

/// Parses a line: addresses, permissions, offset, device, inode, name. Returns `None` if the line is malformed.
fn line(text: &str) -> Option<MapsLine<'_>> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let small = |text: &str| u32::from_str_radix(text, 16).ok();
    let mut words = text.splitn(6, ' ');
    let (from, to) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let inode = Inode { major: small(major)?, minor: small(minor)?, inode: words.next()?.parse().ok()? };
    let path = words.next().unwrap_or("").trim_start();
    Some(MapsLine { range: hex(from)?..hex(to)?, rights, offset, inode, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f1000000000-7f1000004000 rw-s 00001000 00:1c 77                         /dev/shm/a file
7f1000004000-7f1000008000 rw-s 00005000 00:1c 77                         /dev/shm/a file
7f1000008000-7f100000c000 rw-s 0000d000 00:1c 77                         /dev/shm/a file
7f100000c000-7f1000010000 rw-p 00000000 00:00 0 
";

    /// Objective: lines of /proc/self/maps are parsed, including names with blanks, and memory is found by its address.
    #[test]
    fn lines_of_the_maps_file_are_read() {
        let first = lines(MAPS).next().unwrap();
        assert_eq!(first.range, 0x7f10_0000_0000..0x7f10_0000_4000);
        assert_eq!((first.rights, first.offset, first.path), ("rw-s", 4096, "/dev/shm/a file"));
        assert_eq!(first.inode, Inode { major: 0, minor: 0x1c, inode: 77 });
        assert_eq!(lines(MAPS).count(), 4);
        assert!(line("no such line").is_none());
        let local = 0u8;
        assert!(Inode::at(std::ptr::from_ref(&local) as u64).is_some());
    }

    /// Objective: several mappings count as one part of a file only if they are consecutive in memory and in the file;
    /// private memory never counts.
    #[test]
    fn only_consecutive_mappings_are_one_part() {
        let base = 0x7f10_0000_0000u64;
        let at = |from: u64, to: u64| part(lines(MAPS), &(base + from..base + to)).map(|(_, offset)| offset);
        assert_eq!(at(0, 0x4000), Some(0x1000));
        assert_eq!(at(0x1000, 0x8000), Some(0x2000));
        assert_eq!(at(0, 0xc000), None, "a hole in the file");
        assert_eq!(at(0x8000, 0xc000), Some(0xd000));
        assert_eq!(at(0xc000, 0xd000), None);
        assert_eq!(at(0x20000, 0x21000), None);
    }
}
