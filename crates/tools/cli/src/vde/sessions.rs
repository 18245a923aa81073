//! Sessions: standard input, and connections to the management socket. A session assembles command lines from what it
//! reads, and answers each command before it runs the next command.

use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;

use super::answers::{VdeAnswer, VdeError};
use super::commands;
use super::console::VdeConsole;
use super::usage;
use super::words::{LineBuffer, ReadLine};

/// The prompt of a session.
const PROMPT: &str = "vde$ ";
/// The last line that a management session sends.
const END: &str = "9999 END OF SESSION";
/// Maximum number of bytes that are read at a time.
const PIECE: usize = 4096;
/// Once this many bytes of answers are unsent, the session reads no more commands.
const MOST_UNREAD: usize = 4 << 20;

/// Whether the commands that were read end the session or the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// The session continues.
    None,
    /// The session ends.
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
    /// Whether the session reads no more commands, and ends when all its answers are sent.
    is_ending: bool,
}

impl ManagementSession {
    /// Starts a session on a connection, with the banner and the prompt as the first bytes to send.
    pub(super) fn new(stream: UnixStream) -> io::Result<ManagementSession> {
        stream.set_nonblocking(true)?;
        let unread = format!("{}\n{PROMPT}", usage::banner()).into_bytes();
        Ok(ManagementSession { stream, lines: LineBuffer::default(), unread, is_ending: false })
    }

    /// Returns the session's connection.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Returns whether there are unsent answers, which wait until the socket is writable.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Reads available commands, runs them, and sends as much of the answers as the socket accepts. Never blocks.
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
        // While a client does not read its answers, no further commands of the client are run.
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

/// The session on standard input and output.
#[derive(Debug)]
pub(super) struct StdinSession {
    lines: LineBuffer,
    /// Whether standard input is a terminal, which gets a prompt.
    is_terminal: bool,
}

impl StdinSession {
    pub(super) fn new() -> StdinSession {
        StdinSession { lines: LineBuffer::default(), is_terminal: io::stdin().is_terminal() }
    }

    /// Reads commands and runs them. Blocks if there is no input.
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
            // On standard input, `logout` has no effect: only the end of standard input ends the switch.
            VdeAnswer::Logout => {}
            // Commands take effect even if standard output is closed.
            answer => _ = crate::out::text(format_args!("{}{prompt}", answer.lines())),
        }
        SessionEnd::None
    }
}
