//! Kinds of ports that can be attached: each has a file here, and a row in [`AttachSpec`]'s table.
//!
//! A file holds a [`Kind`], all facts about such ports before one exists: their options, a word for messages, lines of
//! the help; and the text after the colon, if its form is not shared. A kind that the compiler must know is also a
//! type, a [`KindType`]. The daemon makes the ports.

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
mod socket_path;
mod tap;
mod vhost;
mod virtio;
mod virtio_pci;
mod vxlan;

use std::fmt;
use std::path::Path;

pub use local::LocalPort;
pub use netmap::NicSpec;
pub use own_name::OwnName;
pub use pcap::PcapFiles;
pub use pci_address::PciAddress;
use serde::{Deserialize, Serialize};
pub use vxlan::VxlanSpec;

use crate::ParseError;
use crate::cursor::{Cursor, Parsed, from_str};
use crate::text::{Ident, SocketPath, TapName};
use crate::word::is_word;

const AFTER: &str = "the end of the port";
/// Words before a colon for ports that programs open; not kinds of attached ports.
const OPENED: [&str; 2] = ["ptnet-pci", "nv"];

/// The text after a kind's colon.
trait AfterColon: Sized + fmt::Display {
    /// Takes it off the cursor, which stands after the colon.
    fn read(cursor: &mut Cursor<'_>) -> Parsed<Self>;

    /// [`AttachSpec::port_name`].
    fn port_name(&self, prefix: &str) -> Ident;

    /// Writes the whole port, with its prefix.
    fn write(&self, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{prefix}:{self}")
    }

    /// The text with relative paths of files resolved against `_here`, if it has any.
    fn in_folder(&self, _here: &Path) -> Option<String> {
        None
    }

    /// [`AttachSpec::files`].
    fn files(&self) -> Vec<&str> {
        Vec::new()
    }

    /// [`AttachSpec::needs`].
    fn needs(&self) -> Needs<'_> {
        Needs::Nothing
    }

    /// Its kind, if options tell several kinds of one prefix apart.
    fn kind(&self, kinds: &'static [Kind]) -> &'static Kind {
        kinds.first().unwrap_or(&local::KIND)
    }

    /// [`AttachSpec::settled`].
    #[must_use]
    fn settled(self, _exists: &dyn Fn(&str) -> bool) -> Self {
        self
    }
}

/// A port's use of host-wide resources; permission to attach it depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// Only files and sockets, which have permissions of their own, or nothing at all.
    Nothing,
    /// An existing network interface.
    Interface(&'a str),
    /// A network interface that it creates, or takes if it exists.
    Tap(&'a str),
    /// A right of root alone, in words.
    Trust(&'static str),
}

/// A kind of port, as options distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The word before "ports".
    pub word: &'static str,
    /// A regular expression (ECMA 262) for the texts of such ports; `None`: all that fit no other kind.
    pattern: Option<&'static str>,
    /// An example of such a port.
    pub example: &'static str,
    /// Syntax and meaning of such a port: lines of the help.
    pub help: &'static [(&'static str, &'static str)],
    /// Keys of its options, besides those of all kinds.
    pub takes: &'static [&'static str],
    /// Keys of its options that can change while frames pass, besides policies.
    pub adjusts: &'static [&'static str],
    /// Its page of the documentation, below `docs`.
    pub page: &'static str,
}

/// A [`Kind`] as a type.
pub trait KindType {
    /// The kind.
    const KIND: Kind;
}

impl Kind {
    /// All kinds.
    pub const ALL: &'static [Kind] = ALL;

    /// Whether this kind takes the option `key`, which not all kinds take.
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

    /// A regular expression (ECMA 262) for the texts of such ports.
    #[must_use]
    pub fn pattern(&self) -> String {
        let others = PREFIXES.iter().chain(&OPENED).filter(|word| !word.is_empty()).copied().collect::<Vec<_>>();
        self.pattern.map_or_else(|| format!("^(?!(?:{}):)", others.join("|")), str::to_owned)
    }
}

/// Whether two texts are equal; usable at compile time.
const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word)
    }
}

