//! Requests of VDE's plugs and the answer (vde-2, `datasock.c`; linux/arch/um/drivers/daemon_user.c).
//!
//! A plug connects to the control socket of a switch, sends the address of its own datagram socket, and receives the
//! address of the switch's socket for it. The plug's port exists as long as the connection is open.
//!
//! ```text
//!      0        4         8      12                    122
//!      | magic  | version | type | sockaddr_un (110)   | description, to the message's end |
//! ```
//!
//! Numbers are in native byte order. The low 8 bits of the type select the request, the other bits the port's number.

use std::path::PathBuf;

use thiserror::Error;

/// First word of a request.
const MAGIC: u32 = 0xfeed_face;
/// The supported version of requests.
const VERSION: u32 = 3;
/// Type of a request for the port whose number is in the higher bits, or for any port if that number is 0.
const NEW_PORT: u32 = 0;
/// Type of a request for a private port, which is treated as a request for any port.
const NEW_PORT_0: u32 = 1;
/// Largest port number.
const MOST_PORT: u16 = u16::MAX;
/// Offset of the address in a request, in bytes.
const ADDRESS: usize = 12;
/// Size of an address (`struct sockaddr_un`) in bytes.
const ADDRESS_LEN: usize = 110;
/// Size of the path in an address in bytes.
const PATH_LEN: usize = 108;
/// Minimum size of a request in bytes, without a description.
const SHORTEST: usize = ADDRESS + ADDRESS_LEN;
/// Maximum size of a request in bytes, with a description.
pub const LONGEST: usize = SHORTEST + MOST_DESCRIPTION;
/// Maximum size of a description in bytes.
const MOST_DESCRIPTION: usize = 134;

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadRequest {
    /// The magic number is wrong.
    #[error("the request begins with 0x{0:08x}: expected 0x{MAGIC:08x}")]
    Magic(u32),
    /// The version is not supported.
    #[error("the request has version {0}: expected {VERSION}")]
    Version(u32),
    /// The request is too short.
    #[error("the request has {0} bytes: expected at least {SHORTEST}")]
    Short(usize),
    /// The type is not supported.
    #[error("the request has type {0}: expected {NEW_PORT} or {NEW_PORT_0}")]
    Type(u32),
    /// The port number is too large.
    #[error("the request is for port {0}: expected at most {MOST_PORT}")]
    Port(u32),
    /// The address of the plug's socket is unusable.
    #[error("the plug's socket has no usable address: expected an absolute path, or an abstract name")]
    Address,
}

/// The address of a plug's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlugAddress {
    /// A path.
    Path(PathBuf),
    /// An abstract name: all bytes after the NUL byte.
    Abstract(Vec<u8>),
}

/// A plug's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlugRequest {
    /// The requested port number; `None` if any port is requested.
    pub port: Option<u16>,
    /// The address of the plug's socket.
    pub address: PlugAddress,
    /// The plug's description of itself.
    pub description: String,
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl PlugRequest {
    /// Parses a request: one message.
    ///
    /// # Errors
    /// [`BadRequest`]. The version is checked before the length, so that a plug of another version gets the error about
    /// its version.
    pub fn parse(bytes: &[u8]) -> Result<PlugRequest, BadRequest> {
        let short = BadRequest::Short(bytes.len());
        let magic = number(bytes, 0).ok_or(short)?;
        if magic != MAGIC {
            return Err(BadRequest::Magic(magic));
        }
        let version = number(bytes, 4).ok_or(short)?;
        if version != VERSION {
            return Err(BadRequest::Version(version));
        }
        let (address, description) =
            bytes.get(ADDRESS..).and_then(|rest| rest.split_first_chunk::<ADDRESS_LEN>()).ok_or(short)?;
        let port = port_of(number(bytes, 8).ok_or(short)?)?;
        let address = address_of(address).ok_or(BadRequest::Address)?;
        Ok(PlugRequest { port, address, description: printable(description) })
    }
}

/// Returns the port number in a request's type; `None` if any port is requested.
fn port_of(kind: u32) -> Result<Option<u16>, BadRequest> {
    let number = kind >> 8;
    match kind & 0xff {
        NEW_PORT if number == 0 => Ok(None),
        NEW_PORT => u16::try_from(number).map(Some).map_err(|_| BadRequest::Port(number)),
        NEW_PORT_0 => Ok(None),
        other => Err(BadRequest::Type(other)),
    }
}

