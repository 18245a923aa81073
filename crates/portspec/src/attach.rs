//! What `netvale attach SWITCH PORT` connects to a switch.

use std::fmt;

use crate::ParseError;
use crate::cursor::{Cursor, Parsed, from_str};
use crate::flags::Rings;
use crate::kinds;
use crate::name::{Base, NETMAP, PortName};
use crate::spec::PortSpec;
use crate::text::{FilePath, Ident, IfName, SocketPath, SwitchName, TapName};
use crate::vxlan::VxlanSpec;
use crate::word::{Ring, is_word};

const KINDS: &str = "a port name, or a kind: tap:, pcap:, netmap:, vhost:, virtio:, virtio-pci:, ptnet:, e1000:, e1000-pci:, vxlan:, null: or echo:";
const AFTER: &str = "the end of the port";

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
    /// `NAME`, `SWITCH:NAME`: a port that local processes open.
    Local(LocalPort),
    /// `tap:NAME`: a TAP device, towards the host's network stack.
    Tap(TapName),
    /// `pcap:IN`, `pcap:in=FILE,out=FILE`: capture files.
    Pcap(PcapFiles),
    /// `netmap:IF…`: a network interface.
    Netmap(NicSpec),
    /// `vhost:/PATH`: a vhost-user device, for a virtual machine's virtio-net driver.
    Vhost(SocketPath),
    /// `virtio:/PATH`: a virtio-net driver, for a vhost-user device at that socket.
    Virtio(SocketPath),
    /// `virtio-pci:ADDR`: a virtio-net driver, for the PCI device at that address.
    VirtioPci(PciAddress),
    /// `ptnet:/PATH`: a ptnet device, for a virtual machine.
    Ptnet(SocketPath),
    /// `e1000:/PATH`: an emulated e1000, for a virtual machine.
    E1000(SocketPath),
    /// `e1000-pci:ADDR`: a driver for the e1000 at that address of the bus.
    E1000Pci(PciAddress),
    /// `vxlan:VNI,local=IP[,remote=IP…][,port=N]`: a tunnel to other hosts.
    Vxlan(VxlanSpec),
    /// `null:[NAME]`: swallows every frame.
    Null(Option<Ident>),
    /// `echo:[NAME]`: sends every frame back.
    Echo(Option<Ident>),
}

/// A port that local processes open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalPort {
    /// The switch, where the text names it.
    pub switch: Option<SwitchName>,
    /// The port's name on it.
    pub port: Ident,
}

/// Capture files of a port; at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PcapFiles {
    /// `in=`: frames in this file enter the switch.
    Replay(FilePath),
    /// `out=`: frames that the switch delivers go to this file.
    Capture(FilePath),
    /// Both.
    Both {
        /// Frames that enter the switch.
        replay: FilePath,
        /// Frames that it delivers.
        capture: FilePath,
    },
}

/// A [`PortSpec`] of an interface, never of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NicSpec {
    spec: Box<PortSpec>,
    ifname: IfName,
}

