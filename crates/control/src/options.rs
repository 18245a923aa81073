//! The options with which a port is attached: what there is, which kinds of ports take it, and what is refused.
//!
//! The table is the one definition. From it come the command line with its help, completions and manual page, the
//! `options` of `port.attach`, `[[port]]` of the configuration file, its JSON Schema and the reference page.
//! [`AttachParams::check`](crate::types::AttachParams::check) is the daemon's judgement.
//!
//! ```
//! use netvale_control::types::{AttachParams, PortOptions};
//!
//! let options = PortOptions { ttl: Some(1), ..PortOptions::default() };
//! let wrong = AttachParams { switch: "vale0".into(), port: "pcap:x".into(), options };
//! let why = wrong.check().unwrap_err();
//! assert_eq!(why.to_string(), "ttl applies to VXLAN ports only; pcap:x is not one of them; omit ttl");
//! ```

mod burst;
mod field;
mod group;
mod misfit;
mod narrow;
pub mod page;
mod policies;
mod rule;
mod serial;
mod shape;
pub mod syntax;
mod table;
mod written;

use std::fmt;
use std::marker::PhantomData;

use serde_json::Value;

pub use group::RateGroup;
pub use misfit::Misfit;
pub(crate) use misfit::Why;
pub use netvale_portspec::kinds as kind;
use netvale_portspec::kinds::{Kind, KindType};
pub use rule::{BadRule, GivenRule, GivenRules, Rule};
pub use shape::{Shape, Syntax, mode, numbers, owners_mode};
pub use table::{OPTIONS, Policies, PortOptions};
pub use written::{InfoText, Notation, Written};

/// An option.
pub struct AttachOption {
    /// Its name in JSON and TOML; the flag has dashes for underscores.
    pub key: &'static str,
    doc: &'static str,
    /// What stands for a value in the help; empty for a flag.
    pub value_name: &'static str,
    /// Type and range.
    pub shape: Shape,
    /// Whether all kinds of ports take it; else, those whose rows say so.
    is_for_all: bool,
    /// Where it stands in the help.
    pub heading: Heading,
    /// What holds without it, in words; empty where that goes without saying.
    pub default: &'static str,
    /// Options that cannot stand beside it.
    pub excludes: &'static [&'static str],
    /// Why they cannot.
    pub why: &'static str,
    holder: OptionHolder,
}

/// What an option is a field of.
enum OptionHolder {
    PortOptions(OptionAccess<PortOptions>),
    Policies(OptionAccess<Policies>),
}

/// How an option's value gets into what it is a field of, and out of it.
struct OptionAccess<T> {
    /// None if it counts as omitted.
    given: fn(&T) -> Option<Value>,
    /// Takes a value whose shape has been checked, but for the syntax of texts. False if it is none of the field's.
    put: fn(&mut T, Value) -> bool,
    copy: fn(&T, &mut T),
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
/// A view of an option that the kind does not take is not built.
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
    pub fn of<K: KindType>(&self) -> Option<OptionsOf<'_, K>> {
        let fits = |option: &AttachOption| option.is_for(&K::KIND) || option.given(self).is_none();
        OPTIONS.iter().all(fits).then_some(OptionsOf(self, PhantomData))
    }
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
    /// Sockets that others connect to.
    Sockets,
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
            Heading::Sockets => Some("Sockets"),
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
        matches!(self.holder, OptionHolder::Policies(_))
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

    /// Whether that kind of port takes it.
    #[must_use]
    pub const fn is_for(&self, kind: &Kind) -> bool {
        self.is_for_all || kind.takes(self.key)
    }

    /// The kinds that take it, if not all do.
    #[must_use]
    pub fn kinds(&self) -> Option<Vec<&'static Kind>> {
        (!self.is_for_all).then(|| Kind::ALL.iter().filter(|kind| self.is_for(kind)).collect())
    }

    /// The kinds that take it, in words: `TAP, vhost and ptnet ports`.
    #[must_use]
    pub fn takers(&self) -> String {
        self.kinds().map_or_else(|| "all ports".into(), |kinds| listed(kinds, "and") + " ports")
    }

    /// Its value, unless it counts as omitted.
    #[must_use]
    pub fn given(&self, options: &PortOptions) -> Option<Value> {
        match &self.holder {
            OptionHolder::PortOptions(access) => (access.given)(options),
            OptionHolder::Policies(access) => (access.given)(&options.policies),
        }
    }

    /// Gives some options the value that it has among others.
    pub fn copy(&self, from: &PortOptions, to: &mut PortOptions) {
        match &self.holder {
            OptionHolder::PortOptions(access) => (access.copy)(from, to),
            OptionHolder::Policies(access) => (access.copy)(&from.policies, &mut to.policies),
        }
    }

    /// Sets it.
    ///
    /// # Errors
    /// Name, value and what is expected, if the value has not the option's shape.
    pub fn put(&self, options: &mut PortOptions, value: Value) -> Result<(), String> {
        match &self.holder {
            OptionHolder::PortOptions(access) => self.put_in(access, options, value),
            OptionHolder::Policies(access) => self.put_in(access, &mut options.policies, value),
        }
    }

    fn put_in<T>(&self, access: &OptionAccess<T>, holder: &mut T, value: Value) -> Result<(), String> {
        if self.shape.admits_unread(&value) && (access.put)(holder, value.clone()) {
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
