//! The configuration: a TOML file and the command line, parsed into valid values. A single row defines each setting:
//! key, shape, field and flag.

use std::path::PathBuf;
use std::time::Duration;

use netvale_control::options::{Shape, owners_mode};
use netvale_control::types::AttachParams;
use netvale_switch::Settings;
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

pub use file::{File, canonical, full_name};
pub use overrides::Overrides;
pub use places::{Mistake, Place, parse};
pub use schema::schema;
pub use setting::{Effect, Setting};
pub use switch_policies::SwitchPolicies;
pub use write::{json, programs, text, words};

use field::FieldValue;

/// Generates the configuration, [`TABLES`] and [`SETTINGS`] from the same rows:
///
/// ```text
/// /// What it means.
/// KEY: TYPE OF THE FIELD = DEFAULT OR WORDS FOR IT, SHAPE, WHEN A CHANGE TAKES EFFECT,
///     /// What the help says of its flag, if it has one.
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

            /// Default values.
            impl Default for $record {
                fn default() -> Self {
                    Self {
                        $( $field: field::usual(&Value::from($usual)), )+
                        $($( $other: Default::default(), )+)?
                    }
                }
            }
        )+

        /// The file's tables with descriptions; the first holds the keys before any table header.
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

const COUNT: Shape = Shape::Number(0, 1 << 20);