/// A PCI function's address, `[domain:]bus:device.function` in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl AttachSpec {
    /// Parses what stands in PORT's place; the error points at the first character that does not fit.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Cursor::all(text, AFTER, Self::take)
    }

    /// What stands before the colon, of each kind; nothing of a local port.
    pub const PREFIXES: [&'static str; 13] = kinds::PREFIXES;

    /// [`PortSpec::settled`], for the interface of a port that is one.
    #[must_use]
    pub fn settled(self, exists: impl FnOnce(&str) -> bool) -> Self {
        match self {
            Self::Netmap(nic) => Self::Netmap(nic.settled(exists)),
            other => other,
        }
    }

    /// What stands before the colon: one of [`AttachSpec::PREFIXES`].
    pub const fn prefix(&self) -> &'static str {
        match self {
            Self::Local(_) => "",
            Self::Tap(_) => "tap",
            Self::Pcap(_) => "pcap",
            Self::Netmap(_) => "netmap",
            Self::Vhost(_) => "vhost",
            Self::Virtio(_) => "virtio",
            Self::VirtioPci(_) => "virtio-pci",
            Self::Ptnet(_) => "ptnet",
            Self::E1000(_) => "e1000",
            Self::E1000Pci(_) => "e1000-pci",
            Self::Vxlan(_) => "vxlan",
            Self::Null(_) => "null",
            Self::Echo(_) => "echo",
        }
    }

    /// A name for the port on its switch, where the user gives none: the local port's own, else made from the
    /// device's or file's name, with `_` for characters that a port's name cannot have. That of one ring of an
    /// interface ends with the ring's number, so that it does not depend on what interfaces there are.
    pub fn port_name(&self) -> Ident {
        let text = match self {
            Self::Local(local) => return local.port.clone(),
            Self::Null(Some(name)) | Self::Echo(Some(name)) => return name.clone(),
            Self::Null(None) | Self::Echo(None) => self.prefix().to_owned(),
            Self::Tap(name) => name.to_string(),
            Self::Vxlan(tunnel) => format!("vxlan{}", tunnel.vni()),
            Self::Pcap(files) => stem(files.any().as_str()).to_owned(),
            Self::Netmap(nic) => nic.port_name(),
            Self::Vhost(path) | Self::Virtio(path) | Self::Ptnet(path) | Self::E1000(path) => {
                stem(path.as_str()).to_owned()
            }
            Self::VirtioPci(address) | Self::E1000Pci(address) => format!("pci_{address}").replace('.', "_"),
        };
        let fitting = |(at, c)| if is_word(c) && (at, c) != (0, '-') { c } else { '_' };
        let name: String = text.chars().take(32).enumerate().map(fitting).collect();
        Ident::parse(&name).unwrap_or_else(|_| Ident::default_port())
    }

    fn take(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        const SOCKET: &str = "a socket's path that begins with '/'";
        let kind = cursor.rest().split_once(':').map(|(kind, _)| kind);
        if kind.is_none_or(|kind| !Self::PREFIXES.contains(&kind)) {
            return LocalPort::take(cursor, kind.is_some()).map(Self::Local);
        }
        if cursor.rest().starts_with(NETMAP) {
            return NicSpec::take(cursor).map(Self::Netmap);
        }
        let start = cursor.pos();
        cursor.take_while(|c| c != ':');
        cursor.eat(":");
        match kind {
            Some("tap") => TapName::take(cursor, "a device name after 'tap:'").map(Self::Tap),
            Some("pcap") => PcapFiles::take(cursor).map(Self::Pcap),
            Some("vhost") => SocketPath::take(cursor, SOCKET).map(Self::Vhost),
            Some("virtio") => SocketPath::take(cursor, SOCKET).map(Self::Virtio),
            Some("virtio-pci") => PciAddress::take(cursor).map(Self::VirtioPci),
            Some("ptnet") => SocketPath::take(cursor, SOCKET).map(Self::Ptnet),
            Some("e1000") => SocketPath::take(cursor, SOCKET).map(Self::E1000),
            Some("e1000-pci") => PciAddress::take(cursor).map(Self::E1000Pci),
            Some("vxlan") => VxlanSpec::take(cursor).map(Self::Vxlan),
            Some("null") => own_name(cursor).map(Self::Null),
            Some("echo") => own_name(cursor).map(Self::Echo),
            _ => Err(cursor.fail_at(start, KINDS)),
        }
    }
}

/// A name that may be missing.
fn own_name(cursor: &mut Cursor<'_>) -> Parsed<Option<Ident>> {
    if cursor.rest().is_empty() { Ok(None) } else { Ident::take(cursor, Ring::IsOfTheName, "a port name").map(Some) }
}

/// The last part of a path, without what follows its first dot (unless the dot leads).
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    match file.split_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => file,
    }
}

impl LocalPort {
    fn take(cursor: &mut Cursor<'_>, prefixed: bool) -> Parsed<Self> {
        let switch = if prefixed {
            let switch = SwitchName::take(cursor, Ring::IsOfTheName, KINDS)?;
            cursor.expect(":", "':' and a port name after the switch's name")?;
            Some(switch)
        } else {
            None
        };
        let expected = if prefixed { "a port name after ':'" } else { KINDS };
        Ok(Self { switch, port: Ident::take(cursor, Ring::IsOfTheName, expected)? })
    }
}

impl PcapFiles {
    /// The file to replay, if any.
    pub fn replay(&self) -> Option<&FilePath> {
        match self {
            Self::Replay(file) | Self::Both { replay: file, .. } => Some(file),
            Self::Capture(_) => None,
        }
    }

    /// The file to capture to, if any.
    pub fn capture(&self) -> Option<&FilePath> {
        match self {
            Self::Capture(file) | Self::Both { capture: file, .. } => Some(file),
            Self::Replay(_) => None,
        }
    }

    /// The file to replay, or else the one to capture to.
    fn any(&self) -> &FilePath {
        match self {
            Self::Replay(file) | Self::Capture(file) | Self::Both { replay: file, .. } => file,
        }
    }

    fn take(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        const FILE: &str = "a file's path";
        if cursor.eat("in=") {
            let replay = FilePath::take(cursor, FILE)?;
            if !cursor.eat(",") {
                return Ok(Self::Replay(replay));
            }
            cursor.expect("out=", "'out=' and a path after ','")?;
            return Ok(Self::Both { replay, capture: FilePath::take(cursor, FILE)? });
        }
        if cursor.eat("out=") {
            let capture = FilePath::take(cursor, FILE)?;
            if !cursor.eat(",") {
                return Ok(Self::Capture(capture));
            }
            cursor.expect("in=", "'in=' and a path after ','")?;
            return Ok(Self::Both { replay: FilePath::take(cursor, FILE)?, capture });
        }
        FilePath::take(cursor, "a file's path, or 'in=' and 'out=' with a path each").map(Self::Replay)
    }
}

