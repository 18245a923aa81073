//! A TAP device of the kernel, for peers that bridge TAPs.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::error::{BenchError, Result};

/// Our end of a TAP device; the device vanishes when it is dropped.
#[derive(Debug)]
pub struct TapDevice(File);

impl TapDevice {
    /// Creates `name` in the calling thread's network namespace.
    pub fn create(name: &str) -> Result<Self> {
        let what = || format!("creating the TAP device {name} (needs root and /dev/net/tun)");
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = options.open("/dev/net/tun").map_err(BenchError::io(what()))?;
        configure(&file, name).map_err(BenchError::io(what()))?;
        Ok(Self(file))
    }

    /// Hands one frame to the kernel. `false` when it has no room.
    pub fn send(&mut self, frame: &[u8]) -> Result<bool> {
        done(self.0.write(frame)).map_err(BenchError::io("writing to a TAP device"))
    }

    /// Takes one frame from the kernel. `false` when there is none.
    pub fn receive(&mut self, room: &mut [u8]) -> Result<bool> {
        done(self.0.read(room)).map_err(BenchError::io("reading from a TAP device"))
    }
}

fn configure(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: ifreq holds integers, byte arrays and a union of such; all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the name is too long"));
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq; the pointer is to a whole one that lives until the call returns.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn done(result: io::Result<usize>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
        Err(error) => Err(error),
    }
}
