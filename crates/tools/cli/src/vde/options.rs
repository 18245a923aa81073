//! The command line of `vde_switch`, parsed as getopt_long_only(3) does: a long name, or an unambiguous prefix of one,
//! with one dash or two; single letters with one dash, which may be combined; a value after `=` or as the next word.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use netvale_control::types::Mac;

use super::VdeFailure;

/// Default of `--numports`. As in VDE, the number includes the unused port number 0.
pub const USUAL_PORTS: u32 = 32;
/// Maximum of `--numports`, including the unused number 0.
pub const MOST_PORTS: u32 = 251;
/// Default permission bits of the control socket and of the management socket.
pub const USUAL_MODE: u32 = 0o600;

/// What the command line requests.
#[derive(Debug)]
pub enum AskedOf {
    /// The list of options.
    Help,
    /// The version.
    Version,
    /// A switch.
    Switch(Box<VdeOptions>),
}

/// The options of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdeOptions {
    /// The folder of the switch's sockets; `None` for one of the default folders.
    pub sock: Option<PathBuf>,
    /// Permission bits of the control socket.
    pub mode: u32,
    /// Permission bits of the folder; `None` to derive them from `mode`.
    pub dirmode: Option<u32>,
    /// Group of the folder and of the control socket.
    pub group: Option<String>,
    /// Whether the switch is a hub, which passes every frame to all ports.
    pub hub: bool,
    /// Whether the switch detects loops. In VDE, the option enables its spanning tree.
    pub fstp: bool,
    /// Maximum number of ports, including the unused number 0.
    pub ports: u32,
    /// The switch's own Ethernet address, which commands print, but which has no other effect.
    pub mac: Option<Mac>,
    /// The switch's spanning-tree priority, which is only printed.
    pub priority: u32,
    /// The size of VDE's hash table of addresses, which is only printed.
    pub hashsize: u32,
    /// Names of TAPs to attach.
    pub taps: Vec<String>,
    /// The path of the management socket; `None` for no management socket.
    pub mgmt: Option<PathBuf>,
    /// Permission bits of the management socket.
    pub mgmtmode: u32,
    /// Group of the management socket.
    pub mgmtgroup: Option<String>,
    /// Whether the switch runs in the background.
    pub daemon: bool,
    /// Whether commands are not read from standard input.
    pub nostdin: bool,
    /// The file to which the process ID is written.
    pub pidfile: Option<PathBuf>,
    /// A file with commands that are run at the start; `None` for the default files.
    pub rcfile: Option<PathBuf>,
}

impl Default for VdeOptions {
    fn default() -> VdeOptions {
        VdeOptions {
            sock: None,
            mode: USUAL_MODE,
            dirmode: None,
            group: None,
            hub: false,
            fstp: false,
            ports: USUAL_PORTS,
            mac: None,
            priority: 0x8000,
            hashsize: 128,
            taps: Vec::new(),
            mgmt: None,
            mgmtmode: USUAL_MODE,
            mgmtgroup: None,
            daemon: false,
            nostdin: false,
            pidfile: None,
            rcfile: None,
        }
    }
}

/// Stores an option's value. Returns `false` if the value is invalid.
type PutValue = fn(&mut VdeOptions, OsString) -> bool;

/// The effect of an option, and whether it takes a value.
enum OptionRole {
    Help,
    Version,
    /// An option without a value.
    Flag(fn(&mut VdeOptions)),
    /// An option with a value: the expected value, for error messages, and the function that stores it.
    Value(&'static str, PutValue),
}

/// An option: its long names, its letter, and its effect.
struct VdeOption {
    names: &'static [&'static str],
    letter: Option<u8>,
    role: OptionRole,
}

const fn flag(names: &'static [&'static str], letter: Option<u8>, set: fn(&mut VdeOptions)) -> VdeOption {
    VdeOption { names, letter, role: OptionRole::Flag(set) }
}

const fn value(names: &'static [&'static str], letter: Option<u8>, what: &'static str, put: PutValue) -> VdeOption {
    VdeOption { names, letter, role: OptionRole::Value(what, put) }
}

