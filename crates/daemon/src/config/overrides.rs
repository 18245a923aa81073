//! The daemon's command line. It overrides the file, both at start and whenever the daemon applies a file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use netvale_control::options::WrittenValue;
use netvale_control::types::Policies;

use super::field::unique;
use super::{Config, ConfigError, ConfigFile, Setting};

/// Settings on the command line.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Folder to which relative paths refer: the working directory in which the command was started.
    pub here: PathBuf,
    /// The settings that are set by flags, each with the arguments of its flag.
    pub words: Vec<(&'static Setting, Vec<OsString>)>,
    /// Compiled filter programs, by the text of the rule. The `netvale` command compiles them; the daemon does not.
    pub programs: BTreeMap<String, String>,
}

impl Overrides {
    /// Applies this command line to the configuration of a file; flags override the settings in the file.
    ///
    /// # Errors
    /// [`ConfigError::Words`] if a flag's arguments are invalid.
    pub fn over(&self, file: ConfigFile) -> Result<Config, ConfigError> {
        let ConfigFile(mut config) = file;
        for (setting, words) in &self.words {
            setting.take(&mut config, words).map_err(ConfigError::Words)?;
        }
        config.allow_dirs = unique(config.allow_dirs.iter().map(|dir| self.here.join(dir)));
        let mut config = ConfigFile(config).into_config();
        for rule in config.policies_mut().flat_map(Policies::sources_mut) {
            let compiled = self.programs.get(rule.text()).and_then(|text| WrittenValue::read(text));
            compiled.into_iter().for_each(|compiled| *rule = compiled);
        }
        Ok(Config { overrides: self.clone(), ..config })
    }

    /// Like [`Overrides::over`], for a file that is read from `path`.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read or is malformed, or if a flag's arguments are invalid.
    pub fn over_file(&self, path: &Path) -> Result<Config, ConfigError> {
        let config = self.over(ConfigFile::read(path)?)?;
        Ok(Config { file: Some(self.here.join(path)), ..config })
    }
}

#[cfg(test)]
mod tests {
    use super::super::SocketMode;
    use super::*;

    /// Objective: the command line takes precedence over the file; duplicates are merged; relative folders refer to the
    /// directory in which the command was started.
    #[test]
    fn the_command_line_precedes_the_file() {
        let words = |table: &str, name: &str, words: &[&str]| {
            (Setting::find(table, name).unwrap(), words.iter().map(OsString::from).collect())
        };
        let overrides = Overrides {
            here: "/start".into(),
            words: vec![
                words("", "workers", &["3"]),
                words("", "allow_dirs", &["b", "/c"]),
                words("sockets", "mode", &["0666"]),
                words("switch", "shared", &["vale1"]),
            ],
            ..Overrides::default()
        };
        let text = "workers = 2\nspin_us = 7\nallow_dirs = ['a', '/start/b']\n[sockets]\nmode = '0600'\ngroup = 'g'\n\
            [switch]\nshared = ['vale0', 'vale1']";
        let c = overrides.over(ConfigFile::parse(text).unwrap()).unwrap();
        assert_eq!((c.workers, c.sockets.mode, c.sockets.group.as_deref()), (3, Some(SocketMode(0o666)), Some("g")));
        assert_eq!(c.allow_dirs, ["/start/a", "/start/b", "/c"].map(PathBuf::from));
        assert_eq!(c.switch.shared, ["vale0", "vale1"]);
        let again = c.overrides.over(ConfigFile::parse(text).unwrap()).unwrap();
        assert_eq!((again.allow_dirs, again.switch.shared), (c.allow_dirs, c.switch.shared));
    }
}
