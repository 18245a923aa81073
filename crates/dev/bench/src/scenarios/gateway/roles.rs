//! The programs in the guest and outside: programs that open and close connections, keep connections open, and ask for
//! names.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;

use crate::prelude::*;

/// Name of the worker role [`closer`].
pub const CLOSER: &str = "tcp-closer";
/// Name of the worker role [`opener`].
pub const OPENER: &str = "tcp-opener";
/// Name of the worker role [`keeper`].
pub const KEEPER: &str = "tcp-keeper";
/// Name of the worker role [`holder`].
pub const HOLDER: &str = "tcp-holder";
/// Name of the worker role [`names`].
pub const NAMES: &str = "dns-server";
/// Name of the worker role [`asker`].
pub const ASKER: &str = "dns-asker";

/// Threads that open connections at the same time.
const OPENERS: usize = 32;
/// Queries under way at the same time.
const QUERIES: u16 = 64;
/// Time after which an answer counts as lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time limit for opening a connection, and for waiting until the peer closes it. The kernel repeats a lost SYN after a
/// second.
const OPENING: Duration = Duration::from_secs(3);
/// Length of the header of a DNS message (RFC 1035, 4.1.1).
const HEADER: usize = 12;
/// An answer: the question's name, type A, class IN, 60 s, and an address (RFC 1035, 4.1.3).
const ANSWER: [u8; 16] = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 7];

/// A client's parameters.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClientCalls {
    /// The server, as `ADDRESS:PORT`.
    pub to: String,
    /// The number of connections to keep open; 0 if each connection is closed immediately.
    pub count: u64,
    /// The name to ask for.
    pub name: String,
}

fn listening(context: &Context) -> Result<TcpListener> {
    let at: String = context.arguments()?;
    TcpListener::bind(&at).map_err(BenchError::io(format!("listening on {at}")))
}

/// Closes each connection immediately.
pub fn closer(context: &Context) -> Result<()> {
    let listener = listening(context)?;
    context.ready()?;
    loop {
        drop(listener.accept());
    }
}

/// Keeps each connection open.
pub fn keeper(context: &Context) -> Result<()> {
    let listener = listening(context)?;
    let mut kept = Vec::new();
    context.ready()?;
    loop {
        kept.extend(listener.accept().ok());
    }
}

/// Opens connections, waits until the server closes them, and closes them, too. Connections that fail count as wrong.
pub fn opener(context: &Context) -> Result<()> {
    let ClientCalls { to, .. } = context.arguments()?;
    let to = to.parse().map_err(|_| BenchError::Usage(format!("{to} is not an address with a port")))?;
    context.ready()?;
    std::thread::scope(|scope| {
        for _ in 0..OPENERS {
            scope.spawn(|| {
                loop {
                    let opened = TcpStream::connect_timeout(&to, OPENING).and_then(|mut stream| {
                        stream.set_read_timeout(Some(OPENING))?;
                        stream.read(&mut [0; 1])
                    });
                    let counter = if matches!(opened, Ok(0)) { FRAMES } else { WRONG };
                    context.counter(counter).fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    Ok(())
}

/// Opens a number of connections one after the other, and keeps them.
pub fn holder(context: &Context) -> Result<()> {
    let ClientCalls { to, count, .. } = context.arguments()?;
    context.ready()?;
    let mut kept = Vec::new();
    for _ in 0..count {
        let opened = TcpStream::connect(&to).map_err(BenchError::io(format!("opening a connection to {to}")));
        kept.push(opened?);
        context.counter(FRAMES).fetch_add(1, Ordering::Relaxed);
    }
    loop {
        std::thread::park();
    }
}

/// Answers each query with the same address.
pub fn names(context: &Context) -> Result<()> {
    let at: String = context.arguments()?;
    let socket = UdpSocket::bind(&at).map_err(BenchError::io(format!("listening on {at}")))?;
    context.ready()?;
    let mut room = [0; 1500];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut room[..1024]) else { continue };
        let Some(question) = question_end(&room[..length]) else { continue };
        // A response, recursion available, one answer, nothing else.
        room[2] |= 0x80;
        room[3] = 0x80;
        room[6..HEADER].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
        room[question..question + ANSWER.len()].copy_from_slice(&ANSWER);
        // A full queue is not an error: the query is then lost.
        let _ = socket.send_to(&room[..question + ANSWER.len()], from);
    }
}

/// Returns the end of a message's first question.
fn question_end(message: &[u8]) -> Option<usize> {
    let mut at = HEADER;
    loop {
        match *message.get(at)? {
            0 => return (at + 5 <= message.len()).then_some(at + 5),
            label => at += 1 + usize::from(label),
        }
    }
}

/// Queries the address of a name, with [`QUERIES`] queries under way at a time. Answers that are errors count as wrong.
pub fn asker(context: &Context) -> Result<()> {
    let ClientCalls { to, name, .. } = context.arguments()?;
    let failed = || BenchError::io(format!("asking {to} for names"));
    let socket = sys::udp_between("0.0.0.0:0", &to).map_err(failed())?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
    let mut query = query(&name);
    context.ready()?;
    let mut number = 0u16;
    let mut ask = |count| {
        for _ in 0..count {
            number = number.wrapping_add(1);
            query[..2].copy_from_slice(&number.to_be_bytes());
            // A lost query is replaced below, after [`PATIENCE`].
            let _ = socket.send(&query);
        }
    };
    ask(QUERIES);
    let mut room = [0; 1500];
    loop {
        match socket.recv(&mut room) {
            Ok(length) => {
                let is_good = length > HEADER && room[3] & 0x0f == 0 && room[7] > 0;
                context.counter(if is_good { FRAMES } else { WRONG }).fetch_add(1, Ordering::Relaxed);
                ask(1);
            }
            // This process was stopped between two measurements. Its queries are still under way.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => ask(QUERIES),
        }
    }
}

/// Returns a query for a name's IPv4 address, with the message ID 0.
fn query(name: &str) -> Vec<u8> {
    // Recursion desired, one question.
    let mut message = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    // The root, type A, class IN.
    message.extend([0, 0, 1, 0, 1]);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the end of a query's question is the end of the query; a truncated query has no end.
    #[test]
    fn a_question_ends_where_the_query_does() {
        let query = query("www.example.test");
        assert_eq!(question_end(&query), Some(query.len()));
        assert_eq!(question_end(&query[..query.len() - 1]), None);
        assert_eq!(question_end(&[]), None);
    }
}