const OPTIONS: &[VdeOption] = &[
    VdeOption { names: &["help"], letter: Some(b'h'), role: OptionRole::Help },
    VdeOption { names: &["version"], letter: Some(b'v'), role: OptionRole::Version },
    value(&["numports"], Some(b'n'), "a number above 1", |o, v| put(&mut o.ports, decimal(&v).filter(|n| *n >= 2))),
    flag(&["hub"], Some(b'x'), |o| o.hub = true),
    flag(&["fstp"], Some(b'F'), |o| o.fstp = true),
    value(&["macaddr"], None, "an Ethernet address", |o, v| put_some(&mut o.mac, text(v).and_then(|v| v.parse().ok()))),
    value(&["priority"], None, "a number", |o, v| put(&mut o.priority, decimal(&v))),
    value(&["hashsize"], None, "a number", |o, v| put(&mut o.hashsize, decimal(&v))),
    value(&["sock", "vdesock", "unix"], Some(b's'), "a folder's path", |o, v| put_some(&mut o.sock, path(v))),
    value(&["mode"], Some(b'm'), OCTAL, |o, v| put(&mut o.mode, octal(&v))),
    value(&["dirmode"], None, OCTAL, |o, v| put_some(&mut o.dirmode, octal(&v))),
    value(&["group"], Some(b'g'), "a group", |o, v| put_some(&mut o.group, text(v))),
    value(&["tap"], Some(b't'), "a TAP's name, or several, separated by commas", put_taps),
    value(&["mgmt"], Some(b'M'), "a path", |o, v| put_some(&mut o.mgmt, path(v))),
    value(&["mgmtmode"], None, OCTAL, |o, v| put(&mut o.mgmtmode, octal(&v))),
    value(&["mgmtgroup"], None, "a group", |o, v| put_some(&mut o.mgmtgroup, text(v))),
    flag(&["daemon"], Some(b'd'), |o| o.daemon = true),
    flag(&["nostdin"], None, |o| o.nostdin = true),
    value(&["pidfile"], Some(b'p'), "a path", |o, v| put_some(&mut o.pidfile, path(v))),
    value(&["rcfile"], Some(b'f'), "a path", |o, v| put_some(&mut o.rcfile, path(v))),
    // In VDE, this is the maximum number of clients that receive debug events. This switch has no debug events, so the
    // value has no effect.
    value(&["debugclients"], Some(b'D'), "a number", |_, v| decimal(&v).is_some()),
];

const OCTAL: &str = "permission bits in octal, e.g. 0660";

fn put<T>(place: &mut T, value: Option<T>) -> bool {
    let is_some = value.is_some();
    value.into_iter().for_each(|value| *place = value);
    is_some
}

fn put_some<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    *place = value;
    place.is_some()
}

