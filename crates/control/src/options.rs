//! The options with which a port is attached: what there is, which kinds of ports take it, and what is refused.
//!
//! The table is the one definition. From it come the command line with its help, completions and manual page, the
//! `options` of `port.attach`, `[[port]]` of the configuration file, its JSON Schema and the reference page.
//! [`AttachParams::check`](crate::types::AttachParams::check) is the daemon's judgement.
//!
//! ```
//! use netvale_control::types::{AttachParams, PortOptions};
//!
//! let options = PortOptions { mtu: Some(9000), ..PortOptions::default() };
//! let wrong = AttachParams { switch: "vale0".into(), port: "pcap:x".into(), options };
//! let why = wrong.check().unwrap_err();
//! assert_eq!(why.to_string(), "mtu applies to TAP, vhost, ptnet and VXLAN ports only; pcap:x is not one of them; omit mtu");
//! ```

mod burst;
mod field;
mod group;
pub mod kind;
mod misfit;
mod narrow;
pub mod page;
mod policies;
mod rule;
mod serial;
mod shape;
pub mod syntax;
mod table;

use std::fmt;
use std::marker::PhantomData;

use netvale_portspec::{AttachSpec, PcapFiles};
use serde_json::Value;

pub use group::RateGroup;
pub use misfit::Misfit;
pub(crate) use misfit::Why;
pub use policies::PortPolicies;
pub use rule::{BadRule, Rule};
pub use shape::{Shape, Syntax, mode, numbers, owners_mode};
pub use table::{OPTIONS, PortOptions, takes};

/// An option.
pub struct AttachOption {
    /// Its name in JSON and TOML; the flag has dashes for underscores.
    pub key: &'static str,
    doc: &'static str,
    /// What stands for a value in the help; empty for a flag.
    pub value_name: &'static str,
    /// Type and range.
    pub shape: Shape,
    /// The kinds of ports that take it.
    pub kinds: &'static [Kind],
    /// Where it stands in the help.
    pub heading: Heading,
    /// What holds without it, in words; empty where that goes without saying.
    pub default: &'static str,
    /// Options that cannot stand beside it.
    pub excludes: &'static [&'static str],
    /// Why they cannot.
    pub why: &'static str,
    given: fn(&PortOptions) -> Option<Value>,
    put: fn(&mut PortOptions, Value) -> bool,
    clear: fn(&mut PortOptions),
}

/// The options of one kind of port: those that it takes, and no other.
///
/// ```
/// use netvale_control::options::kind;
/// use netvale_control::types::PortOptions;
///
/// let options = PortOptions { rings: 2, ..PortOptions::default() };
/// assert_eq!(options.of::<kind::Tap>().unwrap().rings(), 2);
/// assert!(options.of::<kind::Null>().is_none(), "null ports have no rings");
/// ```
///
/// ```compile_fail
/// # use netvale_control::options::kind;
/// # use netvale_control::types::PortOptions;
/// PortOptions::default().of::<kind::Tap>().unwrap().slots();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OptionsOf<'a, K>(&'a PortOptions, PhantomData<K>);

impl PortOptions {
    /// As those of a port of kind `K`; none if one of them is not for that kind.
    #[must_use]
    pub fn of<K: kind::AsType>(&self) -> Option<OptionsOf<'_, K>> {
        let fits = |option: &AttachOption| option.kinds.contains(&K::KIND) || option.given(self).is_none();
        OPTIONS.iter().all(fits).then_some(OptionsOf(self, PhantomData))
    }
}

/// Kinds of ports, as far as options tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rings that local programs open.
    Local,
    /// A TAP device.
    Tap,
    /// A vhost-user device.
    Vhost,
    /// A virtio-net driver on a socket.
    Virtio,
    /// A virtio-net driver on the bus.
    VirtioPci,
    /// A ptnet device.
    Ptnet,
    /// An Intel 82540EM.
    E1000,
    /// A driver of one on the bus.
    E1000Pci,
    /// A network interface.
    Netmap,
    /// A capture file that is replayed; another one may be written.
    Replay,
    /// A capture file that is only written.
    Capture,
    /// A VXLAN tunnel.
    Vxlan,
    /// A sink, which counts what it is sent.
    Null,
    /// What sends every frame back.
    Echo,
}

