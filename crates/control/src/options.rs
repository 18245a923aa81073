//! The options of an attached port: definitions, the kinds of ports that take them, and checks.
//!
//! The table is the only definition. It generates the command line with its help, completions and manual page, the
//! `options` of `port.attach`, `[[port]]` of the configuration file, its JSON Schema and the reference page. The daemon
//! checks options with [`AttachParams::check`](crate::types::AttachParams::check).
//!
//! ```
//! use netvale_control::types::{AttachParams, PortOptions};
//!
//! let options = PortOptions { ttl: Some(1), ..PortOptions::default() };
//! let wrong = AttachParams { switch: "vale0".into(), port: "pcap:x".into(), options };
//! let why = wrong.check().unwrap_err();
//! let text = "ttl applies only to VXLAN ports, not to pcap:x; omit ttl";
//! assert_eq!(why.to_string(), text);
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
pub(crate) use misfit::MisfitReason;
pub use netvale_portspec::kinds as kind;
use netvale_portspec::kinds::{KindType, SpecKind};
pub use rule::{BadRule, CompiledRule, ConfiguredRule, ConfiguredRules};
pub use shape::{OptionShape, Syntax, mode, numbers, owners_mode};
pub use table::{OPTIONS, Policies, PortOptions};
pub use written::{InfoText, Notation, WrittenValue};

/// An option of an attached port, defined by a row of the table.
pub struct AttachOption {
    /// The option's name in JSON and TOML; its command-line flag has dashes for underscores.
    pub key: &'static str,
    doc: &'static str,
    /// Placeholder for the value in the help; empty for a flag.
    pub value_name: &'static str,
    /// Type and range of the value.
    pub shape: OptionShape,
    /// Whether all kinds of ports take the option; otherwise only the kinds whose rows in [`kind`] list it.
    is_for_all: bool,
    /// The option's group in the help.
    pub heading: Heading,
    /// The default in words; empty if obvious.
    pub default: &'static str,
    /// Keys of options that this option excludes.
    pub excludes: &'static [&'static str],
    /// The reason why this option and those in `excludes` exclude each other.
    pub why: &'static str,
    holder: OptionHolder,
}

/// The structure that holds an option's value.
enum OptionHolder {
    PortOptions(OptionAccess<PortOptions>),
    Policies(OptionAccess<Policies>),
}

/// Access to an option's value in its structure.
struct OptionAccess<T> {
    /// Returns the value; `None` if it counts as omitted (unset, 0 or false).
    given: fn(&T) -> Option<Value>,
    /// Stores a value whose shape (type and range) has been checked, except for the syntax of texts. Returns false if
    /// the value does not fit the field.
    put: fn(&mut T, Value) -> bool,
    copy: fn(&T, &mut T),
}

/// The options of one kind of port, limited to those that the kind takes.
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
/// Reading an option that the kind does not take fails to compile.
///
/// ```compile_fail
/// # use netvale_control::options::kind;
/// # use netvale_control::types::PortOptions;
/// PortOptions::default().of::<kind::Tap>().unwrap().slots();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OptionsOf<'a, K>(&'a PortOptions, PhantomData<K>);

impl PortOptions {
    /// Returns the options of a port of kind `K`; `None` if an option is set that this kind does not take.
    #[must_use]
    pub fn of<K: KindType>(&self) -> Option<OptionsOf<'_, K>> {
        let fits = |option: &AttachOption| option.is_for(&K::KIND) || option.given(self).is_none();
        OPTIONS.iter().all(fits).then_some(OptionsOf(self, PhantomData))
    }
}

