//! A false successor: it receives a daemon's state like a successor, and then does nothing with it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use netvale_control::attach::{AttachReply, REPLY_LEN};
use netvale_control::succession::{Succession, VERSION};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// The daemon's message that follows all items of its state.
const END: &[u8] = b".\"end\"";

/// A false successor's connection to a daemon's attach socket.
#[derive(Debug)]
pub struct Pretender(OwnedFd);

impl Pretender {
    /// Connects to the daemon of the run directory `dir`.
    ///
    /// # Errors
    /// No daemon listens in `dir`.
    pub fn connect(dir: &Path) -> io::Result<Pretender> {
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(dir.join("attach.sock"))?)?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(Duration::from_secs(60)))?;
        Ok(Pretender(fd))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The daemon has closed the connection.
    pub fn say(&self, bytes: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a message, closes its descriptors, and returns its bytes.
    ///
    /// # Errors
    /// The daemon has closed the connection, or says nothing within a minute.
    pub fn hear(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 1 << 17];
        let got = netvale_fdio::receive(&self.0, &mut bytes, RecvFlags::empty())?;
        bytes.truncate(got.bytes);
        if bytes.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }

    /// Sends the first message of a successor that accepts state in the format `version`. Returns the daemon's reply.
    ///
    /// # Errors
    /// The daemon does not answer, or its answer is not a reply.
    pub fn hello(&self, version: u32) -> io::Result<AttachReply> {
        self.say(&Succession::Hello(version).encode())?;
        let answer = self.hear()?;
        let reply = AttachReply::decode(&answer).ok().filter(|_| answer.len() == REPLY_LEN);
        reply.ok_or_else(|| io::Error::other("the daemon's answer is not a valid reply"))
    }

    /// Connects to the daemon of the run directory `dir`, and requests a hand-over in the current version's format.
    ///
    /// # Errors
    /// Same as [`Pretender::connect`] and [`Pretender::hello`]; or the daemon refuses.
    pub fn admitted(dir: &Path) -> io::Result<Pretender> {
        let pretender = Pretender::connect(dir)?;
        match pretender.hello(VERSION)? {
            AttachReply { status: 0, .. } => Ok(pretender),
            refused => Err(io::Error::other(refused.text)),
        }
    }

    /// Receives at most `most` messages of the hand-over. Returns their number.
    ///
    /// # Errors
    /// The daemon ends first.
    pub fn take(&self, most: usize) -> io::Result<usize> {
        self.say(&Succession::Begin.encode())?;
        for taken in 0..most {
            if self.hear()? == END {
                return Ok(taken);
            }
        }
        Ok(most)
    }
}
