//! The configuration: a TOML file and the command line, parsed into valid values. One row of a table defines a setting:
//! its key, its field, its shape (type and range), and its command-line flag.

use std::path::PathBuf;
use std::time::Duration;

use netvale_control::options::{OptionShape, owners_mode};
use netvale_control::types::AttachParams;
use netvale_switch::SwitchSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::worker::Polling;

mod field;
mod file;
mod overrides;
mod places;
mod schema;
mod setting;
mod switch_policies;
mod workers;
mod write;

pub use file::{ConfigFile, canonical, full_name};
pub use overrides::Overrides;
pub use places::{Mistake, TextPlace, parse};
pub use schema::schema;
pub use setting::{Effect, Setting};
pub use switch_policies::SwitchPolicies;
pub use write::{json, programs, text, words};

use field::FieldValue;

/// Generates the configuration, [`TABLES`] and [`SETTINGS`] from the same rows:
///
/// ```text
/// /// The meaning of the setting.
/// KEY: TYPE OF THE FIELD = DEFAULT OR WORDS FOR IT, SHAPE, WHEN A CHANGE TAKES EFFECT,
///     /// The help text of its flag, if it has one.
///     flag "NAME VALUE";
/// ```
macro_rules! settings {
    ($(
        $(#[$about:meta])+
        $record:ident $path:tt $table:literal $description:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $usual:expr, $shape:expr, $effect:ident
                $(, $(#[doc = $help:literal])+ flag $flag:literal)?;
            )+
        }
        $(and { $( $(#[doc = $other_doc:literal])+ $other:ident: $other_type:ty, )+ })?
    )+) => {
        $(
            $(#[$about])+
            pub struct $record {
                $( $(#[doc = $doc])+ pub $field: $type, )+
                $($( $(#[doc = $other_doc])+ pub $other: $other_type, )+)?
            }

            impl Default for $record {
                fn default() -> Self {
                    Self {
                        $( $field: field::usual(&Value::from($usual)), )+
                        $($( $other: Default::default(), )+)?
                    }
                }
            }
        )+

        /// The file's tables with descriptions. The first entry is for the keys before any table header.
        pub static TABLES: &[(&str, &str)] = &[$( ($table, $description) ),+];

        /// All settings, in the order of the file.
        pub static SETTINGS: &[Setting] = &[$($(
            Setting {
                table: $table,
                name: stringify!($field),
                shape: $shape,
                effect: Effect::$effect,
                doc: concat!($($doc),+),
                flag: concat!($($flag)?),
                help: concat!($($($help),+)?),
                usual: || Value::from($usual),
                value: |config| settings!(@field config $path $field).value(),
                put: |config, value| settings!(@field config $path $field).put(value),
                take: |config, shape, words| settings!(@field config $path $field).take_words(shape, words),
                copy: |to, from| settings!(@field to $path $field).clone_from(&settings!(@field from $path $field)),
            },
        )+)+];
    };
    (@field $config:ident [$($path:ident)?] $field:ident) => { $config$(.$path)?.$field };
}

const COUNT: OptionShape = OptionShape::Number(0, 1 << 20);

settings! {
    /// The daemon's configuration. Its fields have the names and units of the file's keys.
    #[derive(Clone, Debug)]
    Config [] "" "The configuration file of `netvale up`." {
        /// Folder of the sockets.
        run_dir: PathBuf =
            "$NETVALE_RUN_DIR, else /run/netvale for root, else $XDG_RUNTIME_DIR/netvale, else /tmp/netvale-UID",
            OptionShape::Text, Restart;

        /// Number of worker threads, which forward frames.
        workers: usize = "one for each CPU in cpus, else one for every four CPUs, 1 to 8",
            OptionShape::Number(1, 64), Restart,
            /// Number of worker threads, each of which owns the ingresses of some ports [default: one for every four
            /// CPUs, 1 to 8].
            flag "workers N";

        /// CPUs to which the workers are pinned, in turn.
        cpus: Option<Vec<usize>> = "workers are not pinned", OptionShape::Numbers(0, 1023), Restart,
            /// CPUs to pin the workers to, in turn, e.g. 0,2-3 [default: not pinned].
            flag "cpu LIST";

        /// Longest time that an idle worker polls before it sleeps, in microseconds. It sleeps earlier if polling has
        /// not paid off. 0: it sleeps immediately.
        spin_us: u64 = 50, OptionShape::Number(0, 10_000_000), Restart,
            /// Longest time that an idle worker polls before it sleeps, in microseconds. It sleeps earlier if polling
            /// has not paid off, and immediately with 0.
            flag "spin-us N";

        /// Workers never sleep.
        poll_always: bool = false, OptionShape::Flag, Restart,
            /// Workers never sleep: lowest latency, but each occupies a CPU.
            flag "poll-always";

        /// Real-time priority (SCHED_FIFO) at which the workers run.
        rt_priority: Option<u8> = "ordinary threads", OptionShape::Number(1, 99), Restart,
            /// Real-time priority of the workers (SCHED_FIFO, {range}). Choose one above that of programs that never
            /// sleep.
            flag "rt-priority N";

        /// User, by name or number, to which a daemon started by root changes, with that user's group.
        user: Option<String> = "the user who starts the daemon", OptionShape::Text, Restart,
            /// User, by name or number, to which a daemon started by root changes after it has created its run
            /// directory. It keeps the capabilities that TAPs and interfaces need.
            flag "user USER";

        /// The daemon drops capabilities, and enables seccomp and Landlock.
        sandbox: bool = true, OptionShape::Flag, Restart,
            /// Keep capabilities, and do not enable seccomp and Landlock, for debugging.
            flag "no-sandbox";

        /// On average, one of this many batches of each ring is timed, from the ring to delivery, for the metrics and
        /// the web page. 0: none.
        latency_sampling: u32 = 0, OptionShape::Number(0, 1_000_000_000), Immediate,
            /// Time one of this many batches of each ring, for the metrics, the web page and `netvale top`; 0: none.
            flag "latency-sampling N";

        /// The daemon starts only if all ports of the file can be attached. Otherwise it logs and skips those that
        /// cannot be attached now.
        require_ports: bool = false, OptionShape::Flag, Immediate;

        /// Folders of capture files and sockets. The daemon can access them in the sandbox, and users other than the
        /// daemon's may name them, spelled as here.
        allow_dirs: Vec<PathBuf> = "none", OptionShape::Texts, WithinReach,
            /// A directory that the daemon can access in the sandbox, for capture files and sockets of virtual
            /// machines; may be given several times.
            flag "allow-dir DIR";

        /// Interfaces that every user who can connect may open, not only root and the daemon's own user.
        allow_nics: Vec<String> = "none", OptionShape::Texts, Immediate,
            /// An interface that every user who can connect may open, not only root and the daemon's own user; may be
            /// given several times.
            flag "allow-nic IF";

        /// TAPs that every user who can connect may attach, not only root and the daemon's own user.
        allow_taps: Vec<String> = "none", OptionShape::Texts, Immediate,
            /// A TAP that every user who can connect may attach, not only root and the daemon's own user; may be given
            /// several times.
            flag "allow-tap TAP";

        /// Users whose guests, at ports that root attached for them, use root's workers without an extra copy, and can
        /// delay other ports; "*": all users.
        trusted_hypervisors: Vec<String> = "none", OptionShape::Texts, NewPorts;
    }
    and {
        /// Owner, group and mode of the sockets, which determine who may connect.
        sockets: SocketAccess,
        /// Settings of all switches.
        switch: SwitchConfig,
        /// Limits of each user except root and the daemon's own user.
        quota: Quota,
        /// Whether the daemon takes over from a running one.
        take_over: bool,
        /// Ports to attach at start, with the policies of their switches.
        ports: Vec<AttachParams>,
        /// The settings on the command line, which override the file's.
        overrides: Overrides,
        /// The configuration file, which the daemon reads again on SIGHUP.
        file: Option<PathBuf>,
    }

    /// Owner, group and mode of the sockets.
    #[derive(Clone, Debug, PartialEq)]
    SocketAccess [sockets] "sockets" "Who may connect." {
        /// Owner of the sockets: name or number.
        owner: Option<String> = "the user who runs the daemon", OptionShape::Text, WithChown,
            /// Owner of the sockets: a name or a number [default: the user who runs the daemon].
            flag "socket-owner USER";

        /// Group of the sockets: name or number.
        group: Option<String> = "the group of the user who runs the daemon", OptionShape::Text, WithChown,
            /// Group of the sockets: a name or a number.
            flag "socket-group GROUP";

        /// Permission bits of the sockets, octal.
        mode: Option<SocketMode> = "0600, or 0660 with a group", OptionShape::OwnersMode, OwnSockets,
            /// Mode of the sockets in octal [default: 0600; with a group, 0660].
            flag "socket-mode MODE";
    }

    /// Settings of all switches.
    #[derive(Clone, Debug)]
    SwitchConfig [switch] "switch" "Settings of all switches." {
        /// Seconds after which an unused address expires.
        ageing_s: u64 = 300, OptionShape::Number(1, 1_000_000), Immediate;

        /// Entries of each switch's forwarding table.
        table_entries: usize = 16_384, OptionShape::Number(8, 1 << 24), Immediate;

        /// Switches that take ports of all users; "*": all switches. Any other switch takes ports only of the user who
        /// created it, of root and of the daemon's own user.
        shared: Vec<String> = "none", OptionShape::Texts, Immediate,
            /// A switch that takes ports of all users ("*": every switch). Any other switch takes ports only of the
            /// user who created it, of root and of the daemon's own user. May be given several times.
            flag "share-switch SWITCH";

        /// An address behind one user's port moves to another user's port only after it expires or the first port is
        /// detached.
        sticky_addresses: bool = true, OptionShape::Flag, Immediate;

        /// A full lossless port delays other users' senders, too. Otherwise it drops their frames.
        lossless_between_users: bool = false, OptionShape::Flag, Immediate;

        /// Initial policies of ports, by switch name ("*": all switches). Users may only restrict them further.
        policies: SwitchPolicies = "none", OptionShape::Policies, NewPorts;
    }

    /// Limits of each user except root and the daemon's own user.
    #[derive(Clone, Debug)]
    Quota [quota] "quota" "Limits of each user except root and the daemon's own user." {
        /// Connections of one user to both sockets.
        connections: usize = 256, COUNT, Immediate;

        /// Ports of one user, including ends of pipes and monitors.
        ports: usize = 64, COUNT, Immediate;

        /// Switches that one user has created.
        switches: usize = 8, COUNT, Immediate;

        /// Memory of one user's ports, in MiB.
        memory_mib: u64 = 2048, COUNT, Immediate;

        /// Descriptors that the daemon holds for one user's ports; a ring takes up to four.
        descriptors: usize = 4096, COUNT, Immediate;

        /// Addresses behind one user's ports in a switch's forwarding table.
        addresses: u32 = 2048, COUNT, NewPorts;

        /// Unread answers on all control connections of one user, in KiB.
        unread_kib: usize = 8192, COUNT, Immediate;

        /// Log lines per second about one user; further lines are counted instead.
        log_lines: u32 = 20, COUNT, Immediate;

        /// Capture files of one user, in MiB: files being written, and existing earlier ones.
        captures_mib: u64 = 1024, COUNT, Immediate;

        /// Connections of one user that subscribe to events.
        subscriptions: usize = 16, COUNT, Immediate;
    }
}

/// Permission bits of the sockets, as octal text in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SocketMode(pub u32);

impl TryFrom<String> for SocketMode {
    type Error = &'static str;

    fn try_from(text: String) -> Result<SocketMode, &'static str> {
        owners_mode(&text).map(SocketMode).ok_or("expected octal permission bits, e.g. 0660, with w for the owner")
    }
}

impl From<SocketMode> for String {
    fn from(mode: SocketMode) -> String {
        format!("{:04o}", mode.0)
    }
}

/// Reason why a configuration is rejected.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the attempt to read it.
        source: std::io::Error,
    },
    /// The file is malformed.
    #[error("{path}: {source}")]
    Toml {
        /// Path of the file.
        path: PathBuf,
        /// The error, with its line.
        source: Box<toml::de::Error>,
    },
    /// The argument of a command-line flag is invalid.
    #[error("{0}")]
    Words(String),
}

impl ConfigFile {
    /// Completes the file's configuration with the defaults that depend on the machine or on other settings.
    pub fn into_config(self) -> Config {
        let ConfigFile(mut config) = self;
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
        config
    }
}

impl Config {
    /// Returns how long idle workers poll before they sleep.
    #[must_use]
    pub fn polling(&self) -> Polling {
        if self.poll_always { Polling::Always } else { Polling::Spin(Duration::from_micros(self.spin_us)) }
    }
}

impl SwitchConfig {
    /// Returns the time after which an unused address expires.
    #[must_use]
    pub fn ageing(&self) -> Duration {
        Duration::from_secs(self.ageing_s)
    }

    /// Returns the settings of each new switch.
    #[must_use]
    pub fn settings(&self) -> SwitchSettings {
        let SwitchConfig { table_entries, sticky_addresses: sticky, lossless_between_users: holds_others, .. } = *self;
        SwitchSettings { table_entries, sticky, holds_others }
    }
}

#[cfg(test)]
mod tests;
