//! Old spellings: some keys used to have dashes. They are read as today's keys.

use netvale_control::options::AttachOption;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Error};

use super::{KEYS, error_at};

/// A key in its old spelling, for a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldSpelling {
    /// Line of the file, counted from 1.
    pub line: usize,
    /// The key as it is in the file.
    pub old: String,
    /// The key as it is spelled now.
    pub new: String,
}

/// Renames the keys of a file that have dashes.
///
/// # Errors
/// Fails if both spellings of a key are present.
pub fn renew(file: &mut DeTable<'_>, text: &str) -> Result<Vec<OldSpelling>, Error> {
    let mut found = Vec::new();
    renew_table(file, text, |key| KEYS.iter().any(|k| k.table.is_empty() && k.name == key), &mut found)?;
    for (name, value) in file.iter_mut() {
        let name = name.get_ref().as_ref();
        match value.get_mut() {
            DeValue::Table(table) => {
                renew_table(table, text, |key| KEYS.iter().any(|k| k.table == name && k.name == key), &mut found)?;
            }
            DeValue::Array(ports) if name == "port" => {
                for port in ports.iter_mut() {
                    if let DeValue::Table(port) = port.get_mut() {
                        renew_table(port, text, |key| AttachOption::find(key).is_some(), &mut found)?;
                    }
                }
            }
            _ => {}
        }
    }
    found.sort_by_key(|old| old.line);
    Ok(found)
}

fn renew_table(
    table: &mut DeTable<'_>,
    text: &str,
    known: impl Fn(&str) -> bool,
    found: &mut Vec<OldSpelling>,
) -> Result<(), Error> {
    let old_keys: Vec<_> = table.keys().filter(|key| key.get_ref().contains('-')).cloned().collect();
    for key in old_keys {
        let (old, new) = (key.get_ref().to_string(), key.get_ref().replace('-', "_"));
        if !known(&new) {
            continue;
        }
        let Some(value) = table.remove(&key) else { continue };
        let name = Spanned::new(key.span(), DeString::Owned(new.clone()));
        if table.contains_key(&name) {
            return Err(error_at(
                &value,
                format!("{old} is the old spelling of {new}; both are present: remove {old}"),
            ));
        }
        table.insert(name, value);
        let line = text.get(..key.span().start).map_or(0, |before| before.matches('\n').count()) + 1;
        found.push(OldSpelling { line, old, new });
    }
    Ok(())
}
