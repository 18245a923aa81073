//! The configuration: a TOML file and the command line, parsed into values that are valid.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netvale_control::types::{AttachParams, PortOptions};
use netvale_portspec::{AttachSpec, PortSpec};
use netvale_switch::Settings;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::worker::Polling;

mod keys;
mod overrides;
mod places;
mod port;
mod schema;
mod switch_policies;
mod values;
mod workers;
mod write;

pub use keys::{KEYS, Key};
pub use overrides::Overrides;
pub use places::{Mistake, Place, parse};
pub use port::PortConfig;
pub use schema::schema;
pub use switch_policies::SwitchPolicies;
pub use values::{Setting, settings};
use workers::workers;
pub use write::{json, programs, text, words};

/// How long a worker polls for frames before it sleeps, by default.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(50);
/// Maximum number of workers.
pub const MAX_WORKERS: usize = 64;

/// The daemon's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the sockets.
    pub run_dir: PathBuf,
    /// CPU of each worker, one entry per worker; `None`: not pinned.
    pub workers: Vec<Option<usize>>,
    /// When workers go to sleep.
    pub polling: Polling,
    /// Real-time priority of the workers (`SCHED_FIFO`); `None`: they are ordinary threads.
    pub rt_priority: Option<u8>,
    /// User that the daemon becomes, name or number; `None`: it stays who it is.
    pub user: Option<String>,
    /// Who may connect.
    pub sockets: SocketAccess,
    /// Whether to drop capabilities and turn on seccomp and Landlock.
    pub sandbox: bool,
    /// Of how many batches one is timed; 0: none is.
    pub latency_sampling: u32,
    /// Whether the daemon starts only if all ports of the configuration can be attached.
    pub require_ports: bool,
    /// Whether it goes on in the place of a running daemon.
    pub take_over: bool,
    /// Directories that stay reachable in the sandbox, and in which others than root and the daemon's own user may name
    /// files and sockets; absolute.
    pub allow_dirs: Vec<PathBuf>,
    /// Interfaces that everyone who may connect may open, not only root and the daemon's own user.
    pub allow_nics: Vec<String>,
    /// TAPs that every user who can connect may attach.
    pub allow_taps: Vec<String>,
    /// Users whose guests take the time of root's ports.
    pub trusted_hypervisors: Vec<String>,
    /// Switches on which ports of all users may meet; `*` is all.
    pub shared_switches: Vec<String>,
    /// What one user may have.
    pub quota: Quota,
    /// Time after which an address that was not seen again is forgotten.
    pub ageing: Duration,
    /// What all switches have in common.
    pub switches: Settings,
    /// The policies that ports begin with.
    pub policies: SwitchPolicies,
    /// Ports to attach at startup, with these policies.
    pub ports: Vec<AttachParams>,
    /// What the command line says, before any file.
    pub overrides: Overrides,
    /// The file that SIGHUP makes the daemon read again.
    pub file: Option<PathBuf>,
}

/// Owner and mode of the sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// User name or number.
    pub owner: Option<String>,
    /// Group name or number.
    pub group: Option<String>,
    /// Permission bits; `None` means 0600, or 0660 when a group is named.
    pub mode: Option<u32>,
}

/// The configuration file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// `run_dir`.
    pub run_dir: Option<PathBuf>,
    /// `workers`: their number.
    pub workers: Option<usize>,
    /// `cpus`: one CPU for each worker.
    pub cpus: Option<Vec<usize>>,
    /// `spin_us`: how long workers poll, at most, before they sleep, in microseconds.
    pub spin_us: Option<u64>,
    /// `poll_always`: never sleep.
    #[serde(default)]
    pub poll_always: bool,
    /// `rt_priority`: workers run at this real-time priority, 1 to 99.
    pub rt_priority: Option<u64>,
    /// `user`: name or number of the user that the daemon becomes.
    pub user: Option<String>,
    /// `sandbox`: on unless false.
    pub sandbox: Option<bool>,
    /// `latency_sampling`: of how many batches one is timed.
    pub latency_sampling: Option<u64>,
    /// `require_ports`: whether a port that cannot be attached keeps the daemon from starting.
    #[serde(default)]
    pub require_ports: bool,
    /// `allow_dirs`: directories that stay reachable in the sandbox.
    #[serde(default)]
    pub allow_dirs: Vec<PathBuf>,
    /// `allow_nics`: interfaces that everyone who may connect may open.
    #[serde(default)]
    pub allow_nics: Vec<String>,
    /// `allow_taps`: TAPs that every user who can connect may attach.
    #[serde(default)]
    pub allow_taps: Vec<String>,
    /// `trusted_hypervisors`: users whose guests take the time of root's ports.
    #[serde(default)]
    pub trusted_hypervisors: Vec<String>,
    /// `[sockets]`.
    pub sockets: Option<FileSockets>,
    /// `[switch]`.
    pub switch: Option<FileSwitch>,
    /// `[quota]`.
    pub quota: Option<FileQuota>,
    /// `[[port]]`.
    #[serde(rename = "port", default)]
    pub ports: Vec<PortConfig>,
}

