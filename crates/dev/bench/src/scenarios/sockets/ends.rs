//! A socket peer: a program connected to a switch's socket, as an emulator would be. The program moves as many frames
//! in each system call as its kind of socket allows, so that the switch is the bottleneck.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixStream};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::peers::pingpong::Side;
use crate::prelude::*;
use crate::sys::rawsock::{MAX_BATCH, ROOM, receive_batch, send_batch};

/// Length of the number before each frame of a stream, in bytes.
const PREFIX: usize = 4;
/// Time after which an unanswered frame is lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// The magic number and the version at the beginning of a VDE request (vde-2, `datasock.c`).
const VDE: [u32; 2] = [0xfeed_face, 3];
/// Size of an address, `struct sockaddr_un`, in bytes.
const ADDRESS: usize = size_of::<libc::sockaddr_un>();

/// How a socket separates frames.
enum Form {
    /// A stream, with the length before each frame. `burst` has the frames to write, of which `written` bytes were
    /// written; `held` received bytes belong to an incomplete frame.
    Stream { burst: Vec<u8>, written: usize, held: usize },
    /// Each message is one frame.
    Messages,
}

/// A program's end of a link.
pub struct PeerEnd {
    socket: OwnedFd,
    form: Form,
    frame: Vec<u8>,
    room: Vec<u8>,
    // The control connection to a VDE switch, which keeps this end plugged in; `None` for other kinds of sockets.
    control: Option<UnixStream>,
}

fn opening<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> BenchError {
    BenchError::io(format!("connecting to {}", path.display()))
}

impl PeerEnd {
    fn new(socket: impl Into<OwnedFd>, form: Form) -> Self {
        Self { socket: socket.into(), form, frame: Vec::new(), room: vec![0; MAX_BATCH * ROOM], control: None }
    }

    /// Creates an end of a stream.
    pub fn stream(socket: impl Into<OwnedFd>) -> Self {
        Self::new(socket, Form::Stream { burst: Vec::new(), written: 0, held: 0 })
    }

    /// Creates an end of a socket whose messages are frames.
    pub fn messages(socket: impl Into<OwnedFd>) -> Self {
        Self::new(socket, Form::Messages)
    }

    /// Connects a stream to the socket at `path`.
    pub fn to_stream(path: &Path) -> Result<Self> {
        UnixStream::connect(path).map(Self::stream).map_err(opening(path))
    }

    /// Connects a seqpacket socket to the seqpacket socket at `path`.
    pub fn to_seqpacket(path: &Path) -> Result<Self> {
        let connected = || {
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            connect(&socket, &SocketAddrUnix::new(path)?).map(|()| socket)
        };
        connected().map(Self::messages).map_err(opening(path))
    }

    /// Creates a datagram socket at `own` that sends to, and receives from, the socket at `other`.
    pub fn datagrams(own: &Path, other: &Path) -> Result<Self> {
        let connected = UnixDatagram::bind(own).and_then(|socket| socket.connect(other).map(|()| socket));
        connected.map(Self::messages).map_err(opening(other))
    }

    /// Plugs into the VDE switch whose sockets are in `folder`; the plug's own socket is at `own`.
    pub fn plug(folder: &Path, own: &Path) -> Result<Self> {
        let control = folder.join("ctl");
        let plugged = || {
            let data = UnixDatagram::bind(own)?;
            let mut control = UnixStream::connect(&control)?;
            control.set_read_timeout(Some(PATIENCE))?;
            control.write_all(&request(own))?;
            let mut answer = [0; ADDRESS];
            control.read_exact(&mut answer)?;
            data.connect(answered(&answer))?;
            Ok((control, data))
        };
        let (stream, data) = plugged().map_err(opening::<io::Error>(&control))?;
        Ok(Self { control: Some(stream), ..Self::messages(data) })
    }

    /// Returns the socket, whether it is a stream, and for a VDE switch the control connection, which must stay open as
    /// long as the socket is used.
    pub fn into_socket(self) -> (OwnedFd, bool, Option<UnixStream>) {
        (self.socket, matches!(self.form, Form::Stream { .. }), self.control)
    }

    /// Sets the frame that this end sends. Received frames count if they have the same length and type.
    pub fn sending(&mut self, frame: Vec<u8>) {
        if let Form::Stream { burst, .. } = &mut self.form {
            let one = [&(frame.len() as u32).to_be_bytes()[..], &frame].concat();
            *burst = one.repeat(MAX_BATCH);
        }
        self.frame = frame;
    }

    /// Makes calls return immediately instead of blocking.
    pub fn never_wait(&self) -> Result<()> {
        self.set_waiting(false)
    }

    /// Makes calls block, for at most [`PATIENCE`].
    pub fn wait_for_peer(&self) -> Result<()> {
        set_socket_timeout(&self.socket, Timeout::Recv, Some(PATIENCE)).map_err(BenchError::io("a socket's option"))?;
        self.set_waiting(true)
    }

