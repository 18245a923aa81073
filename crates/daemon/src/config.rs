//! Configuration: a TOML file and the command line, parsed into values that cannot be wrong.

use std::path::{Path, PathBuf};
use std::time::Duration;

use netvale_control::types::AttachParams;
use serde::Deserialize;
use thiserror::Error;

use crate::worker::Polling;

mod port;

pub use port::PortConfig;

/// How long a worker looks for frames before it sleeps, unless told otherwise.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(50);
/// Most workers.
pub const MAX_WORKERS: usize = 64;

/// What the daemon runs with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the sockets.
    pub run_dir: PathBuf,
    /// CPU of each worker; none: not pinned. One worker an entry.
    pub workers: Vec<Option<usize>>,
    /// When workers sleep.
    pub polling: Polling,
    /// Priority of the workers among real-time threads (`SCHED_FIFO`); none: they are ordinary threads.
    pub rt_priority: Option<u8>,
    /// Who may connect.
    pub sockets: SocketAccess,
    /// Capabilities dropped, seccomp and Landlock on.
    pub sandbox: bool,
    /// Directories that stay reachable in the sandbox: for capture files.
    pub allow_dirs: Vec<PathBuf>,
    /// Interfaces that all may open who may connect, not only root and the daemon's own user.
    pub allow_nics: Vec<String>,
    /// Time after which an unseen address is forgotten.
    pub ageing: Duration,
    /// Entries of each switch's forwarding table.
    pub table_entries: usize,
    /// Ports to attach at start.
    pub ports: Vec<AttachParams>,
}

/// Owner and mode of the sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// User name or number.
    pub owner: Option<String>,
    /// Group name or number.
    pub group: Option<String>,
    /// Permission bits; none means 0600, or 0660 when a group is named.
    pub mode: Option<u32>,
}

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// `run-dir`.
    #[serde(rename = "run-dir")]
    pub run_dir: Option<PathBuf>,
    /// `workers`: how many.
    pub workers: Option<usize>,
    /// `cpus`: one for each worker.
    pub cpus: Option<Vec<usize>>,
    /// `spin-us`: how long workers look before they sleep.
    #[serde(rename = "spin-us")]
    pub spin_us: Option<u64>,
    /// `poll-always`: never sleep.
    #[serde(rename = "poll-always", default)]
    pub poll_always: bool,
    /// `rt-priority`: workers run at this real-time priority, 1 to 99.
    #[serde(rename = "rt-priority")]
    pub rt_priority: Option<u64>,
    /// `sandbox`: on unless false.
    pub sandbox: Option<bool>,
    /// `allow-dirs`: directories that stay reachable in the sandbox.
    #[serde(rename = "allow-dirs", default)]
    pub allow_dirs: Vec<PathBuf>,
    /// `allow-nics`: interfaces that all may open who may connect.
    #[serde(rename = "allow-nics", default)]
    pub allow_nics: Vec<String>,
    /// `[sockets]`.
    pub sockets: Option<FileSockets>,
    /// `[switch]`.
    pub switch: Option<FileSwitch>,
    /// `[[port]]`.
    #[serde(rename = "port", default)]
    pub ports: Vec<PortConfig>,
}

/// `[sockets]` of the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSockets {
    /// User.
    pub owner: Option<String>,
    /// Group.
    pub group: Option<String>,
    /// Octal text, e.g. `"0660"`.
    pub mode: Option<String>,
}

/// `[switch]` of the file: what all switches have in common.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSwitch {
    /// `ageing-s`.
    #[serde(rename = "ageing-s")]
    pub ageing_s: Option<u64>,
    /// `table-entries`.
    #[serde(rename = "table-entries")]
    pub table_entries: Option<usize>,
}

/// Why a configuration is refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// File.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: {source}")]
    Toml {
        /// File.
        path: PathBuf,
        /// Where and what, with the line.
        source: Box<toml::de::Error>,
    },
    /// A value out of its range.
    #[error("{name} is {value}: {expected}")]
    Value {
        /// Which setting.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError::Read`], [`ConfigError::Toml`] (unknown keys included).
    pub fn read(path: &Path) -> Result<File, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(&text).map_err(|source| ConfigError::Toml { path: path.into(), source: Box::new(source) })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<File, toml::de::Error> {
        toml::from_str(text)
    }

    /// The configuration it asks for; what it leaves open is the default.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
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
            rt_priority: self.rt_priority.map(|p| within("rt-priority", p, 1, 99)).transpose()?.map(|p| p as u8),
            sockets: sockets(self.sockets.unwrap_or_default())?,
            sandbox: self.sandbox.unwrap_or(true),
            allow_dirs: self.allow_dirs,
            allow_nics: self.allow_nics,
            ageing: Duration::from_secs(within("ageing-s", switch.ageing_s.unwrap_or(300), 1, 1_000_000)?),
            table_entries: within("table-entries", switch.table_entries.unwrap_or(16_384) as u64, 8, 1 << 24)? as usize,
            ports: self.ports.into_iter().map(|port| port.0).collect(),
        })
    }
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

fn workers(count: Option<usize>, cpus: Option<Vec<usize>>) -> Result<Vec<Option<usize>>, ConfigError> {
    let bad = |value: usize, expected| ConfigError::Value { name: "workers", value: value.to_string(), expected };
    let count = count.or(cpus.as_ref().map(Vec::len)).unwrap_or(1);
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
/// [`ConfigError::Value`].
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

    /// Objective: a full file is understood.
    #[test]
    fn full_file() {
        let text = r#"
            run-dir = "/run/nv"
            cpus = [1, 2]
            workers = 3
            spin-us = 0
            rt-priority = 20
            [sockets]
            group = "netvale"
            mode = "0666"
            [switch]
            ageing-s = 10
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
        let e = File::parse("[[port]]\nport='a'\n\nvelocity=1").unwrap_err().to_string();
        assert!(e.contains("velocity") && e.contains("line 4"), "{e}");
        let e = File::parse("[[port]]\nswitch='vale0'").unwrap_err().to_string();
        assert!(e.contains("missing field `port`"), "{e}");
        assert!(File::parse("workers = 0").unwrap().into_config().is_err());
        assert!(File::parse("workers = 1000").unwrap().into_config().is_err());
        assert!(File::parse("rt-priority = 0").unwrap().into_config().is_err());
        assert!(File::parse("rt-priority = 100").unwrap().into_config().is_err());
        assert!(File::parse("cpus = []").unwrap().into_config().is_err());
        assert!(File::parse("[switch]\nageing-s = 0").unwrap().into_config().is_err());
        assert!(parse_mode("9").is_err() && parse_mode("7777").is_err() && parse_mode("0660").is_ok());
    }
}
