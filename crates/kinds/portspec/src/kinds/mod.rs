//! Kinds of ports that can be attached: each has a file here and a row in [`AttachSpec`]'s table.
//!
//! A file contains a [`SpecKind`], which describes such ports before such a port exists: options, a word for messages,
//! lines of the help. The file also parses the text after the colon, unless several kinds share its form. A kind that
//! the compiler must distinguish is also a type, a [`KindType`]. The daemon creates the ports.

mod dgram;
mod e1000;
mod e1000_pci;
mod echo;
mod local;
mod netmap;
mod null;
mod own_name;
mod pcap;
mod pci_address;
mod ptnet;
mod seqpacket;
mod socket_address;
mod socket_path;
mod stream;
mod tap;
mod unixgram;
mod vde;
mod vhost;
mod virtio;
mod virtio_pci;
mod vxlan;

use std::fmt;
use std::path::Path;

pub use dgram::DgramSpec;
pub use local::LocalSpec;
pub use netmap::NicSpec;
pub use own_name::OwnName;
pub use pcap::PcapFiles;
pub use pci_address::PciAddress;
use serde::{Deserialize, Serialize};
pub use socket_address::SocketAddress;
pub use vde::VdeFolder;
pub use vxlan::VxlanSpec;

use crate::ParseError;
use crate::cursor::{Cursor, SpecResult, from_str};
use crate::text::{Ident, SocketPath, TapName};
use crate::word::is_word;

const AFTER: &str = "the end of the port";
/// Words before a colon that programs use to open ports; not kinds of attached ports.
const OPENED: [&str; 2] = ["ptnet-pci", "nv"];

/// The text after the colon in a port to attach. Each kind of port has a type for it.
trait AfterColon: Sized + fmt::Display {
    /// Takes the text off the cursor, whose position is after the colon.
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self>;

    /// See [`AttachSpec::port_name`].
    fn port_name(&self, prefix: &str) -> Ident;

    /// Writes the whole port, including its prefix.
    fn write(&self, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{prefix}:{self}")
    }

    /// Returns the text with relative file paths resolved against `_here`, if it has such paths.
    fn in_folder(&self, _here: &Path) -> Option<String> {
        None
    }

    /// See [`AttachSpec::files`].
    fn files(&self) -> Vec<&str> {
        Vec::new()
    }

    /// See [`AttachSpec::needs`].
    fn needs(&self) -> AttachNeeds<'_> {
        AttachNeeds::Nothing
    }

    /// Returns the port's kind, one of `kinds`, which share a prefix and differ in options.
    fn kind(&self, kinds: &'static [SpecKind]) -> &'static SpecKind {
        kinds.first().unwrap_or(&local::KIND)
    }

    /// See [`AttachSpec::settled`].
    #[must_use]
    fn settled(self, _exists: &dyn Fn(&str) -> bool) -> Self {
        self
    }
}

/// A port's use of host-wide resources, which decides who may attach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachNeeds<'a> {
    /// Only files and sockets, which have their own permissions, or nothing.
    Nothing,
    /// An existing network interface.
    Interface(&'a str),
    /// A network interface that the port creates, or uses if it exists.
    Tap(&'a str),
    /// A resource that only trusted users may use; the text names it in messages.
    Trust(&'static str),
}

/// A kind of port. Ports with the same prefix are of different kinds if they take different options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecKind {
    /// The word before "ports" in messages.
    pub word: &'static str,
    /// A regular expression (ECMA 262) that matches the texts of such ports; `None`: all texts that match no other
    /// kind.
    pattern: Option<&'static str>,
    /// An example of such a port.
    pub example: &'static str,
    /// Syntax and meaning of such a port, as lines of the help.
    pub help: &'static [(&'static str, &'static str)],
    /// Keys of the options that this kind takes, besides those of all kinds.
    pub takes: &'static [&'static str],
    /// Keys of the options that can change while frames pass, besides policies.
    pub adjusts: &'static [&'static str],
    /// The kind's documentation page, below `docs`.
    pub page: &'static str,
}