/// Groups of options in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// Among the options of the command itself.
    General,
    /// Rings.
    Rings,
    /// Memory.
    Memory,
    /// Devices of the host or offered to a virtual machine.
    Devices,
    /// Capture files.
    Replay,
    /// Drivers of back ends.
    BackEnds,
    /// Ports with a stack behind them.
    Stacks,
    /// Network interfaces.
    Interfaces,
    /// Virtual machines.
    Machines,
    /// Tunnels to other hosts.
    Tunnels,
    /// What people call it.
    About,
    /// VLANs.
    Vlans,
    /// Port security.
    Security,
    /// Multicast groups.
    Multicast,
    /// Rates.
    Rates,
    /// Filters.
    Filters,
    /// Links.
    Links,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 14] = [
        Kind::Local,
        Kind::Tap,
        Kind::Vhost,
        Kind::Virtio,
        Kind::VirtioPci,
        Kind::Ptnet,
        Kind::E1000,
        Kind::E1000Pci,
        Kind::Netmap,
        Kind::Replay,
        Kind::Capture,
        Kind::Vxlan,
        Kind::Null,
        Kind::Echo,
    ];

    /// The kind of a port.
    #[must_use]
    pub fn of(spec: &AttachSpec) -> Kind {
        match spec {
            AttachSpec::Local(_) => Kind::Local,
            AttachSpec::Tap(_) => Kind::Tap,
            AttachSpec::Vhost(_) => Kind::Vhost,
            AttachSpec::Virtio(_) => Kind::Virtio,
            AttachSpec::VirtioPci(_) => Kind::VirtioPci,
            AttachSpec::Ptnet(_) => Kind::Ptnet,
            AttachSpec::E1000(_) => Kind::E1000,
            AttachSpec::E1000Pci(_) => Kind::E1000Pci,
            AttachSpec::Netmap(_) => Kind::Netmap,
            AttachSpec::Pcap(PcapFiles::Capture(_)) => Kind::Capture,
            AttachSpec::Pcap(PcapFiles::Replay(_) | PcapFiles::Both { .. }) => Kind::Replay,
            AttachSpec::Vxlan(_) => Kind::Vxlan,
            AttachSpec::Null(_) => Kind::Null,
            AttachSpec::Echo(_) => Kind::Echo,
        }
    }
}

impl Kind {
    /// A regular expression (ECMA 262) for the texts of such ports.
    #[must_use]
    pub fn pattern(self) -> &'static str {
        match self {
            Kind::Local => concat!(
                "^(?!(?:tap|pcap|netmap|vhost|virtio|virtio-pci|ptnet|e1000|e1000-pci|vxlan|null|echo|",
                "ptnet-pci|nv):)"
            ),
            Kind::Tap => "^tap:",
            Kind::Vhost => "^vhost:",
            Kind::Virtio => "^virtio:",
            Kind::VirtioPci => "^virtio-pci:",
            Kind::Ptnet => "^ptnet:",
            Kind::E1000 => "^e1000:",
            Kind::E1000Pci => "^e1000-pci:",
            Kind::Netmap => "^netmap:",
            Kind::Replay => "^pcap:(?!out=)|^pcap:out=.*,in=",
            Kind::Capture => "^pcap:out=(?!.*,in=)",
            Kind::Vxlan => "^vxlan:",
            Kind::Null => "^null:",
            Kind::Echo => "^echo:",
        }
    }
}

/// The word that stands before "ports".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Local => "local",
            Kind::Tap => "TAP",
            Kind::Vhost => "vhost",
            Kind::Virtio => "virtio",
            Kind::VirtioPci => "virtio-pci",
            Kind::Ptnet => "ptnet",
            Kind::E1000 => "e1000",
            Kind::E1000Pci => "e1000-pci",
            Kind::Netmap => "netmap",
            Kind::Replay => "replaying pcap",
            Kind::Capture => "capturing pcap",
            Kind::Vxlan => "VXLAN",
            Kind::Null => "null",
            Kind::Echo => "echo",
        })
    }
}

