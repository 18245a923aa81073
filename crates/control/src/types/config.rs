//! Parameters and results of `config.apply` and `config.export`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Parameters of `config.apply`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyParams {
    /// The text of a configuration file.
    pub text: String,
    /// Whether to only list the changes.
    #[serde(default)]
    pub dry_run: bool,
    /// Whether to also remove ports that were attached by command.
    #[serde(default)]
    pub prune: bool,
    /// Compiled forms of the filter rules in the file, keyed by the rules' texts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
    /// The file's name, for messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// The result of applying a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyResult {
    /// Whether the changes were only listed.
    pub dry_run: bool,
    /// The changes: first settings, then removed ports, then changed and new ports.
    pub changes: Vec<ConfigChange>,
    /// Number of the file's ports that need no change.
    pub unchanged: u32,
}

/// A change to a setting or a port, made or only listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigChange {
    /// The kind of change.
    pub action: ConfigAction,
    /// Full name of the port, or the setting as `TABLE.KEY`.
    pub name: String,
    /// The previous value; `None` if there was no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The new value; `None` if there is no new value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why the change takes effect only later or in part, e.g. only for new ports; `None` if it takes full effect
    /// immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A kind of change to a setting or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigAction {
    /// The setting has the new value.
    Set,
    /// The setting changes only at the daemon's next start.
    Restart,
    /// The port is new.
    Attach,
    /// The port is removed.
    Detach,
    /// The port is detached, and attached again with other options.
    Reattach,
    /// An option of the port changes while frames pass.
    Adjust,
}

/// The answer to `config.export`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportReply {
    /// Settings and ports as an object that follows the schema of the configuration file.
    pub config: Value,
    /// Text of a configuration file with these settings and ports, with comments.
    pub text: String,
    /// Parts of the state that the file omits, one sentence for each part.
    pub left_out: Vec<String>,
}

impl ConfigAction {
    /// Returns the character that marks a change of this kind in a list.
    #[must_use]
    pub fn sign(self) -> char {
        match self {
            ConfigAction::Set | ConfigAction::Adjust => '~',
            ConfigAction::Restart => '!',
            ConfigAction::Attach => '+',
            ConfigAction::Detach => '-',
            ConfigAction::Reattach => '*',
        }
    }

    fn remark(self) -> Option<&'static str> {
        match self {
            ConfigAction::Restart => Some("takes effect after a restart"),
            ConfigAction::Reattach => Some("attached again"),
            ConfigAction::Adjust => Some("in place"),
            ConfigAction::Set | ConfigAction::Attach | ConfigAction::Detach => None,
        }
    }
}

/// Writes one line: `~ vale0:nv0: mtu 1500 → mtu 9000 (in place)`.
impl fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.sign(), self.name)?;
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => write!(f, ": {from} → {to}")?,
            (Some(only), None) | (None, Some(only)) => write!(f, ": {only}")?,
            (None, None) => {}
        }
        let remarks: Vec<&str> = self.action.remark().into_iter().chain(self.note.as_deref()).collect();
        if remarks.is_empty() { Ok(()) } else { write!(f, " ({})", remarks.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a change is one line with its sign, both values, and its note.
    #[test]
    fn a_change_is_one_line_with_its_sign() {
        let change = |action, from: &str, to: &str, note: Option<&str>| {
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            ConfigChange { action, name: "x".into(), from: text(from), to: text(to), note: note.map(str::to_owned) }
                .to_string()
        };
        assert_eq!(change(ConfigAction::Set, "1", "2", None), "~ x: 1 → 2");
        assert_eq!(
            change(ConfigAction::Restart, "1", "2", Some("why")),
            "! x: 1 → 2 (takes effect after a restart; why)"
        );
        assert_eq!(change(ConfigAction::Attach, "", "tap:x", None), "+ x: tap:x");
        assert_eq!(change(ConfigAction::Detach, "tap:x", "", None), "- x: tap:x");
        assert_eq!(change(ConfigAction::Reattach, "a", "b", None), "* x: a → b (attached again)");
    }
}