fn put_taps(options: &mut VdeOptions, value: OsString) -> bool {
    let names = text(value).unwrap_or_default();
    let before = options.taps.len();
    options.taps.extend(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
    options.taps.len() > before
}

fn text(value: OsString) -> Option<String> {
    value.into_string().ok().filter(|text| !text.is_empty())
}

fn path(value: OsString) -> Option<PathBuf> {
    Some(value).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn decimal(value: &OsStr) -> Option<u32> {
    value.to_str()?.parse().ok()
}

fn octal(value: &OsStr) -> Option<u32> {
    u32::from_str_radix(value.to_str()?, 8).ok().filter(|mode| *mode <= 0o7777)
}

/// Parses the command line `words`, without the program's name.
///
/// # Errors
/// A word is not an option, or the value of an option is missing or invalid. The error names the word or the option.
pub fn read(words: &[OsString]) -> Result<AskedOf, VdeFailure> {
    let mut reader = OptionReader { words: words.iter(), options: VdeOptions::default(), other: None };
    while let Some(word) = reader.words.next() {
        if let Some(other) = reader.word(word.as_bytes())? {
            return Ok(other);
        }
    }
    let OptionReader { options, other, .. } = reader;
    match other {
        Some(word) => Err(VdeFailure(format!("{word}: expected an option"))),
        None => Ok(AskedOf::Switch(Box::new(options))),
    }
}

struct OptionReader<'a> {
    words: std::slice::Iter<'a, OsString>,
    options: VdeOptions,
    /// A word that is neither an option nor a value.
    other: Option<String>,
}

impl OptionReader<'_> {
    /// Parses one word. Returns `Some` if the word is `--help` or `--version`, which end the parsing.
    fn word(&mut self, word: &[u8]) -> Result<Option<AskedOf>, VdeFailure> {
        match word {
            b"--" => {
                self.other = self.words.next().map(|word| word.display().to_string()).or(self.other.take());
                self.words = [].iter();
                Ok(None)
            }
            [b'-', b'-', name @ ..] => self.named(name, word),
            [b'-', letters @ ..] if !letters.is_empty() => self.with_one_dash(letters, word),
            _ => {
                self.other.get_or_insert_with(|| shown(word));
                Ok(None)
            }
        }
    }

    /// Parses a word with one dash. A single letter selects the option with that letter. A longer word is parsed as a
    /// long name if possible, otherwise as combined letters.
    fn with_one_dash(&mut self, letters: &[u8], word: &[u8]) -> Result<Option<AskedOf>, VdeFailure> {
        let is_letter = letters.first().is_some_and(|&letter| by_letter(letter).is_some());
        if letters.len() == 1 && is_letter {
            return self.letters(letters, word);
        }
        match self.named(letters, word) {
            Err(_) if is_letter && find(split(letters).0).is_err() => self.letters(letters, word),
            done => done,
        }
    }

    fn named(&mut self, name: &[u8], word: &[u8]) -> Result<Option<AskedOf>, VdeFailure> {
        let (name, value) = split(name);
        let option = find(name).map_err(|why| VdeFailure(format!("{}: {why}", shown(word))))?;
        self.take(option, value, word)
    }

    fn letters(&mut self, letters: &[u8], word: &[u8]) -> Result<Option<AskedOf>, VdeFailure> {
        for (at, &letter) in letters.iter().enumerate() {
            let none = || VdeFailure(format!("{}: unknown option -{}", shown(word), char::from(letter)));
            let option = by_letter(letter).ok_or_else(none)?;
            let rest = letters.get(at + 1..).unwrap_or_default();
            if matches!(option.role, OptionRole::Value(..)) {
                return self.take(option, (!rest.is_empty()).then_some(rest), word);
            }
            if let Some(asked) = self.take(option, None, word)? {
                return Ok(Some(asked));
            }
        }
        Ok(None)
    }

    fn take(&mut self, option: &VdeOption, value: Option<&[u8]>, word: &[u8]) -> Result<Option<AskedOf>, VdeFailure> {
        let wrong = |why: String| Err(VdeFailure(format!("{}: {why}", shown(word))));
        match (&option.role, value) {
            (OptionRole::Value(what, put), value) => {
                let value =
                    value.map(|value| OsString::from_vec(value.to_vec())).or_else(|| self.words.next().cloned());
                let Some(value) = value else { return wrong(format!("missing value: expected {what}")) };
                let found = value.display().to_string();
                if put(&mut self.options, value) {
                    Ok(None)
                } else {
                    wrong(format!("expected {what}, found {found:?}"))
                }
            }
            (_, Some(_)) => wrong("expected no value".to_owned()),
            (OptionRole::Help, None) => Ok(Some(AskedOf::Help)),
            (OptionRole::Version, None) => Ok(Some(AskedOf::Version)),
            (OptionRole::Flag(set), None) => {
                set(&mut self.options);
                Ok(None)
            }
        }
    }
}

fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// Splits `name=value`; without `=`, the value is `None`.
fn split(name: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut parts = name.splitn(2, |&byte| byte == b'=');
    (parts.next().unwrap_or_default(), parts.next())
}

fn by_letter(letter: u8) -> Option<&'static VdeOption> {
    OPTIONS.iter().find(|option| option.letter == Some(letter))
}

