//! Sessions: standard input, and connections to the management socket. Commands come in any pieces; each is run, and
//! answered before the next one.

use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;

use super::answers::{VdeAnswer, VdeError};
use super::commands;
use super::console::VdeConsole;
use super::usage;
use super::words::{LineBuffer, ReadLine};

/// What a session waits behind.
const PROMPT: &str = "vde$ ";
/// What ends one.
const END: &str = "9999 END OF SESSION";
/// Bytes that are read together.
const PIECE: usize = 4096;
/// Most bytes of answers that a peer leaves unread.
const MOST_UNREAD: usize = 4 << 20;

/// What comes of a session's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// It goes on.
    None,
    /// It is over.
    Over,
    /// The switch ends.
    Shutdown,
}

fn answer(console: &mut VdeConsole, line: &ReadLine) -> VdeAnswer {
    match line {
        ReadLine::Whole(line) => commands::run(console, line),
        ReadLine::TooLong => VdeAnswer::Done(Err(VdeError::NoCommand)),
    }
}

/// A connection to the management socket.
#[derive(Debug)]
pub(super) struct ManagementSession {
    stream: UnixStream,
    lines: LineBuffer,
    unread: Vec<u8>,
    /// No more is read: it ends when all is sent.
    is_ending: bool,
}

impl ManagementSession {
    /// Greets a peer.
    pub(super) fn new(stream: UnixStream) -> io::Result<ManagementSession> {
        stream.set_nonblocking(true)?;
        let unread = format!("{}\n{PROMPT}", usage::banner()).into_bytes();
        Ok(ManagementSession { stream, lines: LineBuffer::default(), unread, is_ending: false })
    }

    /// Its connection.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Whether answers wait for room.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Reads what has come, runs it, and sends what there is to send.
    pub(super) fn serve(&mut self, console: &mut VdeConsole) -> SessionEnd {
        let end = if self.is_ending { SessionEnd::None } else { self.read(console) };
        match (end, self.send()) {
            (SessionEnd::Shutdown, _) => SessionEnd::Shutdown,
            (SessionEnd::Over, _) | (_, Err(_)) => SessionEnd::Over,
            (SessionEnd::None, Ok(())) if self.is_ending && self.unread.is_empty() => SessionEnd::Over,
            (SessionEnd::None, Ok(())) => SessionEnd::None,
        }
    }

    fn read(&mut self, console: &mut VdeConsole) -> SessionEnd {
        let mut piece = [0; PIECE];
        // Who does not read is not heard.
        let read =
            if self.unread.len() < MOST_UNREAD { self.stream.read(&mut piece) } else { return SessionEnd::None };
        let lines = match read {
            Ok(0) => {
                self.is_ending = true;
                self.lines.end().into_iter().collect()
            }
            Ok(len) => self.lines.push(piece.get(..len).unwrap_or_default()),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Vec::new(),
            Err(_) => return SessionEnd::Over,
        };
        for line in lines {
            match answer(console, &line) {
                VdeAnswer::Logout => {
                    self.unread.extend(END.bytes());
                    self.is_ending = true;
                    break;
                }
                VdeAnswer::Shutdown => {
                    self.unread.extend(END.bytes());
                    return SessionEnd::Shutdown;
                }
                answer => self.unread.extend(format!("{}\n{PROMPT}", answer.lines()).bytes()),
            }
        }
        SessionEnd::None
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.unread.is_empty() {
            match self.stream.write(&self.unread) {
                Ok(sent) => drop(self.unread.drain(..sent)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

/// Standard input and output.
#[derive(Debug)]
pub(super) struct StdinSession {
    lines: LineBuffer,
    /// Who types wants a prompt.
    is_terminal: bool,
}

impl StdinSession {
    pub(super) fn new() -> StdinSession {
        StdinSession { lines: LineBuffer::default(), is_terminal: io::stdin().is_terminal() }
    }

    /// Reads what has come, and runs it. Waits if there is nothing.
    pub(super) fn serve(&mut self, console: &mut VdeConsole) -> SessionEnd {
        let mut piece = [0; PIECE];
        let lines = match rustix::io::read(rustix::stdio::stdin(), &mut piece) {
            Ok(len) if len > 0 => self.lines.push(piece.get(..len).unwrap_or_default()),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return SessionEnd::None,
            _ => {
                let last = self.lines.end();
                let is_shutdown = last.is_some_and(|line| self.run(console, &line) == SessionEnd::Shutdown);
                return if is_shutdown { SessionEnd::Shutdown } else { SessionEnd::Over };
            }
        };
        for line in lines {
            if self.run(console, &line) == SessionEnd::Shutdown {
                return SessionEnd::Shutdown;
            }
        }
        SessionEnd::None
    }

    fn run(&self, console: &mut VdeConsole, line: &ReadLine) -> SessionEnd {
        let prompt = if self.is_terminal { format!("\n{PROMPT}") } else { String::new() };
        match answer(console, line) {
            VdeAnswer::Shutdown => return SessionEnd::Shutdown,
            // Its end ends the switch; this does not.
            VdeAnswer::Logout => {}
            // Who does not read the answers may still want what the commands do.
            answer => _ = crate::out::text(format_args!("{}{prompt}", answer.lines())),
        }
        SessionEnd::None
    }
}
