//! The command line of gvproxy, parsed as Go's package flag does: names with one dash or two, a value after `=` or as
//! the next word, `-debug=false`; parsing ends at `--` or at the first word that is not an option.

use std::ffi::OsString;
use std::fmt::Write;

use super::GvFailure;
use super::config::GvConfig;
use super::kinds::CAPTURE_OPTION;

/// What the command line requests: the help, the version, or a network.
#[derive(Debug)]
pub(super) enum GvAsked {
    Help,
    Version,
    Run(Box<GvOptions>),
}

/// The options. Empty text and 0 mean that an option is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GvOptions {
    pub config: String,
    /// The options that override a key of the file of `-config`.
    pub keys: GvConfig,
    pub ssh_port: Option<i64>,
    pub forwards: SshForwardOptions,
    pub debug: bool,
    version: bool,
}

/// The options `-forward-…`, each of which may be given several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SshForwardOptions {
    pub sock: Vec<String>,
    pub dest: Vec<String>,
    pub user: Vec<String>,
    pub identity: Vec<String>,
}

/// The kind of value that an option takes, and the field in which the value is stored.
enum GvOptionRole {
    Flag(fn(&mut GvOptions) -> &mut bool),
    Text(fn(&mut GvOptions) -> &mut String),
    List(fn(&mut GvOptions) -> &mut Vec<String>),
    Number(fn(&mut GvOptions, i64)),
}

struct GvOption {
    name: &'static str,
    role: GvOptionRole,
    help: &'static str,
}

const fn option(name: &'static str, role: GvOptionRole, help: &'static str) -> GvOption {
    GvOption { name, role, help }
}

use GvOptionRole::{Flag, List, Number, Text};

const OPTIONS: &[GvOption] = &[
    option("config", Text(|o| &mut o.config), "YAML file with the settings; options override it"),
    option("debug", Flag(|o| &mut o.debug), "log more"),
    option("ec2-metadata-access", Flag(|o| &mut o.keys.ec2_metadata_access), "guests may reach 169.254.0.0/16"),
    option("forward-dest", List(|o| &mut o.forwards.dest), "socket in the guest to which -forward-sock leads"),
    option("forward-identity", List(|o| &mut o.forwards.identity), "SSH key for -forward-sock"),
    option("forward-sock", List(|o| &mut o.forwards.sock), "socket that leads to one in the guest, over SSH"),
    option("forward-user", List(|o| &mut o.forwards.user), "SSH user for -forward-sock"),
    option("listen", List(|o| &mut o.keys.listen), "where the HTTP interface and /connect listen"),
    option("listen-bess", Text(|o| &mut o.keys.interfaces.bess), "socket for User-Mode Linux: unixpacket://"),
    option("listen-qemu", Text(|o| &mut o.keys.interfaces.qemu), "unix:// or tcp:// socket for QEMU"),
    option("listen-stdio", Text(|o| &mut o.keys.interfaces.stdio), "take frames on standard input and output"),
    option(
        "listen-vfkit",
        Text(|o| &mut o.keys.interfaces.vfkit),
        "socket for vfkit, krunkit and libkrun: unixgram://",
    ),
    option("listen-vpnkit", Text(|o| &mut o.keys.interfaces.vpnkit), "not available: Hyperkit runs on macOS only"),
    option("log-file", Text(|o| &mut o.keys.log_file), "write messages to this file"),
    option("mtu", Number(|o, number| o.keys.stack.mtu = number), "MTU of the network (default 1500)"),
    option("notification", Text(|o| &mut o.keys.notification), "unix:// socket that is told of guests"),
    option(CAPTURE_OPTION, Text(|o| &mut o.keys.stack.capture_file), "not available: use netvale dump"),
    option("pid-file", Text(|o| &mut o.keys.pid_file), "write the process ID to this file"),
    option("services", Text(|o| &mut o.keys.services), "where the HTTP interface listens, without /connect"),
    option(
        "ssh-port",
        Number(|o, number| o.ssh_port = Some(number)),
        "port of the host that leads to the guest's SSH; -1: none (default 2222)",
    ),
    option("version", Flag(|o| &mut o.version), "print the version"),
];