/// Makes [`AttachSpec`] and [`PortKind`] of a row for each kind: its variant, the type of the text after the colon, the
/// prefix, its file, the [`Kind`]s that options tell apart, and the names in lists and pages unless another row has the
/// same ones.
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
                const KIND: Kind = $module::$row;
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
        const ALL: &[Kind] = &[$( $( $module::$row ),+ ),+];

        impl AttachSpec {
            /// The word before the colon: one of [`AttachSpec::PREFIXES`].
            pub const fn prefix(&self) -> &'static str {
                match self { $( Self::$kind(_) => $prefix, )+ }
            }

            /// The port's default name on its switch: the local port's own, else made from the device's or file's name,
            /// with `_` for characters that a port's name cannot have. For one ring of an interface it ends with the
            /// ring's number, independent of the interfaces that exist.
            pub fn port_name(&self) -> Ident {
                match self { $( Self::$kind(name) => name.port_name($prefix), )+ }
            }

            /// Its kind.
            pub fn kind(&self) -> &'static Kind {
                match self {
                    $( Self::$kind(name) => name.kind(const { &[$( $module::$row ),+] }), )+
                }
            }

            /// [`PortSpec::settled`](crate::PortSpec::settled), for an interface.
            #[must_use]
            pub fn settled(self, exists: impl Fn(&str) -> bool) -> Self {
                match self { $( Self::$kind(name) => Self::$kind(name.settled(&exists)), )+ }
            }

            /// The canonical form, with relative paths of files resolved against `here`.
            pub fn written_in(&self, here: &Path) -> String {
                let named = match self { $( Self::$kind(name) => name.in_folder(here), )+ };
                named.map_or_else(|| self.to_string(), |named| format!("{}:{named}", self.prefix()))
            }

            /// Its files and sockets.
            pub fn files(&self) -> Vec<&str> {
                match self { $( Self::$kind(name) => name.files(), )+ }
            }

            /// The host-wide resources that it needs.
            pub fn needs(&self) -> Needs<'_> {
                match self { $( Self::$kind(name) => name.needs(), )+ }
            }

            /// Parses the text after the colon of the kind with that prefix.
            fn named(prefix: &str, cursor: &mut Cursor<'_>) -> Option<Parsed<Self>> {
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

        /// The name of a port's kind in lists.
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

            /// The protocol's word for it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( $( PortKind::$listed => $word, )? )+
                    $( PortKind::$opened => $opened_word, )+
                }
            }

            /// The name on pages for people; for a virtual machine's port, it begins with "guest".
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
    Local(LocalPort) "" local [Local KIND] Local "local" "program"
    /// `tap:NAME`: a TAP device, towards the host's network stack.
    Tap(TapName) "tap" tap [Tap KIND] Tap "tap" "TAP"
    /// `vhost:/PATH`: a vhost-user device, for a virtual machine's virtio-net driver.
    Vhost(SocketPath) "vhost" vhost [Vhost KIND] Vhost "vhost" "guest · virtio"
    /// `virtio:/PATH`: a virtio-net driver, for a vhost-user device at that socket.
    Virtio(SocketPath) "virtio" virtio [Virtio KIND] Virtio "virtio" "back end · virtio"
    /// `virtio-pci:ADDR`: a virtio-net driver, for the PCI device at that address.
    VirtioPci(PciAddress) "virtio-pci" virtio_pci [VirtioPci KIND]
    /// `ptnet:/PATH`: a ptnet device, for a virtual machine.
    Ptnet(SocketPath) "ptnet" ptnet [Ptnet KIND] Ptnet "ptnet" "guest · ptnet"
    /// `e1000:/PATH`: an emulated e1000, for a virtual machine.
    E1000(SocketPath) "e1000" e1000 [E1000 KIND] E1000 "e1000" "guest · e1000"
    /// `e1000-pci:ADDR`: a driver for the e1000 at that address of the bus.
    E1000Pci(PciAddress) "e1000-pci" e1000_pci [E1000Pci KIND]
    /// `netmap:IF…`: a network interface.
    Netmap(NicSpec) "netmap" netmap [Netmap KIND] Nic "nic" "interface"
    /// `pcap:IN`, `pcap:in=FILE,out=FILE`: capture files.
    Pcap(PcapFiles) "pcap" pcap [Replay REPLAY Capture CAPTURE] Pcap "pcap" "capture"
    /// `vxlan:VNI,local=IP[,remote=IP…][,port=N]`: a tunnel to other hosts.
    Vxlan(VxlanSpec) "vxlan" vxlan [Vxlan KIND] Vxlan "vxlan" "tunnel"
    /// `null:[NAME]`: swallows every frame.
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

    /// Parses a port to attach; the error points at the first character that does not fit.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Cursor::all(text, AFTER, Self::take)
    }

    fn take(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        let word = cursor.rest().split_once(':').map(|(word, _)| word);
        let prefix = word.filter(|word| !word.is_empty() && PREFIXES.contains(word));
        let Some(prefix) = prefix else {
            return LocalPort::take(cursor, word.is_some(), &expected()).map(Self::Local);
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

/// Whether `word`, before a colon, is a kind of port, either attached or opened by programs.
pub(crate) fn is_kind(word: &str) -> bool {
    PREFIXES.contains(&word) || OPENED.contains(&word)
}

/// The ports that an error expects.
fn expected() -> String {
    let words: Vec<String> = PREFIXES.iter().filter(|word| !word.is_empty()).map(|word| format!("{word}:")).collect();
    let (last, others) = words.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
    format!("a port name, or a kind: {} or {last}", others.join(", "))
}

/// The closest valid port name to a text.
fn fitting(text: &str) -> Ident {
    let fitting = |(at, c)| if is_word(c) && (at, c) != (0, '-') { c } else { '_' };
    let name: String = text.chars().take(32).enumerate().map(fitting).collect();
    Ident::parse(&name).unwrap_or_else(|_| Ident::default_port())
}

/// The last component of a path, up to its first dot (a leading dot excepted).
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    match file.split_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => file,
    }
}