fn address_of(bytes: &[u8; ADDRESS_LEN]) -> Option<PlugAddress> {
    let (family, path) = bytes.split_first_chunk::<2>()?;
    if i32::from(u16::from_ne_bytes(*family)) != libc::AF_UNIX {
        return None;
    }
    if let [0, name @ ..] = path {
        // All bytes of an abstract name are part of it, zeros included.
        return name.iter().any(|&byte| byte != 0).then(|| PlugAddress::Abstract(name.to_vec()));
    }
    let end = path.iter().position(|&byte| byte == 0).filter(|end| *end < PATH_LEN)?;
    let path = std::str::from_utf8(path.get(..end)?).ok()?;
    path.starts_with('/').then(|| PlugAddress::Path(path.into()))
}

/// Returns the text up to the first NUL byte, with printable ASCII characters only.
fn printable(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(MOST_DESCRIPTION).collect::<String>().trim().into()
}

/// Returns the answer with the path of the switch's socket.
pub fn answer(path: &str) -> [u8; ADDRESS_LEN] {
    let mut answer = [0; ADDRESS_LEN];
    answer[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    let len = path.len().min(PATH_LEN - 1);
    answer[2..2 + len].copy_from_slice(&path.as_bytes()[..len]);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(magic: u32, version: u32, kind: u32, path: &[u8], description: &[u8]) -> Vec<u8> {
        let mut bytes = [magic, version, kind].map(u32::to_ne_bytes).concat();
        bytes.extend((libc::AF_UNIX as u16).to_ne_bytes());
        bytes.extend(path);
        bytes.resize(ADDRESS + ADDRESS_LEN, 0);
        bytes.extend(description);
        bytes
    }

    /// Objective: requests are parsed, with and without a port number, and with an empty description.
    #[test]
    fn requests() {
        for (kind, port) in [(0, None), (1, None), (7 << 8, Some(7)), (0xffff << 8, Some(0xffff))] {
            let read = PlugRequest::parse(&request(MAGIC, 3, kind, b"/tmp/a", b"plug user=me\0rest"));
            let address = PlugAddress::Path("/tmp/a".into());
            assert_eq!(read, Ok(PlugRequest { port, address, description: "plug user=me".into() }));
        }
        let long = [&[b'/'][..], &[b'x'; 106]].concat();
        let read = PlugRequest::parse(&request(MAGIC, 3, 0, &long, b"")).unwrap();
        assert_eq!(read.description, "");
        assert_eq!(read.address, PlugAddress::Path(String::from_utf8(long).unwrap().into()));
        let read = PlugRequest::parse(&request(MAGIC, 3, 0, b"\0a\0b", b"\x1b[2J\xff")).unwrap();
        let mut name = b"a\0b".to_vec();
        name.resize(107, 0);
        assert_eq!((read.address, read.description.as_str()), (PlugAddress::Abstract(name), "[2J"));
    }

    /// Objective: each invalid request is refused with the matching error, and so is a request that is cut off at any
    /// byte.
    #[test]
    fn refused() {
        let of = |magic, version, kind, path: &[u8]| PlugRequest::parse(&request(magic, version, kind, path, b""));
        let path = b"/tmp/a";
        assert_eq!(of(0xfeed_beef, 3, 0, path), Err(BadRequest::Magic(0xfeed_beef)));
        for version in [0, 1, 2, 4, u32::MAX] {
            assert_eq!(of(MAGIC, version, 0, path), Err(BadRequest::Version(version)));
        }
        assert_eq!(of(MAGIC, 3, 2, path), Err(BadRequest::Type(2)));
        assert_eq!(of(MAGIC, 3, 1 << 24, path), Err(BadRequest::Port(1 << 16)));
        for path in [&b"tmp/a"[..], b"", &[b'/'; 108], b"/\xff"] {
            assert_eq!(of(MAGIC, 3, 0, path), Err(BadRequest::Address), "{path:?}");
        }
        let whole = request(MAGIC, 3, 0, path, b"");
        for cut in 0..whole.len() {
            assert_eq!(PlugRequest::parse(&whole[..cut]), Err(BadRequest::Short(cut)), "{cut}");
        }
    }

    /// Objective: the answer has the family and the path, and ends with a NUL byte.
    #[test]
    fn answers() {
        let bytes = answer("/run/vde.ctl/001.0");
        assert_eq!(address_of(&bytes), Some(PlugAddress::Path("/run/vde.ctl/001.0".into())));
        assert_eq!(answer(&"x".repeat(200))[ADDRESS_LEN - 1], 0);
    }
}
