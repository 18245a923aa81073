//! The configuration: a TOML file and the command line, parsed into values that are valid.

use std::path::PathBuf;
use std::time::Duration;

use netvale_control::options::owners_mode;
use netvale_switch::Settings;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::worker::Polling;

mod field;
mod file;
mod overrides;
mod places;
mod schema;
mod setting;
mod switch_policies;
mod table;
mod workers;
mod write;

pub use file::{File, full_name};
pub use overrides::Overrides;
pub use places::{Mistake, Place, parse};
pub use schema::schema;
pub use setting::{Effect, Setting};
pub use switch_policies::SwitchPolicies;
pub use table::{Config, Quota, SETTINGS, SocketAccess, SwitchConfig, TABLES};
pub use write::{json, programs, text, words};

/// Permission bits of the sockets, as octal text in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SocketMode(pub u32);

impl TryFrom<String> for SocketMode {
    type Error = &'static str;

    fn try_from(text: String) -> Result<SocketMode, &'static str> {
        owners_mode(&text).map(SocketMode).ok_or("octal permission bits are expected")
    }
}

impl From<SocketMode> for String {
    fn from(mode: SocketMode) -> String {
        format!("{:04o}", mode.0)
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
    /// Words of the command line are not what their flag takes.
    #[error("{0}")]
    Words(String),
}

impl File {
    /// Turns the file into a configuration: settings whose defaults depend on the machine or on others get them.
    ///
    /// # Errors
    /// None today: a file's values have been checked when it was parsed.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let File(mut config) = self;
        if config.run_dir.as_os_str().is_empty() {
            config.run_dir = netvale_control::dirs::default_run_dir();
        }
        config.place_workers();
        if config.poll_always {
            config.spin_us = Config::default().spin_us;
        }
        for dir in &mut config.allow_dirs {
            if let Ok(absolute) = std::path::absolute(&dir) {
                *dir = absolute;
            }
        }
        let ports = std::mem::take(&mut config.ports);
        config.ports = ports.into_iter().map(|port| config.switch.policies.under(port)).collect();
        Ok(config)
    }
}

impl Config {
    /// When workers go to sleep.
    #[must_use]
    pub fn polling(&self) -> Polling {
        if self.poll_always { Polling::Always } else { Polling::Spin(Duration::from_micros(self.spin_us)) }
    }
}

impl SwitchConfig {
    /// Time after which an address that was not seen again is forgotten.
    #[must_use]
    pub fn ageing(&self) -> Duration {
        Duration::from_secs(self.ageing_s)
    }

    /// What each switch is made with.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let SwitchConfig { table_entries, sticky_addresses: sticky, lossless_between_users: holds_others, .. } = *self;
        Settings { table_entries, sticky, holds_others }
    }
}

#[cfg(test)]
mod tests;
