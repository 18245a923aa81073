//! Kinds of ports that can be attached: each has a file here, and a row of [`AttachSpec`]'s.
//!
//! A file has a [`Kind`] with all that is said of such ports before one is made: their options, a word for messages,
//! lines of the help; and what stands behind the colon, if no other kind has the same. Where the compiler has to know
//! the kind, it is a type, a [`KindType`]. What makes the port is the daemon's.

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
pub use local::LocalPort;
pub use netmap::NicSpec;
pub use own_name::OwnName;
pub use pcap::PcapFiles;
pub use pci_address::PciAddress;
use serde::{Deserialize, Serialize};
pub use socket_address::SocketAddress;
pub use vde::VdeFolder;
pub use vxlan::VxlanSpec;

use crate::ParseError;
use crate::cursor::{Cursor, Parsed, from_str};
use crate::text::{Ident, SocketPath, TapName};
use crate::word::is_word;

const AFTER: &str = "the end of the port";
/// Words before a colon that mean what programs open, and are no kinds of what is attached.
const OPENED: [&str; 2] = ["ptnet-pci", "nv"];

/// What stands behind a kind's colon.
trait AfterColon: Sized + fmt::Display {
    /// Takes it off the cursor, which stands behind the colon.
    fn read(cursor: &mut Cursor<'_>) -> Parsed<Self>;

    /// [`AttachSpec::port_name`].
    fn port_name(&self, prefix: &str) -> Ident;

    /// Writes the whole port, with the kind's word.
    fn write(&self, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{prefix}:{self}")
    }

    /// What stands there with relative paths of files taken from that folder, if there are any.
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

    /// Which of the kinds it is, if options tell several apart.
    fn kind(&self, kinds: &'static [Kind]) -> &'static Kind {
        kinds.first().unwrap_or(&local::KIND)
    }

    /// [`AttachSpec::settled`].
    #[must_use]
    fn settled(self, _exists: &dyn Fn(&str) -> bool) -> Self {
        self
    }
}

/// What a port takes that belongs to the whole host: who may have one attached depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// Nothing, or files and sockets, for which there are permissions of their own.
    Nothing,
    /// A network interface that is there.
    Interface(&'a str),
    /// A network interface that it makes, or takes if it is there.
    Tap(&'a str),
    /// What only root may have, in words.
    Trust(&'static str),
}

/// A kind of port, as options tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The word that stands before "ports".
    pub word: &'static str,
    /// A regular expression (ECMA 262) for the texts of such ports; `None`: those that fit no other kind's.
    pattern: Option<&'static str>,
    /// One of such ports.
    pub example: &'static str,
    /// How such a port is written, and what it is: lines of the help.
    pub help: &'static [(&'static str, &'static str)],
    /// Keys of the options that it takes, besides those that all kinds take.
    pub takes: &'static [&'static str],
    /// Keys of those options that change while frames pass, besides policies.
    pub adjusts: &'static [&'static str],
    /// The page of the documentation that says more, below `docs`.
    pub page: &'static str,
}

/// A [`Kind`] as a type.
pub trait KindType {
    /// Which.
    const KIND: Kind;
}

impl Kind {
    /// All of them.
    pub const ALL: &'static [Kind] = ALL;

    /// Whether it takes the option with that key, which not all kinds take.
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

/// Whether two texts are the same, also while a program is compiled.
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

/// Makes [`AttachSpec`] and [`PortKind`] of a row for each kind: its variant, what stands behind the colon and the word
/// before it, its file, the [`Kind`]s that options tell apart, and what lists and pages call it, where that is not what
/// another row says.
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

        /// A port to attach to a switch. Parsing says nothing of whether this build supports the kind.
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

        /// The words before a colon; that of a local port is empty.
        const PREFIXES: &[&str] = &[$($prefix),+];
        const ALL: &[Kind] = &[$( $( $module::$row ),+ ),+];

        impl AttachSpec {
            /// What stands before the colon: one of [`AttachSpec::PREFIXES`].
            pub const fn prefix(&self) -> &'static str {
                match self { $( Self::$kind(_) => $prefix, )+ }
            }

