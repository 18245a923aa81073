//! What the daemon's command line says. It goes before what the file says, at the start and when a file is applied
//! later.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use netvale_control::options::Written;
use netvale_control::types::Policies;

use super::field::unique;
use super::{Config, ConfigError, File, Setting};

/// Settings of the command line.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The folder that relative folders are meant in: a running daemon has none.
    pub here: PathBuf,
    /// The settings whose flags are there, each with the words behind its flag.
    pub words: Vec<(&'static Setting, Vec<OsString>)>,
    /// Rules of filters, and what they are compiled: by the program that reads the file, which is not the daemon.
    pub programs: BTreeMap<String, String>,
}

impl Overrides {
    /// The configuration that a file means behind this command line.
    ///
    /// # Errors
    /// [`ConfigError::Words`] if a flag does not take its words.
    pub fn over(&self, file: File) -> Result<Config, ConfigError> {
        let File(mut config) = file;
        for (setting, words) in &self.words {
            setting.take(&mut config, words).map_err(ConfigError::Words)?;
        }
        config.allow_dirs = unique(config.allow_dirs.iter().map(|dir| self.here.join(dir)));
        let mut config = File(config).into_config();
        for rule in config.policies_mut().flat_map(Policies::sources_mut) {
            let compiled = self.programs.get(rule.text()).and_then(|text| Written::read(text));
            compiled.into_iter().for_each(|compiled| *rule = compiled);
        }
        Ok(Config { overrides: self.clone(), ..config })
    }

    /// The same, of a file that is read again when the daemon is told to.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read or is malformed, or a flag does not take its words.
    pub fn over_file(&self, path: &Path) -> Result<Config, ConfigError> {
        let config = self.over(File::read(path)?)?;
        Ok(Config { file: Some(self.here.join(path)), ..config })
    }
}

#[cfg(test)]
mod tests {
    use super::super::SocketMode;
    use super::*;

    /// Objective: the command line goes before the file; what both name is there once; relative folders are those of
    /// the start.
    #[test]
    fn command_line_first() {
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
        let c = overrides.over(File::parse(text).unwrap()).unwrap();
        assert_eq!((c.workers, c.sockets.mode, c.sockets.group.as_deref()), (3, Some(SocketMode(0o666)), Some("g")));
        assert_eq!(c.allow_dirs, ["/start/a", "/start/b", "/c"].map(PathBuf::from));
        assert_eq!(c.switch.shared, ["vale0", "vale1"]);
        let again = c.overrides.over(File::parse(text).unwrap()).unwrap();
        assert_eq!((again.allow_dirs, again.switch.shared), (c.allow_dirs, c.switch.shared));
    }
}
