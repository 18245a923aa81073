//! What the daemon's command line says. It goes before what the file says, at the start and when a file is applied
//! later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Config, ConfigError, File, SocketAccess};

/// Settings of the command line.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The folder that relative folders are meant in: a running daemon has none.
    pub here: PathBuf,
    /// `--run-dir`.
    pub run_dir: Option<PathBuf>,
    /// `--workers`.
    pub workers: Option<usize>,
    /// `--cpu`.
    pub cpus: Option<Vec<usize>>,
    /// `--spin-us`.
    pub spin_us: Option<u64>,
    /// `--poll-always`.
    pub poll_always: bool,
    /// `--rt-priority`.
    pub rt_priority: Option<u64>,
    /// `--user`.
    pub user: Option<String>,
    /// `--no-sandbox`.
    pub no_sandbox: bool,
    /// `--socket-owner`, `--socket-group` and `--socket-mode`.
    pub sockets: SocketAccess,
    /// `--latency-sampling`.
    pub latency_sampling: Option<u64>,
    /// `--allow-dir`.
    pub allow_dirs: Vec<PathBuf>,
    /// `--allow-nic`.
    pub allow_nics: Vec<String>,
    /// `--allow-tap`.
    pub allow_taps: Vec<String>,
    /// `--share-switch`.
    pub shared_switches: Vec<String>,
    /// Rules of filters, and what they are compiled: by the program that reads the file, which is not the daemon.
    pub programs: BTreeMap<String, String>,
}

impl Overrides {
    /// The configuration that a file means behind this command line.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if a value is out of range.
    pub fn over(&self, file: File) -> Result<Config, ConfigError> {
        let mut file = file;
        file.run_dir = self.run_dir.clone().or(file.run_dir);
        file.workers = self.workers.or(file.workers);
        file.cpus = self.cpus.clone().or(file.cpus);
        file.spin_us = self.spin_us.or(file.spin_us);
        file.poll_always |= self.poll_always;
        file.user = self.user.clone().or(file.user);
        file.rt_priority = self.rt_priority.or(file.rt_priority);
        file.latency_sampling = self.latency_sampling.or(file.latency_sampling);
        if self.no_sandbox {
            file.sandbox = Some(false);
        }
        let there = |dir: &PathBuf| self.here.join(dir);
        file.allow_dirs = merged(file.allow_dirs.iter().map(there), self.allow_dirs.iter().map(there));
        file.allow_nics = merged(file.allow_nics, self.allow_nics.iter().cloned());
        file.allow_taps = merged(file.allow_taps, self.allow_taps.iter().cloned());
        let switch = file.switch.get_or_insert_default();
        switch.shared = merged(std::mem::take(&mut switch.shared), self.shared_switches.iter().cloned());
        let mut config = file.into_config()?;
        let SocketAccess { owner, group, mode } = self.sockets.clone();
        let access = &mut config.sockets;
        access.owner = owner.or(access.owner.take());
        access.group = group.or(access.group.take());
        access.mode = mode.or(access.mode);
        config.options_mut().for_each(|options| options.compile_rules(|rule| self.programs.get(rule).cloned()));
        Ok(Config { overrides: self.clone(), ..config })
    }

    /// The same, of a file that is read again when the daemon is told to.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read, or a value is out of range.
    pub fn over_file(&self, path: &Path) -> Result<Config, ConfigError> {
        let config = self.over(File::read(path)?)?;
        Ok(Config { file: Some(self.here.join(path)), ..config })
    }
}

/// Both lists, each element once.
fn merged<T: PartialEq>(first: impl IntoIterator<Item = T>, then: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for one in first.into_iter().chain(then) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the command line goes before the file; what both name is there once; relative folders are those of
    /// the start.
    #[test]
    fn command_line_first() {
        let overrides = Overrides {
            here: "/start".into(),
            workers: Some(3),
            allow_dirs: vec!["b".into(), "/c".into()],
            sockets: SocketAccess { mode: Some(0o666), ..SocketAccess::default() },
            shared_switches: vec!["vale1".into()],
            ..Overrides::default()
        };
        let text = "workers = 2\nspin_us = 7\nallow_dirs = ['a', '/start/b']\n[sockets]\nmode = '0600'\ngroup = 'g'\n[switch]\nshared = ['vale0', 'vale1']";
        let c = overrides.over(File::parse(text).unwrap()).unwrap();
        assert_eq!((c.workers.len(), c.sockets.mode, c.sockets.group.as_deref()), (3, Some(0o666), Some("g")));
        assert_eq!(c.allow_dirs, ["/start/a", "/start/b", "/c"].map(PathBuf::from));
        assert_eq!(c.shared_switches, ["vale0", "vale1"]);
        let again = c.overrides.over(File::parse(text).unwrap()).unwrap();
        assert_eq!((again.allow_dirs, again.shared_switches), (c.allow_dirs, c.shared_switches));
    }
}