/// Parses the command line `words`, without the program's name.
///
/// # Errors
/// An option is unknown or malformed; the error names the first such option.
pub(super) fn read(words: &[OsString]) -> Result<GvAsked, GvFailure> {
    let mut options = GvOptions::default();
    let mut words = words.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix('-').filter(|name| !name.is_empty()) else { break };
        let name = name.strip_prefix('-').unwrap_or(name);
        if name.is_empty() {
            break;
        }
        if name.starts_with(['-', '=']) {
            return Err(GvFailure(format!("bad flag syntax: {word}")));
        }
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value.to_owned())));
        if ["h", "help"].contains(&name) {
            return Ok(GvAsked::Help);
        }
        let Some(option) = OPTIONS.iter().find(|option| option.name == name) else {
            return Err(GvFailure(format!("flag provided but not defined: -{name}")));
        };
        match option.role {
            Flag(place) => *place(&mut options) = flag(name, value.as_deref())?,
            _ => {
                let value = value.or_else(|| words.next().map(|word| word.into_owned()));
                let missing = || GvFailure(format!("flag needs an argument: -{name}"));
                option.put(&mut options, value.ok_or_else(missing)?)?;
            }
        }
    }
    Ok(if options.version { GvAsked::Version } else { GvAsked::Run(Box::new(options)) })
}

/// Parses the value of a flag. A flag without a value is set.
fn flag(name: &str, value: Option<&str>) -> Result<bool, GvFailure> {
    match value {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(other) => Err(GvFailure(format!("invalid boolean value {other:?} for -{name}: parse error"))),
    }
}

impl GvOption {
    fn put(&self, options: &mut GvOptions, value: String) -> Result<(), GvFailure> {
        match self.role {
            Text(place) => *place(options) = value,
            List(place) => place(options).push(value),
            Number(put) => {
                let wrong = || GvFailure(format!("invalid value {value:?} for flag -{}: parse error", self.name));
                put(options, value.parse().map_err(|_| wrong())?);
            }
            Flag(_) => {}
        }
        Ok(())
    }
}

/// Returns the text of the help: the list of options.
pub(super) fn usage() -> String {
    let mut text = String::from("Usage of gvproxy:\n");
    for option in OPTIONS {
        let kind = match option.role {
            Flag(_) => "",
            Text(_) => " string",
            List(_) => " value",
            Number(_) => " int",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  -{}{kind}\n    \t{}", option.name, option.help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<GvOptions, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        match read(&words).map_err(|why| why.to_string())? {
            GvAsked::Run(options) => Ok(*options),
            other => Err(format!("{other:?}")),
        }
    }

    /// Objective: the command lines of podman machine, vfkit's users and gvproxy's own documentation are parsed.
    #[test]
    fn command_lines_of_users_are_read() {
        let podman = of(&[
            "-mtu",
            "1500",
            "-ssh-port",
            "38011",
            "-listen-qemu",
            "unix:///run/user/1000/podman/qemu.sock",
            "-forward-sock",
            "/run/user/1000/podman/api.sock",
            "-forward-dest",
            "/run/user/1000/podman/podman.sock",
            "-forward-user",
            "core",
            "-forward-identity",
            "/home/u/.ssh/machine",
            "-forward-sock",
            "/b",
            "-forward-dest",
            "/run/podman/podman.sock",
            "-forward-user",
            "root",
            "-forward-identity",
            "/k",
            "-pid-file",
            "/p",
        ])
        .unwrap();
        assert_eq!((podman.keys.stack.mtu, podman.ssh_port), (1500, Some(38011)));
        assert_eq!(podman.forwards.user, ["core", "root"]);
        let vfkit = of(&["-debug", "--listen=unix:///a", "--listen-vfkit", "unixgram:///tmp/v.sock"]).unwrap();
        assert!(vfkit.debug && vfkit.keys.listen == ["unix:///a"]);
        assert_eq!(vfkit.keys.interfaces.vfkit, "unixgram:///tmp/v.sock");
        assert_eq!(of(&["-debug=false", "-ssh-port=-1"]).map(|o| (o.debug, o.ssh_port)), Ok((false, Some(-1))));
        assert_eq!(of(&["-mtu", "9", "rest", "-debug"]).map(|o| (o.keys.stack.mtu, o.debug)), Ok((9, false)));
        assert_eq!(of(&[]), Ok(GvOptions::default()));
        assert_eq!(of(&["-version"]), Err("Version".to_owned()));
        assert_eq!(of(&["--help"]), Err("Help".to_owned()));
    }

    #[test]
    fn bad_command_lines_are_refused_by_word() {
        for (words, expected) in [
            (&["-nosuch"][..], "flag provided but not defined: -nosuch"),
            (&["---debug"], "bad flag syntax: ---debug"),
            (&["-=x"], "bad flag syntax: -=x"),
            (&["-mtu"], "flag needs an argument: -mtu"),
            (&["-mtu", "x"], "invalid value \"x\" for flag -mtu: parse error"),
            (&["-debug=maybe"], "invalid boolean value \"maybe\" for -debug: parse error"),
        ] {
            assert_eq!(of(words), Err(expected.to_owned()));
        }
    }

    #[test]
    fn the_usage_has_all_options() {
        let usage = usage();
        assert!(OPTIONS.iter().all(|option| usage.contains(&format!("\n  -{}", option.name))), "{usage}");
    }
}
