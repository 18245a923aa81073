//! Port names in netmap's grammar, parsed into types that cannot hold a name that netmap would refuse.
//!
//! Pure: no I/O, no `unsafe`. Only the host determines what a name refers to: whether the interface exists, and how
//! many rings it has.
//!
//! ```text
//! spec    = name [rings] { "@" number | "/" flags } { "@" option }
//! name    = ( ["netmap:"] interface | "vale" [id] ":" id ) [ ("{" | "}") id ]
//! rings   = "-" number | "^" [number] | "*"
//! flags   = one or more of x z t r R T
//! option  = "share" sep name
//!         | "conf" sep [key "="] number { "," key "=" number }
//!         | "extmem" sep ["file="] path { "," key "=" number }
//!         | "offset" sep ["initial="] number { "," "bits=" number }
//! id      = letters, digits, "_"          interface = letters, digits, "_", "."
//! sep     = ":" | "=" (the latter before a single value without its key)
//! ```
//!
//! | written | means |
//! |---|---|
//! | `netmap:eth0`, `eth0` | all NIC rings of eth0 |
//! | `netmap:eth0-2` | NIC ring 2 |
//! | `netmap:eth0^`, `netmap:eth0^1` | all host rings; host ring 1 |
//! | `netmap:eth0*` | NIC and host rings |
//! | `vale0:a`, `vale:a` | port a of switch vale0; of switch vale |
//! | `vale0:a{1`, `vale0:a}1` | pipe 1 in the memory of vale0:a: master's end, slave's end |
//! | `netmap:eth0@3` | in memory region 3 |
//! | `netmap:eth0/x` | exclusively |
//! | `netmap:eth0/r`, `/t`, `/rt` | copy monitor of received frames, sent frames, both |
//! | `netmap:eth0/z`, `/zr`, `/zt` | zero-copy monitor of both, of received frames, of sent frames |
//! | `netmap:eth0/R`, `/T` | rx rings only, tx rings only |
//! | `vale0:a@conf:rings=4,slots=512` | created with four rings of 512 slots each way |
//!
//! [`PortSpec`] is a port that an application opens. [`AttachSpec`] is a port that `netvale attach` connects to a
//! switch: netmap's names, TAP devices, files and virtual machines. [`ParseError`] points at the wrong character:
//!
//! ```
//! use netvale_portspec::PortSpec;
//! let error = PortSpec::parse("vale0:a{").unwrap_err();
//! assert_eq!(error.to_string(), "vale0:a{\n        ^ expected a pipe id after '{'");
//! ```
//!
//! Source: netmap's libnetmap.h, "port open specification".
#![forbid(unsafe_code)]

mod cursor;
mod error;
mod flags;
pub mod kinds;
mod name;
mod options;
mod printable;
mod spec;
mod text;
mod word;

pub use error::ParseError;
pub use flags::{Directions, Flags, MonitorSpec, Rings};
pub use kinds::{AttachNeeds, AttachSpec, LocalSpec, NicSpec, PcapFiles, PciAddress, PortKind};
pub use name::{Base, PipeEnd, PipeName, PortName};
pub use options::{Conf, Extmem, Offset};
pub use printable::{is_hidden, printable};
pub use spec::{Memory, PortSpec};
pub use text::{Bounded, ExtmemFile, FilePath, Ident, IfName, OffsetBits, RingIndex, SocketPath, SwitchName, TapName};

/// Maximum length of a parsed text in bytes. Every canonical form is shorter: the limit leaves room for two paths of
/// 4,095 bytes and everything else in a port.
pub const MAX_TEXT: usize = 16 * 1024;