impl Heading {
    /// Its text; none for options that stand among the command's own.
    #[must_use]
    pub fn title(self) -> Option<&'static str> {
        match self {
            Heading::General => None,
            Heading::Rings => Some("Rings"),
            Heading::Memory => Some("Memory"),
            Heading::Devices => Some("Devices"),
            Heading::Replay => Some("Capture files"),
            Heading::BackEnds => Some("Back ends"),
            Heading::Stacks => Some("Ports with a stack behind them"),
            Heading::Interfaces => Some("Network interfaces"),
            Heading::Machines => Some("Virtual machines"),
            Heading::Tunnels => Some("Tunnels"),
            Heading::About => Some("For people"),
            Heading::Vlans => Some("VLANs"),
            Heading::Security => Some("Port security"),
            Heading::Multicast => Some("Multicast"),
            Heading::Rates => Some("Rates"),
            Heading::Filters => Some("Filters"),
            Heading::Links => Some("Links"),
        }
    }
}

/// The key of the option that is no policy, and changes while frames pass as well.
pub const MTU: &str = "mtu";

impl AttachOption {
    /// The option of that name.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static AttachOption> {
        OPTIONS.iter().find(|option| option.key == key)
    }

    /// What it does, in sentences.
    #[must_use]
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }

    /// Whether it is a policy that decides what becomes of frames.
    #[must_use]
    pub fn is_for_frames(&self) -> bool {
        self.is_policy() && self.heading != Heading::About
    }

    /// Whether it is a policy, which can be changed while frames pass.
    #[must_use]
    pub fn is_policy(&self) -> bool {
        use Heading::*;
        matches!(self.heading, About | Vlans | Security | Multicast | Rates | Filters | Links)
    }

    /// Whether it decides which frames of others come to the port, or makes the switch another one for everybody:
    /// VLANs, addresses that are pinned or kept, what hosts are asked about groups.
    #[must_use]
    pub fn reaches_beyond(&self) -> bool {
        matches!(self.heading, Heading::Vlans | Heading::Multicast) || matches!(self.key, "addresses" | "sticky")
    }

    /// Whether `port.set` changes it: a policy, or the MTU.
    #[must_use]
    pub fn can_be_set(&self) -> bool {
        self.is_policy() || self.key == MTU
    }

    /// The flag's name, without its leading dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The kinds that take it, in words: `TAP, vhost and ptnet ports`.
    #[must_use]
    pub fn takers(&self) -> String {
        if self.kinds.len() == Kind::ALL.len() { "all ports".into() } else { listed(self.kinds, "and") + " ports" }
    }

    /// Its value, unless it counts as omitted.
    #[must_use]
    pub fn given(&self, options: &PortOptions) -> Option<Value> {
        (self.given)(options)
    }

    /// Makes it count as omitted.
    pub fn clear(&self, options: &mut PortOptions) {
        (self.clear)(options);
    }

    /// Sets it.
    ///
    /// # Errors
    /// Name, value and what is expected, if the value has not the option's shape.
    pub fn put(&self, options: &mut PortOptions, value: Value) -> Result<(), String> {
        if self.shape.admits(&value) && (self.put)(options, value.clone()) {
            return Ok(());
        }
        let said: String = value.to_string().chars().take(80).collect();
        Err(format!("{} is {said}; it is {}", self.key, self.shape))
    }
}

/// `a, b and c`.
fn listed<T: fmt::Display>(items: impl IntoIterator<Item = T>, last: &str) -> String {
    let mut items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    match (items.pop(), items.is_empty()) {
        (None, _) => String::new(),
        (Some(only), true) => only,
        (Some(end), false) => format!("{} {last} {end}", items.join(", ")),
    }
}
