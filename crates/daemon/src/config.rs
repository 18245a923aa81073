//! The configuration: a TOML file and the command line, parsed into values that are valid.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netvale_control::types::{AttachParams, PortOptions};
use netvale_portspec::AttachSpec;
use netvale_switch::Settings;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::worker::Polling;

mod keys;
mod port;
mod schema;
mod spelling;

use keys::KEYS;
pub use port::PortConfig;
pub use schema::schema;
pub use spelling::OldSpelling;

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
    /// Directories that stay reachable in the sandbox, and in which others than root and the daemon's own user may name files and sockets; absolute.
    pub allow_dirs: Vec<PathBuf>,
    /// Interfaces that everyone who may connect may open, not only root and the daemon's own user.
    pub allow_nics: Vec<String>,
    /// TAPs that every user who can connect may attach.
    pub allow_taps: Vec<String>,
    /// Switches on which ports of all users may meet; `*` is all.
    pub shared_switches: Vec<String>,
    /// What one user may have.
    pub quota: Quota,
    /// Time after which an address that was not seen again is forgotten.
    pub ageing: Duration,
    /// What all switches have in common.
    pub switches: Settings,
    /// Ports to attach at startup.
    pub ports: Vec<AttachParams>,
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
    /// `allow_dirs`: directories that stay reachable in the sandbox.
    #[serde(default)]
    pub allow_dirs: Vec<PathBuf>,
    /// `allow_nics`: interfaces that everyone who may connect may open.
    #[serde(default)]
    pub allow_nics: Vec<String>,
    /// `allow_taps`: TAPs that every user who can connect may attach.
    #[serde(default)]
    pub allow_taps: Vec<String>,
    /// `[sockets]`.
    pub sockets: Option<FileSockets>,
    /// `[switch]`.
    pub switch: Option<FileSwitch>,
    /// `[quota]`.
    pub quota: Option<FileQuota>,
    /// `[[port]]`.
    #[serde(rename = "port", default)]
    pub ports: Vec<PortConfig>,
    /// Keys in their old spelling.
    #[serde(skip)]
    pub old_spellings: Vec<OldSpelling>,
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
        let file =
            Self::parse(&text).map_err(|source| ConfigError::Toml { path: path.into(), source: Box::new(source) })?;
        for OldSpelling { line, old, new } in &file.old_spellings {
            tracing::warn!("{}, line {line}: {old} is an old spelling; write {new}", path.display());
        }
        Ok(file)
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
        let mut table = DeTable::parse(text)?;
        let old_spellings = spelling::renew(table.get_mut(), text)?;
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
        Ok(File { old_spellings, ..file })
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
            allow_dirs: self.allow_dirs.into_iter().map(|dir| std::path::absolute(&dir).unwrap_or(dir)).collect(),
            allow_nics: self.allow_nics,
            allow_taps: self.allow_taps,
            shared_switches: switch.shared,
            quota: self.quota.unwrap_or_default().check()?,
            ageing: Duration::from_secs(within("ageing_s", switch.ageing_s.unwrap_or(300), 1, 1_000_000)?),
            switches: Settings {
                table_entries: within("table_entries", switch.table_entries.unwrap_or(16_384) as u64, 8, 1 << 24)?
                    as usize,
                sticky: switch.sticky_addresses.unwrap_or(true),
                holds_others: switch.lossless_between_users,
            },
            ports: self.ports.into_iter().map(|port| port.0).collect(),
        })
    }
}