/// Groups of options in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// The options of the command itself.
    General,
    /// Numbers of rings and slots.
    Rings,
    /// Memory of rings and buffers.
    Memory,
    /// Devices of the host, or offered to a virtual machine.
    Devices,
    /// Capture files.
    Replay,
    /// Ports that are drivers of virtio back ends.
    BackEnds,
    /// Ports with a network stack behind them.
    Stacks,
    /// Network interfaces.
    Interfaces,
    /// Virtual machines.
    Machines,
    /// Sockets to which other programs connect.
    Sockets,
    /// Tunnels to other hosts.
    Tunnels,
    /// Texts for people, such as a description.
    About,
    /// VLANs.
    Vlans,
    /// Port security.
    Security,
    /// Multicast groups.
    Multicast,
    /// Rate limits.
    Rates,
    /// Filters of frames.
    Filters,
    /// Emulated links.
    Links,
}

impl Heading {
    /// Returns the group's title; `None` for options of the command itself.
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

/// Key of the only option besides policies that can change while frames pass.
pub const MTU: &str = "mtu";

impl AttachOption {
    /// Returns the option with this key; `None` if there is no such option.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static AttachOption> {
        OPTIONS.iter().find(|option| option.key == key)
    }

    /// Returns the option's description, in sentences.
    #[must_use]
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }

    /// Returns whether the option is a policy that affects frames.
    #[must_use]
    pub fn is_for_frames(&self) -> bool {
        self.is_policy() && self.heading != Heading::About
    }

    /// Returns whether the option is a policy, which can change while frames pass.
    #[must_use]
    pub fn is_policy(&self) -> bool {
        matches!(self.holder, OptionHolder::Policies(_))
    }

    /// Returns whether the option affects which frames from other ports reach this port, or changes the switch for all
    /// ports: VLANs, pinned or sticky addresses, membership queries.
    #[must_use]
    pub fn reaches_beyond(&self) -> bool {
        matches!(self.heading, Heading::Vlans | Heading::Multicast) || matches!(self.key, "addresses" | "sticky")
    }

    /// Returns whether `port.set` changes the option: a policy, or the MTU.
    #[must_use]
    pub fn can_be_set(&self) -> bool {
        self.is_policy() || self.key == MTU
    }

    /// The flag's name, without its leading dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// Returns whether this kind of port takes the option.
    #[must_use]
    pub const fn is_for(&self, kind: &SpecKind) -> bool {
        self.is_for_all || kind.takes(self.key)
    }

    /// Returns the kinds that take the option; `None` if all kinds take it.
    #[must_use]
    pub fn kinds(&self) -> Option<Vec<&'static SpecKind>> {
        (!self.is_for_all).then(|| SpecKind::ALL.iter().filter(|kind| self.is_for(kind)).collect())
    }

    /// Returns the kinds that take the option, in words: `TAP, vhost and ptnet ports`.
    #[must_use]
    pub fn takers(&self) -> String {
        self.kinds().map_or_else(|| "all ports".into(), |kinds| listed(kinds, "and") + " ports")
    }

    /// Returns the option's value; `None` if it counts as omitted (unset, 0 or false).
    #[must_use]
    pub fn given(&self, options: &PortOptions) -> Option<Value> {
        match &self.holder {
            OptionHolder::PortOptions(access) => (access.given)(options),
            OptionHolder::Policies(access) => (access.given)(&options.policies),
        }
    }

    /// Copies the option's value from one set of options to another.
    pub fn copy(&self, from: &PortOptions, to: &mut PortOptions) {
        match &self.holder {
            OptionHolder::PortOptions(access) => (access.copy)(from, to),
            OptionHolder::Policies(access) => (access.copy)(&from.policies, &mut to.policies),
        }
    }

    /// Sets the option's value.
    ///
    /// # Errors
    /// Key, value and the expected form, if the value does not have the option's shape.
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
        Err(format!("invalid {} {said}: expected {}", self.key, self.shape))
    }
}

/// Joins items: `a, b and c` with `last` "and".
fn listed<T: fmt::Display>(items: impl IntoIterator<Item = T>, last: &str) -> String {
    let mut items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    match (items.pop(), items.is_empty()) {
        (None, _) => String::new(),
        (Some(only), true) => only,
        (Some(end), false) => format!("{} {last} {end}", items.join(", ")),
    }
}