settings! {
    /// The daemon's configuration. Its fields have the names and units of the file's keys.
    #[derive(Clone, Debug)]
    Config [] "" "The configuration file of `netvale up`." {
        /// Folder of the sockets.
        run_dir: PathBuf =
            "$NETVALE_RUN_DIR, else /run/netvale for root, else $XDG_RUNTIME_DIR/netvale, else /tmp/netvale-UID",
            Shape::Text, Restart;

        /// Threads that forward.
        workers: usize = "one for each of cpus, else one for every four CPUs, 1 to 8", Shape::Number(1, 64), Restart,
            /// Worker threads; each owns the ingress of some of the ports [default: one for every four CPUs, 1 to 8].
            flag "workers N";

        /// CPU of each worker, in turn.
        cpus: Option<Vec<usize>> = "workers are not pinned", Shape::Numbers(0, 1023), Restart,
            /// CPUs to pin the workers to, in turn, e.g. 0,2-3. Without it they are not pinned.
            flag "cpu LIST";

        /// Microseconds for which a worker looks for frames, at most, before it sleeps: as long as looking pays. 0: it
        /// sleeps immediately.
        spin_us: u64 = 50, Shape::Number(0, 10_000_000), Restart,
            /// Microseconds a worker looks for work after its last frame, before it sleeps. It sleeps earlier when
            /// looking does not pay; 0 sleeps immediately.
            flag "spin-us N";

        /// Workers never sleep.
        poll_always: bool = false, Shape::Flag, Restart,
            /// Workers never sleep: lowest latency, but each occupies a CPU.
            flag "poll-always";

        /// Real-time priority (SCHED_FIFO) at which the workers run.
        rt_priority: Option<u8> = "ordinary threads", Shape::Number(1, 99), Restart,
            /// Real-time priority of the workers (SCHED_FIFO, {range}). Choose one above that of programs that never
            /// sleep.
            flag "rt-priority N";

        /// User that a daemon of root's becomes, with that user's group: name or number.
        user: Option<String> = "who starts the daemon", Shape::Text, Restart,
            /// User that the daemon becomes once it has made its run directory: a name or a number. Root starts it, and
            /// it keeps what TAPs and interfaces take.
            flag "user USER";

        /// Capabilities are dropped, seccomp and Landlock are on.
        sandbox: bool = true, Shape::Flag, Restart,
            /// Keep capabilities and leave seccomp and Landlock off, to debug.
            flag "no-sandbox";

        /// One of this many batches of each ring is timed, on average, for the metrics and the page: how long its
        /// frames take from the ring until they are delivered. 0: none is.
        latency_sampling: u32 = 0, Shape::Number(0, 1_000_000_000), Immediate,
            /// Time one of this many batches of each ring, for the metrics, the page and `netvale top`; 0: none.
            flag "latency-sampling N";

        /// All ports of the file have to be attached, or the daemon does not start; otherwise it leaves some out.
        require_ports: bool = false, Shape::Flag, Immediate;

        /// Folders of capture files and sockets: reachable in the sandbox, and for other users than the daemon's, who
        /// must name them as they are named here.
        allow_dirs: Vec<PathBuf> = "none", Shape::Texts, WithinReach,
            /// A directory that stays reachable in the sandbox, for capture files and sockets of virtual machines; may
            /// be given several times.
            flag "allow-dir DIR";

        /// Interfaces that every user who can connect may open, not only root and the daemon's own user.
        allow_nics: Vec<String> = "none", Shape::Texts, Immediate,
            /// An interface that every user who can connect may open, not only root and the daemon's own user; may be
            /// given several times.
            flag "allow-nic IF";

        /// TAPs that every user who can connect may attach, not only root and the daemon's own user.
        allow_taps: Vec<String> = "none", Shape::Texts, Immediate,
            /// A TAP that every user who can connect to the daemon may attach, not only root and its own user; may be
            /// given several times.
            flag "allow-tap TAP";

        /// Users ("*": all) whose guests, at ports of root's, take the time of root's workers, and can make all wait.
        trusted_hypervisors: Vec<String> = "none", Shape::Texts, NewPorts;
    }
    and {
        /// Who may connect.
        sockets: SocketAccess,
        /// What all switches have in common.
        switch: SwitchConfig,
        /// What each user may have who is neither root nor the daemon's own.
        quota: Quota,
        /// Whether the daemon goes on in the place of a running one.
        take_over: bool,
        /// Ports to attach at startup, with the policies of their switches.
        ports: Vec<AttachParams>,
        /// What the command line says, before any file.
        overrides: Overrides,
        /// The file that SIGHUP makes the daemon read again.
        file: Option<PathBuf>,
    }

    /// Owner and mode of the sockets.
    #[derive(Clone, Debug, PartialEq)]
    SocketAccess [sockets] "sockets" "Who may connect." {
        /// Owner of the sockets: name or number.
        owner: Option<String> = "who runs the daemon", Shape::Text, WithChown,
            /// Owner of the sockets: a name or a number. Without it, the user who runs the daemon.
            flag "socket-owner USER";

        /// Group of the sockets: name or number.
        group: Option<String> = "that of who runs the daemon", Shape::Text, WithChown,
            /// Group of the sockets: a name or a number.
            flag "socket-group GROUP";

        /// Permission bits of the sockets, octal.
        mode: Option<SocketMode> = "0600, or 0660 when a group is named", Shape::OwnersMode, OwnSockets,
            /// Mode of the sockets in octal [default: 0600; with a group, 0660].
            flag "socket-mode MODE";
    }

    /// What all switches have in common.
    #[derive(Clone, Debug)]
    SwitchConfig [switch] "switch" "What all switches have in common." {
        /// Seconds after which an unseen address is forgotten.
        ageing_s: u64 = 300, Shape::Number(1, 1_000_000), Immediate;

        /// Entries of each switch's forwarding table.
        table_entries: usize = 16_384, Shape::Number(8, 1 << 24), Immediate;

        /// Switches on which ports of all users may meet; "*" is all. Any other switch is for the user who made it,
        /// root and the daemon's own user.
        shared: Vec<String> = "none", Shape::Texts, Immediate,
            /// A switch on which ports of all users may meet ("*": all); others are for the user who made them, root
            /// and the daemon's own user. May be given several times.
            flag "share-switch SWITCH";

        /// An address behind one user's port does not move to another user's until it expires or the port is detached.
        sticky_addresses: bool = true, Shape::Flag, Immediate;

        /// A lossless port holds back other users' senders, too; otherwise their frames are dropped when it is full.
        lossless_between_users: bool = false, Shape::Flag, Immediate;

        /// Policies that ports begin with, by the names of switches ("*" is all). Users make them narrower only.
        policies: SwitchPolicies = "none", Shape::Policies, NewPorts;
    }

    /// What one user may have at a time who is neither root nor the daemon's own.
    #[derive(Clone, Debug)]
    Quota [quota] "quota" "What each user may have who is neither root nor the daemon's own." {
        /// Connections to both sockets that one user may have; root and the daemon's own user have no quota.
        connections: usize = 256, COUNT, Immediate;

        /// Ports that one user may have, ends of pipes and monitors included.
        ports: usize = 64, COUNT, Immediate;

        /// Switches that one user may make.
        switches: usize = 8, COUNT, Immediate;

        /// Memory of one user's ports, in MiB.
        memory_mib: u64 = 2048, COUNT, Immediate;

        /// Descriptors of the daemon's that one user's ports take; a ring takes up to four.
        descriptors: usize = 4096, COUNT, Immediate;

        /// Addresses behind one user's ports in a switch's forwarding table.
        addresses: u32 = 2048, COUNT, NewPorts;

        /// Answers that one user's control connections leave unread, in KiB.
        unread_kib: usize = 8192, COUNT, Immediate;

        /// Lines a second in the log about one user; further ones are counted.
        log_lines: u32 = 20, COUNT, Immediate;

        /// Capture files of one user, in MiB: those that are being written, and those that are there from before.
        captures_mib: u64 = 1024, COUNT, Immediate;

        /// Connections of one user that are told of events.
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
        owners_mode(&text).map(SocketMode).ok_or("octal permission bits are expected")
    }
}

impl From<SocketMode> for String {
    fn from(mode: SocketMode) -> String {
        format!("{:04o}", mode.0)
    }
}

/// Why a configuration is rejected.
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
        /// The mistake, with its line.
        source: Box<toml::de::Error>,
    },
    /// Invalid arguments of command-line flags.
    #[error("{0}")]
    Words(String),
}

impl File {
    /// Completes the file's configuration: fills in defaults that depend on the machine or on other settings.
    pub fn into_config(self) -> Config {
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
        config
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
    /// Time after which an unseen address expires.
    #[must_use]
    pub fn ageing(&self) -> Duration {
        Duration::from_secs(self.ageing_s)
    }

    /// Settings for each new switch.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let SwitchConfig { table_entries, sticky_addresses: sticky, lossless_between_users: holds_others, .. } = *self;
        Settings { table_entries, sticky, holds_others }
    }
}

#[cfg(test)]
mod tests;
