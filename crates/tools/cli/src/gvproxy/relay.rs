//! Carries bytes between two connections, and connects to guests through the gateway's dial socket.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::net::Shutdown;

use super::log;
use super::stream::{self, GvListener, GvStream};

/// Number of bytes that are carried at a time.
const PIECE: usize = 64 << 10;

/// Connects to guests through the gateway.
#[derive(Clone, Debug)]
pub(super) struct GuestDialer {
    /// Path of the gateway's dial socket.
    pub path: PathBuf,
}

impl GuestDialer {
    /// Connects to a guest's TCP port. If the guest does not answer, the gateway closes the connection.
    ///
    /// # Errors
    /// The gateway does not answer.
    pub(super) fn dial(&self, guest: SocketAddr) -> io::Result<GvStream> {
        let stream = GvStream::connect(&self.path)?;
        (&stream).write_all(format!("{guest}\n").as_bytes())?;
        Ok(stream)
    }
}

/// A function that opens a connection to a guest.
pub(super) type GuestWay = Box<dyn Fn() -> io::Result<GvStream> + Send + Sync>;

/// Accepts connections in a thread of its own until the listener is closed, and carries each to a guest.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn serve(listener: &Arc<GvListener>, way: GuestWay) -> io::Result<()> {
    let work = move |client: GvStream, ()| match way() {
        Ok(guest) => relay(client, guest),
        Err(why) => log::error(format_args!("cannot dial: {why}")),
    };
    stream::serve(Arc::clone(listener), "relay", || (), work).map(drop)
}

/// Carries bytes both ways until both directions have ended.
pub(super) fn relay(one: GvStream, other: GvStream) {
    let one = Arc::new(one);
    let other = Arc::new(other);
    let from = Arc::clone(&other);
    let to = Arc::clone(&one);
    let Some(back) = stream::begin("relay", move || carry(&from, &to)) else { return };
    carry(&one, &other);
    // The function returns only when the other direction has ended, too.
    let _ = back.join();
}

/// Carries bytes from `from` to `to`. After the last byte, ends the sending direction of `to`.
fn carry(from: &GvStream, to: &GvStream) {
    if copy(from, to).is_err() {
        // The receiver has closed its connection, and the sender must notice it.
        from.shutdown(Shutdown::Both);
    }
    to.shutdown(Shutdown::Write);
}

fn copy(mut from: &GvStream, mut to: &GvStream) -> io::Result<()> {
    let mut bytes = vec![0; PIECE];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(len) => to.write_all(bytes.get(..len).unwrap_or_default())?,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Objective: bytes are carried in both directions; each direction ends independently; when both have ended, the
    /// relay ends.
    #[test]
    fn each_direction_ends_for_itself() {
        let pair = || UnixStream::pair().map(|(far, near)| (far, GvStream::from(OwnedFd::from(near)))).unwrap();
        let (mut client, near_client) = pair();
        let (mut server, near_server) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || relay(near_client, near_server));
            client.write_all(b"question").unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut text = String::new();
            server.read_to_string(&mut text).unwrap();
            assert_eq!(text, "question");
            server.write_all(b"answer").unwrap();
            drop(server);
            text.clear();
            client.read_to_string(&mut text).unwrap();
            assert_eq!(text, "answer");
        });
    }
}