/// A type that represents one [`SpecKind`], for use as a type parameter.
pub trait KindType {
    /// The kind.
    const KIND: SpecKind;
}

impl SpecKind {
    /// All kinds.
    pub const ALL: &'static [SpecKind] = ALL;

    /// Returns whether this kind takes the option `key`; false for the options that all kinds take.
    #[must_use]
    pub const fn takes(&self, key: &str) -> bool {
        let mut at = 0;
        while at < self.takes.len() {
            if equal(self.takes[at].as_bytes(), key.as_bytes()) {
                return true;
            }
            at += 1;
        }
        false
    }

    /// Returns a regular expression (ECMA 262) for the texts of such ports.
    #[must_use]
    pub fn pattern(&self) -> String {
        let others = PREFIXES.iter().chain(&OPENED).filter(|word| !word.is_empty()).copied().collect::<Vec<_>>();
        self.pattern.map_or_else(|| format!("^(?!(?:{}):)", others.join("|")), str::to_owned)
    }
}

/// Returns whether two texts are equal; usable at compile time.
const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

impl fmt::Display for SpecKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word)
    }
}

/// Defines [`AttachSpec`] and [`PortKind`] from a row for each kind: its variant, the type of the text after the colon,
/// the prefix, the file, the [`SpecKind`]s that options distinguish, and the names in lists and on pages unless another
/// row has the same names.
macro_rules! kinds {
    (
        $(
            $(#[doc = $doc:literal])+
            $kind:ident($named:ident) $prefix:literal $module:ident [$($type:ident $row:ident)+]
            $($listed:ident $word:literal $label:literal)?
        )+
        opened: $( $(#[doc = $opened_doc:literal])+ $opened:ident $opened_word:literal $opened_label:literal )+
    ) => {
        $($(
            #[doc = concat!("The kind of `", $prefix, ":` as a type.")]
            #[derive(Clone, Copy, Debug)]
            pub enum $type {}

            impl KindType for $type {
                const KIND: SpecKind = $module::$row;
            }
        )+)+

        /// A port to attach to a switch. Parsing does not check that this build supports the kind.
        ///
        /// `Display` writes the canonical form, which parses to an equal value.
        ///
        /// ```
        /// use netvale_portspec::AttachSpec;
        /// let spec = AttachSpec::parse("pcap:trace.pcap")?;
        /// assert_eq!(spec.to_string(), "pcap:in=trace.pcap");
        /// assert_eq!(spec.port_name().as_str(), "trace");
        /// # Ok::<(), netvale_portspec::ParseError>(())
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum AttachSpec {
            $( $(#[doc = $doc])+ $kind($named), )+
        }

        /// The words before a colon; empty for a local port.
        const PREFIXES: &[&str] = &[$($prefix),+];
        const ALL: &[SpecKind] = &[$( $( $module::$row ),+ ),+];

        impl AttachSpec {
            /// Returns the word before the colon: one of [`AttachSpec::PREFIXES`].
            pub const fn prefix(&self) -> &'static str {
                match self { $( Self::$kind(_) => $prefix, )+ }
            }

            /// Returns the port's default name on its switch: a local port's own name, else a name derived from the
            /// device or file, with `_` for characters that a port's name cannot have. For one ring of an interface,
            /// the name ends with the ring's number, independent of the interfaces that exist.
            pub fn port_name(&self) -> Ident {
                match self { $( Self::$kind(name) => name.port_name($prefix), )+ }
            }

            /// Returns the kind of this port.
            pub fn kind(&self) -> &'static SpecKind {
                match self {
                    $( Self::$kind(name) => name.kind(const { &[$( $module::$row ),+] }), )+
                }
            }

            /// Decides whether a trailing number in an interface's name is a ring or part of the name, as
            /// [`PortSpec::settled`](crate::PortSpec::settled) does.
            #[must_use]
            pub fn settled(self, exists: impl Fn(&str) -> bool) -> Self {
                match self { $( Self::$kind(name) => Self::$kind(name.settled(&exists)), )+ }
            }

            /// Returns the canonical form, with relative file paths resolved against `here`.
            pub fn written_in(&self, here: &Path) -> String {
                let named = match self { $( Self::$kind(name) => name.in_folder(here), )+ };
                named.map_or_else(|| self.to_string(), |named| format!("{}:{named}", self.prefix()))
            }

            /// Returns the port's files and sockets.
            pub fn files(&self) -> Vec<&str> {
                match self { $( Self::$kind(name) => name.files(), )+ }
            }

            /// Returns the host-wide resources that the port needs.
            pub fn needs(&self) -> AttachNeeds<'_> {
                match self { $( Self::$kind(name) => name.needs(), )+ }
            }

            /// Parses the text after the colon of the kind with this prefix; `None` if no kind has this prefix.
            fn named(prefix: &str, cursor: &mut Cursor<'_>) -> Option<SpecResult<Self>> {
                match prefix {
                    $( $prefix => Some(AfterColon::read(cursor).map(Self::$kind)), )+
                    _ => None,
                }
            }
        }

        impl fmt::Display for AttachSpec {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $( Self::$kind(name) => name.write($prefix, f), )+ }
            }
        }

        /// A kind of port, as lists of ports show it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum PortKind {
            $( $( #[doc = concat!("`", $word, "`")] $listed, )? )+
            $( $(#[doc = $opened_doc])+ $opened, )+
        }

        impl PortKind {
            /// All kinds.
            pub const ALL: &'static [PortKind] =
                &[$( $( PortKind::$listed, )? )+ $( PortKind::$opened, )+];

            /// Returns the word for this kind in the control protocol.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( $( PortKind::$listed => $word, )? )+
                    $( PortKind::$opened => $opened_word, )+
                }
            }

            /// Returns the kind's name for display to people; for a virtual machine's port, it begins with "guest".
            pub const fn label(self) -> &'static str {
                match self {
                    $( $( PortKind::$listed => $label, )? )+
                    $( PortKind::$opened => $opened_label, )+
                }
            }
        }
    };
}