fn full_name(params: &AttachParams, spec: &AttachSpec) -> String {
    match &params.options {
        PortOptions { backend: Some(backend), .. } => backend.clone(),
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
    Err(ConfigError::Value {
        name,
        value: value.to_string(),
        expected: "it is out of range (see docs/reference/configuration.md)",
    })
}

/// The number of workers where nothing says how many.
fn usual_workers() -> usize {
    workers_for(std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// A quarter of the CPUs at most: the others are for the programs and virtual machines whose frames are forwarded.
fn workers_for(cpus: usize) -> usize {
    (cpus / 4).clamp(1, 8)
}

fn workers(count: Option<usize>, cpus: Option<Vec<usize>>) -> Result<Vec<Option<usize>>, ConfigError> {
    let bad = |value: usize, expected| ConfigError::Value { name: "workers", value: value.to_string(), expected };
    let count = count.or(cpus.as_ref().map(Vec::len)).unwrap_or_else(usual_workers);
    if count == 0 || count > MAX_WORKERS {
        return Err(bad(count, "between 1 and 64 workers are possible"));
    }
    let Some(cpus) = cpus else { return Ok(vec![None; count]) };
    if cpus.is_empty() {
        return Err(bad(0, "the list of CPUs is empty"));
    }
    Ok(cpus.iter().cycle().take(count).map(|&c| Some(c)).collect())
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
mod tests {
    use super::*;

    /// Objective: a full file is parsed correctly.
    #[test]
    fn full_file() {
        let text = r#"
            run_dir = "/run/nv"
            cpus = [1, 2]
            workers = 3
            spin_us = 0
            rt_priority = 20
            [sockets]
            group = "netvale"
            mode = "0666"
            [switch]
            ageing_s = 10
            [[port]]
            switch = "vale0"
            port = "tap:nv0"
            mtu = 9000
        "#;
        let c = File::parse(text).unwrap().into_config().unwrap();
        assert_eq!(c.workers, [Some(1), Some(2), Some(1)]);
        assert_eq!((c.polling, c.rt_priority), (Polling::Spin(Duration::ZERO), Some(20)));
        assert_eq!((c.sockets.mode, c.ageing.as_secs(), c.ports[0].options.mtu), (Some(0o666), 10, Some(9000)));
    }

    /// Objective: a file of the previous version, with every key in its old spelling, means the same; each old key is
    /// reported with its line.
    #[test]
    fn old_spellings() {
        let text = "run-dir = '/run/nv'\nspin-us = 7\npoll-always = false\nrt-priority = 20\nworkers = 2\ncpus = [1]\nsandbox = false\n\
            allow-dirs = ['/d']\nallow-nics = ['eth0']\n[sockets]\nowner = 'u'\ngroup = 'g'\nmode = '0660'\n\
            [switch]\nageing-s = 10\ntable-entries = 64\n\
            [[port]]\nswitch = 'vale0'\nport = 'a'\nname = 'b'\nrings = 2\nslots = 64\nbuf_size = 4096\nextra_bufs = 3\nlossless = true\n\
            huge = true\nvnet_hdr = 12\n\
            [[port]]\nswitch = 'vale0'\nport = 'vhost:/vh'\nmtu = 9000\nclient = true\ngro = true\nmac = '02:00:00:00:00:01'\n\
            [[port]]\nswitch = 'vale0'\nport = 'pcap:/f'\nloop = true\nspeed = 2\n\
            [[port]]\nswitch = 'vale0'\nport = 'virtio:/v'\npacked = true\nno_mergeable = true\nno_in_order = true\n\
            [[port]]\nswitch = 'vale0'\nport = 'virtio:/w'\nvector = true\n\
            [[port]]\nswitch = 'vale0'\nport = 'netmap:eth0'\nhost = true\n\
            [[port]]\nswitch = 'vale0'\nport = 'e1000:/e'\nitr = 0\n\
            [[port]]\nport = 'ptnet:/p'\nvfio_user = true\nbackend = 'netmap:eth1'\n";
        let file = File::parse(text).unwrap();
        let told: Vec<_> = file.old_spellings.iter().map(|o| (o.line, o.old.as_str(), o.new.as_str())).collect();
        let expected = [
            (1, "run-dir", "run_dir"),
            (2, "spin-us", "spin_us"),
            (3, "poll-always", "poll_always"),
            (4, "rt-priority", "rt_priority"),
            (8, "allow-dirs", "allow_dirs"),
            (9, "allow-nics", "allow_nics"),
            (15, "ageing-s", "ageing_s"),
            (16, "table-entries", "table_entries"),
        ];
        assert_eq!(told, expected);
        let mut renewed = text.to_owned();
        expected.iter().for_each(|(_, old, new)| renewed = renewed.replace(old, new));
        let now = File::parse(&renewed).unwrap();
        assert!(now.old_spellings.is_empty());
        assert_eq!(File { old_spellings: Vec::new(), ..file }, now);
        assert_eq!(now.ports.len(), 8);
        let e = File::parse("workers = 1\nrun-dir = 'a'\nrun_dir = 'b'").unwrap_err().to_string();
        assert!(e.contains("run-dir is the old spelling of run_dir") && e.contains("line 2"), "{e}");
        assert_eq!(File::parse("[[port]]\nswitch='vale0'\nport='a'\nvnet-hdr=12").unwrap().old_spellings.len(), 1);
        assert!(File::parse("velo-city = 1").unwrap_err().to_string().contains("velo-city"));
    }

    /// Objective: a quarter of the CPUs get a worker, at least one and at most eight.
    #[test]
    fn number_of_workers() {
        let expected = [(1, 1), (2, 1), (3, 1), (4, 1), (7, 1), (8, 2), (31, 7), (64, 8), (256, 8)];
        assert_eq!(expected.map(|(cpus, _)| (cpus, workers_for(cpus))), expected);
        let number = |text| File::parse(text).unwrap().into_config().unwrap().workers.len();
        assert_eq!(number(""), usual_workers());
        assert_eq!((number("cpus = [0, 0]"), number("workers = 3")), (2, 3));
    }

    /// Objective: unknown keys and values out of range are refused with their place.
    #[test]
    fn refusals() {
        let e = File::parse("wrokers = 2").unwrap_err().to_string();
        assert!(e.contains("wrokers") && e.contains("line 1"), "{e}");
        assert!(File::parse("[[port]]\nswitch='vale0'\nport='a'\nvelocity=1").is_err());
        let e = File::parse("\n[[port]]\nport='tap:nv0'\nvnet_hdr=11").unwrap_err().to_string();
        assert!(e.contains("vnet_hdr is 11") && e.contains("line 4"), "{e}");
        let e = File::parse("[[port]]\nswitch='vale0'\nport='a'\nmtu='x'").unwrap_err().to_string();
        assert!(e.contains("line 4") && e.contains("mtu='x'") && !e.contains("options"), "{e}");
        for (key, number) in [("speed", "inf"), ("speed", "nan"), ("mtu", "nan"), ("vnet_hdr", "-inf")] {
            let port = if key == "speed" { "pcap:/f" } else { "ptnet:/p" };
            let e = File::parse(&format!("[[port]]\nswitch='vale0'\nport='{port}'\n{key}={number}"))
                .unwrap_err()
                .to_string();
            assert!(e.contains(&format!("{key} is")) && e.contains("line 4"), "{e}");
        }
        let e = File::parse("[[port]]\nport='a'\n\nvelocity=1").unwrap_err().to_string();
        assert!(e.contains("velocity") && e.contains("line 4"), "{e}");
        let e = File::parse("[[port]]\nswitch='vale0'").unwrap_err().to_string();
        assert!(e.contains("missing field `port`"), "{e}");
        let e = File::parse("[[port]]\nswitch='vale0'\nport='a'\n[[port]]\nswitch='vale0'\nport='tap:x'\nname='a'")
            .unwrap_err()
            .to_string();
        assert!(e.contains("another port has the name vale0:a") && e.contains("line 7"), "{e}");
        assert!(File::parse("[[port]]\nswitch='vale0'\nport='a'\n[[port]]\nswitch='vale1'\nport='a'").is_ok());
        assert!(File::parse("workers = 0").unwrap().into_config().is_err());
        assert!(File::parse("workers = 1000").unwrap().into_config().is_err());
        assert!(File::parse("rt-priority = 0").unwrap().into_config().is_err());
        assert!(File::parse("rt-priority = 100").unwrap().into_config().is_err());
        assert!(File::parse("cpus = []").unwrap().into_config().is_err());
        assert!(File::parse("[switch]\nageing-s = 0").unwrap().into_config().is_err());
        assert!(parse_mode("9").is_err() && parse_mode("7777").is_err() && parse_mode("0660").is_ok());
    }
}
