//! A TAP device of the kernel, for peers that use TAPs on a bridge.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::error::{BenchError, Result, in_time};

/// This program's end of a TAP device, which is removed on drop.
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

    /// Returns the device's file, on which a read waits for a frame.
    pub fn blocking(self) -> Result<File> {
        rustix::io::ioctl_fionbio(&self.0, false).map_err(BenchError::io("a TAP device's option"))?;
        Ok(self.0)
    }

    /// Sends one frame to the kernel. Returns `false` if there is no room.
    pub fn send(&mut self, frame: &[u8]) -> Result<bool> {
        in_time(self.0.write(frame)).map(|done| done.is_some()).map_err(BenchError::io("writing to a TAP device"))
    }

    /// Receives one frame from the kernel. Returns `false` if there is none.
    pub fn receive(&mut self, room: &mut [u8]) -> Result<bool> {
        in_time(self.0.read(room)).map(|done| done.is_some()).map_err(BenchError::io("reading from a TAP device"))
    }
}

/// Configures the device by an ifreq: a name of 16 bytes, then flags (netdevice(7)).
fn configure(file: &File, name: &str) -> io::Result<()> {
    let mut request = [0u8; size_of::<libc::ifreq>()];
    let place = request[..libc::IFNAMSIZ - 1].get_mut(..name.len());
    place
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the name is too long"))?
        .copy_from_slice(name.as_bytes());
    request[libc::IFNAMSIZ..][..2].copy_from_slice(&((libc::IFF_TAP | libc::IFF_NO_PI) as u16).to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes one ifreq; the pointer is to a buffer of that size, which exists until the
    // call returns.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