kinds! {
    /// `NAME`, `SWITCH:NAME`: a port that local processes open.
    Local(LocalSpec) "" local [Local KIND] Local "local" "program"
    /// `tap:NAME`: a TAP device, towards the host's network stack.
    Tap(TapName) "tap" tap [Tap KIND] Tap "tap" "TAP"
    /// `vhost:/PATH`: a vhost-user device, for a virtual machine's virtio-net driver.
    Vhost(SocketPath) "vhost" vhost [Vhost KIND] Vhost "vhost" "guest · virtio"
    /// `virtio:/PATH`: a virtio-net driver, for the vhost-user device at this socket.
    Virtio(SocketPath) "virtio" virtio [Virtio KIND] Virtio "virtio" "back end · virtio"
    /// `virtio-pci:ADDR`: a virtio-net driver, for the PCI device at this address.
    VirtioPci(PciAddress) "virtio-pci" virtio_pci [VirtioPci KIND]
    /// `ptnet:/PATH`: a ptnet device, for a virtual machine.
    Ptnet(SocketPath) "ptnet" ptnet [Ptnet KIND] Ptnet "ptnet" "guest · ptnet"
    /// `e1000:/PATH`: an emulated e1000, for a virtual machine.
    E1000(SocketPath) "e1000" e1000 [E1000 KIND] E1000 "e1000" "guest · e1000"
    /// `e1000-pci:ADDR`: a driver for the e1000 at this PCI address.
    E1000Pci(PciAddress) "e1000-pci" e1000_pci [E1000Pci KIND]
    /// `netmap:IF…`: a network interface.
    Netmap(NicSpec) "netmap" netmap [Netmap KIND] Nic "nic" "interface"
    /// `pcap:IN`, `pcap:in=FILE,out=FILE`: capture files.
    Pcap(PcapFiles) "pcap" pcap [Replay REPLAY Capture CAPTURE] Pcap "pcap" "capture"
    /// `vxlan:VNI,local=IP[,remote=IP…][,port=N]`: a tunnel to other hosts.
    Vxlan(VxlanSpec) "vxlan" vxlan [Vxlan KIND] Vxlan "vxlan" "tunnel"
    /// `stream:/PATH`, `stream:IP:PORT`: connections with frames in a byte stream, each after its length.
    Stream(SocketAddress) "stream" stream [Stream KIND] Stream "stream" "stream"
    /// `dgram:LOCAL,remote=REMOTE`, `dgram:GROUP:PORT`: datagrams.
    Dgram(DgramSpec) "dgram" dgram [Dgram KIND] Dgram "dgram" "datagrams"
    /// `seqpacket:/PATH`: connections with one frame per message.
    Seqpacket(SocketPath) "seqpacket" seqpacket [Seqpacket KIND] Seqpacket "seqpacket" "seqpacket"
    /// `unixgram:/PATH`: datagrams of a peer that chooses its own socket path.
    Unixgram(SocketPath) "unixgram" unixgram [Unixgram KIND] Unixgram "unixgram" "unixgram"
    /// `vde:/DIR`: a VDE switch's folder of sockets.
    Vde(VdeFolder) "vde" vde [Vde KIND] Vde "vde" "VDE"
    /// `null:[NAME]`: discards every frame.
    Null(OwnName) "null" null [Null KIND] Null "null" "null"
    /// `echo:[NAME]`: sends every frame back.
    Echo(OwnName) "echo" echo [Echo KIND] Echo "echo" "echo"
    opened:
    /// A pipe between two processes.
    Pipe "pipe" "pipe"
    /// A copy of another port's traffic.
    Monitor "monitor" "monitor"
}