impl NicSpec {
    /// `spec` and the interface it names; `None` when it names a switch's port.
    pub fn new(spec: PortSpec) -> Option<Self> {
        let Base::Netmap { ifname } = spec.name.base() else { return None };
        let ifname = ifname.clone();
        Some(Self { spec: Box::new(spec), ifname })
    }

    /// The whole specification.
    pub fn spec(&self) -> &PortSpec {
        &self.spec
    }

    /// The interface.
    pub fn ifname(&self) -> &IfName {
        &self.ifname
    }

    /// [`PortSpec::settled`] for an interface.
    #[must_use]
    pub fn settled(self, exists: impl FnOnce(&str) -> bool) -> Self {
        let named = |name: &PortName| matches!(name.base(), Base::Netmap { ifname } if exists(ifname.as_str()));
        Self::new(PortSpec::clone(&self.spec).settled(named)).unwrap_or(self)
    }

    /// The interface, and the number of its ring if one is meant, or may be.
    fn port_name(&self) -> String {
        let written = match self.spec.written_name().base() {
            Base::Netmap { ifname } => ifname,
            Base::Vale { .. } => &self.ifname,
        };
        match self.spec.rings {
            Rings::OneNic(ring) if *written == self.ifname => format!("{}-{ring}", written.as_str()),
            _ => written.as_str().to_owned(),
        }
    }

    fn take(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        let start = cursor.pos();
        let spec = PortSpec::take(cursor)?;
        Self::new(spec).ok_or_else(|| cursor.fail_at(start, "an interface"))
    }
}

impl PciAddress {
    /// The function at this address; `None` when device is above 31 or function above 7.
    pub fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        (device < 32 && function < 8).then_some(Self { domain, bus, device, function })
    }

    /// Domain (segment).
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// Bus.
    pub fn bus(&self) -> u8 {
        self.bus
    }

    /// Device, 0..=31.
    pub fn device(&self) -> u8 {
        self.device
    }

    /// Function, 0..=7.
    pub fn function(&self) -> u8 {
        self.function
    }

    fn take(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        let has_domain = cursor.rest().matches(':').count() > 1;
        let domain = if has_domain {
            let domain = byte_or(cursor, u64::from(u32::MAX), "a PCI domain")?;
            cursor.expect(":", "':' and the bus after the domain")?;
            domain
        } else {
            0
        };
        let bus = byte_or(cursor, 0xff, "a PCI address such as 0000:00:03.0")?;
        cursor.expect(":", "':' and the device after the bus")?;
        let device = byte_or(cursor, 31, "a PCI device")?;
        cursor.expect(".", "'.' and the function after the device")?;
        let function = byte_or(cursor, 7, "a PCI function")?;
        Ok(Self { domain, bus, device, function })
    }
}

/// A hexadecimal number up to `max`, which is what `T` holds or less.
fn byte_or<T: TryFrom<u64>>(cursor: &mut Cursor<'_>, max: u64, what: &str) -> Parsed<T> {
    let start = cursor.pos();
    let value = cursor.number(16, 0..=max, what)?;
    T::try_from(value).map_err(|_| cursor.fail_at(start, what))
}

impl fmt::Display for LocalPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.switch {
            Some(switch) => write!(f, "{switch}:{}", self.port),
            None => self.port.fmt(f),
        }
    }
}

impl fmt::Display for PcapFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(file) => write!(f, "in={file}"),
            Self::Capture(file) => write!(f, "out={file}"),
            Self::Both { replay, capture } => write!(f, "in={replay},out={capture}"),
        }
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl fmt::Display for AttachSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(local) => local.fmt(f),
            Self::Tap(name) => write!(f, "tap:{name}"),
            Self::Pcap(files) => write!(f, "pcap:{files}"),
            Self::Netmap(nic) => nic.spec().fmt(f),
            Self::Vhost(path) => write!(f, "vhost:{path}"),
            Self::Virtio(path) => write!(f, "virtio:{path}"),
            Self::VirtioPci(address) => write!(f, "virtio-pci:{address}"),
            Self::Ptnet(path) => write!(f, "ptnet:{path}"),
            Self::E1000(path) => write!(f, "e1000:{path}"),
            Self::E1000Pci(address) => write!(f, "e1000-pci:{address}"),
            Self::Vxlan(tunnel) => write!(f, "vxlan:{tunnel}"),
            Self::Null(name) | Self::Echo(name) => {
                write!(f, "{}:{}", self.prefix(), name.as_ref().map_or("", Ident::as_str))
            }
        }
    }
}

from_str!(AttachSpec);
