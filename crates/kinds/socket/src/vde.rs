//! Requests of VDE's plugs, and the answer (vde-2, `datasock.c`; linux/arch/um/drivers/daemon_user.c).
//!
//! A plug connects to the control socket of a switch, says where its own socket for datagrams is, and is told where the
//! switch's is. Its port is there as long as the connection lasts.
//!
//! ```text
//!      0        4         8      12                    122
//!      | magic  | version | type | sockaddr_un (110)   | description, as long as the message |
//! ```
//!
//! Numbers are the machine's own. The low 8 bits of the type say what is wanted; what is above is the port's number.

use std::path::PathBuf;

use thiserror::Error;

/// What a request begins with.
const MAGIC: u32 = 0xfeed_face;
/// The version of requests that are answered.
const VERSION: u32 = 3;
/// Types: a port, whose number is above, if it is not 0; one that nobody else sees.
const NEW_PORT: u32 = 0;
const NEW_PORT_0: u32 = 1;
/// Largest number of a port.
const MOST_PORT: u16 = u16::MAX;
/// Where the parts of a request are.
const ADDRESS: usize = 12;
/// Bytes of an address (`struct sockaddr_un`), and of the path in it.
const ADDRESS_LEN: usize = 110;
const PATH_LEN: usize = 108;
/// Bytes of a request without a description.
const SHORTEST: usize = ADDRESS + ADDRESS_LEN;
/// Most bytes of a request, with its description.
pub const LONGEST: usize = SHORTEST + MOST_DESCRIPTION;
/// Most bytes of a description.
const MOST_DESCRIPTION: usize = 134;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadRequest {
    /// It is no request of VDE's.
    #[error("the request begins with 0x{0:08x}: expected 0x{MAGIC:08x}")]
    Magic(u32),
    /// It is one of another version.
    #[error("the request has version {0}: expected {VERSION}")]
    Version(u32),
    /// It ends too early.
    #[error("the request has {0} bytes: expected at least {SHORTEST}")]
    Short(usize),
    /// It asks for something else.
    #[error("the request has type {0}: expected {NEW_PORT} or {NEW_PORT_0}")]
    Type(u32),
    /// The number of the port is too large.
    #[error("the request is for port {0}: expected at most {MOST_PORT}")]
    Port(u32),
    /// The plug's socket has no name that can be used.
    #[error("the plug's socket has no usable address: expected an absolute path, or an abstract name")]
    Address,
}

/// Where a plug's socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlugAddress {
    /// A file.
    Path(PathBuf),
    /// A name that is no file's: what follows the NUL byte, all that there is of it.
    Abstract(Vec<u8>),
}

/// What a plug asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlugRequest {
    /// The port's number, if it wants a certain one.
    pub port: Option<u16>,
    /// Where its socket is.
    pub address: PlugAddress,
    /// What it says of itself.
    pub description: String,
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl PlugRequest {
    /// Reads a request: one message.
    ///
    /// # Errors
    /// [`BadRequest`]; which version it has is looked at before its length, so that a plug of another one is told so.
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

/// The port that a type asks for.
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
        // Who binds such a name counts all its bytes.
        return name.iter().any(|&byte| byte != 0).then(|| PlugAddress::Abstract(name.to_vec()));
    }
    let end = path.iter().position(|&byte| byte == 0).filter(|end| *end < PATH_LEN)?;
    let path = std::str::from_utf8(path.get(..end)?).ok()?;
    path.starts_with('/').then(|| PlugAddress::Path(path.into()))
}

/// The text up to the first NUL byte, without characters that would move a cursor.
fn printable(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(MOST_DESCRIPTION).collect::<String>().trim().into()
}

/// The answer: where the switch's socket is.
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

    /// Objective: what a plug asks for is read, with a port or without, also from plugs that say nothing of themselves.
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

    /// Objective: requests of all other kinds are refused, each for its reason; one that is cut at any byte, too.
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