/// `[sockets]` of the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSockets {
    /// User name or number.
    pub owner: Option<String>,
    /// Group name or number.
    pub group: Option<String>,
    /// Octal text, e.g. `"0660"`.
    pub mode: Option<String>,
}

/// `[switch]` of the file: the settings of all switches.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSwitch {
    /// `ageing_s`, in seconds.
    pub ageing_s: Option<u64>,
    /// `table_entries`.
    pub table_entries: Option<usize>,
    /// `shared`.
    #[serde(default)]
    pub shared: Vec<String>,
    /// `sticky_addresses`: on unless false.
    pub sticky_addresses: Option<bool>,
    /// `lossless_between_users`.
    #[serde(default)]
    pub lossless_between_users: bool,
    /// `policies`.
    #[serde(default)]
    pub policies: SwitchPolicies,
}

/// The quota of each user, as `[quota]` of the file has it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileQuota {
    /// `connections`.
    pub connections: Option<u64>,
    /// `ports`.
    pub ports: Option<u64>,
    /// `switches`.
    pub switches: Option<u64>,
    /// `memory_mib`.
    pub memory_mib: Option<u64>,
    /// `descriptors`.
    pub descriptors: Option<u64>,
    /// `addresses`.
    pub addresses: Option<u64>,
    /// `unread_kib`.
    pub unread_kib: Option<u64>,
    /// `log_lines`.
    pub log_lines: Option<u64>,
    /// `captures_mib`.
    pub captures_mib: Option<u64>,
    /// `subscriptions`.
    pub subscriptions: Option<u64>,
}

/// What one user may have at a time who is neither root nor the daemon's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Connections to both sockets.
    pub connections: usize,
    /// Ports, ends of pipes and monitors included.
    pub ports: usize,
    /// Switches that the user's port was the first on.
    pub switches: usize,
    /// Bytes of regions.
    pub memory: u64,
    /// Descriptors of the daemon's that the user's ports take.
    pub descriptors: usize,
    /// Addresses behind the user's ports in a switch's forwarding table.
    pub addresses: u32,
    /// Bytes of answers that all of the user's connections may leave unread.
    pub unread: usize,
    /// Lines of the log a second that are about the user.
    pub log_lines: u32,
    /// MiB of capture files.
    pub captures: u64,
    /// Connections that are told of events.
    pub subscriptions: usize,
}

impl FileQuota {
    fn check(&self) -> Result<Quota, ConfigError> {
        let count = |name, value: Option<u64>, usual| within(name, value.unwrap_or(usual), 0, 1 << 20);
        Ok(Quota {
            connections: count("connections", self.connections, 256)? as usize,
            ports: count("ports", self.ports, 64)? as usize,
            switches: count("switches", self.switches, 8)? as usize,
            memory: count("memory_mib", self.memory_mib, 2048)? << 20,
            descriptors: count("descriptors", self.descriptors, 4096)? as usize,
            addresses: count("addresses", self.addresses, 2048)? as u32,
            unread: (count("unread_kib", self.unread_kib, 8192)? << 10) as usize,
            log_lines: count("log_lines", self.log_lines, 20)? as u32,
            captures: count("captures_mib", self.captures_mib, 1024)?,
            subscriptions: count("subscriptions", self.subscriptions, 16)? as usize,
        })
    }
}

/// Why a configuration is refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is malformed.
    #[error("{path}: {source}")]
    Toml {
        /// Path of the file.
        path: PathBuf,
        /// The place, with its line, and the mistake.
        source: Box<toml::de::Error>,
    },
    /// A value is out of range.
    #[error("{name} is {value}: {expected}")]
    Value {
        /// Name of the setting.
        name: &'static str,
        /// The value.
        value: String,
        /// The allowed values.
        expected: &'static str,
    },
}

