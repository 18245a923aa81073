//! The output of a capture: a file, or a pipe whose reader may stall or close.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::source::WaitEvent;

/// Number of bytes that a pipe accepts without blocking when poll reports it as writable (Linux's `PIPE_BUF`).
const PIECE: usize = 4096;
/// Interval at which a FIFO is checked for a reader.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum time for which a stalled reader may delay the end of the capture.
const GRACE: Duration = Duration::from_secs(1);

/// An output into which whole blocks are written.
#[derive(Debug)]
pub enum Sink {
    /// A file, and the length of its valid content in bytes: the content that it had at the start, and whole blocks.
    File(File, u64),
    /// A pipe, a socket or a terminal.
    Pipe(File),
}

impl Sink {
    /// Opens standard output.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn stdout() -> io::Result<Sink> {
        let fd = io::stdout().as_fd().try_clone_to_owned()?;
        Sink::of(File::from(fd))
    }

    /// Opens a file for writing and truncates it. If the path is a FIFO, waits for its reader until `stop` becomes
    /// readable.
    ///
    /// # Errors
    /// The file cannot be opened; `BrokenPipe` if no reader opened the FIFO.
    pub fn open(path: &Path, stop: &UnixStream) -> io::Result<Sink> {
        if !std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo()) {
            return Sink::of(File::create(path)?);
        }
        // A blocking open would wait for a reader and ignore `stop`.
        let without_waiting = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        loop {
            match OpenOptions::new().write(true).custom_flags(without_waiting).open(path) {
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {}
                opened => return blocking(opened?),
            }
            if WaitEvent(stop.as_fd(), PollFlags::IN).is_there_within(LOOK) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    /// Creates a new file.
    ///
    /// # Errors
    /// The file exists already, or cannot be created.
    pub fn make(path: &Path) -> io::Result<Sink> {
        Sink::of(OpenOptions::new().write(true).create_new(true).open(path)?)
    }

    fn of(file: File) -> io::Result<Sink> {
        let meta = file.metadata()?;
        // If standard output is a file, the file may not be empty.
        Ok(if meta.is_file() { Sink::File(file, meta.len()) } else { Sink::Pipe(file) })
    }

    /// Returns the descriptor on which poll reports an error once the reader has closed; `None` for a file.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Sink::File(..) => None,
            Sink::Pipe(pipe) => Some(pipe.as_fd()),
        }
    }

    /// Writes whole blocks. After a failed write, a file still has all earlier blocks. Once `stop` is readable, a write
    /// waits for a stalled reader for at most one more second.
    ///
    /// # Errors
    /// The disk is full, or the reader has closed or stalled.
    pub fn write(&mut self, blocks: &[u8], stop: &UnixStream) -> io::Result<()> {
        match self {
            Sink::File(file, whole) => {
                if let Err(error) = file.write_all(blocks) {
                    cut(file, *whole);
                    return Err(error);
                }
                *whole += blocks.len() as u64;
                Ok(())
            }
            Sink::Pipe(pipe) => pipe_in(pipe, blocks, stop),
        }
    }
}

/// Creates an output from a pipe, and sets the pipe to blocking mode.
fn blocking(pipe: File) -> io::Result<Sink> {
    rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::empty())?;
    Sink::of(pipe)
}

/// Cuts an incomplete block off the end of a file. If the block cannot be cut off either, readers see a truncated file.
fn cut(file: &mut File, whole: u64) {
    use std::io::Seek;
    let end = file.stream_position().ok().zip(file.metadata().ok());
    if let Some((at, meta)) = end
        && at == meta.len()
        && at >= whole
        && file.set_len(whole).is_ok()
    {
        let _ = file.seek(io::SeekFrom::Start(whole));
    }
}

fn pipe_in(pipe: &mut File, mut blocks: &[u8], stop: &UnixStream) -> io::Result<()> {
    let mut end: Option<Instant> = None;
    while !blocks.is_empty() {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the reader has stalled"));
        }
        if !takes(pipe, stop, left, &mut end)? {
            continue;
        }
        match pipe.write(&blocks[..blocks.len().min(PIECE)]) {
            Ok(n) => blocks = &blocks[n..],
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Waits for at most `left` until the pipe accepts bytes or has lost its reader. Returns `false` if neither has
/// happened. Once `stop` is readable, sets the deadline in `end`.
fn takes(pipe: &File, stop: &UnixStream, left: Option<Duration>, end: &mut Option<Instant>) -> io::Result<bool> {
    let mut fds = vec![PollFd::new(pipe, PollFlags::OUT)];
    if end.is_none() {
        fds.push(PollFd::new(stop, PollFlags::IN));
    }
    let limit = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    if fds.get(1).is_some_and(|stop| !stop.revents().is_empty()) {
        *end = Some(Instant::now() + GRACE);
    }
    Ok(!fds[0].revents().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a write waits for a stalled reader until one second after the request to stop; if the reader has
    /// closed the pipe, the write fails.
    #[test]
    fn a_stalled_reader_is_waited_for_until_the_stop() {
        let (stop, ends) = UnixStream::pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut sink = Sink::of(File::from(writer)).unwrap();
        assert!(sink.watched().is_some());
        sink.write(&[1; 10_000], &stop).unwrap();
        (&ends).write_all(b"x").unwrap();
        assert_eq!(sink.write(&[2; 1 << 20], &stop).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(reader);
        assert_eq!(sink.write(&[3], &stop).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    /// Objective: the opening of a FIFO waits for a reader or for the request to stop.
    #[test]
    fn a_fifo_waits_for_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let (stop, ends) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| std::fs::read(&path).unwrap());
            let mut sink = Sink::open(&path, &stop).unwrap();
            sink.write(&[7; 100_000], &stop).unwrap();
            drop(sink);
            assert_eq!(reading.join().unwrap(), [7; 100_000]);
        });
        (&ends).write_all(b"x").unwrap();
        assert_eq!(Sink::open(&path, &stop).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    /// Objective: after a write has failed for lack of space, the file still has the earlier blocks, and further blocks
    /// can be written.
    #[test]
    fn a_full_file_holds_the_earlier_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut sink = Sink::make(&path).unwrap();
        let (stop, _ends) = UnixStream::pair().unwrap();
        sink.write(b"whole", &stop).unwrap();
        let Sink::File(file, whole) = &mut sink else { panic!("a file") };
        file.write_all(b"par").unwrap();
        cut(file, *whole);
        sink.write(b" blocks", &stop).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole blocks");
        assert!(Sink::make(&path).is_err());
        let mut sink = Sink::of(OpenOptions::new().append(true).open(&path).unwrap()).unwrap();
        let Sink::File(file, whole) = &mut sink else { panic!("a file") };
        file.write_all(b"part").unwrap();
        cut(file, *whole);
        assert_eq!(std::fs::read(&path).unwrap(), b"whole blocks");
    }
}