    fn set_waiting(&self, waits: bool) -> Result<()> {
        rustix::io::ioctl_fionbio(&self.socket, !waits).map_err(BenchError::io("a socket's option"))
    }

    /// Sends up to `count` frames in one call. Returns the number of frames that the kernel accepted.
    pub fn send(&mut self, count: usize) -> Result<u64> {
        let Form::Stream { burst, written, .. } = &mut self.form else {
            return send_batch(&self.socket, &self.frame, count);
        };
        let each = PREFIX + self.frame.len();
        let before = *written / each;
        let until = ((before + count) * each).min(burst.len());
        *written += moved(rustix::io::write(&self.socket, &burst[*written..until]))?;
        let after = *written / each;
        *written %= burst.len();
        Ok((after - before) as u64)
    }

    /// Receives in one call: up to `count` messages, or all that a stream has. Returns the number of received frames
    /// that the other end sent.
    pub fn receive(&mut self, count: usize) -> Result<u64> {
        let own = &self.frame;
        let is_theirs = |frame: &[u8]| frame.len() == own.len() && frame[12..14] == own[12..14];
        let mut theirs = 0;
        let Form::Stream { held, .. } = &mut self.form else {
            receive_batch(&self.socket, &mut self.room, count, |frame| theirs += u64::from(is_theirs(frame)))?;
            return Ok(theirs);
        };
        let filled = *held + moved(rustix::io::read(&self.socket, &mut self.room[*held..]))?;
        let mut rest = &self.room[..filled];
        while let Some((frame, more)) = first_frame(rest) {
            theirs += u64::from(is_theirs(frame));
            rest = more;
        }
        *held = rest.len();
        self.room.copy_within(filled - *held..filled, 0);
        Ok(theirs)
    }

    /// Receives until nothing is left. Returns the number of received frames that the other end sent.
    pub fn drain(&mut self) -> Result<u64> {
        let mut all = 0;
        loop {
            match self.receive(MAX_BATCH)? {
                0 => return Ok(all),
                more => all += more,
            }
        }
    }
}

/// Splits the first frame from a stream's bytes; `None` if the frame is incomplete.
pub fn first_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<PREFIX>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

fn moved(result: rustix::io::Result<usize>) -> Result<usize> {
    use rustix::io::Errno;
    match result {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        other => other.map_err(BenchError::io("moving frames through a socket")),
    }
}

/// Returns the request with which a plug, whose socket is at `own`, asks the switch for any port.
fn request(own: &Path) -> Vec<u8> {
    let mut bytes: Vec<u8> = VDE.iter().chain(&[0]).flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend((libc::AF_UNIX as u16).to_ne_bytes());
    bytes.extend(own.as_os_str().as_bytes());
    bytes.resize(12 + ADDRESS, 0);
    bytes.extend(b"netvale-bench\0");
    bytes
}

/// Returns the path in the answer to a request.
fn answered(answer: &[u8]) -> &Path {
    let path = answer.get(2..).unwrap_or_default();
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    Path::new(std::ffi::OsStr::from_bytes(&path[..end]))
}

impl Side for PeerEnd {
    fn send(&mut self) -> Result<()> {
        PeerEnd::send(self, 1).map(drop)
    }

    fn wait(&mut self) -> Result<bool> {
        let started = Instant::now();
        while self.receive(1)? == 0 {
            if started.elapsed() > PATIENCE {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::frame;

    fn exchange(near: &mut PeerEnd, far: &mut PeerEnd) {
        near.sending(frame(1, 0, 64));
        far.sending(frame(0, 1, 64));
        near.never_wait().expect("an option");
        far.never_wait().expect("an option");
        let mut received = 0;
        let mut sent = 0;
        for _ in 0..100 {
            sent += near.send(MAX_BATCH).expect("open");
            received += far.receive(MAX_BATCH).expect("open");
        }
        received += far.drain().expect("open");
        assert!(sent > 100);
        assert_eq!(sent, received);
    }

    /// Objective: every frame that the kernel accepted arrives; on a stream, even a frame that was split between two
    /// calls does.
    #[test]
    fn every_frame_that_was_sent_is_counted() {
        let (near, far) = UnixStream::pair().expect("a pair");
        exchange(&mut PeerEnd::stream(near), &mut PeerEnd::stream(far));
        let (near, far) = UnixDatagram::pair().expect("a pair");
        exchange(&mut PeerEnd::messages(near), &mut PeerEnd::messages(far));
    }

    /// Objective: frames of another length, and of other programs, do not count.
    #[test]
    fn frames_of_others_do_not_count() {
        let (near, far) = UnixDatagram::pair().expect("a pair");
        let mut far = PeerEnd::messages(far);
        far.sending(frame(0, 1, 64));
        far.never_wait().expect("an option");
        near.send(&[0; 64]).expect("room");
        near.send(&frame(1, 0, 65)).expect("room");
        near.send(&frame(1, 0, 64)).expect("room");
        assert_eq!(far.drain().expect("open"), 1);
    }
}