impl File {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError::Read`] if the file cannot be read, [`ConfigError::Toml`] if it is malformed (unknown keys
    /// included).
    pub fn read(path: &Path) -> Result<File, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(&text).map_err(|source| ConfigError::Toml { path: path.into(), source: Box::new(source) })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The mistake with its line: invalid TOML, unknown keys, wrong types, impossible ports.
    pub fn parse(text: &str) -> Result<File, toml::de::Error> {
        Self::of(text).map_err(|mut error| {
            error.set_input(Some(text));
            error
        })
    }

    fn of(text: &str) -> Result<File, toml::de::Error> {
        let table = DeTable::parse(text)?;
        let file = File::deserialize(toml::Deserializer::from(table.clone()))?;
        let places = table.get_ref().get("port").and_then(|ports| ports.get_ref().as_array());
        let mut names = HashSet::new();
        for (port, place) in file.ports.iter().zip(places.into_iter().flatten()) {
            let at = |key| place.get_ref().get(key).unwrap_or(place);
            let spec = port.0.check().map_err(|misfit| error_at(at(misfit.key), misfit))?;
            let name = full_name(&port.0, &spec);
            if !names.insert(name.clone()) {
                let key = if port.0.options.name.is_some() { "name" } else { "port" };
                return Err(error_at(at(key), format!("another port has the name {name}: give one of them a `name`")));
            }
        }
        let policies = table.get_ref().get("switch").and_then(|table| table.get_ref().get("policies"));
        if let Some((misfit, places)) = file.switch.as_ref().and_then(|switch| switch.policies.wrong()).zip(policies) {
            let table = places.get_ref().get(misfit.switch.as_str()).unwrap_or(places);
            return Err(error_at(table.get_ref().get(misfit.key).unwrap_or(table), misfit));
        }
        Ok(file)
    }

    /// Turns the file into a configuration; missing settings get their defaults.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if a value is out of range.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let switch = self.switch.unwrap_or_default();
        Ok(Config {
            run_dir: self.run_dir.unwrap_or_else(netvale_control::dirs::default_run_dir),
            workers: workers(self.workers, self.cpus)?,
            polling: match (self.poll_always, self.spin_us) {
                (true, _) => Polling::Always,
                (false, None) => Polling::Spin(DEFAULT_SPIN),
                (false, Some(us)) => Polling::Spin(Duration::from_micros(us.min(10_000_000))),
            },
            rt_priority: self.rt_priority.map(|p| within("rt_priority", p, 1, 99)).transpose()?.map(|p| p as u8),
            user: self.user,
            sockets: sockets(self.sockets.unwrap_or_default())?,
            sandbox: self.sandbox.unwrap_or(true),
            latency_sampling: within("latency_sampling", self.latency_sampling.unwrap_or(0), 0, 1_000_000_000)? as u32,
            require_ports: self.require_ports,
            take_over: false,
            allow_dirs: self.allow_dirs.into_iter().map(|dir| std::path::absolute(&dir).unwrap_or(dir)).collect(),
            allow_nics: self.allow_nics,
            allow_taps: self.allow_taps,
            trusted_hypervisors: self.trusted_hypervisors,
            shared_switches: switch.shared,
            quota: self.quota.unwrap_or_default().check()?,
            ageing: Duration::from_secs(within("ageing_s", switch.ageing_s.unwrap_or(300), 1, 1_000_000)?),
            switches: Settings {
                table_entries: within("table_entries", switch.table_entries.unwrap_or(16_384) as u64, 8, 1 << 24)?
                    as usize,
                sticky: switch.sticky_addresses.unwrap_or(true),
                holds_others: switch.lossless_between_users,
            },
            ports: self.ports.into_iter().map(|port| switch.policies.under(port.0)).collect(),
            policies: switch.policies,
            overrides: Overrides::default(),
            file: None,
        })
    }
}

/// The full name of a port that is attached so.
pub fn full_name(params: &AttachParams, spec: &AttachSpec) -> String {
    match &params.options {
        PortOptions { backend: Some(backend), .. } => {
            PortSpec::parse(backend).map_or_else(|_| backend.clone(), |named| named.written_name().to_string())
        }
        PortOptions { name: Some(name), .. } => format!("{}:{name}", params.switch),
        _ => format!("{}:{}", params.switch, spec.port_name()),
    }
}

/// Makes an error with the place of a value. The crate only adds places to errors that a value's own reader returns.
fn error_at(place: &Spanned<DeValue<'_>>, why: impl fmt::Display) -> toml::de::Error {
    struct Fail<T>(T);
    impl<'de, T: fmt::Display> Visitor<'de> for Fail<T> {
        type Value = toml::de::Error;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }

        fn visit_some<D: Deserializer<'de>>(self, _: D) -> Result<Self::Value, D::Error> {
            Err(D::Error::custom(self.0))
        }
    }
    let reader = toml::de::ValueDeserializer::from(place.clone());
    reader.deserialize_option(Fail(why)).unwrap_or_else(|error| error)
}

fn within(name: &'static str, value: u64, least: u64, most: u64) -> Result<u64, ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(ConfigError::Value { name, value: value.to_string(), expected: "it is out of range (see netvale.toml(5))" })
}

fn sockets(s: FileSockets) -> Result<SocketAccess, ConfigError> {
    let mode = s.mode.as_deref().map(parse_mode).transpose()?;
    Ok(SocketAccess { owner: s.owner, group: s.group, mode })
}

/// Parses octal permission bits such as `0660`.
///
/// # Errors
/// [`ConfigError::Value`] if the text is not such a number.
pub fn parse_mode(text: &str) -> Result<u32, ConfigError> {
    let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|m| *m <= 0o777);
    mode.ok_or_else(|| ConfigError::Value {
        name: "mode",
        value: text.to_owned(),
        expected: "octal permission bits such as 0660 are expected",
    })
}

#[cfg(test)]
mod tests;