impl AttachSpec {
    /// The prefix of each kind; empty for a local port.
    pub const PREFIXES: &'static [&'static str] = PREFIXES;

    /// Parses a port to attach; the error points at the first wrong character.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Cursor::all(text, AFTER, Self::take)
    }

    fn take(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let word = cursor.rest().split_once(':').map(|(word, _)| word);
        let prefix = word.filter(|word| !word.is_empty() && PREFIXES.contains(word));
        let Some(prefix) = prefix else {
            return LocalSpec::take(cursor, word.is_some(), &expected()).map(Self::Local);
        };
        cursor.eat(prefix);
        cursor.eat(":");
        Self::named(prefix, cursor).unwrap_or_else(|| Err(cursor.fail(expected())))
    }
}

from_str!(AttachSpec);

#[expect(clippy::derivable_impls, reason = "rows have no attributes")]
impl Default for PortKind {
    fn default() -> Self {
        PortKind::Local
    }
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Returns whether `word`, before a colon, is a kind of port, either attached or opened by programs.
pub(crate) fn is_kind(word: &str) -> bool {
    PREFIXES.contains(&word) || OPENED.contains(&word)
}

/// Returns the expected text of an error: a port name, or one of the prefixes.
fn expected() -> String {
    let words: Vec<String> = PREFIXES.iter().filter(|word| !word.is_empty()).map(|word| format!("{word}:")).collect();
    let (last, others) = words.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
    format!("a port name, or a kind: {} or {last}", others.join(", "))
}

/// Returns the closest valid port name to a text.
fn fitting(text: &str) -> Ident {
    let fitting = |(at, c)| if is_word(c) && (at, c) != (0, '-') { c } else { '_' };
    let name: String = text.chars().take(32).enumerate().map(fitting).collect();
    Ident::parse(&name).unwrap_or_else(|_| Ident::default_port())
}

/// Returns the last component of a path, up to its first dot (a leading dot excepted).
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    match file.split_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => file,
    }
}