/// Finds an option by its full name, or by a prefix that matches only one option.
fn find(name: &[u8]) -> Result<&'static VdeOption, &'static str> {
    let named = |fits: &dyn Fn(&&str) -> bool| {
        OPTIONS.iter().filter(move |option| option.names.iter().any(fits)).collect::<Vec<_>>()
    };
    let exact = named(&|known| known.as_bytes() == name);
    let beginning = named(&|known| !name.is_empty() && known.as_bytes().starts_with(name));
    match (exact.as_slice(), beginning.as_slice()) {
        ([option], _) | ([], [option]) => Ok(option),
        (_, []) => Err("unknown option"),
        _ => Err("several options begin with this name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Result<VdeOptions, String> {
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        match read(&words).map_err(|why| why.to_string())? {
            AskedOf::Switch(options) => Ok(*options),
            other => Err(format!("{other:?}")),
        }
    }

    /// Objective: the command lines of NixOS's test driver, systemd units and old scripts are parsed: one dash or two,
    /// prefixes of names, combined letters, values in every form.
    #[test]
    fn command_lines_of_users_are_read() {
        let usual = VdeOptions::default;
        let nixos = VdeOptions { sock: Some("/b/vde1.ctl".into()), dirmode: Some(0o700), hub: true, ..usual() };
        assert_eq!(of("--sock /b/vde1.ctl --dirmode 0700 --hub"), Ok(nixos));
        let unit =
            VdeOptions { taps: vec!["t0".into()], daemon: true, mode: 0o660, group: Some("users".into()), ..usual() };
        assert_eq!(of("-tap t0 -daemon -mod 660 -group users"), Ok(unit));
        let old = VdeOptions {
            sock: Some("/tmp/pic0.ctl".into()),
            mode: 0o777,
            mgmt: Some("/tmp/pico.mgmt".into()),
            daemon: true,
            hub: true,
            taps: vec!["vde0".into(), "vde1".into()],
            ..usual()
        };
        assert_eq!(of("-s /tmp/pic0.ctl -m 777 -M /tmp/pico.mgmt -d -hub -t vde0,vde1"), Ok(old));
        let short = VdeOptions { sock: Some("a".into()), ports: 64, hub: true, fstp: true, nostdin: true, ..usual() };
        for words in ["-xF -sa -n64 -nostdin", "-Fx --unix=a --numports=64 --nostdin", "-sock=a -n 64 -hu -x -F -nost"]
        {
            assert_eq!(of(words), Ok(short.clone()), "{words}");
        }
        assert_eq!(of("-hub").map(|o| o.hub), Ok(true));
        assert_eq!(of("--macaddr 00:ff:01:02:03:04").map(|o| o.mac.is_some()), Ok(true));
    }

    /// Objective: each spelling of the options for help and version is recognized, even after other options.
    #[test]
    fn help_and_version_are_answered() {
        let asked = |words: &str| of(words).unwrap_err();
        for words in ["-h", "--help", "-help", "-x -h", "-xh"] {
            assert_eq!(asked(words), "Help", "{words}");
        }
        for words in ["-v", "--version", "-vers"] {
            assert_eq!(asked(words), "Version", "{words}");
        }
    }

    /// Objective: an unknown option, an ambiguous prefix, and a missing or invalid value are refused. The message
    /// contains the word, and says what is expected.
    #[test]
    fn bad_command_lines_are_refused_by_word() {
        for (words, expected) in [
            ("--nosuch", "--nosuch: unknown option"),
            ("-q", "-q: unknown option"),
            ("--m 7", "--m: several options begin with this name"),
            ("extra", "extra: expected an option"),
            ("-x -- -h", "-h: expected an option"),
            ("-s", "-s: missing value: expected a folder's path"),
            ("--sock=", "expected a folder's path"),
            ("-n 1", "expected a number above 1"),
            ("-n x", "expected a number above 1"),
            ("-m 9", "in octal"),
            ("-m 17777", "in octal"),
            ("--hub=1", "expected no value"),
            ("-xq", "unknown option -q"),
            ("--macaddr 1", "an Ethernet address"),
            ("-t ,", "a TAP's name"),
        ] {
            let found = of(words).unwrap_err();
            assert!(found.contains(expected), "{words}: {found}");
        }
    }
}
