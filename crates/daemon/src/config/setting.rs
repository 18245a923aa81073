//! A setting is a key of the configuration file outside `[[port]]`. Its **effect** is when a change of the key takes
//! effect in a running daemon.

use std::ffi::{OsStr, OsString};
use std::fmt;

use netvale_control::options::OptionShape;
use serde_json::Value;

use super::{Config, SETTINGS};

/// A setting of the configuration file.
pub struct Setting {
    /// Table of the key; empty for a key before the first table header.
    pub table: &'static str,
    /// Key within the table.
    pub name: &'static str,
    /// Type and range of the value.
    pub shape: OptionShape,
    /// When a change takes effect in a running daemon.
    pub effect: Effect,
    pub(super) doc: &'static str,
    pub(super) flag: &'static str,
    pub(super) help: &'static str,
    pub(super) usual: fn() -> Value,
    pub(super) value: fn(&Config) -> Value,
    pub(super) put: fn(&mut Config, Value) -> bool,
    pub(super) take: fn(&mut Config, OptionShape, &[OsString]) -> bool,
    pub(super) copy: fn(&mut Config, &Config),
}

/// When a change takes effect in a running daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Immediately.
    Immediate,
    /// Immediately, but only for ports that are attached after the change.
    NewPorts,
    /// For folders that the sandboxed daemon can access, immediately; for other folders, after a restart.
    WithinReach,
    /// Immediately if the daemon has the right to change the owner of its sockets; otherwise after a restart.
    WithChown,
    /// Immediately if the sockets belong to the daemon's user; otherwise after a restart.
    OwnSockets,
    /// After a restart.
    Restart,
}

impl Setting {
    /// Returns the setting with this table and name; `None` if there is no such setting.
    #[must_use]
    pub fn find(table: &str, name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| (setting.table, setting.name) == (table, name))
    }

    /// Returns the setting's name in messages, e.g. `switch.ageing_s`.
    #[must_use]
    pub fn path(&self) -> String {
        if self.table.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.table, self.name) }
    }

    /// Returns the description, in sentences.
    #[must_use]
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }

    /// Returns the default, as text.
    #[must_use]
    pub fn default(&self) -> String {
        let usual = (self.usual)();
        usual.as_str().map_or_else(|| usual.to_string(), str::to_owned)
    }

    /// Returns the name of the flag without dashes, and the value's placeholder in the help; `None` if the setting has
    /// no flag. The placeholder is empty for [`OptionShape::Flag`], whose flag sets the opposite of the default.
    #[must_use]
    pub fn flag(&self) -> Option<(&'static str, &'static str)> {
        (!self.flag.is_empty()).then(|| self.flag.split_once(' ').unwrap_or((self.flag, "")))
    }

    /// Returns the help text of the flag.
    #[must_use]
    pub fn help(&self) -> String {
        let mut text = self.help.trim().trim_end_matches('.').to_owned();
        if let OptionShape::Number(least, most) = self.shape {
            text = text.replace("{range}", &format!("{least} to {most}"));
        }
        match (self.usual)() {
            Value::Number(usual) => text + &format!(" [default: {usual}]"),
            _ => text,
        }
    }

    /// Returns the setting's value in `config`, in the form of the file; null if the setting would be omitted from the
    /// file.
    #[must_use]
    pub fn value(&self, config: &Config) -> Value {
        (self.value)(config)
    }

    /// Copies the setting's value from configuration `from` to configuration `to`.
    pub fn copy(&self, to: &mut Config, from: &Config) {
        (self.copy)(to, from);
    }

    /// Sets the setting to a value.
    ///
    /// # Errors
    /// A message with the value found, the expected type and range, and the remedy.
    pub fn put(&self, config: &mut Config, value: Value) -> Result<(), String> {
        let found = value.to_string();
        let is_put = self.shape.admits(&value) && (self.put)(config, value);
        if is_put { Ok(()) } else { Err(self.misfit(self.name, &found)) }
    }

    /// Sets the setting to the arguments of the setting's flag.
    ///
    /// # Errors
    /// As for [`Setting::put`], if the arguments do not have the setting's shape.
    pub fn take(&self, config: &mut Config, words: &[OsString]) -> Result<(), String> {
        let is_taken = match (self.shape, (self.usual)()) {
            (OptionShape::Flag, usual) => (self.put)(config, (usual != true).into()),
            (shape, _) => (self.take)(config, shape, words),
        };
        let name = || self.flag().map_or_else(|| self.path(), |(flag, _)| format!("--{flag}"));
        let found = || words.join(OsStr::new(" ")).display().to_string();
        if is_taken { Ok(()) } else { Err(self.misfit(&name(), &found())) }
    }

    fn misfit(&self, name: &str, found: &str) -> String {
        let found: String = found.chars().take(80).collect();
        format!("{name} is {found}, expected {}; correct or omit this key", self.shape)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}
