//! A setting: a key of the configuration file outside `[[port]]`, and its **effect** when changed at run time.

use std::ffi::{OsStr, OsString};
use std::fmt;

use netvale_control::options::Shape;
use serde_json::Value;

use super::{Config, SETTINGS};

/// A setting.
pub struct Setting {
    /// Its table; empty for the keys before the first table.
    pub table: &'static str,
    /// Its key.
    pub name: &'static str,
    /// Type and range.
    pub shape: Shape,
    /// When a change takes effect in a running daemon.
    pub effect: Effect,
    pub(super) doc: &'static str,
    pub(super) flag: &'static str,
    pub(super) help: &'static str,
    pub(super) usual: fn() -> Value,
    pub(super) value: fn(&Config) -> Value,
    pub(super) put: fn(&mut Config, Value) -> bool,
    pub(super) take: fn(&mut Config, Shape, &[OsString]) -> bool,
    pub(super) copy: fn(&mut Config, &Config),
}

/// When a change takes effect in a running daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Immediately.
    Immediate,
    /// For ports attached later.
    NewPorts,
    /// Immediately, for folders in the sandbox's reach.
    WithinReach,
    /// Immediately, if the daemon may give its sockets to others.
    WithChown,
    /// Immediately, if the sockets are the daemon's own.
    OwnSockets,
    /// After a restart.
    Restart,
}

impl Setting {
    /// Finds a setting by table and name.
    #[must_use]
    pub fn find(table: &str, name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| (setting.table, setting.name) == (table, name))
    }

    /// Its name in messages: `switch.ageing_s`.
    #[must_use]
    pub fn path(&self) -> String {
        if self.table.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.table, self.name) }
    }

    /// Its meaning, in sentences.
    #[must_use]
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }

    /// Its default, in words.
    #[must_use]
    pub fn default(&self) -> String {
        let usual = (self.usual)();
        usual.as_str().map_or_else(|| usual.to_string(), str::to_owned)
    }

    /// The name of its flag without dashes, and the value's placeholder in the help. The placeholder is empty for
    /// [`Shape::Flag`], whose flag sets the opposite of the default.
    #[must_use]
    pub fn flag(&self) -> Option<(&'static str, &'static str)> {
        (!self.flag.is_empty()).then(|| self.flag.split_once(' ').unwrap_or((self.flag, "")))
    }

    /// The help text of its flag.
    #[must_use]
    pub fn help(&self) -> String {
        let mut text = self.help.trim().trim_end_matches('.').to_owned();
        if let Shape::Number(least, most) = self.shape {
            text = text.replace("{range}", &format!("{least} to {most}"));
        }
        match (self.usual)() {
            Value::Number(usual) => text + &format!(" [default: {usual}]"),
            _ => text,
        }
    }

    /// Its value in that configuration, in the file's form; null if the file would omit it.
    #[must_use]
    pub fn value(&self, config: &Config) -> Value {
        (self.value)(config)
    }

    /// Copies it from another configuration.
    pub fn copy(&self, to: &mut Config, from: &Config) {
        (self.copy)(to, from);
    }

    /// Sets it to a value.
    ///
    /// # Errors
    /// A message with the value found, the expected shape and the remedy.
    pub fn put(&self, config: &mut Config, value: Value) -> Result<(), String> {
        let found = value.to_string();
        let is_put = self.shape.admits(&value) && (self.put)(config, value);
        if is_put { Ok(()) } else { Err(self.misfit(self.name, &found)) }
    }

    /// Sets it to the words of its flag.
    ///
    /// # Errors
    /// As for a value, if the words do not have the setting's shape.
    pub fn take(&self, config: &mut Config, words: &[OsString]) -> Result<(), String> {
        let is_taken = match (self.shape, (self.usual)()) {
            (Shape::Flag, usual) => (self.put)(config, (usual != true).into()),
            (shape, _) => (self.take)(config, shape, words),
        };
        let name = || self.flag().map_or_else(|| self.path(), |(flag, _)| format!("--{flag}"));
        let found = || words.join(OsStr::new(" ")).display().to_string();
        if is_taken { Ok(()) } else { Err(self.misfit(&name(), &found())) }
    }

    fn misfit(&self, name: &str, found: &str) -> String {
        let found: String = found.chars().take(80).collect();
        format!("{name} is {found}, expected {}; correct it, or leave it out", self.shape)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}