            /// A name for the port on its switch, where the user gives none: the local port's own, else made from the
            /// device's or file's name, with `_` for characters that a port's name cannot have. That of one ring of an
            /// interface ends with the ring's number, so that it does not depend on what interfaces there are.
            pub fn port_name(&self) -> Ident {
                match self { $( Self::$kind(name) => name.port_name($prefix), )+ }
            }

            /// Its kind.
            pub fn kind(&self) -> &'static Kind {
                match self {
                    $( Self::$kind(name) => name.kind(const { &[$( $module::$row ),+] }), )+
                }
            }

            /// [`PortSpec::settled`](crate::PortSpec::settled), for the interface of a port that is one.
            #[must_use]
            pub fn settled(self, exists: impl Fn(&str) -> bool) -> Self {
                match self { $( Self::$kind(name) => Self::$kind(name.settled(&exists)), )+ }
            }

            /// The canonical form, with relative paths of files taken from that folder.
            pub fn written_in(&self, here: &Path) -> String {
                let named = match self { $( Self::$kind(name) => name.in_folder(here), )+ };
                named.map_or_else(|| self.to_string(), |named| format!("{}:{named}", self.prefix()))
            }

            /// The files and sockets that it uses.
            pub fn files(&self) -> Vec<&str> {
                match self { $( Self::$kind(name) => name.files(), )+ }
            }

            /// What it takes that belongs to the whole host.
            pub fn needs(&self) -> Needs<'_> {
                match self { $( Self::$kind(name) => name.needs(), )+ }
            }

            /// What stands behind the colon of that kind.
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

        /// What lists call a port.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum PortKind {
            $( $( #[doc = concat!("`", $word, "`")] $listed, )? )+
            $( $(#[doc = $opened_doc])+ $opened, )+
        }

        impl PortKind {
            /// All of them.
            pub const ALL: &'static [PortKind] =
                &[$( $( PortKind::$listed, )? )+ $( PortKind::$opened, )+];

            /// The protocol's word for it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( $( PortKind::$listed => $word, )? )+
                    $( PortKind::$opened => $opened_word, )+
                }
            }

            /// What a page for people calls it; of a virtual machine's port, it begins with "guest".
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
    /// `stream:/PATH`, `stream:IP:PORT`: frames behind their lengths, on connections.
    Stream(SocketAddress) "stream" stream [Stream KIND] Stream "stream" "stream"
    /// `dgram:LOCAL,remote=REMOTE`, `dgram:GROUP:PORT`: datagrams.
    Dgram(DgramSpec) "dgram" dgram [Dgram KIND] Dgram "dgram" "datagrams"
    /// `seqpacket:/PATH`: connections of messages.
    Seqpacket(SocketPath) "seqpacket" seqpacket [Seqpacket KIND] Seqpacket "seqpacket" "seqpacket"
    /// `unixgram:/PATH`: datagrams of a peer that says itself where it is.
    Unixgram(SocketPath) "unixgram" unixgram [Unixgram KIND] Unixgram "unixgram" "unixgram"
    /// `vde:/DIR`: a VDE switch's folder of sockets.
    Vde(VdeFolder) "vde" vde [Vde KIND] Vde "vde" "VDE"
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
    /// What stands before the colon, of each kind; nothing of a local port.
    pub const PREFIXES: &'static [&'static str] = PREFIXES;

    /// Parses what stands in PORT's place; the error points at the first character that does not fit.
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

/// Whether that word, before a colon, means a kind of port: of what is attached, or of what programs open.
pub(crate) fn is_kind(word: &str) -> bool {
    PREFIXES.contains(&word) || OPENED.contains(&word)
}

/// What is expected of a port, in an error.
fn expected() -> String {
    let words: Vec<String> = PREFIXES.iter().filter(|word| !word.is_empty()).map(|word| format!("{word}:")).collect();
    let (last, others) = words.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
    format!("a port name, or a kind: {} or {last}", others.join(", "))
}

/// A port's name that is as near to a text as may be.
fn fitting(text: &str) -> Ident {
    let fitting = |(at, c)| if is_word(c) && (at, c) != (0, '-') { c } else { '_' };
    let name: String = text.chars().take(32).enumerate().map(fitting).collect();
    Ident::parse(&name).unwrap_or_else(|_| Ident::default_port())
}

/// The last part of a path, without what follows its first dot (unless the dot leads).
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    match file.split_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => file,
    }
}
